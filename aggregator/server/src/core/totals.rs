//! Totals on their way: what a partition granted of globally limited resources, to the partitions that rule
//! those resources.
//!
//! ```text
//! source 3, resource api.search      due 9, 12, 17
//! append 9, append 12, append 17     in this order, several on their way at once
//! 12 fails                           12 and 17 are appended again; the engine counts no total twice, and none
//!                                    after a later one: if 17 had got through, 12 counts nothing
//! ```
//!
//! A total is removed when the log has it and every earlier one of its resource. In catch-up the engine
//! reports again totals that were due long ago; those that the target has applied already are dropped before
//! they are sent. Knows nothing of hits and limits.
//!
//! At most a bound and one delivery wait. Beyond it the source rules nothing, and totals that are due are sent
//! although their target is not caught up; the target ignores those that it has.
//!
//! What stays true: at any time the unsent totals of a resource are its last ones, so that they are appended in
//! order, whatever fails.

use std::collections::{BTreeMap, VecDeque};

use tollgate_shared::wire::record::{self, Total};

use tollgate_log::Ticket;

/// One total that an engine reported as due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The offset of the hits record that was totalled.
    pub offset: u64,
    /// The hits that count, by millisecond.
    pub counted: Vec<Total>,
}

/// Whose totals: one resource's, from one source partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TotalsKey {
    /// The partition that grants.
    pub source: u32,
    /// The resource.
    pub resource: Box<str>,
}

impl TotalsKey {
    /// Whose a total is.
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

/// The index of the total that was sent under a ticket and not answered yet, among one resource's. Their tickets rise.
fn position(queue: &VecDeque<(Due, TotalsState)>, ticket: Ticket) -> Option<usize> {
    let is_before = |state: &TotalsState| match state {
        TotalsState::Sent(sent) | TotalsState::Acknowledged(sent) => *sent < ticket,
        TotalsState::Due => false,
    };
    let at = queue.partition_point(|(_, state)| is_before(state));
    let found = queue.get(at);
    found
        .is_some_and(|(_, state)| matches!(state, TotalsState::Sent(sent) if *sent == ticket))
        .then_some(at)
}

/// Totals of one source partition.
#[derive(Debug, Default)]
pub struct Totals {
    /// By resource, ascending by offset.
    waiting: BTreeMap<Box<str>, VecDeque<(Due, TotalsState)>>,
    /// The last total that its target has applied, by resource. There are as many entries as
    /// resources were ever totalled.
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
        let queue = self.waiting.entry(resource).or_default();
        if queue
            .back()
            .is_none_or(|(last, _)| last.offset < due.offset)
        {
            queue.push_back((due, TotalsState::Due));
        }
    }

    /// Drops what the target has applied: everything of this resource up to `offset`.
    pub fn applied(&mut self, resource: &str, offset: u64) {
        match self.applied.get_mut(resource) {
            Some(known) => *known = offset.max(*known),
            None => drop(self.applied.insert(resource.into(), offset)),
        }
        let Some(queue) = self.waiting.get_mut(resource) else {
            return;
        };
        // A total that is on its way stays: its answer is still to come.
        while let Some((due, TotalsState::Due)) = queue.front() {
            if offset < due.offset {
                break;
            }
            queue.pop_front();
        }
        if queue.is_empty() {
            self.waiting.remove(resource);
        }
    }

    /// Sends everything that is due and not on its way, in order. `may_send` returns whether a resource's may be
    /// sent at all; `send` appends a total and returns its ticket.
    pub fn send(
        &mut self,
        may_send: impl Fn(&str) -> bool,
        mut send: impl FnMut(&str, &Due) -> Ticket,
    ) {
        for (resource, queue) in &mut self.waiting {
            if !may_send(resource) {
                continue;
            }
            let unsent = queue
                .iter()
                .rev()
                .take_while(|(_, state)| matches!(state, TotalsState::Due))
                .count();
            for (due, state) in queue.range_mut(queue.len() - unsent..) {
                *state = TotalsState::Sent(send(resource, due));
            }
        }
    }

    /// The log has the total of this ticket.
    pub fn acknowledged(&mut self, resource: &str, ticket: Ticket) {
        let Some(queue) = self.waiting.get_mut(resource) else {
            return;
        };
        if let Some(at) = position(queue, ticket)
            && let Some((_, state)) = queue.get_mut(at)
        {
            *state = TotalsState::Acknowledged(ticket);
        }
        while let Some((_, TotalsState::Acknowledged(_))) = queue.front() {
            queue.pop_front();
        }
        if queue.is_empty() {
            self.waiting.remove(resource);
        }
    }

    /// The log does not have the total of this ticket: it and every later one of its resource is due again. Returns
    /// whether the ticket was awaited.
    pub fn failed(&mut self, resource: &str, ticket: Ticket) -> bool {
        // A ticket of an earlier attempt is not found: its total is due again already.
        let Some(queue) = self.waiting.get_mut(resource) else {
            return false;
        };
        let Some(at) = position(queue, ticket) else {
            return false;
        };
        for (_, state) in queue.range_mut(at..) {
            *state = TotalsState::Due;
        }
        true
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
        let waiting = self.waiting.values();
        let oldest = waiting.filter_map(|queue| queue.front().map(|(due, _)| due.offset));
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
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Whether the log has them all.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "api.search";

    fn due(offset: u64) -> Due {
        Due {
            offset,
            counted: vec![Total::guarded(0, 1)],
        }
    }

    fn with_three() -> Totals {
        let mut totals = Totals::default();
        for offset in [9, 12, 17] {
            totals.due(RESOURCE.into(), due(offset));
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
    fn after_a_failed_append_totals_are_resent_from_there() {
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
    fn totals_of_a_replaced_log_do_not_count_for_the_next() {
        let forget_source: fn(&mut Totals) = Totals::forget;
        let forget_target: fn(&mut Totals) = |totals| totals.forget_applied(|_| true);
        for forget in [forget_source, forget_target] {
            let (mut totals, mut next) = (Totals::default(), 0);
            totals.applied(RESOURCE, 1_500);
            forget(&mut totals);
            totals.due(RESOURCE.into(), due(9));
            assert_eq!(sent(&mut totals, &mut next), [(9, 1)]);
        }
    }

    #[test]
    fn totals_that_the_target_has_applied_are_not_resent() {
        let (mut totals, mut next) = (with_three(), 0);
        totals.applied(RESOURCE, 12);
        assert_eq!(sent(&mut totals, &mut next), [(17, 1)]);
        // A total that the engine reports again is known, in either order.
        totals.due(RESOURCE.into(), due(17));
        assert_eq!(totals.len(), 1);
        totals.acknowledged(RESOURCE, Ticket(1));
        totals.due(RESOURCE.into(), due(12));
        assert!(totals.is_empty());
    }
}
