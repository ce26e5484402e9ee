//! The run as a readable log of events, and a hash of all of it.
//!
//! Two runs of one seed give the same text byte for byte, on any build. The text is written only if it is wanted;
//! the hash is always computed.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

/// The law of a panic: the design has no number for it.
pub const NO_LAW: u8 = 0;

/// The check of a panic.
pub const PANICKED: &str = "the program panicked";

/// The trace of one run.
#[derive(Debug)]
pub struct Trace {
    text: Option<String>,
    hash: u64,
}

impl Trace {
    /// A trace that is kept as text, or only hashed.
    pub fn new(kept: bool) -> Self {
        Self {
            text: kept.then(String::new),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Notes an event: numbers for the hash, and a text for people.
    pub fn event(&mut self, now_us: u64, numbers: &[u64], text: impl FnOnce() -> String) {
        for number in [now_us].iter().chain(numbers) {
            self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
        if let Some(kept) = &mut self.text {
            let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
            // Writing to a String does not fail.
            let _ = writeln!(kept, "{seconds:>4}.{micros:06}  {}", text());
        }
    }

    /// The hash of all events.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The text, if it was kept.
    pub fn into_text(self) -> Option<String> {
        self.text
    }
}

/// A hash of some bytes, to tell messages apart in the trace.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash
}

/// A violation of a law.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The law's number in the design; [`NO_LAW`] if the program panicked.
    pub law: u8,
    /// The instant, in microseconds of true time.
    pub at_us: u64,
    /// The check: the same for all violations of one kind.
    pub check: Cow<'static, str>,
    /// The place, and what was expected and found.
    pub what: String,
}

impl Violation {
    /// A violation at an instant that the world fills in.
    pub fn new(law: u8, check: &'static str, what: String) -> Self {
        Self {
            law,
            at_us: 0,
            check: check.into(),
            what,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (check, what) = (&self.check, &self.what);
        let (seconds, micros) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        match self.law {
            NO_LAW => write!(f, "{check}: {what} (at {seconds}.{micros:06} s)"),
            law => write!(f, "law {law}, {check} at {seconds}.{micros:06} s: {what}"),
        }
    }
}
