//! Which hits of a pair still count at a log position.
//!
//! ```text
//! 2 of alpha, 3 of beta       an operator refunds 3       3 of beta no longer count, 2 of alpha do
//! 2 of alpha, 3 of beta       beta's cost only one        2 of beta no longer count
//! ```
//!
//! A settlement takes back hits of its estimate, an act of an operator the newest. Knows nothing of periods. What stays
//! true: no entry has more hits that count than some constraint counted of it.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;

use super::follow::PairFollow;
use super::history::{EntryFate, ExplainedEntry};

/// The entries up to a log position, in their order, each with the number of its hits that still count there.
#[derive(Default)]
struct CountingHits<'f> {
    entries: Vec<(&'f ExplainedEntry, u64)>,
    /// Their indices, by their instants.
    by_instant: BTreeMap<Timestamp, Vec<usize>>,
}

/// The entries up to a log position whose hits still count there, in their order, each with how many.
pub(super) fn counting_at(
    follow: &PairFollow,
    position: (u64, u32),
) -> Vec<(&ExplainedEntry, u64)> {
    let mut counting = CountingHits::default();
    let acts = follow.taken_back.iter();
    let mut acts = acts.filter(|act| act.position <= position).peekable();
    let entries = follow.entries.iter();
    for entry in entries.filter(|entry| entry.position <= position) {
        while let Some(act) = acts.next_if(|act| act.position < entry.position) {
            counting.take_newest(act.hits);
        }
        if let EntryFate::Ruled { counted, made, .. } = entry.fate {
            match made {
                None => counting.add(entry, counted),
                Some(made) => counting.settle(made, counted),
            }
        }
    }
    acts.for_each(|act| counting.take_newest(act.hits));
    counting.entries
}

impl<'f> CountingHits<'f> {
    fn add(&mut self, entry: &'f ExplainedEntry, hits: u64) {
        let indices = self.by_instant.entry(entry.at).or_default();
        indices.push(self.entries.len());
        self.entries.push((entry, hits));
    }

    /// Takes back hits of an estimate that was made at an instant.
    fn settle(&mut self, made: Timestamp, mut hits: u64) {
        let indices = self.by_instant.get(&made);
        for index in indices.into_iter().flatten().rev() {
            // An act may have taken back the whole entry, and another one has its index now.
            let of = self.entries.get_mut(*index);
            if let Some((_, counted)) = of.filter(|(entry, _)| entry.at == made) {
                hits -= take(counted, hits);
            }
        }
    }

    fn take_newest(&mut self, mut hits: u64) {
        while 0 < hits
            && let Some((_, counted)) = self.entries.last_mut()
        {
            hits -= take(counted, hits);
            if *counted == 0 {
                self.entries.pop();
            }
        }
    }
}

/// Takes at most this many hits; returns how many there were.
fn take(counted: &mut u64, hits: u64) -> u64 {
    let taken = hits.min(*counted);
    *counted -= taken;
    taken
}

/// How many more hits are used than before: of all constraints the most.
pub(super) fn increase(before: &[u64], after: &[u64]) -> u64 {
    let each = before.iter().zip(after);
    let more = each.map(|(before, after)| after.saturating_sub(*before));
    more.max().unwrap_or(0)
}
