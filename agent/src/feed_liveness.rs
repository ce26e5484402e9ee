//! Feed liveness: which partitions have a current watermark, and since when not all.
//!
//! The listener writes, calls read one byte. Only if some partitions are current and others not, a
//! call computes which partition its pair belongs to. Knows nothing of frames.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use tollgate_shared::names::{partition_of_pair, partition_of_resource};

use crate::clock::Mono;
use crate::deny::Lease;
use crate::guard::Guard;

/// Every partition is current.
pub(crate) const ALL: u8 = 0;
/// Some partitions are current.
pub(crate) const SOME: u8 = 1;
/// No partition is current.
const NONE: u8 = 2;

/// The liveness of all partitions.
#[derive(Debug)]
pub(crate) struct Liveness {
    state: AtomicU8,
    /// 0 while unknown.
    partitions: AtomicU32,
    /// Since when not all partitions are current; 0 if all are.
    blind_since: AtomicU64,
    /// The leases of the control topic, by partition.
    leases: RwLock<Vec<Lease>>,
    /// The same for copies, whose denials hold for a shorter time.
    copies_state: AtomicU8,
    copies_leases: RwLock<Vec<Lease>>,
    /// Which partitions guard calls.
    pub(crate) guard: Guard,
}

impl Liveness {
    pub(crate) fn new(now: Mono) -> Self {
        Self {
            state: AtomicU8::new(NONE),
            partitions: AtomicU32::new(0),
            blind_since: AtomicU64::new(now.0),
            leases: RwLock::default(),
            copies_state: AtomicU8::new(NONE),
            copies_leases: RwLock::default(),
            guard: Guard::default(),
        }
    }

    /// Almost always [`ALL`].
    #[inline]
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Almost always [`ALL`]; for resources that are limited by copies.
    #[inline]
    pub(crate) fn copies_state(&self) -> u8 {
        self.copies_state.load(Ordering::Relaxed)
    }

    /// Whether the partition of a resource that is limited by copies has no current watermark.
    pub(crate) fn is_blind_of_copies(&self, resource: &str, now: Mono) -> bool {
        match self.copies_state() {
            ALL => false,
            SOME => {
                let partition = partition_of_resource(resource, self.partitions());
                let leases = self.copies_leases.read();
                let leases = leases.unwrap_or_else(PoisonError::into_inner);
                leases
                    .get(partition as usize)
                    .is_none_or(|lease| lease.until() <= now)
            }
            _ => true,
        }
    }

    /// Whether a pair's partition has no current watermark.
    pub(crate) fn is_blind(&self, resource: &str, domain: &str, now: Mono) -> bool {
        match self.state() {
            ALL => false,
            SOME => {
                let partition = partition_of_pair(resource, domain, self.partitions());
                let leases = self.leases.read().unwrap_or_else(PoisonError::into_inner);
                leases
                    .get(partition as usize)
                    .is_none_or(|lease| lease.until() <= now)
            }
            _ => true,
        }
    }

    /// How many partitions there are; 0 while unknown.
    pub(crate) fn partitions(&self) -> u32 {
        self.partitions.load(Ordering::Relaxed)
    }

    /// Since when not all partitions are current.
    pub(crate) fn blind_since(&self) -> Option<Mono> {
        match self.blind_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Mono(since)),
        }
    }

    pub(crate) fn set_partitions(
        &self,
        partitions: u32,
        leases: Vec<Lease>,
        copies_leases: Vec<Lease>,
    ) {
        *self.leases.write().unwrap_or_else(PoisonError::into_inner) = leases;
        let copies = self.copies_leases.write();
        *copies.unwrap_or_else(PoisonError::into_inner) = copies_leases;
        self.guard.set_partitions(partitions);
        self.partitions.store(partitions, Ordering::Relaxed);
    }

    /// The agent has ended: no partition is current any more.
    pub(crate) fn end(&self, now: Mono) {
        self.set_partitions(0, Vec::new(), Vec::new());
        self.update(now);
    }

    /// Checks the leases again. Returns whether all partitions are current that were not before.
    pub(crate) fn update(&self, now: Mono) -> bool {
        self.copies_state
            .store(state_of(&self.copies_leases, now), Ordering::Relaxed);
        let state = state_of(&self.leases, now);
        let before = self.state.swap(state, Ordering::Relaxed);
        if state == ALL {
            self.blind_since.store(0, Ordering::Relaxed);
        } else if before == ALL {
            self.blind_since.store(now.0, Ordering::Relaxed);
        }
        state == ALL && before != ALL
    }
}

fn state_of(leases: &RwLock<Vec<Lease>>, now: Mono) -> u8 {
    let leases = leases.read().unwrap_or_else(PoisonError::into_inner);
    let in_force = leases.iter().filter(|lease| now < lease.until()).count();
    match in_force {
        0 => NONE,
        in_force if in_force == leases.len() => ALL,
        _ => SOME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Span;

    #[test]
    fn a_pair_is_blind_without_a_lease_of_its_partition() {
        let liveness = Liveness::new(Mono(5));
        assert!(liveness.is_blind("r", "acme", Mono(5)));
        let leases: Vec<Lease> = (0..4).map(|_| Lease::default()).collect();
        liveness.set_partitions(4, leases.clone(), Vec::new());
        let of = |domain: &str| partition_of_pair("r", domain, 4);
        let other = (0..)
            .map(|n| format!("t{n}"))
            .find(|d| of(d) != of("acme"))
            .expect("another");
        let until = Mono(1_000);
        leases[of("acme") as usize].renew(until);
        liveness.update(Mono(10));
        assert!(
            !liveness.is_blind("r", "acme", Mono(10)) && liveness.is_blind("r", &other, Mono(10))
        );
        assert_eq!(liveness.blind_since(), Some(Mono(5)));
        leases.iter().for_each(|lease| lease.renew(until));
        assert!(liveness.update(Mono(10)));
        assert!(!liveness.is_blind("r", &other, Mono(10)));
        assert_eq!(liveness.blind_since(), None);
        let late = until.plus(Span::from_micros(1));
        assert!(!liveness.update(late));
        assert!(liveness.is_blind("r", "acme", late));
        assert_eq!(liveness.blind_since(), Some(late));
    }
}
