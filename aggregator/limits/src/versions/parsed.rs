//! Documents that were parsed beside the ruling, before the record that completes them is met.
//!
//! ```text
//! other thread   digest of a text ──> its limits, or its faults
//! book           a document is whole, its digest fits ──> takes them, or parses by itself
//! ```
//!
//! To parse a million overrides takes seconds, in which nothing would be ruled. Knows nothing of versions.
//! What stays true: what is taken for a text is what parsing that text gives, so that it makes no
//! difference but in time whether anything was prepared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Faults, Limits};

use super::digest;

/// How many wait to be taken: one that is in the log, and a file that is going to be.
const KEPT: usize = 2;

/// What parsing a text gave.
pub type ParseOutcome = Result<Arc<Limits>, Faults>;

/// Outcomes by the digests of their texts, oldest first.
type KeptOutcomes = VecDeque<([u8; 32], ParseOutcome)>;

/// What was prepared, shared by who prepares and who takes.
#[derive(Clone, Debug, Default)]
pub struct Parsed(Arc<Mutex<KeptOutcomes>>);

impl Parsed {
    /// Parses a text, and keeps that until it is taken or two newer ones have come.
    pub fn prepare(&self, text: &str) {
        let outcome = Limits::parse_logged(text).map(Arc::new);
        let digest = digest(text.as_bytes());
        let mut kept = self.lock();
        kept.retain(|(of, _)| *of != digest);
        kept.push_back((digest, outcome));
        let overdue = match KEPT < kept.len() {
            true => kept.pop_front(),
            false => None,
        };
        drop(kept);
        // To let go of a million overrides takes time too.
        drop(overdue);
    }

    /// What parsing the text of this digest gives, if it was prepared.
    pub(super) fn take(&self, digest: &[u8; 32]) -> Option<ParseOutcome> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(of, _)| of == digest)?;
        kept.remove(at).map(|(_, outcome)| outcome)
    }

    fn lock(&self) -> MutexGuard<'_, KeptOutcomes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_prepared_is_taken_once_and_two_wait_at_most() {
        let text = |n: u32| format!("version = 1\nrules = 2\n[rate.\"a\"]\nrate = \"{n}/s\"\n");
        let parsed = Parsed::default();
        for n in [1, 2, 2, 3] {
            parsed.prepare(&text(n));
        }
        parsed.prepare(&text(3));
        let take = |n| parsed.take(&digest(text(n).as_bytes()));
        assert!(take(1).is_none(), "two newer ones have come");
        let whole = Limits::parse(&text(2)).unwrap();
        assert_eq!(
            format!("{:?}", take(2).unwrap().unwrap()),
            format!("{whole:?}")
        );
        assert!(take(2).is_none(), "it was taken");
        assert!(take(3).is_some());
        parsed.prepare("rate = often");
        let bad = parsed.take(&digest(b"rate = often"));
        assert!(bad.is_some_and(|outcome| outcome.is_err()));
    }
}
