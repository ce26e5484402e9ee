//! The feed: the statements of a turn are published as frames, in one order.
//!
//! ```text
//! statements ── notices ── verdicts ── heartbeats
//! ```
//!
//! Knows nothing of sockets. What stays true: statements are published before any watermark beyond them.

use std::sync::Arc;

use tollgate_shared::time::Span;
use tollgate_shared::wire::statement::Statement;

use super::announce::{Announcer, TOPIC_KEY_UNPROTECTED};
use super::environment::Environment;
use super::event::Now;
use super::limits_state::LimitsState;
use super::notices::Notices;
use super::partition::Partition;
use super::ready::ReadyPartitions;
use super::verdicts::Verdicts;

/// The feed of one aggregator.
pub(super) struct Broadcast {
    pub announcer: Announcer,
    pub verdicts: Verdicts,
    notices: Notices,
    verdict_frames: u64,
    /// When a heartbeat is due whatever happens.
    next_heartbeat: Span,
    /// The sum of the watermarks of the last heartbeat.
    last_ruled: u64,
}

impl Broadcast {
    /// A feed that has published nothing.
    pub fn new(instance: u128) -> Self {
        Self {
            announcer: Announcer::new(instance, TOPIC_KEY_UNPROTECTED),
            verdicts: Verdicts::default(),
            notices: Notices::default(),
            verdict_frames: 0,
            next_heartbeat: Span::ZERO,
            last_ruled: 0,
        }
    }

    /// Publishes the statements of this turn so far.
    pub fn publish_pending(&mut self, now: Now, ready: &ReadyPartitions, env: &mut Environment) {
        let announcer = &mut self.announcer;
        announcer.publish_pending(now.clock, ready, &mut env.effects);
    }

    /// Publishes everything that is due at the end of a turn.
    pub fn turn(
        &mut self,
        now: Now,
        partitions: &mut [Partition],
        ready: &ReadyPartitions,
        limits: &LimitsState,
        env: &mut Environment,
    ) {
        self.publish_pending(now, ready, env);
        self.notices.turn(now, partitions, ready, limits, env);
        let (instance, effects) = (env.instance, &mut env.effects);
        let verdicts = &mut self.verdicts;
        self.verdict_frames +=
            verdicts.publish(instance, &TOPIC_KEY_UNPROTECTED, now.clock, effects);
        let every = env.settings.heartbeat;
        if self.heartbeat_due(ready, every) <= now.clock {
            self.publish_heartbeats(now, ready, env);
            let latest = every.saturating_add(later(every));
            self.next_heartbeat = now.clock.saturating_add(latest);
            self.last_ruled = ruled(ready);
        }
    }

    /// If something was ruled since the last heartbeat, the next is due a little before its time, else a little after it.
    /// So if nothing flows but ticks, heartbeats soon go with the turns that rule them: one wake-up instead of two, and
    /// the watermarks are the newest.
    fn heartbeat_due(&self, ready: &ReadyPartitions, every: Span) -> Span {
        match ruled(ready) == self.last_ruled {
            true => self.next_heartbeat,
            false => self
                .next_heartbeat
                .saturating_sub(later(every))
                .saturating_sub(earlier(every)),
        }
    }

    fn publish_heartbeats(&mut self, now: Now, ready: &ReadyPartitions, env: &mut Environment) {
        let announcer = &mut self.announcer;
        announcer.publish_heartbeats(now.clock, ready, &mut env.effects);
    }

    /// Begins to announce a partition that is ready for the first time.
    pub fn begin(
        &mut self,
        partition: u32,
        live: Vec<(Arc<str>, Statement)>,
        partitions: &[Partition],
    ) {
        self.announcer.begin(partition, live);
        let ours = || partitions.iter().filter(|partition| partition.is_ours());
        if ours().all(|partition| partition.announcing) {
            tracing::info!(
                partitions = ours().count(),
                live = self.announcer.live().len(),
                "all partitions are ruled"
            );
        }
    }

    /// When the feed has to publish something although no event arrives.
    pub fn next_turn(&self) -> Span {
        let step = self.announcer.next_step();
        step.map_or(self.next_heartbeat, |step| step.min(self.next_heartbeat))
    }

    /// Frames published so far, without those of notices.
    pub fn frames(&self) -> u64 {
        self.announcer.frames() + self.verdict_frames
    }
}

/// How much earlier than `every` a heartbeat may be: the turns that rule ticks come as regularly as that.
fn earlier(every: Span) -> Span {
    Span::from_micros(every.as_micros() / 16)
}

/// How much later than `every` a heartbeat may be. Where no ticks are ruled within that time, the heartbeat's phase moves
/// by it, less than both together, so that the ticks cannot be passed over.
fn later(every: Span) -> Span {
    Span::from_micros(every.as_micros() / 8)
}

/// The sum of watermarks. It changes when a partition rules more, comes or goes; two equal sums by chance only delay a
/// heartbeat.
fn ruled(ready: &ReadyPartitions) -> u64 {
    ready
        .values()
        .map(|ready| ready.watermark.ruled)
        .fold(0, u64::wrapping_add)
}
