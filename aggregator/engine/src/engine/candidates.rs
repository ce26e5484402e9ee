//! Candidates: limits that a resource would have, ruled beside those that it has.
//!
//! ```text
//! api.search, acme   5 a second: denied from the fifth hit on     stated, as ever
//!   candidate        3 a second: would be denied from the third   counted, and told to nobody
//! ```
//!
//! The same hits in the same order, on pairs of their own: what is denied is denied by the real limits
//! alone, so a candidate that is looser than they are is not offered what they refused. Knows nothing of
//! who looks at the counts. What stays true: nothing here changes a statement, a real pair, or whether one
//! is taken in at the cap; it is a function of the log, as everything else, and part of the digest.

use std::sync::Arc;

use tollgate_shared::place::Place;
use tollgate_shared::time::Timestamp;

use super::Engine;
use super::pointers::Touch;
use super::rulings::{CandidateClosed, CandidateCounts, add};
use crate::pairs::{Identity, Opened, Rest};
use crate::stream::{PairEvent, Ruled};
use tollgate_limits::RateClass;

/// An entry as its real pair was ruled.
pub(super) struct Beside<'a> {
    pub resource: &'a str,
    pub domain: &'a str,
    pub identity: Identity,
    pub place: Place,
    pub at: Timestamp,
    pub event: PairEvent,
    /// No hit of it would be granted, whatever the limits.
    pub banned: bool,
    /// What became of it.
    pub ruled: Ruled,
}

impl Engine {
    /// Rules an entry by the candidate. Says when that closes the pair, if it was open before.
    pub(super) fn rule_beside(
        &mut self,
        class: &RateClass,
        entry: &Beside<'_>,
        counts: &mut CandidateCounts,
    ) -> Option<CandidateClosed> {
        let Beside { at, event, .. } = *entry;
        let newest = self.steps.newest();
        let (ordinal, cap) = (
            newest.ordinal,
            newest.limits.engine().pairs_per_partition_max,
        );
        if self.candidates.open(entry.identity) == Opened::Known {
            let working = self.candidates.working();
            if working.ordinal != ordinal {
                self.steps
                    .migrate_candidate(working, entry.resource, entry.domain);
            }
        } else if self.candidates.is_full(cap) {
            self.candidates.abandon();
            add(&mut counts.at_cap, event.copies());
            return None;
        } else {
            let working = self.candidates.working();
            working.begin(class, ordinal);
        }
        let working = self.candidates.working();
        let before = working.stated;
        let ruled = working.pair.rule(class, at, event, entry.banned);
        let now = working.pair.now();
        let closure = match ruled.open {
            true => None,
            false => working.pair.closure(class, now),
        };
        let end = closure.map(|closure| closure.end);
        working.stated = end;
        working.stays(working.pair.matters_until(class));
        if !self.candidates.close() {
            add(&mut counts.at_cap, event.copies());
            return None;
        }
        counts.count(entry.ruled, ruled);
        // What has ended by log time is over, though the pair's own time has not come to it.
        let over = now.max(self.now());
        let end = end.filter(|end| over < *end && before.is_none_or(|before| before <= over))?;
        counts.closed += 1;
        Some(CandidateClosed {
            resource: entry.resource.into(),
            domain: Arc::from(entry.domain),
            place: entry.place,
            at: now,
            end,
        })
    }

    /// Does to a candidate's pair what an operator did to the real one.
    pub(super) fn touch_candidate(
        &mut self,
        identity: Identity,
        (resource, domain): (&str, &str),
        touch: Touch,
        at: Timestamp,
    ) {
        let limits = self.steps.newest().limits.clone();
        let rate = limits.rate(resource);
        let class = rate.and_then(|rate| rate.candidate_class_of(domain));
        let Some(class) = class.map(|class| limits.class(class)) else {
            return;
        };
        if self.candidates.open(identity) == Opened::New {
            return self.candidates.abandon();
        }
        let working = self.candidates.working();
        self.steps.migrate_candidate(working, resource, domain);
        let now = working.pair.now().max(at);
        let denied = working.stated.is_some_and(|end| now < end);
        touch.apply(&mut working.pair, class, (now, denied));
        let closure = working.pair.closure(class, now);
        working.stated = closure.map(|closure| closure.end).filter(|_| denied);
        let until = working.stated.unwrap_or_default();
        if denied || working.stated.is_some() {
            working.rest = Rest::LONG;
        }
        let matters = working.pair.matters_until(class);
        working.stays_at_least(matters.max(until));
        self.candidates.close();
    }

    /// Pairs that are ruled by candidates.
    pub fn candidate_pairs(&self) -> u64 {
        self.candidates.alive().count()
    }

    /// The lowest version by which any pair in memory was ruled last.
    pub(super) fn oldest_ordinal(&self) -> Option<u32> {
        let real = self.table.oldest_ordinal();
        let beside = self.candidates.oldest_ordinal();
        real.into_iter().chain(beside).min()
    }
}

impl CandidateCounts {
    /// Counts an entry that the real limits ruled one way and the candidate another.
    fn count(&mut self, real: Ruled, candidate: Ruled) {
        add(&mut self.granted, candidate.granted);
        add(&mut self.excess, candidate.excess);
        add(&mut self.late, candidate.late);
        add(
            &mut self.newly,
            candidate.excess.saturating_sub(real.excess),
        );
        add(
            &mut self.no_longer,
            real.excess.saturating_sub(candidate.excess),
        );
    }
}
