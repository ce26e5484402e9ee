//! The state of one resource's copies, and the few steps in which it changes.
//!
//! Every operation consists of these steps: a hold begins or ceases to count, copies are staged or let go. Each
//! step keeps all counts, the digest and the agents' digests consistent, so that no operation can forget one. Knows
//! nothing of why a step is taken. What stays true: every count is the sum of the live holds and the staged copies
//! under it.

use std::sync::Arc;

use tollgate_shared::time::Timestamp;

use super::agents::{AgentState, Agents};
use super::digest::{DigestKind, DigestWords, Sum};
use super::domains::{Domains, NameKey};
use super::effects::{AgentIx, CopiesScope, Effects, HoldId, OpRefused, TransferId};
use super::groups::Groups;
use super::holds::{HoldFacts, Holds};
use super::limits::CopyLimits;
use super::staging::{Staged, Staging};

/// The copies of one resource: which holds there are, and under which limits.
///
/// A function of the operations alone: the same operations in the same order give the same results
/// and the same [digest](Self::digest), also across [snapshots](Self::snapshot).
#[derive(Clone, Debug)]
pub struct Copies {
    pub(super) limits: Arc<CopyLimits>,
    /// The number, over all versions, of the first class of the limits in force.
    pub(super) first_class: u32,
    pub(super) domains: Domains,
    pub(super) groups: Groups,
    pub(super) agents: Agents,
    pub(super) holds: Holds,
    pub(super) staging: Staging,
    pub(super) total: u64,
    /// How many of them were not granted before use.
    pub(super) optimistic: u64,
    pub(super) now: Timestamp,
    pub(super) sum: Sum,
    pub(super) counters: CopiesCounters,
}

/// What happened at bounds since this value was created. Not part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiesCounters {
    /// Holds and transfers that were not counted, because as many as allowed were kept.
    pub not_counted: u64,
    /// Ended ids that were forgotten before their epoch was over.
    pub ended_forgotten: u64,
}

impl Copies {
    /// A state without holds.
    pub fn new(limits: Arc<CopyLimits>, key: NameKey) -> Self {
        let mut copies = Self {
            first_class: 0,
            domains: Domains::new(key),
            groups: Groups::new(),
            agents: Agents::default(),
            holds: Holds::new(),
            staging: Staging::default(),
            total: 0,
            optimistic: 0,
            now: Timestamp::ZERO,
            sum: Sum::default(),
            counters: CopiesCounters::default(),
            limits,
        };
        copies.groups.new_limits(&copies.limits);
        copies
    }

    /// A copy of the present state, which can be written elsewhere while this one goes on.
    ///
    /// Shares the memory of holds, domains and names until either side changes it, piece by piece. It costs some
    /// nanoseconds for every hundred holds, and a copy of the agents, staged copies, groups and excess.
    pub fn freeze(&mut self) -> Self {
        Self {
            limits: Arc::clone(&self.limits),
            first_class: self.first_class,
            domains: self.domains.freeze(),
            groups: self.groups.clone(),
            agents: self.agents.clone(),
            holds: self.holds.freeze(),
            staging: self.staging.clone(),
            total: self.total,
            optimistic: self.optimistic,
            now: self.now,
            sum: self.sum,
            counters: self.counters,
        }
    }

    /// Brings a version of the limits into force.
    ///
    /// Takes nothing away: copies above a lowered limit stay until they are released, and holds keep the groups
    /// that they were taken under. States nothing about scopes; the caller, which keeps the denials, calls
    /// [`is_full`](Self::is_full) for those in force. The cost depends on the groups and classes of the version,
    /// not on the domains: the new limits of a domain are looked up at its next use.
    pub fn new_limits(&mut self, limits: Arc<CopyLimits>) {
        let past = self.limits.classes.len() as u32;
        let count = limits.classes.len() as u32;
        match self.first_class.checked_add(past) {
            Some(first) if first.checked_add(count).is_some() => self.first_class = first,
            // After 2^32 classes: number them from zero again, with no domain looked up yet.
            _ => {
                let slots: Vec<u32> = self.domains.slots().collect();
                for slot in slots {
                    self.domains.set_class(slot, 0);
                }
                self.first_class = 1;
            }
        }
        self.groups.new_limits(&limits);
        self.limits = limits;
    }

    /// The number of an agent's epoch, for operations on its holds; valid until it is [forgotten](Self::forget).
    /// One call for each record is enough.
    pub fn agent(&mut self, name: &str, epoch: u128) -> AgentIx {
        self.agents.intern(name, epoch)
    }

    /// What bounds have cost since this value was created.
    pub fn counters(&self) -> CopiesCounters {
        self.counters
    }

