//! Which epoch is given up when a partition has as many as it remembers.
//!
//! ```text
//! bound 5     web-1: 1 epoch    web-2: 1    bad: 3, the second of which has been silent for longest
//! web-3 comes                   bad's second epoch is given up: later records of it are only counted
//! ```
//!
//! The name with the most epochs gives up its longest-silent one. So an agent that starts again and again,
//! on purpose or not, takes places of its own name only. Among names with equally many, the one gives up
//! whose epoch has been silent for longest. Knows nothing of sequences. What stays true: which epoch is
//! given up depends on the log alone. A given-up epoch is remembered as such for as long as its sequences
//! would have been, unless as many as are remembered at all were given up after it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::time::Timestamp;

use crate::pairs::{Identity, mix};

/// An epoch, and the log time of its last record; `None` before the first counted tick.
pub(super) type SeenEpoch = (Option<Timestamp>, Identity);

/// Epochs by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    by_name: BTreeMap<Identity, BTreeSet<SeenEpoch>>,
    /// Names by number of epochs, then by the longest silence.
    ranks: BTreeSet<(usize, Reverse<SeenEpoch>, Identity)>,
}

impl Crowd {
    /// Adds an epoch to a name.
    pub fn enter(&mut self, name: Identity, seen: SeenEpoch) {
        self.change(name, |epochs| epochs.insert(seen));
    }

    /// Removes an epoch from a name.
    pub fn leave(&mut self, name: Identity, seen: SeenEpoch) {
        self.change(name, |epochs| epochs.remove(&seen));
    }

    /// The longest-silent epoch of the name with the most epochs.
    pub fn to_give_up(&self) -> Option<Identity> {
        let (_, Reverse((_, process)), _) = self.ranks.last()?;
        Some(*process)
    }

    fn change(&mut self, name: Identity, change: impl FnOnce(&mut BTreeSet<SeenEpoch>) -> bool) {
        let epochs = self.by_name.entry(name).or_default();
        let rank = |epochs: &BTreeSet<SeenEpoch>| {
            let oldest = epochs.first().copied();
            oldest.map(|oldest| (epochs.len(), Reverse(oldest), name))
        };
        let before = rank(epochs);
        change(epochs);
        let now = rank(epochs);
        if before == now {
            return;
        }
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        match now {
            Some(now) => drop(self.ranks.insert(now)),
            None => drop(self.by_name.remove(&name)),
        }
    }
}

/// Epochs that were given up.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenUp {
    epochs: BTreeMap<Identity, Option<Timestamp>>,
    since: BTreeSet<SeenEpoch>,
    digest: u128,
}

impl GivenUp {
    /// Whether an epoch was given up.
    pub fn has(&self, process: Identity) -> bool {
        self.epochs.contains_key(&process)
    }

    /// Notes that an epoch was given up at this log time. At the bound the earliest one is forgotten.
    pub fn put(&mut self, process: Identity, log: Option<Timestamp>, max: u64) {
        if max <= self.epochs.len() as u64
            && let Some((_, first)) = self.since.first().copied()
        {
            self.remove(first);
        }
        self.restore(process, log);
    }

    /// Adds an epoch from a snapshot.
    pub fn restore(&mut self, process: Identity, log: Option<Timestamp>) {
        self.remove(process);
        self.since.insert((log, process));
        self.epochs.insert(process, log);
        self.digest = self.digest.wrapping_add(Self::digest_of(process, log));
    }

    /// Counts a tick: forgets epochs whose log time is `forgotten`. The time of those given up before the
    /// first counted tick starts at this one.
    pub fn tick(&mut self, log: Timestamp, forgotten: impl Fn(Timestamp) -> bool) {
        while let Some((since, process)) = self.since.first().copied() {
            match since {
                None => self.restore(process, Some(log)),
                Some(since) if forgotten(since) => self.remove(process),
                Some(_) => return,
            }
        }
    }

    /// All of them, in the order of their hashes.
    pub fn iter(&self) -> impl Iterator<Item = (Identity, Option<Timestamp>)> + '_ {
        self.epochs.iter().map(|(process, log)| (*process, *log))
    }

    /// A digest of the content alone.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    fn remove(&mut self, process: Identity) {
        if let Some(log) = self.epochs.remove(&process) {
            self.since.remove(&(log, process));
            self.digest = self.digest.wrapping_sub(Self::digest_of(process, log));
        }
    }

    fn digest_of(process: Identity, log: Option<Timestamp>) -> u128 {
        // Differs from the digest of an epoch that is remembered.
        let digest = mix(process.0, u64::MAX);
        mix(digest, log.map_or(u64::MAX, Timestamp::as_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(second: u64, process: u128) -> SeenEpoch {
        let log = Timestamp::from_millis(1_000 * second);
        (Some(log), Identity(process))
    }

    #[test]
    fn the_name_with_most_epochs_loses_its_longest_silent_one() {
        let (good, bad) = (Identity(100), Identity(200));
        let mut crowd = Crowd::default();
        assert_eq!(crowd.to_give_up(), None);
        crowd.enter(good, seen(1, 1));
        crowd.enter(bad, seen(9, 2));
        assert_eq!(crowd.to_give_up(), Some(Identity(1)), "equally many");
        crowd.enter(bad, seen(8, 3));
        assert_eq!(crowd.to_give_up(), Some(Identity(3)));
        crowd.leave(bad, seen(8, 3));
        crowd.enter(bad, seen(10, 3));
        assert_eq!(crowd.to_give_up(), Some(Identity(2)), "heard again");
        crowd.leave(bad, seen(9, 2));
        crowd.leave(bad, seen(10, 3));
        crowd.leave(good, seen(1, 1));
        assert_eq!(crowd.to_give_up(), None);
        assert_eq!((crowd.by_name.len(), crowd.ranks.len()), (0, 0));
    }

    #[test]
    fn given_up_epochs_are_remembered_up_to_a_bound() {
        let mut given_up = GivenUp::default();
        for process in 1..=3 {
            given_up.put(Identity(process), seen(process as u64, process).0, 2);
        }
        let known: Vec<_> = given_up.iter().map(|(process, _)| process.0).collect();
        assert_eq!(known, [2, 3]);
        given_up.tick(Timestamp::MAX, |since| {
            since < Timestamp::from_millis(3_000)
        });
        assert!(!given_up.has(Identity(2)) && given_up.has(Identity(3)));
        given_up.tick(Timestamp::MAX, |_| true);
        assert_eq!(given_up.digest(), 0);
    }
}
