//! Revoked holds: they no longer count, though their holders have not given them back.
//!
//! ```text
//! verdict ──> hold session ── put ──> revoked <── is it revoked? ── release, transfer
//!                 └─ its holder's last operation on it: forgotten
//! ```
//!
//! A holder has no other way to know, because an operation on such a hold is ignored in the log. A holder that gives
//! copies back in parts, or passes them on, looks here first, which costs one atomic while no hold is revoked.
//! Dropping a hold never looks here.
//!
//! What stays true: there is at most one entry for each hold that was tracked and was not dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::notice::{HoldStanding, NoticeKind, RareNotice};
use crate::resource::ResourceId;

/// The revoked holds of one agent, by number.
#[derive(Debug, Default)]
pub(crate) struct RevokedHolds {
    /// How many revoked holds there are.
    count: AtomicUsize,
    holds: Mutex<HashMap<u64, One>>,
}

/// One revoked hold.
#[derive(Debug)]
struct One {
    resource: ResourceId,
    domain: Arc<str>,
    /// The copies that its holder still has.
    copies: u32,
    /// Why the hold no longer counts.
    standing: HoldStanding,
}

impl RevokedHolds {
    /// A hold in use no longer counts.
    pub(crate) fn put(
        &self,
        number: u64,
        (resource, domain): (ResourceId, &Arc<str>),
        copies: u32,
        standing: HoldStanding,
    ) {
        let one = One {
            resource,
            domain: Arc::clone(domain),
            copies,
            standing,
        };
        let mut holds = self.lock();
        holds.insert(number, one);
        self.count.store(holds.len(), Ordering::Release);
    }

    /// Why a hold no longer counts; `None` if it is not revoked.
    pub(crate) fn why(&self, number: u64) -> Option<HoldStanding> {
        if self.is_empty() {
            return None;
        }
        self.lock().get(&number).map(|one| one.standing.clone())
    }

    /// The copies of a domain's holds that were ended, by their greatest age or an operator, and that their holders
    /// still have. Other revoked holds are in use, though the aggregators had no room to count them.
    pub(crate) fn ended_of(&self, resource: ResourceId, domain: &str) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let holds = self.lock();
        let ended = holds.values().filter(|one| {
            let is_ended = matches!(one.standing, HoldStanding::Ended(_));
            is_ended && one.resource == resource && *one.domain == *domain
        });
        ended.map(|one| u64::from(one.copies)).sum()
    }

    /// Takes a holder's operation if the hold is revoked. Returns the operation if it is not.
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
            NoticeKind::Rare(rare) => match *rare {
                RareNotice::Transfer { copies, .. } => copies,
                RareNotice::Confirm { answer } | RareNotice::Watch { answer } => {
                    // The receiver may be dropped already.
                    let _ = answer.send(one.standing.clone());
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
