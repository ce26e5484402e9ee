//! The excess of holds: by the newest verdict, some of their copies were too many.
//!
//! ```text
//! verdict "5 count, 2 too many" ──> hold session ── put ──> excess <── what of it is left? ── a holder with 4 copies: 1
//!           verdict without excess, doubt, end of the hold: forgotten
//! ```
//!
//! Whether the excess has to be given back depends on the resource, which the holder knows. While no hold has any, a
//! look costs one atomic.
//!
//! What stays true: there is at most one entry for each hold that the session tracks, and none while its status is in
//! doubt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_shared::wire::verdict::HoldStatus;

use super::notice::HoldStanding;

/// The excess of one agent's holds.
#[derive(Debug, Default)]
pub(crate) struct ExcessHolds {
    /// How many holds have any.
    count: AtomicUsize,
    statuses: Mutex<HashMap<u64, HoldStatus>>,
}

impl ExcessHolds {
    /// A hold has this status, with some excess.
    pub(crate) fn put(&self, status: &HoldStatus) {
        let mut statuses = self.lock();
        statuses.insert(status.number, status.clone());
        self.count.store(statuses.len(), Ordering::Release);
    }

    /// A hold has no excess, or it is not known.
    pub(crate) fn forget(&self, number: u64) {
        if self.is_empty() {
            return;
        }
        let mut statuses = self.lock();
        statuses.remove(&number);
        self.count.store(statuses.len(), Ordering::Release);
    }

    /// The standing of a hold whose holder has this many copies; `None` if no excess is known.
    pub(crate) fn standing(&self, number: u64, copies: u32) -> Option<HoldStanding> {
        if self.is_empty() {
            return None;
        }
        let statuses = self.lock();
        let status = statuses.get(&number)?;
        Some(HoldStanding::of(status, copies))
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HoldStatus>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_its_holder_gave_away_is_no_longer_too_many() {
        let excess = ExcessHolds::default();
        let status = HoldStatus {
            number: 7,
            copies: 5,
            excess: 2,
            ..HoldStatus::default()
        };
        excess.put(&status);
        let standing = |copies| excess.standing(7, copies);
        assert_eq!(standing(5), Some(HoldStanding::Excess(2, None)));
        assert_eq!(standing(4), Some(HoldStanding::Excess(1, None)));
        assert_eq!(standing(3), Some(HoldStanding::Confirmed));
        excess.forget(8);
        assert!(standing(5).is_some() && excess.standing(8, 5).is_none());
        excess.forget(7);
        assert!(standing(5).is_none() && excess.is_empty());
    }
}
