//! Heartbeats of agents: listing holds, going silent, coming back, and the end of an epoch.
//!
//! ```text
//! full heartbeat     lists all holds of the epoch. A hold that is counted and not listed was released (the
//!               release was lost). A hold that is listed and not counted is counted now (the message
//!               about it was lost, or the agent comes back). A hold that was ended stays ended
//! digest heartbeat   the same in eight bytes: equal, or the agent has to send a full heartbeat
//! gone          the agent's holds stop counting and are kept as lost
//! epoch over    only the fact that the epoch is over is kept
//! forgotten     not even that
//! ```
//!
//! A reserve that still awaits its verdict is not held yet. The agent lists its number separately,
//! so a heartbeat neither adds nor removes it. Knows nothing of silence or sequences. What stays
//! true: a gone agent holds nothing; after a full heartbeat the epoch holds what it listed, except holds
//! that were ended or could not be claimed.

use std::ops::RangeInclusive;

use tollgate_shared::holdings::Holdings;
use tollgate_shared::time::Timestamp;
pub use tollgate_shared::wire::heartbeat::Listed;

use super::effects::{AgentIx, Effects, HoldId, HoldVerdict, OpRefused, TransferId};
use super::holds::Flags;
use super::ops::{CopiesRequest, excess_of};
use super::state::Copies;

/// The part of an epoch's holds that one full heartbeat lists.
#[derive(Clone, Debug)]
pub struct List<'a> {
    /// The range of numbers that the list covers: a counted hold in this range that is not listed
    /// was released.
    pub numbers: RangeInclusive<u64>,
    /// The holds.
    pub listed: &'a [Listed<'a>],
    /// Numbers whose verdicts the agent does not know yet.
    pub awaiting: &'a [u64],
}

impl<'a> List<'a> {
    /// A list that covers all numbers.
    pub fn whole(listed: &'a [Listed<'a>], awaiting: &'a [u64]) -> Self {
        Self {
            numbers: 0..=u64::MAX,
            listed,
            awaiting,
        }
    }
}

/// Result of a digest heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestOutcome {
    /// The agent's digest equals that of the counted holds.
    Equal,
    /// The digests differ: the agent has to send a full heartbeat.
    Differs,
}

impl Copies {
    /// Applies a list of the holds of an epoch. Gives a verdict on each hold that begins to count,
    /// or cannot.
    ///
    /// First all listed holds shrink to their listed copies and unlisted ones end; then new holds
    /// are counted, in the order of the list. So a lost release causes no excess.
    ///
    /// # Errors
    ///
    /// [`OpRefused::EpochOver`]; nothing has changed.
    pub fn full_heartbeat(
        &mut self,
        agent: AgentIx,
        at: Timestamp,
        list: &List<'_>,
        out: &mut Effects,
    ) -> Result<(), OpRefused> {
        self.acting(agent)?;
        let from = out.scopes_stated();
        for entry in list.listed {
            self.shrink_to(agent, entry, out);
        }
        for &number in list.awaiting {
            if let Some(slot) = self.holds.find(HoldId { agent, number }) {
                self.holds.set_listed(slot, true);
            }
        }
        for slot in self.slots_of(agent) {
            if self.holds.listed(slot) {
                self.holds.set_listed(slot, false);
            } else if list.numbers.contains(&self.holds.facts(slot).id.number) {
                self.end(slot, out);
            }
        }
        for entry in list.listed {
            let id = HoldId {
                agent,
                number: entry.number,
            };
            if let Some(verdict) = self.grow_to(id, at, entry, out) {
                out.verdicts.push((id, verdict));
            }
        }
        out.settle(from);
        Ok(())
    }

    /// Compares the agent's digest with that of the counted holds, without those in `awaiting`. If
    /// they are equal, holds kept as lost are dropped: the agent does not hold them any more.
    ///
    /// # Errors
    ///
    /// [`OpRefused::EpochOver`].
    pub fn digest_heartbeat(
        &mut self,
        agent: AgentIx,
        holdings: Holdings,
        awaiting: &[u64],
        out: &mut Effects,
    ) -> Result<DigestOutcome, OpRefused> {
        let mut counted = self.acting(agent)?.holdings;
        let mut left_out = Vec::new();
        for &number in awaiting {
            if let Ok((slot, facts)) = self.live(HoldId { agent, number })
                && !self.holds.listed(slot)
            {
                self.holds.set_listed(slot, true);
                left_out.push(slot);
                counted = counted.without(number, facts.copies);
            }
        }
        for slot in left_out {
            self.holds.set_listed(slot, false);
        }
        if counted != holdings {
            return Ok(DigestOutcome::Differs);
        }
        // Seldom true. A heartbeat that finds no difference must cost the same however many holds
        // there are.
        if self.has_lost(agent) {
            for slot in self.slots_of(agent) {
                if self.holds.facts(slot).flags.lost {
                    self.end(slot, out);
                }
            }
        }
        Ok(DigestOutcome::Equal)
    }

    /// An agent has gone silent: its holds stop counting and are kept as lost, in case it returns.
    /// Copies that it has staged stay staged. Returns the number of copies that came back.
    pub fn agent_gone(&mut self, agent: AgentIx, out: &mut Effects) -> u64 {
        let released = self.copies_of(agent);
        let from = out.scopes_stated();
        for slot in self.slots_of(agent) {
            if !self.holds.facts(slot).flags.lost {
                self.lose(slot, out);
            }
        }
        out.settle(from);
        released
    }

