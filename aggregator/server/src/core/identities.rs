//! Which partitions need an identity, and how far its writing has come.
//!
//! ```text
//! wanted ── due, sent ──> Sent ── the log has it ──> Stated ── it was not read in time ──> wanted
//!    ^                      │
//!    └──── it failed ───────┘            forgotten: revoked, or the log was recreated
//! ```
//!
//! Knows nothing of what an identity is, and of what is read. What stays true: an answer counts only if its ticket
//! is the awaited one, so that an answer of a log that is gone does not count for the log that replaced it.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_log::{RETRY_AFTER, Stream, Ticket};
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::RecordPen;

use tollgate_limits::versions::LimitsBook;

use super::environment::{Environment, Purpose};
use super::partition::{self, Partition};
use super::record_keys;

/// How long after the log took an identity it may arrive as a record. An identity that is written twice is ignored
/// the second time.
const BACK_WITHIN: Span = Span::from_secs(2);

/// How far the writing of an identity has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentityStage {
    Wanted { not_before: Span },
    Sent { ticket: Ticket },
    Stated { since: Span },
}

/// The identities that this process writes, or has written.
#[derive(Debug, Default)]
pub struct Identities {
    stages: BTreeMap<(Stream, u32), IdentityStage>,
    /// Partitions whose identity the log does not have yet.
    awaited: BTreeSet<(Stream, u32)>,
}

impl Identities {
    /// A partition needs an identity, unless one is on the way.
    pub fn want(&mut self, at: (Stream, u32)) {
        self.stages.entry(at).or_insert_with(|| {
            self.awaited.insert(at);
            IdentityStage::Wanted {
                not_before: Span::ZERO,
            }
        });
    }

    /// Whether no other record may be appended there yet.
    pub fn is_awaited(&self, at: (Stream, u32)) -> bool {
        self.awaited.contains(&at)
    }

    /// Whether any partition waits for its identity.
    pub fn any_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The partitions whose identity is to be sent now.
    fn due(&self, clock: Span) -> Vec<(Stream, u32)> {
        let due = |stage: &IdentityStage| matches!(stage, IdentityStage::Wanted { not_before } if *not_before <= clock);
        let all = self.stages.iter().filter(|(_, stage)| due(stage));
        all.map(|(at, _)| *at).collect()
    }

    /// An identity was appended under this ticket.
    fn sent(&mut self, at: (Stream, u32), ticket: Ticket) {
        self.stages.insert(at, IdentityStage::Sent { ticket });
        self.awaited.insert(at);
    }

    /// The log has answered the append of this ticket.
    pub fn answered(&mut self, at: (Stream, u32), ticket: Ticket, is_taken: bool, clock: Span) {
        if let Some(stage) = self.stages.get_mut(&at)
            && *stage == (IdentityStage::Sent { ticket })
        {
            if is_taken {
                *stage = IdentityStage::Stated { since: clock };
                self.awaited.remove(&at);
            } else {
                let not_before = clock.saturating_add(RETRY_AFTER);
                *stage = IdentityStage::Wanted { not_before };
            }
        }
    }

    /// Whether the log took the identity so long ago that it should have arrived as a record.
    fn is_late(&self, at: (Stream, u32), clock: Span) -> bool {
        let stage = self.stages.get(&at);
        matches!(stage, Some(IdentityStage::Stated { since }) if since.saturating_add(BACK_WITHIN) <= clock)
    }

