//! What a partition may be restored from, and which snapshots turned out to be useless.

use std::collections::VecDeque;

use tollgate_log::Chunks;
use tollgate_shared::time::Span;
use tracing::span::EnteredSpan;

/// What is known of a partition's snapshots, and of the logs that it had before.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Snapshots that were found at the start and not tried yet, the newest first.
    pub found: VecDeque<Chunks>,
    /// How many times restoring began.
    attempts: u64,
    /// Snapshots from this offset on are not of this log.
    pub before: Option<u64>,
    /// The end of a snapshot after which records were gone by age, so that a newer one was requested.
    pub overtaken_at: Option<u64>,
    /// How long to wait for another group's snapshot, once waiting has begun: see [`Stage::Truncated`](super::Stage).
    pub wait_until: Option<Span>,
    /// The offset of the snapshot that the state came from.
    pub restored_upto: Option<u64>,
    /// How many snapshots were discarded because another aggregator came to a different state.
    pub given_up: u32,
    /// The greatest generation of the logs before the present one; 0: there was none.
    pub generation_before: u32,
    /// The tracing span of the partition's recovery, until it rules.
    span: Option<tracing::Span>,
}

impl Recovery {
    /// The recovery of a partition that was revoked: only what holds for later assignments is kept.
    #[must_use]
    pub fn given_away(self, generation_met: u32) -> Self {
        Self {
            found: self.found,
            attempts: self.attempts,
            generation_before: generation_met,
            ..Self::default()
        }
    }

    /// Begins a recovery, or continues it. While the guard lives, log lines belong to its span.
    pub fn begin(&mut self, partition: u32) -> Option<EnteredSpan> {
        let span = || tracing::info_span!("recovery", partition);
        self.span.get_or_insert_with(span);
        self.enter()
    }

    /// While the guard lives, log lines belong to the recovery's span; `None` while the partition rules, which
    /// costs nothing.
    pub fn enter(&self) -> Option<EnteredSpan> {
        self.span.clone().map(tracing::Span::entered)
    }

    /// The partition rules.
    pub fn end(&mut self) {
        self.span = None;
    }

    /// The number of the next attempt.
    pub fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}
