//! Refused calls, which travel as sums by pair.
//!
//! Knows nothing of limits. What stays true: the sums of one flush are bounded, and sent in the order of their pairs.

use tollgate_shared::time::Span;

use super::Packer;
use crate::batch::calls::RefusedSum;
use crate::clock::Mono;
use crate::resource::ResourceId;

/// How often refused calls are sent. Nothing waits for them.
pub(super) const REFUSED_EVERY: Span = Span::from_millis(100);

/// The most pairs whose refused calls are summed between two flushes.
const REFUSED_PAIRS_MAX: usize = 16_384;

impl Packer {
    pub(super) fn take_refused(
        &mut self,
        resource: ResourceId,
        domain: &str,
        sum: RefusedSum,
        now: Mono,
    ) {
        self.refused_since.get_or_insert(now);
        if let Some(known) = self.refused.get_mut(&(resource, domain.into())) {
            known.calls += sum.calls;
            known.copies = known.copies.saturating_add(sum.copies);
            known.first = known.first.min(sum.first);
            known.last = known.last.max(sum.last);
            (known.cause, known.position) = (sum.cause, sum.position);
        } else if self.refused.len() < REFUSED_PAIRS_MAX && !self.is_at_bound() {
            self.refused.insert((resource, domain.into()), sum);
        } else {
            self.dropped.refused += sum.calls;
        }
    }

    pub(super) fn put_refused(&mut self, now: Mono) {
        self.refused_since = None;
        // Sorted, so that what an agent sends is a function of its calls.
        let mut sums: Vec<_> = std::mem::take(&mut self.refused).into_iter().collect();
        sums.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for ((resource, domain), sum) in sums {
            self.put_sum(resource, &domain, sum, now);
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
