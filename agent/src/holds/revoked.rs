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

use super::notice::{HoldStanding, NoticeKind, RareNotice};

/// Those of one agent, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct RevokedHolds {
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
    word: HoldStanding,
}

impl RevokedHolds {
    /// A hold in use counts no more.
    pub(crate) fn put(&self, number: u64, copies: u32, word: HoldStanding) {
        let mut holds = self.lock();
        holds.insert(number, One { copies, word });
        self.count.store(holds.len(), Ordering::Release);
    }

    /// Why a hold counts no more; none: nobody has said that.
    pub(crate) fn why(&self, number: u64) -> Option<HoldStanding> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&number).map(|one| one.word.clone())
    }

    /// Takes what a holder says of a hold that is struck off. Given back: it is of another one.
    pub(crate) fn take(&self, number: u64, what: NoticeKind) -> Option<NoticeKind> {
        if self.is_empty() {
            return Some(what);
        }
        let mut holds = self.lock();
        let Some(one) = holds.get_mut(&number) else {
            return Some(what);
        };
        let less = match what {
            NoticeKind::Release { copies } => copies,
            NoticeKind::Cancel => one.copies,
            NoticeKind::Hold { .. } => 0,
            NoticeKind::Seldom(seldom) => match *seldom {
                RareNotice::Transfer { copies, .. } => copies,
                RareNotice::Confirm { answer } | RareNotice::Watch { answer } => {
                    // Nobody may be listening any more.
                    let _ = answer.send(one.word.clone());
                    0
                }
                RareNotice::Reserve { .. } | RareNotice::Seize { .. } => 0,
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
