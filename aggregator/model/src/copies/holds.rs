//! Copies of one resource: which process holds how many, and the result of each operation.
//!
//! ```text
//! limit = 4, and acme holds 2 and 1
//! reserve 3 for acme, at least 1     1 is granted: the domain's limit has room for no more
//! hold 2 for acme                    2 of them in excess
//! release 2 of that                  the hold ends
//! ```
//!
//! Knows nothing of records, nor of the holds that agents list in heartbeats (`lists`). What stays true: a
//! refused operation changes nothing.

use std::collections::BTreeSet;

use super::limits::{CopyScope, HoldLimits, scopes_of};

/// An agent's process: its name and its epoch.
pub type Process = (String, u128);

/// A number of copies, and the scope whose limit reduced it, if one did.
pub type KeptBy = (u64, Option<CopyScope>);

/// Copies that a process holds, or held before it was gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelHold {
    /// The process that holds them.
    pub process: Process,
    /// The hold's number.
    pub number: u64,
    /// The domain on whose behalf they are held.
    pub domain: String,
    /// The groups that the domain belonged to when the copies were taken.
    pub groups: Vec<String>,
    /// The number of copies.
    pub copies: u64,
    /// When they were taken, in microseconds.
    pub start_us: u64,
    /// Whether the aggregator granted them before the agent used them (a reserve).
    pub strict: bool,
    /// Whether they were seized from a transfer.
    pub seized: bool,
    /// Whether the process is gone. The copies of such a hold do not count.
    pub lost: bool,
    /// The copies above a limit that are still held.
    pub excess: KeptBy,
}

/// Copies on their way between two processes. They count, but belong to neither process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedCopies {
    /// The transfer's id.
    pub id: u128,
    /// The domain on whose behalf they are held.
    pub domain: String,
    /// The groups of the hold that they come from.
    pub groups: Vec<String>,
    /// The number of copies.
    pub copies: u64,
    /// When they were taken, in microseconds.
    pub start_us: u64,
    /// Until when they are staged, in microseconds.
    pub end_us: u64,
    /// Whether the hold that they come from was granted before use.
    pub strict: bool,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRefusal {
    /// The process has no hold under this number.
    UnknownHold,
    /// The hold has fewer copies.
    TooManyCopies,
    /// Nothing is staged under that id.
    UnknownTransfer,
    /// Something is staged under that id.
    TransferExists,
    /// The process already has a hold under this number.
    HoldExists,
    /// Age or an operator ended the hold of this number.
    HoldEnded,
    /// The process's epoch is over.
    EpochOver,
    /// The operation asks for no copies.
    NoCopies,
    /// The operation asks for a minimum above its maximum.
    MinAboveCopies,
    /// The resource already has the greatest number of holds and transfers.
    AtCapacity,
    /// The resource is not limited by copies.
    Unconfigured,
}

/// The copies of one resource.
#[derive(Clone, Debug, Default)]
pub struct HoldsModel {
    /// The limits on them.
    pub limits: HoldLimits,
    /// All holds, in the order in which they arrived.
    pub holds: Vec<ModelHold>,
    /// All staged transfers, in the order in which they arrived.
    pub staged: Vec<StagedCopies>,
    /// Numbers of holds that age or an operator ended.
    pub ended: Vec<(Process, u64)>,
    /// Processes whose epochs are over.
    pub over: Vec<Process>,
    /// The last tick, in microseconds.
    pub now_us: u64,
    /// Scopes in which an operation asked for room since the caller last cleared this set.
    pub asked: BTreeSet<CopyScope>,
}

impl ModelHold {
    /// Removes copies from the hold; those above a limit go first.
    pub(super) fn lessen(&mut self, copies: u64) {
        self.copies -= copies;
        self.excess.0 = self.excess.0.saturating_sub(copies);
        if self.excess.0 == 0 {
            self.excess.1 = None;
        }
    }
}

impl HoldsModel {
    /// A resource of which no process holds anything.
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

    /// Of the copies that count, those that were not granted before use.
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

    /// The greatest part of `copies` that all limits have room for, and the scope with the least room.
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

    /// How many of these copies, which are in use already, are above a limit.
    pub(super) fn excess(&self, domain: &str, groups: &[String], copies: u64) -> KeptBy {
        let (room, by) = self.room(domain, groups, copies);
        (copies - room, by)
    }

    /// The index of a hold in the list, whether or not it counts.
    pub fn at(&self, process: &Process, number: u64) -> Option<usize> {
        let mut holds = self.holds.iter();
        holds.position(|hold| hold.process == *process && hold.number == number)
    }

    /// The index of a hold that counts.
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

    /// Grants the greatest part of `copies` that all limits have room for, or nothing if that is less than `min`.
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

    /// Counts copies that are in use already. They replace what the process held under the number. Returns how
    /// many of them are above a limit.
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

    /// The index of a hold that counts and has at least this many copies.
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

    /// Takes copies back. The hold ends with its last copy.
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

    /// Turns everything staged under an id into a hold, which keeps the age and the groups of the copies.
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

    /// An operator ends a hold. Returns the copies that become free.
    pub fn end_hold(&mut self, hold: (&Process, u64)) -> Result<u64, HoldRefusal> {
        let at = { self.at(hold.0, hold.1) }.ok_or(HoldRefusal::UnknownHold)?;
        let ended = self.holds.remove(at);
        self.ended.push((hold.0.clone(), hold.1));
        Ok(if ended.lost { 0 } else { ended.copies })
    }

    /// An operator ends a transfer. Returns the copies that become free.
    pub fn end_transfer(&mut self, id: u128) -> Result<u64, HoldRefusal> {
        let at = self.staged.iter().position(|staged| staged.id == id);
        let at = at.ok_or(HoldRefusal::UnknownTransfer)?;
        Ok(self.staged.remove(at).copies)
    }
}
