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
    /// 0 while unknown.
    partitions: AtomicU32,
    /// Since when not all partitions are current; 0 if all are.
    blind_since: AtomicU64,
    of_rates: Leases,
    /// The same for copies, whose denials hold for a shorter time.
    of_copies: Leases,
    /// Which partitions guard calls.
    pub(crate) guard: Guard,
}

/// The leases of the control topic, by partition.
#[derive(Debug)]
struct Leases {
    all: RwLock<Vec<Lease>>,
    state: AtomicU8,
    /// When the first of them ended or would have ended, as of the last check.
    first_end: AtomicU64,
}

impl Leases {
    const fn new() -> Self {
        Self {
            all: RwLock::new(Vec::new()),
            state: AtomicU8::new(NONE),
            first_end: AtomicU64::new(0),
        }
    }

    #[inline]
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Whether the partition has no lease at `now`. The state alone does not tell: it is checked from time to time, and
    /// denials end with their leases, so a call in between would be neither denied nor blind.
    fn is_over(&self, partition: impl FnOnce() -> u32, now: Mono) -> bool {
        match self.state() {
            ALL if now.0 < self.first_end.load(Ordering::Relaxed) => false,
            ALL | SOME => {
                let partition = partition() as usize;
                let leases = self.all.read().unwrap_or_else(PoisonError::into_inner);
                let lease = leases.get(partition);
                lease.is_none_or(|lease| lease.until() <= now)
            }
            _ => true,
        }
    }

    fn set(&self, leases: Vec<Lease>) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = leases;
    }

    /// Checks all leases. Returns the state before and now.
    fn check(&self, now: Mono) -> (u8, u8) {
        let leases = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let ends = leases.iter().map(|lease| lease.until());
        let first_end = ends.clone().min().unwrap_or(Mono::ZERO);
        self.first_end.store(first_end.0, Ordering::Relaxed);
        let state = match ends.filter(|end| now < *end).count() {
            0 => NONE,
            in_force if in_force == leases.len() => ALL,
            _ => SOME,
        };
        (self.state.swap(state, Ordering::Relaxed), state)
    }
}

impl Liveness {
    pub(crate) fn new(now: Mono) -> Self {
        Self {
            partitions: AtomicU32::new(0),
            blind_since: AtomicU64::new(now.0),
            of_rates: Leases::new(),
            of_copies: Leases::new(),
            guard: Guard::default(),
        }
    }

    /// Almost always [`ALL`].
    #[inline]
    pub(crate) fn state(&self) -> u8 {
        self.of_rates.state()
    }

    /// Almost always [`ALL`]; for resources that are limited by copies.
    #[inline]
    pub(crate) fn copies_state(&self) -> u8 {
        self.of_copies.state()
    }

    /// Whether the partition of a resource that is limited by copies has no current watermark.
    pub(crate) fn is_blind_of_copies(&self, resource: &str, now: Mono) -> bool {
        let partition = || partition_of_resource(resource, self.partitions());
        self.of_copies.is_over(partition, now)
    }

    /// Whether a pair's partition has no current watermark.
    pub(crate) fn is_blind(&self, resource: &str, domain: &str, now: Mono) -> bool {
        let partition = || partition_of_pair(resource, domain, self.partitions());
        self.of_rates.is_over(partition, now)
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
        self.of_rates.set(leases);
        self.of_copies.set(copies_leases);
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
        self.of_copies.check(now);
        let (before, state) = self.of_rates.check(now);
        if state == ALL {
            self.blind_since.store(0, Ordering::Relaxed);
        } else if before == ALL {
            self.blind_since.store(now.0, Ordering::Relaxed);
        }
        state == ALL && before != ALL
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
        assert!(
            liveness.is_blind("r", "acme", late),
            "also before the next check"
        );
        assert!(!liveness.update(late));
        assert!(liveness.is_blind("r", "acme", late));
        assert_eq!(liveness.blind_since(), Some(late));
    }
}
