//! Law 5, entry by entry: how many copies each agent let through, and how many of them the log counted.
//!
//! ```text
//! calls let through and recorded ──> records in the log ──> ruled once
//! ```
//!
//! Knows nothing of limits. What stays true: no entry is ruled that an agent did not record, and no batch is ruled
//! twice; if nothing was dropped or lost, everything that was recorded is ruled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tollgate_engine::engine::Fate;
use tollgate_shared::wire::hits::{Hit, HitBatch};

use super::documents::{DOMAINS, RESOURCES};
use super::guards::Guard;

/// A number for each pair.
pub type Sums = [[u64; DOMAINS.len()]; RESOURCES.len()];

/// Entries that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CountedAs {
    /// Copies let through without a min.
    Copies,
    /// Copies that settlements take back.
    TakenBack,
    /// Calls for this many copies with this min, which stay separate entries.
    Calls(u32, u32),
}

impl fmt::Display for CountedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies => write!(f, "copies"),
            Self::TakenBack => write!(f, "copies taken back"),
            Self::Calls(copies, min) => write!(f, "calls for {copies} copies, at least {min},"),
        }
    }
}

/// The account of one life of an agent.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// By pair: how many the services made, and how many were ruled.
    counts: BTreeMap<((usize, usize), CountedAs), (u64, u64)>,
    /// The copies let through, by guard mark.
    guards: GuardSums,
    /// Sequences of batches in the log, by partition.
    sequences: BTreeMap<u32, BTreeSet<u64>>,
    /// Sequences of batches that were in the log before it lost records, whether or not they still are.
    sequences_before: BTreeMap<u32, BTreeSet<u64>>,
    /// Whether the log has lost records since this life began. They may be its own, so its sums need not match.
    lost: bool,
}

/// Copies by pair: those let through, and those ruled by the guard mark of their entries.
#[derive(Clone, Debug, Default)]
struct GuardSums {
    let_through: Sums,
    surely_guarded: Sums,
    surely_unguarded: Sums,
    ruled_guarded: Sums,
    ruled_unguarded: Sums,
}

impl GuardSums {
    fn let_through(&mut self, (r, d): (usize, usize), copies: u32, guard: Guard) {
        let copies = u64::from(copies);
        self.let_through[r][d] += copies;
        match guard {
            Guard::Guarded => self.surely_guarded[r][d] += copies,
            Guard::Unguarded => self.surely_unguarded[r][d] += copies,
            Guard::Unknown => {}
        }
    }

    /// Notes an entry that was ruled.
    ///
    /// # Errors
    ///
    /// If the entry's mark cannot be right.
    fn ruled(&mut self, (r, d): (usize, usize), hit: &Hit<'_>) -> Result<(), String> {
        let (ruled, otherwise, mark) = match hit.unguarded {
            true => (&mut self.ruled_unguarded, &self.surely_guarded, "unguarded"),
            false => (&mut self.ruled_guarded, &self.surely_unguarded, "guarded"),
        };
        ruled[r][d] += hit.total();
        let (ruled, otherwise) = (ruled[r][d], otherwise[r][d]);
        let through = self.let_through[r][d];
        match ruled + otherwise <= through {
            true => Ok(()),
            false => Err(format!(
                "{} for {}: {ruled} copies are marked as {mark}, of {through} that were let through {otherwise} \
                 cannot be",
                RESOURCES[r], DOMAINS[d]
            )),
        }
    }
}

impl Life {
    /// Notes a call that was let through. A min equal to the copies has no effect, and is not recorded.
    pub(super) fn let_through(
        &mut self,
        (r, d): (usize, usize),
        copies: u32,
        min: u32,
        guard: Guard,
    ) {
        if copies == 0 {
            return;
        }
        self.guards.let_through((r, d), copies, guard);
        let (of, count) = match min < copies {
            true => (CountedAs::Calls(copies, min.max(1)), 1),
            false => (CountedAs::Copies, u64::from(copies)),
        };
        self.counts.entry(((r, d), of)).or_default().0 += count;
    }