    /// An epoch that may still act.
    #[inline]
    pub(super) fn acting(&self, agent: AgentIx) -> Result<&AgentState, OpRefused> {
        self.agents
            .get(agent)
            .filter(|agent| !agent.over)
            .ok_or(OpRefused::EpochOver)
    }

    /// The slot and the facts of a hold that counts.
    #[inline]
    pub(super) fn live(&self, id: HoldId) -> Result<(u32, HoldFacts), OpRefused> {
        self.acting(id.agent)?;
        let slot = self.holds.find(id).ok_or(OpRefused::UnknownHold)?;
        let facts = self.holds.facts(slot);
        if facts.flags.lost {
            return Err(OpRefused::UnknownHold);
        }
        Ok((slot, facts))
    }

    /// A hold begins, counted unless it is lost.
    pub(super) fn begin(&mut self, facts: &HoldFacts) {
        self.domains.refer(facts.domain);
        self.groups.refer(facts.set);
        self.holds.insert(facts, &mut self.agents);
        self.note(facts, true);
        if facts.flags.lost {
            self.count_lost(facts.id.agent, true);
        } else {
            self.count_in(facts);
        }
    }

    /// A hold ends; scopes that it counted in may open.
    pub(super) fn end(&mut self, slot: u32, out: &mut Effects) {
        let facts = self.holds.facts(slot);
        if facts.flags.lost {
            self.count_lost(facts.id.agent, false);
        } else {
            self.count_out(&facts, out);
        }
        self.note(&facts, false);
        self.holds.remove(slot, &mut self.agents);
        self.groups.unrefer(facts.set);
        self.domains.unrefer(facts.domain);
    }

    /// Changes the copies of a live hold, to at least one.
    pub(super) fn resize(&mut self, slot: u32, copies: u32, out: &mut Effects) {
        let facts = self.holds.facts(slot);
        let new = HoldFacts { copies, ..facts };
        self.note(&facts, false);
        self.hold_digest(&facts, false);
        self.hold_digest(&new, true);
        if copies < facts.copies {
            let less = u64::from(facts.copies - copies);
            self.counts_out(facts.domain, facts.set, less, facts.flags.strict, out);
        } else {
            let more = u64::from(copies - facts.copies);
            self.counts_in(facts.domain, facts.set, more, facts.flags.strict);
        }
        if let Some(agent) = self.agents.get_mut(facts.id.agent) {
            agent.live_copies = agent.live_copies - u64::from(facts.copies) + u64::from(copies);
            let (hold, less) = (
                (agent.mark, facts.id.number),
                facts.copies.saturating_sub(copies),
            );
            agent.excess.lessen(hold, less, &mut self.sum);
        }
        self.holds.set_copies(slot, copies);
        self.note(&new, true);
    }

    /// A live hold's agent is gone: the hold is kept, and stops counting.
    pub(super) fn lose(&mut self, slot: u32, out: &mut Effects) {
        let facts = self.holds.facts(slot);
        self.count_out(&facts, out);
        self.note(&facts, false);
        self.count_lost(facts.id.agent, true);
        self.holds.set_lost(slot, true);
        self.note(&self.holds.facts(slot), true);
    }

    /// A lost hold counts again, under the groups that it was taken under.
    pub(super) fn find_again(&mut self, slot: u32, copies: u32) {
        self.note(&self.holds.facts(slot), false);
        self.holds.set_lost(slot, false);
        self.holds.set_copies(slot, copies);
        let facts = self.holds.facts(slot);
        self.note(&facts, true);
        self.count_lost(facts.id.agent, false);
        self.count_in(&facts);
    }

    /// Stages copies that left a hold; they still count.
    pub(super) fn stage(&mut self, id: TransferId, staged: Staged) {
        self.domains.refer(staged.domain);
        self.groups.refer(staged.set);
        self.counts_in(
            staged.domain,
            staged.set,
            u64::from(staged.copies),
            staged.strict,
        );
        self.note_staged(id, &staged, true);
        self.staging.insert(id, staged);
    }

    /// Removes staged copies from the staging area.
    pub(super) fn unstage(&mut self, id: TransferId, out: &mut Effects) -> Option<Staged> {
        let staged = self.staging.remove(id)?;
        self.counts_out(
            staged.domain,
            staged.set,
            u64::from(staged.copies),
            staged.strict,
            out,
        );
        self.note_staged(id, &staged, false);
        self.groups.unrefer(staged.set);
        self.domains.unrefer(staged.domain);
        Some(staged)
    }