    /// An epoch is over: its successor or the epoch itself has stated that. None of its holds counts or
    /// is kept, and its operations are refused from now on. Copies that it has staged stay staged.
    /// Returns the number of copies that came back.
    pub fn epoch_over(&mut self, agent: AgentIx, out: &mut Effects) -> u64 {
        let released = self.drop_all_of(agent, out);
        if let Some(found) = self.agents.get_mut(agent)
            && !found.over
        {
            found.over = true;
            let words = [found.mark, 0, 0, 0, 0];
            self.sum.add(super::digest::DigestKind::EpochOver, words);
        }
        released
    }

    /// Forgets an epoch, together with the fact that it is over and the ids that were ended; its
    /// number is reused. Returns the number of copies that came back if it still held any.
    pub fn forget(&mut self, agent: AgentIx, out: &mut Effects) -> u64 {
        let released = self.drop_all_of(agent, out);
        if let Some(found) = self.agents.get(agent)
            && found.over
        {
            let words = [found.mark, 0, 0, 0, 0];
            self.sum.take(super::digest::DigestKind::EpochOver, words);
        }
        self.agents.remove(agent);
        released
    }

    fn drop_all_of(&mut self, agent: AgentIx, out: &mut Effects) -> u64 {
        let released = self.copies_of(agent);
        let from = out.scopes_stated();
        for slot in self.slots_of(agent) {
            self.end(slot, out);
        }
        out.settle(from);
        if let Some(found) = self.agents.get_mut(agent) {
            for number in std::mem::take(&mut found.ended) {
                let words = [found.mark, number, 0, 0, 0];
                self.sum.take(super::digest::DigestKind::EndedId, words);
            }
        }
        released
    }

    /// First pass of a heartbeat: marks a known hold as listed, and removes the copies that it has
    /// beyond the listed ones.
    fn shrink_to(&mut self, agent: AgentIx, entry: &Listed<'_>, out: &mut Effects) {
        let number = entry.number;
        let Some(slot) = self.holds.find(HoldId { agent, number }) else {
            return;
        };
        self.holds.set_listed(slot, true);
        let facts = self.holds.facts(slot);
        if !facts.flags.lost && 0 < entry.copies && entry.copies < facts.copies {
            self.resize(slot, entry.copies, out);
        }
    }

    /// Second pass: the hold counts as listed. `None`: it already did.
    fn grow_to(
        &mut self,
        id: HoldId,
        at: Timestamp,
        entry: &Listed<'_>,
        out: &mut Effects,
    ) -> Option<HoldVerdict> {
        if self
            .acting(id.agent)
            .is_ok_and(|of| of.ended.contains(&id.number))
        {
            return Some(HoldVerdict::Ended);
        }
        match self.holds.find(id) {
            Some(slot) => self.grow_known(slot, entry, out),
            None => Some(self.count_unknown(id, at, entry, out)),
        }
    }

    fn grow_known(
        &mut self,
        slot: u32,
        entry: &Listed<'_>,
        out: &mut Effects,
    ) -> Option<HoldVerdict> {
        let facts = self.holds.facts(slot);
        let copies = match entry.copies {
            0 => facts.copies,
            copies => copies,
        };
        let counted = if facts.flags.lost { 0 } else { facts.copies };
        if copies <= counted {
            return None;
        }
        let class = self.class_at(facts.domain);
        let limit = self.limit_of_class(class);
        let held = self.domains.at(facts.domain).copies();
        let taken = excess_of(copies - counted, self.room_with(limit, held, facts.set));
        if facts.flags.lost {
            self.find_again(slot, copies);
        } else {
            self.resize(slot, copies, out);
        }
        // The excess that the hold had before remains.
        self.remember(facts.id, taken);
        let taken = self.excess_of(facts.id);
        let held = self.domains.at(facts.domain).copies();
        let name = self.domains.name(facts.domain);
        self.state_full(name, limit, held, facts.set, out);
        Some(HoldVerdict::Counted(taken))
    }

    fn count_unknown(
        &mut self,
        id: HoldId,
        at: Timestamp,
        entry: &Listed<'_>,
        out: &mut Effects,
    ) -> HoldVerdict {
        let start = entry.start.min(at);
        if let Some(transfer) = entry.seized {
            return self.claim_listed(id, transfer, entry.copies, out);
        }
        if entry.copies == 0 || self.too_old(start) {
            return HoldVerdict::Ended;
        }
        if !self.has_place() {
            self.counters.not_counted += 1;
            return HoldVerdict::NotCounted;
        }
        let ask = CopiesRequest {
            id,
            at: start,
            domain: entry.domain,
            copies: entry.copies,
        };
        let flags = Flags {
            strict: entry.strict,
            ..Flags::default()
        };
        HoldVerdict::Counted(self.hold_in_place_of(&ask, None, flags, out))
    }

    /// A heartbeat lists a seized hold that is unknown: the seize was lost. The hold claims what is
    /// staged, less the copies that the agent has released since.
    fn claim_listed(
        &mut self,
        id: HoldId,
        transfer: TransferId,
        copies: u32,
        out: &mut Effects,
    ) -> HoldVerdict {
        let Some(staged) = self.staging.get(transfer).copied() else {
            return HoldVerdict::UnknownTransfer;
        };
        self.claim(transfer, &staged, id, out);
        if 0 < copies
            && copies < staged.copies
            && let Some(slot) = self.holds.find(id)
        {
            self.resize(slot, copies, out);
        }
        HoldVerdict::Counted(super::effects::Taken {
            excess: 0,
            by: None,
        })
    }

    pub(super) fn slots_of(&self, agent: AgentIx) -> Vec<u32> {
        let head = self.agents.get(agent).map(|agent| agent.head);
        head.map_or_else(Vec::new, |head| self.holds.of_agent(head).collect())
    }
}