    /// States the identities that are due. In a log that is `shared` a partition has one identity at a time.
    pub fn state_due(
        &mut self,
        clock: Span,
        shared: bool,
        partitions: &[Partition],
        book: &LimitsBook,
        env: &mut Environment,
    ) {
        for (stream, index) in self.due(clock) {
            let of_hits = partitions.get(index as usize);
            let of_hits = of_hits.filter(|_| stream == Stream::Hits);
            if of_hits.is_some_and(|of| waits_for_key(of, env)) {
                continue;
            }
            let found = of_hits.filter(|_| shared);
            // An identity arrived although the log had answered that it does not have it. If it were stated once
            // more, it would be of the next generation. (A journal's partitions had other identities before.)
            if found.is_some_and(|of| of.log().is_some()) {
                self.forget((stream, index));
                continue;
            }
            // A journal states its generation itself. In a fleet's log there is only the first one, unless the
            // topic was recreated: then the new generation is above all that this process has met, so that agents
            // follow it at once, and its predecessor only after two seconds without the new one.
            let first = env.settings.start.generation.max(1);
            let above = |of: &Partition| of.generation_met().saturating_add(1);
            let log = LogId {
                generation: found.map_or(first, |of| first.max(above(of))),
                random: env.draw_u64(),
            };
            // Identities of the streams of limits and denials are found by their positions, and have checksums.
            let version = of_hits.map_or(0, |of| of.ruler.version());
            let key = record_keys::writer(&env.settings.keys, book, version);
            let record = RecordPen::new(key, index).genesis(log);
            let purpose = Purpose::Genesis(stream, index);
            let ticket = env.append(stream, index, record, purpose);
            self.sent((stream, index), ticket);
        }
    }

    /// States the identity again of partitions whose identity the log took but never delivered: it was lost with a
    /// topic that was recreated before any of it was read, which no event reports.
    pub fn want_lost(&mut self, clock: Span, partitions: &[Partition]) {
        for partition in partitions {
            let at = (Stream::Hits, partition.index);
            let is_without =
                partition.stage == partition::Stage::Ruling && partition.log().is_none();
            if is_without && self.is_late(at, clock) {
                self.forget(at);
                self.want(at);
            }
        }
    }

    /// Forgets a partition: another aggregator rules it, or its log is another one.
    pub fn forget(&mut self, at: (Stream, u32)) {
        self.stages.remove(&at);
        self.awaited.remove(&at);
    }
}

/// Whether it is not known yet under which key the identity of a partition counts: that follows from the limits in
/// force at the partition's end. Without keys there is nothing to choose.
fn waits_for_key(partition: &Partition, env: &Environment) -> bool {
    let is_read = matches!(
        partition.stage,
        partition::Stage::Ruling | partition::Stage::RulingAgain | partition::Stage::Recording
    );
    !env.settings.keys.is_empty() && !is_read
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: (Stream, u32) = (Stream::Hits, 3);
    const MOMENT: Span = Span::from_secs(1);

    fn sent(ticket: u64) -> Identities {
        let mut identities = Identities::default();
        identities.want(AT);
        assert_eq!(identities.due(Span::ZERO), [AT]);
        identities.sent(AT, Ticket(ticket));
        identities
    }

    #[test]
    fn a_failed_identity_append_is_retried_after_a_pause() {
        let mut identities = sent(1);
        assert_eq!(identities.due(MOMENT), []);
        identities.answered(AT, Ticket(1), false, MOMENT);
        assert!(identities.is_awaited(AT));
        assert_eq!(identities.due(MOMENT), []);
        assert_eq!(identities.due(MOMENT.saturating_add(RETRY_AFTER)), [AT]);
    }

    #[test]
    fn an_answer_about_the_previous_log_is_ignored() {
        let mut identities = sent(1);
        identities.forget(AT);
        identities.want(AT);
        identities.answered(AT, Ticket(1), true, MOMENT);
        assert_eq!(identities.due(MOMENT), [AT]);
        identities.sent(AT, Ticket(2));
        identities.answered(AT, Ticket(1), true, MOMENT);
        assert!(identities.is_awaited(AT));
        identities.answered(AT, Ticket(2), true, MOMENT);
        assert!(!identities.is_awaited(AT));
    }

    #[test]
    fn a_known_identity_is_asked_again_only_when_forgotten() {
        let mut identities = sent(1);
        identities.answered(AT, Ticket(1), true, MOMENT);
        identities.want(AT);
        assert_eq!(identities.due(Span::MAX), []);
        assert!(!identities.is_late(AT, MOMENT));
        assert!(identities.is_late(AT, MOMENT.saturating_add(BACK_WITHIN)));
        identities.forget(AT);
        identities.want(AT);
        assert_eq!(identities.due(MOMENT), [AT]);
    }
}