    /// Notes an estimate that was settled by less than it was.
    pub fn takes_back(&mut self, pair: (usize, usize), copies: u32) {
        let count = self.counts.entry((pair, CountedAs::TakenBack));
        count.or_default().0 += u64::from(copies);
    }

    /// Whether the log may have lost entries of this life.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// Notes a batch in the log with its fates. Returns whether its entries count.
    ///
    /// # Errors
    ///
    /// If the fates contradict the account.
    fn counts(&mut self, partition: u32, sequence: u64, fates: &[Fate]) -> Result<bool, String> {
        let was_new = self
            .sequences
            .entry(partition)
            .or_default()
            .insert(sequence);
        let stood_before_a_loss = || {
            let before = self.sequences_before.get(&partition);
            before.is_some_and(|before| before.contains(&sequence))
        };
        // A copy of a batch that was under way for long may arrive after the window of duplicates has moved on. The
        // check is that the batch was ruled before, even if the log has lost that record since.
        let (counts, is_right) = match fates {
            [Fate::Applied] => (true, was_new),
            [Fate::Duplicate { .. }] => (false, !was_new),
            [Fate::OlderThanWindow { .. }] => (false, !was_new || stood_before_a_loss()),
            other => return Err(format!("has {other:?}")),
        };
        if !is_right {
            return Err(format!(
                "was {}, and was {}",
                if was_new { "new" } else { "known" },
                if counts { "ruled" } else { "left out" },
            ));
        }
        Ok(counts)
    }

    /// Forgets rulings, because the log has lost records.
    fn forget_ruled(&mut self) {
        self.lost = true;
        self.guards.ruled_guarded = Sums::default();
        self.guards.ruled_unguarded = Sums::default();
        self.counts.values_mut().for_each(|(_, ruled)| *ruled = 0);
        for (partition, known) in std::mem::take(&mut self.sequences) {
            self.sequences_before
                .entry(partition)
                .or_default()
                .extend(known);
        }
    }

    /// Notes a ruled entry.
    ///
    /// # Errors
    ///
    /// If the services made fewer such calls or copies than were ruled by now.
    fn ruled(&mut self, (r, d): (usize, usize), hit: &Hit<'_>) -> Result<(), String> {
        let (of, count) = match hit.min {
            Some(min) => (CountedAs::Calls(hit.copies, min), u64::from(hit.calls)),
            None if hit.is_refund() => (CountedAs::TakenBack, hit.total()),
            None => (CountedAs::Copies, hit.total()),
        };
        let (made, ruled) = self.counts.entry(((r, d), of)).or_default();
        *ruled += count;
        match *ruled <= *made {
            true => Ok(()),
            false => Err(mismatch((r, d), of, (*made, *ruled))),
        }
    }
}

fn mismatch((r, d): (usize, usize), of: CountedAs, (made, ruled): (u64, u64)) -> String {
    let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
    format!("{resource} for {domain}: {ruled} {of} are in the log, {made} were made")
}

/// All lives, by epoch.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    lives: BTreeMap<u128, Life>,
    /// When a power cut, or the recreation of a topic, last removed acknowledged records, in true time.
    pub lost_us: Option<u64>,
    /// The first fault found in the guard mark of an entry.
    pub(super) wrong_mark: Option<String>,
}

impl Accounts {
    /// The account of a life.
    pub fn life(&mut self, epoch: u128) -> &mut Life {
        self.lives.entry(epoch).or_default()
    }

