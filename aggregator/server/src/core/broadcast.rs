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
use super::partition::{Partition, TICK_EVERY_QUIET};
use super::ready::ReadyPartitions;
use super::verdicts::Verdicts;

/// The feed of one aggregator.
pub(super) struct Broadcast {
    pub announcer: Announcer,
    pub verdicts: Verdicts,
    notices: Notices,
    verdict_frames: u64,
    /// When the last heartbeat was published, if any.
    heartbeat: Option<Span>,
    /// How often heartbeats are published at present.
    every: Span,
    /// The sum of the watermarks of the last heartbeat.
    last_ruled: u64,
    /// Whether that was another sum than the one before.
    had_news: bool,
}

impl Broadcast {
    /// A feed that has published nothing.
    pub fn new(instance: u128) -> Self {
        Self {
            announcer: Announcer::new(instance, TOPIC_KEY_UNPROTECTED),
            verdicts: Verdicts::default(),
            notices: Notices::default(),
            verdict_frames: 0,
            heartbeat: None,
            every: Span::ZERO,
            last_ruled: 0,
            had_news: true,
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
        // As rarely as ticks where nothing else is ruled: in between there are no watermarks to report.
        let mut ours = partitions.iter().filter(|partition| partition.is_ours());
        self.every = match ours.all(|partition| partition.ticks.are_quiet()) {
            true => env.settings.heartbeat.max(TICK_EVERY_QUIET),
            false => env.settings.heartbeat,
        };
        if self.heartbeat_due(ready) <= now.clock {
            self.publish_heartbeats(now, ready, env);
            self.heartbeat = Some(now.clock);
            let before = std::mem::replace(&mut self.last_ruled, ruled(ready));
            self.had_news = before != self.last_ruled;
        }
    }

    /// If something was ruled since the last heartbeat, the next is due a little before its time, else a little after it.
    /// So if nothing flows but ticks, heartbeats soon go with the turns that rule them: one wake-up instead of two, and
    /// the watermarks are the newest. If a heartbeat had nothing new because a tick was late, the next is due when that is
    /// ruled.
    fn heartbeat_due(&self, ready: &ReadyPartitions) -> Span {
        match (ruled(ready) == self.last_ruled, self.had_news) {
            (true, _) => self.heartbeat_at_latest(),
            (false, true) => self.due_after(self.every.saturating_sub(earlier(self.every))),
            (false, false) => Span::ZERO,
        }
    }

    /// When a heartbeat is due whatever happens.
    fn heartbeat_at_latest(&self) -> Span {
        self.due_after(self.every.saturating_add(later(self.every)))
    }

    fn due_after(&self, span: Span) -> Span {
        let last = self.heartbeat;
        last.map_or(Span::ZERO, |last| last.saturating_add(span))
    }

    fn publish_heartbeats(&mut self, now: Now, ready: &ReadyPartitions, env: &mut Environment) {
        let announcer = &mut self.announcer;
        let subscribed = &env.settings.subscribed;
        announcer.publish_heartbeats(now.clock, ready, subscribed, &mut env.effects);
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
        let heartbeat = self.heartbeat_at_latest();
        step.map_or(heartbeat, |step| step.min(heartbeat))
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
        .iter()
        .map(|ready| ready.watermark.ruled)
        .fold(0, u64::wrapping_add)
}
