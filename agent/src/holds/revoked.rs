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
//! What stays true: there is at most one entry for each hold that was tracked and was not dropped; a refused call looks
//! up one sum, however many holds were revoked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::excess::ExcessHolds;
use super::notice::{HoldStanding, NoticeKind, RareNotice};
use crate::resource::ResourceId;

/// The revoked holds of one agent, by number.
#[derive(Debug, Default)]
pub(crate) struct RevokedHolds {
    /// How many revoked holds there are.
    count: AtomicUsize,
    holds: Mutex<ByNumber>,
    /// What is too many of holds that are not revoked.
    pub(crate) excess: ExcessHolds,
}

#[derive(Debug, Default)]
struct ByNumber {
    holds: HashMap<u64, One>,
    /// The copies of a domain's holds that were ended, and that their holders still have: above 0.
    ended: HashMap<ResourceId, HashMap<Arc<str>, u64>>,
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

impl One {
    const fn is_ended(&self) -> bool {
        matches!(self.standing, HoldStanding::Ended(_))
    }
}

impl ByNumber {
    fn put(&mut self, number: u64, one: One) {
        if one.is_ended() {
            let of_resource = self.ended.entry(one.resource).or_default();
            let copies = of_resource.entry(Arc::clone(&one.domain)).or_default();
            *copies = copies.saturating_add(one.copies.into());
        }
        if let Some(before) = self.holds.insert(number, one) {
            self.given_back(&before, before.copies);
        }
    }

    fn ended_of(&self, resource: ResourceId, domain: &str) -> u64 {
        let of_resource = self.ended.get(&resource);
        of_resource
            .and_then(|domains| domains.get(domain))
            .map_or(0, |copies| *copies)
    }

    /// The holder of this hold has so many copies less.
    fn given_back(&mut self, one: &One, copies: u32) {
        if !one.is_ended() {
            return;
        }
        let Some(domains) = self.ended.get_mut(&one.resource) else {
            return;
        };
        if let Some(left) = domains.get_mut(&one.domain) {
            *left = left.saturating_sub(copies.into());
            if *left == 0 {
                domains.remove(&one.domain);
            }
        }
        if domains.is_empty() {
            self.ended.remove(&one.resource);
        }
    }
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
        holds.put(number, one);
        self.count.store(holds.holds.len(), Ordering::Release);
    }

    /// Why a hold no longer counts; `None` if it is not revoked.
    pub(crate) fn why(&self, number: u64) -> Option<HoldStanding> {
        if self.is_empty() {
            return None;
        }
        let holds = self.lock();
        holds.holds.get(&number).map(|one| one.standing.clone())
    }

    /// The copies of a domain's holds that were ended, by their greatest age or an operator, and that their holders
    /// still have. Other revoked holds are in use, though the aggregators had no room to count them.
    pub(crate) fn ended_of(&self, resource: ResourceId, domain: &str) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.lock().ended_of(resource, domain)
    }

    /// Takes a holder's operation if the hold is revoked. Returns the operation if it is not.
    pub(crate) fn take(&self, number: u64, what: NoticeKind) -> Option<NoticeKind> {
        if self.is_empty() {
            return Some(what);
        }
        let mut holds = self.lock();
        let Some(mut one) = holds.holds.remove(&number) else {
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
        let less = less.min(one.copies);
        holds.given_back(&one, less);
        one.copies -= less;
        if 0 < one.copies {
            holds.holds.insert(number, one);
        }
        self.count.store(holds.holds.len(), Ordering::Release);
        None
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, ByNumber> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndedBy, Why};

    #[test]
    fn the_sum_of_ended_copies_follows_what_holders_give_back() {
        let (revoked, resource) = (RevokedHolds::default(), ResourceId(3));
        let acme: Arc<str> = "acme".into();
        let ended = || HoldStanding::Ended(EndedBy::Age);
        let release = |copies| NoticeKind::Release { copies };
        revoked.put(1, (resource, &acme), 4, ended());
        revoked.put(
            2,
            (resource, &acme),
            3,
            HoldStanding::Uncounted(Why::AtCapacity),
        );
        revoked.put(5, (ResourceId(4), &acme), 9, ended());
        revoked.put(6, (resource, &"globex".into()), 9, ended());
        assert_eq!(revoked.ended_of(resource, "acme"), 4);
        // A second verdict replaces the first.
        revoked.put(1, (resource, &acme), 2, ended());
        revoked.put(7, (resource, &acme), 5, ended());
        assert_eq!(revoked.ended_of(resource, "acme"), 7);
        assert!(revoked.take(7, release(1)).is_none() && revoked.take(2, release(3)).is_none());
        assert_eq!(revoked.ended_of(resource, "acme"), 6);
        assert!(
            revoked.take(7, release(9)).is_none() && revoked.take(1, NoticeKind::Cancel).is_none()
        );
        assert_eq!(revoked.ended_of(resource, "acme"), 0);
        assert!(revoked.take(1, release(1)).is_some(), "it is forgotten");
        for number in [5, 6] {
            assert!(revoked.take(number, NoticeKind::Cancel).is_none());
        }
        assert!(revoked.is_empty() && revoked.lock().ended.is_empty());
    }
}
