//! Totals on their way: what a partition granted of globally limited resources, to the partitions that rule
//! those resources.
//!
//! ```text
//! source 3, resource api.search      due 17 <- 12 <- 9      (each names its predecessor)
//! append 9, append 12, append 17     in this order, several on their way at once
//! 12 fails                           12 and 17 are appended again; the copy of 17 that arrived
//!                                    without its predecessor was ignored by the engine
//! ```
//!
//! A total is removed when the log has it and everything before it in its chain. In catch-up the engine
//! reports again totals that were due long ago; those that the target has applied already are dropped before
//! they are sent. Knows nothing of hits and limits.
//!
//! At most a bound and one delivery wait. Beyond it the source rules nothing, and totals that are due are sent
//! although their target is not caught up; the target ignores those that it has.
//!
//! What stays true: at any time the unsent part of a chain is a suffix of it, so that the target applies
//! each total once and in order, whatever fails.

use std::collections::{BTreeMap, VecDeque};

use tollgate_shared::wire::record::{self, Total};

use tollgate_log::Ticket;

/// One total that an engine reported as due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The offset of the hits record that was totalled.
    pub offset: u64,
    /// The offset of the record before it with a total for this resource.
    pub previous: Option<u64>,
    /// The hits that count, by millisecond.
    pub counted: Vec<Total>,
}

/// A chain: one resource's totals from one source partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainKey {
    /// The partition that grants.
    pub source: u32,
    /// The resource.
    pub resource: Box<str>,
}

impl ChainKey {
    /// The chain of a total.
    pub(super) fn of(total: &record::Totals<'_>) -> Self {
        Self {
            source: total.source_partition,
            resource: total.resource.into(),
        }
    }
}

#[derive(Debug)]
enum TotalsState {
    Due,
    Sent(Ticket),
    Acknowledged(Ticket),
}

/// The index in a chain of the total that was sent under a ticket and not answered yet. Tickets rise along a chain.
fn position(chain: &VecDeque<(Due, TotalsState)>, ticket: Ticket) -> Option<usize> {
    let is_before = |state: &TotalsState| match state {
        TotalsState::Sent(sent) | TotalsState::Acknowledged(sent) => *sent < ticket,
        TotalsState::Due => false,
    };
    let at = chain.partition_point(|(_, state)| is_before(state));
    let found = chain.get(at);
    found
        .is_some_and(|(_, state)| matches!(state, TotalsState::Sent(sent) if *sent == ticket))
        .then_some(at)
}

/// Totals of one source partition.
#[derive(Debug, Default)]
pub struct Totals {
    /// The chains, by resource.
    chains: BTreeMap<Box<str>, VecDeque<(Due, TotalsState)>>,
    /// The last total that its target has applied, by resource. There are as many entries as the engine has chains.
    applied: BTreeMap<Box<str>, u64>,
}

impl Totals {
    /// Takes a total that the engine reports. A total is taken once, and not at all if its target has applied it.
    pub fn due(&mut self, resource: Box<str>, due: Due) {
        if self
            .applied
            .get(&resource)
            .is_some_and(|applied| due.offset <= *applied)
        {
            return;
        }
        let chain = self.chains.entry(resource).or_default();
        if chain
            .back()
            .is_none_or(|(last, _)| last.offset < due.offset)
        {
            chain.push_back((due, TotalsState::Due));
        }
    }

    /// Drops what the target has applied: everything in the chain up to `offset`.
    pub fn applied(&mut self, resource: &str, offset: u64) {
        match self.applied.get_mut(resource) {
            Some(known) => *known = offset.max(*known),
            None => drop(self.applied.insert(resource.into(), offset)),
        }
        let Some(chain) = self.chains.get_mut(resource) else {
            return;
        };
        // A total that is on its way stays: its answer is still to come.
        while let Some((due, TotalsState::Due)) = chain.front() {
            if offset < due.offset {
                break;
            }
            chain.pop_front();
        }
        if chain.is_empty() {
            self.chains.remove(resource);
        }
    }

    /// Sends everything that is due and not on its way, in order. `may_send` returns whether a chain may be sent at
    /// all; `send` appends a total and returns its ticket.
    pub fn send(
        &mut self,
        may_send: impl Fn(&str) -> bool,
        mut send: impl FnMut(&str, &Due) -> Ticket,
    ) {
        for (resource, chain) in &mut self.chains {
            if !may_send(resource) {
                continue;
            }
            let unsent = chain
                .iter()
                .rev()
                .take_while(|(_, state)| matches!(state, TotalsState::Due))
                .count();
            for (due, state) in chain.range_mut(chain.len() - unsent..) {
                *state = TotalsState::Sent(send(resource, due));
            }
        }
    }

    /// The log has the total of this ticket.
    pub fn acknowledged(&mut self, resource: &str, ticket: Ticket) {
        let Some(chain) = self.chains.get_mut(resource) else {
            return;
        };
        if let Some(at) = position(chain, ticket)
            && let Some((_, state)) = chain.get_mut(at)
        {
            *state = TotalsState::Acknowledged(ticket);
        }
        while let Some((_, TotalsState::Acknowledged(_))) = chain.front() {
            chain.pop_front();
        }
        if chain.is_empty() {
            self.chains.remove(resource);
        }
    }

