//! Why a call was not carried out: a negative code, and a text that the thread can read. Counts such calls.
//!
//! Knows nothing of the calls. What stays true: a fault never means that the service should refuse.

use std::cell::RefCell;

use tollgate_agent::{BuildError, HoldFault, Misuse, SettleError};

use crate::settings::SettingsFault;
use crate::{counters, forks};

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFault {
    /// A required pointer is null, or not aligned.
    #[error("{what}: is null or not aligned")]
    Pointer { what: &'static str },
    /// A length that is too great for a text.
    #[error("{what}: {len} bytes, expected at most {max}")]
    TooLong {
        what: &'static str,
        len: usize,
        max: usize,
    },
    #[error("{what}: not UTF-8 after {valid} bytes")]
    NotUtf8 { what: &'static str, valid: usize },
    /// The handle was freed, never existed, or is of another kind.
    #[error("handle {handle:#x}: expected {expected} that is open")]
    Handle { handle: u64, expected: &'static str },
    #[error("{name:?}: no counter of this name, expected one of {}", counters::NAMES.join(", "))]
    Counter { name: String },
    #[error(transparent)]
    Settings(#[from] SettingsFault),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error("no thread to open the agent on: {0}")]
    NoThread(std::io::Error),
    #[error("no room for another handle")]
    NoRoom,
    #[error("the resource is limited by copies, not by rate: expected tg_reserve")]
    NotRate,
    #[error(
        "the resource is strict: only `reserve_confirmed` of the agent for Rust takes its copies"
    )]
    Strict,
    #[error(transparent)]
    Misuse(Misuse),
    #[error(transparent)]
    Release(HoldFault),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error("opened by the parent of this process, before a fork")]
    Forked,
    #[error("a fault of the library: it panicked, see standard error")]
    Panicked,
}

impl From<Misuse> for CallFault {
    fn from(misuse: Misuse) -> Self {
        match misuse {
            Misuse::Strict => Self::Strict,
            misuse => Self::Misuse(misuse),
        }
    }
}

impl CallFault {
    /// The code of `tollgate.h`.
    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::Pointer { .. } | Self::TooLong { .. } | Self::Counter { .. } => -1,
            Self::NotRate | Self::Strict | Self::Misuse(_) | Self::Release(_) => -1,
            Self::NotUtf8 { .. } => -2,
            Self::Handle { .. } => -3,
            Self::Settings(_) | Self::Build(_) | Self::NoThread(_) => -4,
            Self::NoRoom => -5,
            Self::Settle(_) => -6,
            Self::Forked => -7,
            Self::Panicked => -8,
        }
    }

    /// Counts the call, and keeps the text for the thread. Returns the code.
    #[cold]
    pub(crate) fn remember(&self) -> i32 {
        forks::note_failed();
        // A thread that is ending has no text any more, and reads none.
        let _ = LAST.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                *last = self.to_string();
            }
        });
        self.code()
    }
}

std::thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls `look` with the text of the thread's last fault, which is empty if there was none.
pub(crate) fn last<R>(look: impl FnOnce(&str) -> R) -> Option<R> {
    let looked = LAST.try_with(|last| last.try_borrow().ok().map(|last| look(&last)));
    looked.ok().flatten()
}
