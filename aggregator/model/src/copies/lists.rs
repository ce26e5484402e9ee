//! Copies of one resource: the holds that processes list, processes that are gone and return, and time.
//!
//! ```text
//! counted 1, 2, 4; listed 2, 4, 7     1 was released, 7 counts from now on
//! gone                                its holds do not count, and are kept for its return
//! back, and lists a hold              the hold counts again
//! ```
//!
//! Does not decide when a process is gone. What stays true: after a list the process holds what it listed, except
//! for holds that were ended or could not be counted.

use std::collections::BTreeMap;

use super::holds::{HoldRefusal, HoldsModel, KeptBy, ModelHold, Process};

/// One entry of a list.
#[derive(Clone, Debug)]
pub struct ListedHold<'a> {
    /// The hold's number.
    pub number: u64,
    /// The domain on whose behalf.
    pub domain: &'a str,
    /// The number of copies; 0 means as many as the model counts.
    pub copies: u64,
    /// When they were taken, in microseconds.
    pub start_us: u64,
    /// Whether the aggregator granted them before the agent used them.
    pub strict: bool,
    /// The transfer that they were seized from.
    pub seized: Option<u128>,
}

/// The verdict on a listed hold that did not count as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListVerdict {
    /// It counts now; this many of its copies are above a limit.
    Counted(KeptBy),
    /// Age or an operator ended it, or it is too old.
    Ended,
    /// It was seized from a transfer that is not staged.
    UnknownTransfer,
    /// The resource already has the greatest number of holds.
    AtCapacity,
}

impl HoldsModel {
    /// Marks a process as gone. Returns the copies that become free.
    pub fn gone(&mut self, process: &Process) -> u64 {
        let back = self.copies_of(process);
        for hold in { self.holds.iter_mut() }.filter(|hold| hold.process == *process) {
            hold.lost = true;
            hold.excess = (0, None);
        }
        back
    }

    /// Ends a process's epoch. Returns the copies that become free.
    pub fn over(&mut self, process: &Process) -> u64 {
        let back = self.forget(process);
        self.over.push(process.clone());
        back
    }

    /// Forgets a process. Returns the copies that become free.
    pub fn forget(&mut self, process: &Process) -> u64 {
        let back = self.copies_of(process);
        self.holds.retain(|hold| hold.process != *process);
        self.ended.retain(|(of, _)| of != process);
        self.over.retain(|of| of != process);
        back
    }

    /// How many transfers end by an instant: those at their time to live, and those at the
    /// greatest age of their copies.
    pub(super) fn transfers_over(&self, now_us: u64) -> (u64, u64) {
        let age_us = self.limits.max_age_us.unwrap_or(u64::MAX);
        let mut over = (0, 0);
        for staged in &self.staged {
            let aged_us = staged.start_us.saturating_add(age_us);
            match staged.end_us.min(aged_us) {
                until_us if now_us < until_us => {}
                _ if aged_us <= staged.end_us => over.1 += 1,
                _ => over.0 += 1,
            }
        }
        over
    }

    /// Advances time to an instant. Returns the holds that are too old now: process, number and copies.
    pub fn tick(&mut self, now_us: u64) -> Vec<(Process, u64, u64)> {
        if now_us < self.now_us {
            return Vec::new();
        }
        self.now_us = now_us;
        self.staged.retain(|staged| now_us < staged.end_us);
        let Some(age_us) = self.limits.max_age_us else {
            return Vec::new();
        };
        let is_young = |start_us: u64| now_us < start_us.saturating_add(age_us);
        self.staged.retain(|staged| is_young(staged.start_us));
        let (young, old): (Vec<_>, Vec<_>) =
            { self.holds.drain(..) }.partition(|hold| is_young(hold.start_us));
        self.holds = young;
        let live = old.into_iter().filter(|hold| !hold.lost);
        let mut ended: Vec<_> = live
            .map(|hold| (hold.process, hold.number, hold.copies))
            .collect();
        ended.sort();
        let numbers = ended.iter().map(|(of, number, _)| (of.clone(), *number));
        self.ended.extend(numbers);
        ended
    }

    /// The holds that a process's heartbeat digest covers: its holds that count, without the
    /// numbers that await a verdict.
    pub fn held_without(&self, process: &Process, awaiting: &[u64]) -> BTreeMap<u64, u64> {
        let holds = { self.holds.iter() }.filter(|of| of.process == *process && !of.lost);
        let settled = holds.filter(|hold| !awaiting.contains(&hold.number));
        settled.map(|hold| (hold.number, hold.copies)).collect()
    }

