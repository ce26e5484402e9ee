//! Copies of one resource: who holds how many, and what becomes of an operation.
//!
//! ```text
//! limit = 4, and acme holds 2 and 1
//! reserve 3 for acme, at least 1     1 is granted, kept down by the domain's limit
//! hold 2 for acme                    2 of them too many
//! release 2 of that                  it is over
//! ```
//!
//! Knows nothing of records, and of what agents say they hold (`lists`). What stays true: an operation that is
//! refused changes nothing.

use std::collections::BTreeSet;

use super::limits::{CopyScope, HoldLimits, scopes_of};

/// An agent's process: its name and its epoch.
pub type Process = (String, u128);

/// Copies, and the scope that kept them down, if one did.
pub type KeptBy = (u64, Option<CopyScope>);

/// Copies that a process holds, or held before it was gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHold {
    /// Whose.
    pub process: Process,
    /// Its number.
    pub number: u64,
    /// For whom.
    pub domain: String,
    /// The groups that the domain belonged to when the copies were taken.
    pub groups: Vec<String>,
    /// How many.
    pub copies: u64,
    /// When they were taken, in microseconds.
    pub start_us: u64,
    /// Whether they were granted before they were used.
    pub strict: bool,
    /// Whether they were seized.
    pub seized: bool,
    /// Whether the process is gone. Then they do not count.
    pub lost: bool,
    /// What was too many, and is still held.
    pub excess: KeptBy,
}

/// Copies on their way between two processes. They count, and belong to neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedCopies {
    /// The transfer.
    pub id: u128,
    /// For whom.
    pub domain: String,
    /// As of the hold that they come from.
    pub groups: Vec<String>,
    /// How many.
    pub copies: u64,
    /// When they were taken, in microseconds.
    pub start_us: u64,
    /// Until when they are staged, in microseconds.
    pub end_us: u64,
    /// As of the hold that they come from.
    pub strict: bool,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRefusal {
    /// The process does not hold that.
    UnknownHold,
    /// It holds fewer copies.
    TooManyCopies,
    /// Nothing is staged under that id.
    UnknownTransfer,
    /// Something is staged under that id.
    TransferExists,
    /// It holds something under that number.
    HoldExists,
    /// The number was ended by age or by an operator.
    HoldEnded,
    /// The process's epoch is over.
    EpochOver,
    /// No copies were asked for.
    NoCopies,
    /// More were asked for at least than at most.
    MinAboveCopies,
    /// As many holds and transfers are kept as may be.
    AtCapacity,
    /// The resource is not limited by copies.
    Unconfigured,
}

/// The copies of one resource.
#[derive(Clone, Debug, Default)]
pub struct HoldsModel {
    /// What limits them.
    pub limits: HoldLimits,
    /// Everything held, in the order in which it came.
    pub holds: Vec<ModelHold>,
    /// Everything staged, in the order in which it came.
    pub staged: Vec<StagedCopies>,
    /// Numbers that were ended by age or by an operator.
    pub ended: Vec<(Process, u64)>,
    /// Processes whose epochs are over.
    pub over: Vec<Process>,
    /// The last tick, in microseconds.
    pub now_us: u64,
    /// Scopes in which room was asked for since the caller cleared this.
    pub asked: BTreeSet<CopyScope>,
}

impl ModelHold {
    /// Some copies less. Those that were too many go first.
    pub(super) fn lessen(&mut self, copies: u64) {
        self.copies -= copies;
        self.excess.0 = self.excess.0.saturating_sub(copies);
        if self.excess.0 == 0 {
            self.excess.1 = None;
        }
    }
}

