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
    next_heartbeat: Span,
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
        if self.next_heartbeat <= now.clock {
            self.publish_heartbeats(now, ready, env);
            self.next_heartbeat = now.clock.saturating_add(env.settings.heartbeat);
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