    /// Remembers an id as ended until its epoch is over.
    pub(super) fn stays_ended(&mut self, id: HoldId) {
        let Some(agent) = self.agents.get_mut(id.agent) else {
            return;
        };
        if !agent.ended.insert(id.number) {
            return;
        }
        let mark = agent.mark;
        let forgotten = match super::agents::ENDED_IDS_MAX < agent.ended.len() {
            true => agent.ended.pop_first(),
            false => None,
        };
        self.sum
            .add(DigestKind::EndedId, [mark, id.number, 0, 0, 0]);
        if let Some(number) = forgotten {
            self.counters.ended_forgotten += 1;
            self.sum.take(DigestKind::EndedId, [mark, number, 0, 0, 0]);
        }
    }

    /// Adds a statement for each scope of a hold of a domain that is full.
    pub(super) fn state_full(
        &self,
        name: &str,
        limit: u64,
        held: u64,
        set: u32,
        out: &mut Effects,
    ) {
        if limit <= held {
            out.state(CopiesScope::Domain(name), true);
        }
        for (_, group) in self.groups.of_set(set) {
            if group.full() {
                out.state(CopiesScope::Group(&group.name), true);
            }
        }
        if self.resource_full() {
            out.state(CopiesScope::Resource, true);
        }
    }

    fn count_lost(&mut self, agent: AgentIx, more: bool) {
        if let Some(agent) = self.agents.get_mut(agent) {
            agent.lost = match more {
                true => agent.lost + 1,
                false => agent.lost - 1,
            };
        }
    }

    fn count_in(&mut self, facts: &HoldFacts) {
        let copies = u64::from(facts.copies);
        self.counts_in(facts.domain, facts.set, copies, facts.flags.strict);
        self.hold_digest(facts, true);
        if let Some(agent) = self.agents.get_mut(facts.id.agent) {
            agent.live_copies += copies;
        }
    }

    fn count_out(&mut self, facts: &HoldFacts, out: &mut Effects) {
        let copies = u64::from(facts.copies);
        self.counts_out(facts.domain, facts.set, copies, facts.flags.strict, out);
        self.hold_digest(facts, false);
        if let Some(agent) = self.agents.get_mut(facts.id.agent) {
            agent.live_copies -= copies;
            let hold = (agent.mark, facts.id.number);
            agent.excess.lessen(hold, facts.copies, &mut self.sum);
        }
    }

    fn counts_in(&mut self, domain: u32, set: u32, copies: u64, strict: bool) {
        self.domains.count_in(domain, copies);
        self.groups.count_in(set, copies);
        self.total += copies;
        if !strict {
            self.optimistic += copies;
        }
    }

    fn counts_out(&mut self, domain: u32, set: u32, copies: u64, strict: bool, out: &mut Effects) {
        let held = self.domains.at(domain).copies();
        let class = self.class_at(domain);
        let limit = self.limit_of_class(class);
        if limit <= held && held - copies < limit {
            out.state(CopiesScope::Domain(self.domains.name(domain)), false);
        }
        self.domains.count_out(domain, copies);
        self.groups.count_out(set, copies, |name| {
            out.state(CopiesScope::Group(name), false)
        });
        let was_full = self.resource_full();
        self.total -= copies;
        if was_full && !self.resource_full() {
            out.state(CopiesScope::Resource, false);
        }
        if !strict {
            self.optimistic -= copies;
        }
    }

    /// Updates the agent's own digest for a live hold.
    fn hold_digest(&mut self, facts: &HoldFacts, more: bool) {
        if let Some(agent) = self.agents.get_mut(facts.id.agent) {
            let (number, copies) = (facts.id.number, facts.copies);
            agent.holdings = match more {
                true => agent.holdings.with(number, copies),
                false => agent.holdings.without(number, copies),
            };
        }
    }

    fn note(&mut self, facts: &HoldFacts, more: bool) {
        let agent = self
            .agents
            .get(facts.id.agent)
            .map_or(0, |agent| agent.mark);
        let words: DigestWords = [
            agent,
            facts.id.number,
            facts.start.as_micros(),
            u64::from(self.domains.at(facts.domain).tag()) | u64::from(facts.copies) << 32,
            self.groups.mark_of_set(facts.set) ^ u64::from(facts.flags.bits()),
        ];
        match more {
            true => self.sum.add(DigestKind::Hold, words),
            false => self.sum.take(DigestKind::Hold, words),
        }
    }

    fn note_staged(&mut self, id: TransferId, staged: &Staged, more: bool) {
        let position =
            u64::from(self.domains.at(staged.domain).tag()) | u64::from(staged.copies) << 32;
        let words: DigestWords = [
            id.0 as u64 ^ staged.start.as_micros().rotate_left(32),
            (id.0 >> 64) as u64,
            staged.end.as_micros(),
            position,
            self.groups.mark_of_set(staged.set) ^ u64::from(staged.strict),
        ];
        match more {
            true => self.sum.add(DigestKind::Staged, words),
            false => self.sum.take(DigestKind::Staged, words),
        }
    }
}