impl HoldsModel {
    /// Nobody holds anything.
    pub fn new(limits: HoldLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Everything that counts: its domain, groups and copies, and whether it was granted before use.
    fn counted(&self) -> impl Iterator<Item = (&String, &Vec<String>, u64, bool)> {
        let holds = self.holds.iter().filter(|hold| !hold.lost);
        let holds = holds.map(|of| (&of.domain, &of.groups, of.copies, of.strict));
        let staged = self.staged.iter();
        holds.chain(staged.map(|of| (&of.domain, &of.groups, of.copies, of.strict)))
    }

    /// The copies that count in a scope.
    pub fn copies_in(&self, scope: &CopyScope) -> u64 {
        let counted = self.counted().filter(|(domain, groups, _, _)| match scope {
            CopyScope::Domain(name) => *domain == name,
            CopyScope::Group(name) => groups.contains(name),
            CopyScope::Resource => true,
        });
        counted.map(|(_, _, copies, _)| copies).sum()
    }

    /// Of all copies, those that were not granted before use.
    pub fn optimistic(&self) -> u64 {
        let counted = self.counted().filter(|(_, _, _, strict)| !strict);
        counted.map(|(_, _, copies, _)| copies).sum()
    }

    /// The copies of a process that count.
    pub fn copies_of(&self, process: &Process) -> u64 {
        let holds = { self.holds.iter() }.filter(|of| of.process == *process && !of.lost);
        holds.map(|hold| hold.copies).sum()
    }

    /// Whether a scope has no room.
    pub fn is_full(&self, scope: &CopyScope) -> bool {
        let limit = self.limits.limit_of(scope);
        limit.is_some_and(|limit| limit <= self.copies_in(scope))
    }

    /// The most of so many copies that all limits leave room for, and the scope that has the least room.
    pub(super) fn room(&self, domain: &str, groups: &[String], copies: u64) -> KeptBy {
        let mut kept = (copies, None);
        for scope in scopes_of(domain, groups) {
            let limit = self.limits.limit_of(&scope);
            let room = limit.map(|limit| limit.saturating_sub(self.copies_in(&scope)));
            if room.is_some_and(|room| room < kept.0) {
                kept = (room.unwrap_or(0), Some(scope));
            }
        }
        kept
    }

    /// What of copies that are in use already is too many.
    pub(super) fn excess(&self, domain: &str, groups: &[String], copies: u64) -> KeptBy {
        let (room, by) = self.room(domain, groups, copies);
        (copies - room, by)
    }

    /// Where a hold stands in the list, whether or not it counts.
    pub fn at(&self, process: &Process, number: u64) -> Option<usize> {
        let mut holds = self.holds.iter();
        holds.position(|hold| hold.process == *process && hold.number == number)
    }

    /// Where a hold that counts stands in the list.
    pub fn live_at(&self, process: &Process, number: u64) -> Option<usize> {
        { self.at(process, number) }.filter(|at| !self.holds[*at].lost)
    }

    pub(super) fn is_ended(&self, process: &Process, number: u64) -> bool {
        self.ended.contains(&(process.clone(), number))
    }

    pub(super) fn is_at_capacity(&self) -> bool {
        self.limits.kept_max <= self.holds.len() + self.staged.len()
    }

    pub(super) fn drop_hold(&mut self, process: &Process, number: u64) {
        self.holds
            .retain(|hold| hold.process != *process || hold.number != number);
    }

    pub(super) fn asks_for(&mut self, domain: &str, groups: &[String]) {
        self.asked.extend(scopes_of(domain, groups));
    }

    pub(super) fn push(
        &mut self,
        (process, number): (&Process, u64),
        domain: &str,
        copies: u64,
        start_us: u64,
    ) -> &mut ModelHold {
        self.holds.push(ModelHold {
            process: process.clone(),
            number,
            domain: domain.to_owned(),
            groups: self.limits.groups_of(domain),
            copies,
            start_us,
            strict: false,
            seized: false,
            lost: false,
            excess: (0, None),
        });
        self.holds.last_mut().expect("it was put in")
    }

    fn may_begin(&self, process: &Process, number: u64) -> Result<(), HoldRefusal> {
        match () {
            () if self.over.contains(process) => Err(HoldRefusal::EpochOver),
            () if self.is_ended(process, number) => Err(HoldRefusal::HoldEnded),
            () => Ok(()),
        }
    }

    /// Grants the most of `copies` that all limits leave room for, and nothing where that is less than `min`.
    pub fn reserve(
        &mut self,
        (process, number): (&Process, u64),
        domain: &str,
        (min, copies): (u64, u64),
        at_us: u64,
    ) -> Result<KeptBy, HoldRefusal> {
        if copies < min {
            return Err(HoldRefusal::MinAboveCopies);
        }
        if copies == 0 {
            return Err(HoldRefusal::NoCopies);
        }
        self.may_begin(process, number)?;
        if self.live_at(process, number).is_some() {
            return Err(HoldRefusal::HoldExists);
        }
        let groups = self.limits.groups_of(domain);
        let (granted, by) = self.room(domain, &groups, copies);
        if granted == 0 || granted < min {
            self.asks_for(domain, &groups);
            return Ok((0, by));
        }
        if self.at(process, number).is_none() && self.is_at_capacity() {
            return Err(HoldRefusal::AtCapacity);
        }
        self.drop_hold(process, number);
        self.push((process, number), domain, granted, at_us).strict = true;
        self.asks_for(domain, &groups);
        Ok((granted, by))
    }

    /// Counts copies that are in use already, in place of what the process held under the number. What of them is too
    /// many.
    pub fn hold(
        &mut self,
        (process, number): (&Process, u64),
        domain: &str,
        copies: u64,
        at_us: u64,
    ) -> Result<KeptBy, HoldRefusal> {
        if copies == 0 {
            return Err(HoldRefusal::NoCopies);
        }
        self.may_begin(process, number)?;
        if self.at(process, number).is_none() && self.is_at_capacity() {
            return Err(HoldRefusal::AtCapacity);
        }
        self.drop_hold(process, number);
        let groups = self.limits.groups_of(domain);
        let excess = self.excess(domain, &groups, copies);
        self.push((process, number), domain, copies, at_us).excess = excess.clone();
        self.asks_for(domain, &groups);
        Ok(excess)
    }

    /// A hold that counts and has so many copies.
    fn live_with(&self, hold: (&Process, u64), copies: u64) -> Result<usize, HoldRefusal> {
        if self.over.contains(hold.0) {
            return Err(HoldRefusal::EpochOver);
        }
        let at = { self.live_at(hold.0, hold.1) }.ok_or(HoldRefusal::UnknownHold)?;
        match copies {
            0 => Err(HoldRefusal::NoCopies),
            _ if self.holds[at].copies < copies => Err(HoldRefusal::TooManyCopies),
            _ => Ok(at),
        }
    }

    /// Takes copies back; with the last one the hold is over.
    pub fn release(&mut self, hold: (&Process, u64), copies: u64) -> Result<(), HoldRefusal> {
        let at = self.live_with(hold, copies)?;
        self.holds[at].lessen(copies);
        self.holds.retain(|hold| 0 < hold.copies);
        Ok(())
    }

    /// Stages copies of a hold.
    pub fn transfer(
        &mut self,
        hold: (&Process, u64),
        copies: u64,
        id: u128,
        end_us: u64,
    ) -> Result<(), HoldRefusal> {
        let at = self.live_with(hold, copies)?;
        if self.staged.iter().any(|staged| staged.id == id) {
            return Err(HoldRefusal::TransferExists);
        }
        if copies < self.holds[at].copies && self.is_at_capacity() {
            return Err(HoldRefusal::AtCapacity);
        }
        let from = self.holds[at].clone();
        self.staged.push(StagedCopies {
            id,
            domain: from.domain,
            groups: from.groups,
            copies,
            start_us: from.start_us,
            end_us,
            strict: from.strict,
        });
        self.release(hold, copies)
    }

    /// Everything staged under an id becomes a hold, as old as the copies are and under their groups.
    pub fn seize(
        &mut self,
        (process, number): (&Process, u64),
        id: u128,
    ) -> Result<u64, HoldRefusal> {
        self.may_begin(process, number)?;
        if self.live_at(process, number).is_some() {
            return Err(HoldRefusal::HoldExists);
        }
        let at = self.staged.iter().position(|staged| staged.id == id);
        let at = at.ok_or(HoldRefusal::UnknownTransfer)?;
        self.drop_hold(process, number);
        let staged = self.staged.remove(at);
        self.holds.push(ModelHold {
            process: process.clone(),
            number,
            domain: staged.domain,
            groups: staged.groups,
            copies: staged.copies,
            start_us: staged.start_us,
            strict: staged.strict,
            seized: true,
            lost: false,
            excess: (0, None),
        });
        Ok(staged.copies)
    }

    /// An operator ends a hold. The copies that come back.
    pub fn end_hold(&mut self, hold: (&Process, u64)) -> Result<u64, HoldRefusal> {
        let at = { self.at(hold.0, hold.1) }.ok_or(HoldRefusal::UnknownHold)?;
        let ended = self.holds.remove(at);
        self.ended.push((hold.0.clone(), hold.1));
        Ok(if ended.lost { 0 } else { ended.copies })
    }

    /// An operator ends a transfer. The copies that come back.
    pub fn end_transfer(&mut self, id: u128) -> Result<u64, HoldRefusal> {
        let at = self.staged.iter().position(|staged| staged.id == id);
        let at = at.ok_or(HoldRefusal::UnknownTransfer)?;
        Ok(self.staged.remove(at).copies)
    }
}
