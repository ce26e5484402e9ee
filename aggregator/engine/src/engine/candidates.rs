//! Candidates: limits on trial for a resource, ruled beside those in force.
//!
//! ```text
//! api.search, acme   5 a second: denied from the fifth hit on     stated, as usual
//!   candidate        3 a second: would be denied from the third   only counted
//! ```
//!
//! A candidate rules the same hits in the same order, on pairs of its own. What it would have refused uses no room
//! under it, as if it had been refused. Only the real limits deny, so a candidate that is looser never sees the calls
//! that they refused. Knows nothing of who reads the counts.
//! What stays true: nothing here changes a statement, a real pair, or whether a pair is accepted at the
//! cap; like everything else it is a function of the log, and part of the digest.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;

use super::Engine;
use super::activations::PairAction;
use super::rulings::{CandidateClosed, CandidateCounts, add};
use crate::pairs::{Identity, Opened, Rest};
use crate::stream::{PairEvent, Ruled};
use tollgate_limits::RateClass;

/// An entry, and how its real pair was ruled.
pub(super) struct RuledEntry<'a> {
    pub resource: &'a str,
    pub domain: &'a str,
    pub identity: Identity,
    pub position: LogPosition,
    pub at: Timestamp,
    pub event: PairEvent,
    /// The cost was known only after the call: no limits could have refused it.
    pub is_charge: bool,
    /// The pair is banned: no hit is granted, whatever the limits.
    pub banned: bool,
    /// The ruling on the real pair.
    pub ruled: Ruled,
}

impl Engine {
    /// Rules an entry by the candidate. `Some` if that closes a pair that was open before.
    pub(super) fn rule_beside(
        &mut self,
        class: &RateClass,
        entry: &RuledEntry<'_>,
        counts: &mut CandidateCounts,
    ) -> Option<CandidateClosed> {
        let RuledEntry { at, event, .. } = *entry;
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
        match entry.is_charge {
            true => counts.count_charge(ruled),
            false => counts.count(entry.ruled, ruled),
        }
        // A denial that has ended by log time is over, even if the pair's own time is earlier.
        let over = now.max(self.now());
        let end = end.filter(|end| over < *end && before.is_none_or(|before| before <= over))?;
        counts.closed += 1;
        Some(CandidateClosed {
            resource: entry.resource.into(),
            domain: Arc::from(entry.domain),
            position: entry.position,
            at: now,
            end,
        })
    }

    /// Applies an operator's act to the candidate's pair as well.
    pub(super) fn touch_candidate(
        &mut self,
        identity: Identity,
        (resource, domain): (&str, &str),
        touch: PairAction,
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

    /// Number of pairs that candidates rule.
    pub fn candidate_pairs(&self) -> u64 {
        self.candidates.alive().count()
    }

    /// The ordinal of the oldest version by which any pair in memory was ruled last.
    pub(super) fn oldest_ordinal(&self) -> Option<u32> {
        let real = self.table.oldest_ordinal();
        let beside = self.candidates.oldest_ordinal();
        real.into_iter().chain(beside).min()
    }
}

impl CandidateCounts {
    /// Counts a cost that was known only after the call, which no limits would have refused.
    fn count_charge(&mut self, candidate: Ruled) {
        let charged = candidate.granted.saturating_add(candidate.excess);
        add(&mut self.granted, charged);
        add(&mut self.late, candidate.late);
    }

    /// Counts an entry with the rulings of the real limits and of the candidate.
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