    /// The process's digest matches: it holds exactly its holds that count. Holds kept for its return are dropped.
    pub fn equal_digest(&mut self, process: &Process) -> Result<(), HoldRefusal> {
        if self.over.contains(process) {
            return Err(HoldRefusal::EpochOver);
        }
        self.holds
            .retain(|hold| hold.process != *process || !hold.lost);
        Ok(())
    }

    /// Applies a process's list of its holds with numbers from `from` to `upto`. First holds that are not listed
    /// end, and holds with fewer copies shrink; then new holds are counted, in the order of the list.
    pub fn full_list(
        &mut self,
        process: &Process,
        entries: &[ListedHold<'_>],
        awaiting: &[u64],
        (from, upto): (u64, u64),
        at_us: u64,
    ) -> Result<Vec<(u64, ListVerdict)>, HoldRefusal> {
        if self.over.contains(process) {
            return Err(HoldRefusal::EpochOver);
        }
        let is_named = |number: &u64| {
            awaiting.contains(number) || entries.iter().any(|entry| entry.number == *number)
        };
        let was_released = |number: &u64| (from..=upto).contains(number) && !is_named(number);
        self.holds
            .retain(|hold| hold.process != *process || !was_released(&hold.number));
        for entry in entries {
            if let Some(at) = self.live_at(process, entry.number)
                && 0 < entry.copies
            {
                let more = self.holds[at].copies.saturating_sub(entry.copies);
                self.holds[at].lessen(more);
            }
        }
        let verdict = |entry: &ListedHold<'_>| {
            let verdict = self.listed(process, entry, at_us)?;
            Some((entry.number, verdict))
        };
        Ok(entries.iter().filter_map(verdict).collect())
    }

    fn listed(
        &mut self,
        process: &Process,
        entry: &ListedHold<'_>,
        at_us: u64,
    ) -> Option<ListVerdict> {
        if self.is_ended(process, entry.number) {
            return Some(ListVerdict::Ended);
        }
        if let Some(at) = self.at(process, entry.number) {
            return self.listed_known(at, entry.copies);
        }
        if let Some(id) = entry.seized {
            if self.seize((process, entry.number), id).is_err() {
                return Some(ListVerdict::UnknownTransfer);
            }
            if let Some(hold) = self.holds.last_mut().filter(|_| 0 < entry.copies) {
                hold.copies = hold.copies.min(entry.copies);
            }
            return Some(ListVerdict::Counted((0, None)));
        }
        let start_us = entry.start_us.min(at_us);
        let age_us = self.limits.max_age_us;
        let is_too_old = age_us.is_some_and(|age_us| start_us + age_us <= self.now_us);
        if entry.copies == 0 || is_too_old {
            return Some(ListVerdict::Ended);
        }
        if self.is_at_capacity() {
            return Some(ListVerdict::AtCapacity);
        }
        let groups = self.limits.groups_of(entry.domain);
        let excess = self.excess(entry.domain, &groups, entry.copies);
        self.asks_for(entry.domain, &groups);
        let name = (process, entry.number);
        let hold = self.push(name, entry.domain, entry.copies, start_us);
        (hold.strict, hold.excess) = (entry.strict, excess.clone());
        Some(ListVerdict::Counted(excess))
    }

    /// A listed hold that the model knows: it counts again if it was lost, and may have
    /// more copies than are counted.
    fn listed_known(&mut self, at: usize, copies: u64) -> Option<ListVerdict> {
        let hold = self.holds[at].clone();
        let counted = if hold.lost { 0 } else { hold.copies };
        let wanted = if copies == 0 { hold.copies } else { copies };
        if wanted <= counted {
            return None;
        }
        let more = self.excess(&hold.domain, &hold.groups, wanted - counted);
        self.asks_for(&hold.domain, &hold.groups);
        let excess = match more.0 {
            0 => hold.excess.clone(),
            _ => (hold.excess.0 + more.0, more.1),
        };
        self.holds[at] = ModelHold {
            copies: wanted,
            lost: false,
            excess: excess.clone(),
            ..hold
        };
        Some(ListVerdict::Counted(excess))
    }
}