    /// Notes a batch with its fates.
    ///
    /// # Errors
    ///
    /// If they contradict the account.
    pub fn ruled(
        &mut self,
        partition: u32,
        batch: &HitBatch<'_>,
        fates: &[Fate],
    ) -> Result<(), String> {
        let sender = batch.sender;
        let Some(life) = self.lives.get_mut(&sender.epoch) else {
            return Err(format!("nobody has epoch {:x}", sender.epoch));
        };
        let counts = life
            .counts(partition, sender.sequence, fates)
            .map_err(|what| format!("batch {} of {} {what}", sender.sequence, sender.agent))?;
        if !counts {
            return Ok(());
        }
        for hit in batch.hits() {
            let Some((r, d)) = pair_of(batch.resource(hit.resource), hit.domain) else {
                return Err(format!(
                    "nobody called {} for {}",
                    batch.resource(hit.resource),
                    hit.domain
                ));
            };
            if !hit.is_refund()
                && let Err(what) = life.guards.ruled((r, d), hit)
            {
                self.wrong_mark.get_or_insert(what);
            }
            life.ruled((r, d), hit)?;
        }
        Ok(())
    }

    /// Forgets rulings, because the log has lost records; the remaining records are ruled again.
    pub fn forget_ruled(&mut self, now_us: u64) {
        self.lost_us = Some(now_us);
        self.lives.values_mut().for_each(Life::forget_ruled);
    }

    /// How many copies of a life's calls were ruled. `None`: the life began before records were lost.
    pub fn ruled_of(&self, epoch: u128) -> Option<u64> {
        let life = self.lives.get(&epoch).filter(|life| !life.has_lost())?;
        let all = life.counts.iter();
        let copies = all.map(|((_, of), (_, ruled))| match of {
            CountedAs::Calls(copies, _) => u64::from(*copies) * ruled,
            CountedAs::Copies | CountedAs::TakenBack => *ruled,
        });
        Some(copies.sum())
    }

    /// Describes the calls of a life that the log does not have, for a life that dropped nothing. `None` also for a
    /// life that began before records were lost, where this is unknown.
    pub fn missing(&self, epoch: u128) -> Option<String> {
        let life = self.lives.get(&epoch).filter(|life| !life.has_lost())?;
        let mut all = life.counts.iter();
        let ((pair, of), count) = all.find(|(_, (made, ruled))| made != ruled)?;
        Some(mismatch(*pair, *of, *count))
    }
}

/// The numbers of a pair's names.
pub fn pair_of(resource: &str, domain: &str) -> Option<(usize, usize)> {
    let r = RESOURCES.iter().position(|name| *name == resource)?;
    let d = DOMAINS.iter().position(|name| *name == domain)?;
    Some((r, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLIED: [Fate; 1] = [Fate::Applied];
    const DUPLICATE: [Fate; 1] = [Fate::Duplicate { entries: 1 }];
    const OLDER: [Fate; 1] = [Fate::OlderThanWindow { entries: 1 }];

    #[test]
    fn hits_older_than_the_window_may_have_been_ruled_before() {
        let mut life = Life::default();
        assert_eq!(life.counts(0, 7, &APPLIED), Ok(true));
        assert_eq!(life.counts(0, 7, &OLDER), Ok(false));
        assert!(life.counts(0, 8, &OLDER).is_err());

        // The same after any number of losses.
        let mut life = stood_before_losses(7);
        assert_eq!(life.counts(0, 7, &OLDER), Ok(false));
        // A batch that was in another partition, or in none.
        assert!(life.counts(1, 7, &OLDER).is_err());
        assert!(life.counts(0, 9, &OLDER).is_err());
    }

    #[test]
    fn a_record_that_the_log_lost_is_no_duplicate() {
        let mut life = Life::default();
        assert!(life.counts(0, 7, &DUPLICATE).is_err());
        assert_eq!(life.counts(0, 7, &DUPLICATE), Ok(false));
        assert!(life.counts(0, 7, &APPLIED).is_err());

        assert_eq!(stood_before_losses(7).counts(0, 7, &APPLIED), Ok(true));
        assert!(stood_before_losses(7).counts(0, 7, &DUPLICATE).is_err());
    }

    /// A life with a batch in a log that has lost records twice since.
    fn stood_before_losses(sequence: u64) -> Life {
        let mut life = Life::default();
        assert_eq!(life.counts(0, sequence, &APPLIED), Ok(true));
        life.forget_ruled();
        life.forget_ruled();
        life
    }
}
