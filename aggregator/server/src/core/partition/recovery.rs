//! From what a partition may be restored, and which snapshots were found to be of no use.

use std::collections::VecDeque;

use tollgate_log::Chunks;
use tollgate_shared::time::Span;
use tracing::span::EnteredSpan;

/// What is known of a partition's snapshots and of the logs that it was of.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Snapshots that were found at the start and not tried yet, the newest first.
    pub found: VecDeque<Chunks>,
    /// How many times restoring began.
    attempts: u64,
    /// Snapshots from this offset on are not of this log.
    pub before: Option<u64>,
    /// Where the snapshot ends behind which records were gone by age: a newer one was asked for.
    pub overtaken_at: Option<u64>,
    /// Until when another group's snapshot is waited for, once it is: see [`Stage::Headless`](super::Stage).
    pub wait_until: Option<Span>,
    /// The offset of the snapshot that the state came from.
    pub restored_upto: Option<u64>,
    /// How many snapshots were given up because another came to another state.
    pub given_up: u32,
    /// The greatest generation of the logs that were met before the present one; 0 means that none was.
    pub generation_before: u32,
    /// In what its lines are logged, from when it begins until the partition rules.
    span: Option<tracing::Span>,
}

impl Recovery {
    /// The same partition, given away: what was known of its snapshots is not.
    #[must_use]
    pub fn given_away(self, generation_met: u32) -> Self {
        Self {
            found: self.found,
            attempts: self.attempts,
            generation_before: generation_met,
            ..Self::default()
        }
    }

    /// It begins, or goes on. Lines of the log are about it while the guard lives.
    pub fn begin(&mut self, partition: u32) -> Option<EnteredSpan> {
        let span = || tracing::info_span!("recovery", partition);
        self.span.get_or_insert_with(span);
        self.enter()
    }

    /// Lines of the log are about it while the guard lives; `None` where the partition rules, which then costs nothing.
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
