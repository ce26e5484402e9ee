//! Holds that were struck off: they count no more, though their holders have not given them back.
//!
//! ```text
//! verdict ──> keeper ── put ──> struck off <── has it been? ── release, transfer
//!                └─ its holder's last word about it: forgotten
//! ```
//!
//! A holder has no other way to know: what it says of such a hold leads to nothing in the log. Whoever
//! gives copies back in parts, or passes them on, looks here first, which costs one atomic while nothing
//! is struck off. Dropping a hold never comes here.
//!
//! What stays true: one is here at most for each hold that was on record and was not dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::notice::{Seldom, What, Word};

/// Those of one agent, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    /// How many there are.
    count: AtomicUsize,
    holds: Mutex<HashMap<u64, One>>,
}

/// One of them.
#[derive(Debug)]
struct One {
    /// What its holder has of it still.
    copies: u32,
    /// Why it counts no more.
    word: Word,
}

impl Struck {
    /// A hold in use counts no more.
    pub(crate) fn put(&self, number: u64, copies: u32, word: Word) {
        let mut holds = self.lock();
        holds.insert(number, One { copies, word });
        self.count.store(holds.len(), Ordering::Release);
    }

    /// Why a hold counts no more; none: nobody has said that.
    pub(crate) fn why(&self, number: u64) -> Option<Word> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&number).map(|one| one.word.clone())
    }

    /// Takes what a holder says of a hold that is struck off. Given back: it is of another one.
    pub(crate) fn take(&self, number: u64, what: What) -> Option<What> {
        if self.is_empty() {
            return Some(what);
        }
        let mut holds = self.lock();
        let Some(one) = holds.get_mut(&number) else {
            return Some(what);
        };
        let less = match what {
            What::Release { copies } => copies,
            What::Cancel => one.copies,
            What::Hold { .. } => 0,
            What::Seldom(seldom) => match *seldom {
                Seldom::Transfer { copies, .. } => copies,
                Seldom::Confirm { answer } | Seldom::Watch { answer } => {
                    // Nobody may be listening any more.
                    let _ = answer.send(one.word.clone());
                    0
                }
                Seldom::Reserve { .. } | Seldom::Seize { .. } => 0,
            },
        };
        one.copies = one.copies.saturating_sub(less);
        if one.copies == 0 {
            holds.remove(&number);
            self.count.store(holds.len(), Ordering::Release);
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, One>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
