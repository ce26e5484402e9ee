//! Refused calls, which travel as sums by pair.
//!
//! Knows nothing of limits. What stays true: the sums of one flush are bounded, and sent in the order of their pairs.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use tollgate_shared::time::Span;

use super::Packer;
use crate::batch::calls::RefusedSum;
use crate::clock::Mono;
use crate::resource::ResourceId;

/// How often refused calls are sent. Nothing waits for them.
pub(super) const REFUSED_EVERY: Span = Span::from_millis(100);

/// The most pairs whose refused calls are summed between two flushes.
const REFUSED_PAIRS_MAX: usize = 16_384;

/// The refused calls of one resource, by domain.
type SumsByDomain = HashMap<Box<str>, RefusedSum, RandomState>;

/// Sums of refused calls, by pair.
#[derive(Debug, Default)]
pub(super) struct RefusedSums {
    by_resource: BTreeMap<ResourceId, SumsByDomain>,
    pairs: usize,
}

impl RefusedSums {
    /// Adds calls to the sum of their pair; `false` if there is no sum.
    fn add(&mut self, resource: ResourceId, domain: &str, sum: &RefusedSum) -> bool {
        let of_resource = self.by_resource.get_mut(&resource);
        let Some(known) = of_resource.and_then(|sums| sums.get_mut(domain)) else {
            return false;
        };
        known.calls += sum.calls;
        known.copies = known.copies.saturating_add(sum.copies);
        known.first = known.first.min(sum.first);
        known.last = known.last.max(sum.last);
        (known.cause, known.position) = (sum.cause, sum.position);
        true
    }

    /// Begins the sum of a pair.
    fn begin(&mut self, resource: ResourceId, domain: &str, sum: RefusedSum) {
        let sums = self.by_resource.entry(resource).or_default();
        sums.insert(domain.into(), sum);
        self.pairs += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs == 0
    }

    /// All calls.
    pub(super) fn calls(&self) -> u64 {
        let sums = self.by_resource.values().flat_map(HashMap::values);
        sums.map(|sum| sum.calls).sum()
    }
}

impl Packer {
    pub(super) fn take_refused(
        &mut self,
        resource: ResourceId,
        domain: &str,
        sum: RefusedSum,
        now: Mono,
    ) {
        self.refused_since.get_or_insert(now);
        if self.refused.add(resource, domain, &sum) {
            return;
        }
        if self.refused.pairs < REFUSED_PAIRS_MAX && !self.is_at_bound() {
            self.refused.begin(resource, domain, sum);
        } else {
            self.dropped.refused += sum.calls;
        }
    }

    pub(super) fn put_refused(&mut self, now: Mono) {
        self.refused_since = None;
        // Sorted, so that what an agent sends is a function of its calls.
        for (resource, sums) in std::mem::take(&mut self.refused).by_resource {
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            for (domain, sum) in sums {
                self.put_sum(resource, &domain, sum, now);
            }
        }
    }

    pub(super) fn put_sum(
        &mut self,
        resource: ResourceId,
        domain: &str,
        sum: RefusedSum,
        now: Mono,
    ) {
        let index = self.queue_of_refused(resource, domain);
        if let Some(queue) = self.queues.get_mut(index) {
            if queue.open.is_empty() {
                queue.opened = now;
            }
            queue.open.push_refused(resource, domain, sum);
            self.close_if_full(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, relaxed_packer};
    use super::*;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::statement::Cause;

    #[test]
    fn refused_calls_of_all_resources_share_one_bound() {
        const MORE: u64 = 10;
        let mut packer = relaxed_packer(100, 1);
        let one = RefusedSum {
            calls: 1,
            copies: 1,
            first: Timestamp::ZERO,
            last: Timestamp::ZERO,
            cause: Cause::Hard,
            position: None,
        };
        let max = REFUSED_PAIRS_MAX as u64;
        let mut take = |number: u64| {
            let resource = ResourceId((number % 2) as u32);
            packer.take_refused(resource, &format!("d{number}"), one, NOW);
            packer.take_dropped().refused
        };
        assert!((0..max).all(|number| take(number) == 0));
        assert_eq!((max..max + MORE).map(&mut take).sum::<u64>(), MORE);
        assert_eq!((0..MORE).map(&mut take).sum::<u64>(), 0, "known pairs");
        packer.give_up();
        assert_eq!(packer.take_dropped().refused, max + MORE);
    }
}