    /// The log does not have the total of this ticket: it and everything after it in its chain is due again. Returns
    /// whether the ticket was awaited.
    pub fn failed(&mut self, resource: &str, ticket: Ticket) -> bool {
        // A ticket of an earlier attempt is not found: its total is due again already.
        let Some(chain) = self.chains.get_mut(resource) else {
            return false;
        };
        let Some(at) = position(chain, ticket) else {
            return false;
        };
        for (_, state) in chain.range_mut(at..) {
            *state = TotalsState::Due;
        }
        true
    }

    /// Whether a total waits or is on its way that follows the one at `applied`.
    pub fn goes_on_from(&self, resource: &str, applied: Option<u64>) -> bool {
        let chain = self.chains.get(resource);
        chain.is_some_and(|chain| chain.iter().any(|(due, _)| due.previous == applied))
    }

    /// Drops everything: the aggregator that rules the partition next reports again what was due, and offsets may
    /// start from 0 again.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Forgets what a target has applied, since the target does not report it any more: `is_its` returns whether it
    /// rules a resource.
    pub fn forget_applied(&mut self, is_its: impl Fn(&str) -> bool) {
        self.applied.retain(|resource, _| !is_its(resource));
    }

    /// The least offset whose total the log may not have yet.
    pub fn oldest(&self) -> Option<u64> {
        let chains = self.chains.values();
        let oldest = chains.filter_map(|chain| chain.front().map(|(due, _)| due.offset));
        oldest.min()
    }

    /// Whether `max` totals wait, so that nothing more is to be ruled for the moment.
    pub fn is_full(&self, max: usize) -> bool {
        max <= self.len()
    }

    /// Whether few enough of them wait to rule on.
    pub fn has_room(&self, max: usize) -> bool {
        self.len() <= max / 2
    }

    /// How many totals the log may not have yet.
    pub fn len(&self) -> usize {
        self.chains.values().map(VecDeque::len).sum()
    }

    /// Whether the log has them all.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "api.search";

    fn due(offset: u64, previous: Option<u64>) -> Due {
        Due {
            offset,
            previous,
            counted: vec![Total::guarded(0, 1)],
        }
    }

    fn with_three() -> Totals {
        let mut totals = Totals::default();
        for (offset, previous) in [(9, None), (12, Some(9)), (17, Some(12))] {
            totals.due(RESOURCE.into(), due(offset, previous));
        }
        totals
    }

    fn sent(totals: &mut Totals, next: &mut u64) -> Vec<(u64, u64)> {
        let mut sent = Vec::new();
        totals.send(
            |_| true,
            |_, due| {
                *next += 1;
                sent.push((due.offset, *next));
                Ticket(*next)
            },
        );
        sent
    }

    #[test]
    fn after_a_failed_append_the_chain_goes_on_from_there_in_order() {
        let (mut totals, mut next) = (with_three(), 0);
        assert_eq!(sent(&mut totals, &mut next), [(9, 1), (12, 2), (17, 3)]);
        assert_eq!(sent(&mut totals, &mut next), []);
        totals.acknowledged(RESOURCE, Ticket(1));
        // The answers come out of order; 17 was acknowledged, and must still be sent again.
        totals.acknowledged(RESOURCE, Ticket(3));
        assert!(totals.failed(RESOURCE, Ticket(2)));
        assert_eq!(sent(&mut totals, &mut next), [(12, 4), (17, 5)]);
        // A late answer of the earlier attempt changes nothing.
        assert!(!totals.failed(RESOURCE, Ticket(2)));
        assert_eq!(sent(&mut totals, &mut next), []);
        assert_eq!(totals.oldest(), Some(12));
        totals.acknowledged(RESOURCE, Ticket(5));
        assert_eq!(totals.len(), 2);
        totals.acknowledged(RESOURCE, Ticket(4));
        assert!(totals.is_empty());
    }

    #[test]
    fn what_was_applied_of_a_log_is_not_held_against_the_one_that_took_its_place() {
        let forget_source: fn(&mut Totals) = Totals::forget;
        let forget_target: fn(&mut Totals) = |totals| totals.forget_applied(|_| true);
        for forget in [forget_source, forget_target] {
            let (mut totals, mut next) = (Totals::default(), 0);
            totals.applied(RESOURCE, 1_500);
            forget(&mut totals);
            totals.due(RESOURCE.into(), due(9, None));
            assert_eq!(sent(&mut totals, &mut next), [(9, 1)]);
        }
    }

    #[test]
    fn what_the_target_has_applied_is_not_sent_again() {
        let (mut totals, mut next) = (with_three(), 0);
        totals.applied(RESOURCE, 12);
        assert_eq!(sent(&mut totals, &mut next), [(17, 1)]);
        // A total that the engine reports again is known, in either order.
        totals.due(RESOURCE.into(), due(17, Some(12)));
        assert_eq!(totals.len(), 1);
        totals.acknowledged(RESOURCE, Ticket(1));
        totals.due(RESOURCE.into(), due(12, Some(9)));
        assert!(totals.is_empty());
    }
}
