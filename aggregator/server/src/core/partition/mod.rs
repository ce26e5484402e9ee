//! One partition: a state machine of its own.
//!
//! ```text
//! step(now, event) ──> effects        events: records and answers of the log, limits, assignment, parts of a turn
//!                                     effects: appends, follows, snapshots, announcements
//! ```
//!
//! Each of its tasks has a file beside this one: `rule` (records), `following` (where it reads), `assignment`
//! (restoring), `snapshots`, `recordings`, `state_digests`, `turn` (ticks and activations). Knows nothing of other
//! partitions. What stays true: records are ruled in the order of their offsets, each once; at most one tick is on
//! its way.

pub mod appends;
pub mod event;
mod position;
mod recovery;
mod slots;
mod stage;

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Watermark;

use super::candidates::Candidates;
use super::event::Now;
use super::notices::NearPairs;
use super::ready::Ready;
use super::recordings::Recordings;
use super::ruler::Ruler;
use super::snapshots::Snapshots;
use super::state_digests::StateDigests;
use super::totals::Totals;
use super::usage::Usage;
use tollgate_log::Answer;

use appends::{AppendPurpose, Appends};
use event::{
    PartitionContext, PartitionEffect, PartitionEvent, PartitionOutput, PartitionStep, TotalsTarget,
};
use position::Position;
use recovery::Recovery;
use slots::{Pointing, Ticks};
pub use stage::Stage;

/// How often the ruling aggregator brings time into its partitions: half the width of a tick's slot, so that one lost
/// tick leaves no slot without a tick.
pub const TICK_EVERY: Span = Span::from_millis(250);

/// The same for quiet partitions: still one in each slot, but a lost one may leave a slot without.
pub const TICK_EVERY_QUIET: Span = Span::from_millis(400);

/// A partition is quiet when it has ruled nothing but ticks for so long. By then an agent that died is gone, if
/// `agent_timeout` is not longer; all else that ends by ticks ends 150 ms later at most.
pub const QUIET_AFTER: Span = Span::from_secs(5);

/// The greatest delay from append to ruling at an aggregator that is not behind. Only while such an aggregator
/// reports do agents take their hits for guarded.
pub const CURRENT: Span = Span::from_secs(1);

/// One partition.
#[derive(Debug)]
pub struct Partition {
    /// Its number.
    pub index: u32,
    /// Applies the rules to its records.
    pub ruler: Ruler,
    /// What it is doing.
    pub stage: Stage,
    /// How far its log was read.
    pub position: Position,
    /// Whether rulings are announced: true once it was ready for the first time, in every stage, until its rulings
    /// are forgotten.
    pub announcing: bool,
    /// Its own ticks.
    pub ticks: Ticks,
    /// Its own limits activations.
    pub pointing: Pointing,
    /// Its appends that the log has not answered yet.
    pub appends: Appends,
    /// Decision records on their way.
    pub recordings: Recordings,
    /// Totals of what it granted, on their way to other partitions.
    pub totals: Totals,
    /// Pairs that were hit and were near their limits then.
    pub near: NearPairs,
    /// Its snapshots.
    pub snapshots: Snapshots,
    /// What it may be restored from.
    pub recovery: Recovery,
    /// Its state digests, which other groups compare.
    pub state_digests: StateDigests,
    /// Which domains use the most.
    pub usage: Usage,
    /// What candidates would have done.
    pub candidates: Candidates,
}

impl Partition {
    /// Partition `index` of this number of partitions, which has ruled nothing.
    pub fn new(index: u32, partitions: u32) -> Self {
        Self {
            index,
            ruler: Ruler::new(index, partitions),
            stage: Stage::CatchingUp,
            position: Position::default(),
            announcing: false,
            ticks: Ticks::default(),
            pointing: Pointing::default(),
            appends: Appends::new(index),
            recordings: Recordings::default(),
            totals: Totals::default(),
            near: NearPairs::default(),
            snapshots: Snapshots::default(),
            recovery: Recovery::default(),
            state_digests: StateDigests::default(),
            usage: Usage::default(),
            candidates: Candidates::default(),
        }
    }

    /// Handles one event; adds the effects that follow to `out`, in order.
    pub fn step(
        &mut self,
        now: Now,
        event: PartitionEvent<'_>,
        context: &PartitionContext<'_>,
        out: &mut PartitionOutput,
    ) {
        let step = &mut PartitionStep { now, context, out };
        let _inside = self.recovery.enter();
        match event {
            PartitionEvent::Begins => self.restore_found(step),
            PartitionEvent::Assigned { limits_known } => self.assigned(limits_known, step),
            PartitionEvent::Revoked => self.revoked(step),
            PartitionEvent::Restored { attempt, restored } => {
                self.restored(attempt, restored, step)
            }
            PartitionEvent::LimitsRead => self.limits_read(step),
            PartitionEvent::Following { from } => self.following(from),
            PartitionEvent::Delivered(records) => self.delivered(records, step),
            PartitionEvent::CaughtUp { next } => self.caught_up(next, step),
            PartitionEvent::Gap {
                wanted,
                next,
                ruled_too,
            } => self.gap(wanted, next, ruled_too, step),
            PartitionEvent::Broken { next, why } => self.broken(next, why),
            PartitionEvent::Answered { answers, taken } => {
                for answer in answers {
                    self.answered(answer, taken, step);
                }
            }
            PartitionEvent::NotSent(ticket) => {
                self.appends.answered(ticket);
                self.ticks.slot.failed_of(ticket, now.clock);
            }
            PartitionEvent::SnapshotSaved { saved } => self.snapshot_saved(saved, step),
            PartitionEvent::TotalApplied { resource, offset } => {
                self.totals.applied(resource, offset);
            }
            PartitionEvent::TargetForgotten(target) => self.forget_target(target, step),
            PartitionEvent::LookAgain => self.look_again(step),
            PartitionEvent::GoOn => self.go_on_ruling(step),
            PartitionEvent::SendTotals { targets } => self.send_totals(targets, step),
            PartitionEvent::Retry => self.retry(step),
            PartitionEvent::Snapshot => self.take_snapshot(step),
            PartitionEvent::Tick => self.tick_and_point(step),
        }
    }

    /// The log has answered an append.
    fn answered(
        &mut self,
        answer: &Answer,
        taken: Option<Timestamp>,
        step: &mut PartitionStep<'_>,
    ) {
        let (ticket, result) = (answer.ticket, &answer.result);
        if self.recorded(ticket, result, step) {
            return;
        }
        let Some(purpose) = self.appends.answered(ticket) else {
            return;
        };
        if let Err(error) = result {
            step.counters().append_failures += 1;
            tracing::debug!(partition = self.index, ?purpose, %error, "an append failed");
        }
        let (done, clock) = (result.is_ok(), step.clock());
        match purpose {
            // A tick that the log has is on its way until it was read.
            AppendPurpose::Tick if done => self.ticks.taken(ticket, taken),
            AppendPurpose::Tick => self.ticks.slot.failed_of(ticket, clock),
            AppendPurpose::LimitsActivation if done => {}
            AppendPurpose::LimitsActivation => self.pointing.slot.failed_of(ticket, clock),
            AppendPurpose::Total(resource) if done => self.totals.acknowledged(&resource, ticket),
            AppendPurpose::Total(resource) => {
                if self.totals.failed(&resource, ticket) {
                    step.push(PartitionEffect::TotalRefused);
                }
            }
            // A missing digest is one comparison less; the next is due in 10 s.
            AppendPurpose::StateDigest => {}
        }
    }

    /// The log's identity, once it is known.
    pub fn log(&self) -> Option<LogId> {
        self.ruler.log()
    }

    /// The log's time now: when the log took the newest own tick, plus the time since the tick was sent. It is late
    /// by the time that the tick was on its way, which is lenient. Where the log does not state the exact instant,
    /// the end of its millisecond is used: the start could be early by up to one millisecond, and agents would
    /// refuse that long beyond a denial's end.
    pub fn log_now(&self, clock: Span) -> Option<Timestamp> {
        let (latest, sent) = self.ticks.newest?;
        Some(latest.saturating_add(clock.saturating_sub(sent)))
    }

    /// Whether the record that was ruled last, at `clock`, was appended less than [`CURRENT`] before. False until the
    /// log's time is known: a partition that catches up after a start has nothing to compare with.
    pub fn is_current(&self, clock: Span) -> bool {
        let appended = self.position.appended;
        self.log_now(clock)
            .is_some_and(|now| now.since(appended) <= CURRENT)
    }

    /// The greatest generation of the logs that this partition has met, including the present one; 0: none yet.
    pub fn generation_met(&self) -> u32 {
        let present = self.log().map_or(0, |log| log.generation);
        present.max(self.recovery.generation_before)
    }

    /// What the announcer needs; `None` before the partition announces.
    pub fn ready(&self, clock: Span) -> Option<Ready> {
        let (log, log_now) = (self.log()?, self.log_now(clock)?);
        self.announcing.then_some(Ready {
            watermark: Watermark {
                partition: self.index,
                log,
                ruled: self.ruled(),
                appended: self.position.appended,
                current: self.position.current,
            },
            log_now,
        })
    }

    /// All records below this offset have been ruled, to their last slice. If agents received a greater offset,
    /// they would take the statements of later slices for known.
    fn ruled(&self) -> u64 {
        let read_upto = self.position.read_upto();
        read_upto.saturating_sub(u64::from(self.ruler.has_more()))
    }

    /// Stops waiting for appends that it has not read yet: they may be gone with the log that took them, or by age.
    pub fn forget_on_the_way(&mut self) {
        self.ticks = self.ticks.on_recreated_log();
        self.pointing = Pointing::default();
    }

    /// Resets it to a partition that has ruled nothing and that another aggregator rules. What targets have applied
    /// of its totals stays known: this process rules the targets, and they report it, whichever aggregator rules
    /// this partition.
    pub(super) fn give_away(&mut self, partitions: u32) {
        let generation_met = self.generation_met();
        let before = std::mem::replace(self, Self::new(self.index, partitions));
        self.stage = Stage::Elsewhere;
        self.ticks = before.ticks.on_recreated_log();
        self.appends = before.appends;
        self.totals = before.totals;
        self.recovery = before.recovery.given_away(generation_met);
    }

    /// The log cannot be read any further.
    fn broken(&mut self, next: u64, why: &str) {
        tracing::error!(
            partition = self.index,
            next,
            why,
            "the log cannot be read any further"
        );
        let why = why.to_owned();
        self.stage = Stage::Stopped { why };
    }

    /// Stops the partition for good.
    pub(super) fn stop(&mut self, why: String) {
        tracing::error!(partition = self.index, why, "the partition stops");
        self.stage = Stage::Stopped { why };
    }

    /// Whether this process rules it, or is about to.
    pub fn is_ours(&self) -> bool {
        self.stage != Stage::Elsewhere
    }

    /// Whether records that are delivered now are to be ruled.
    pub fn takes(&self) -> bool {
        matches!(self.stage, Stage::CatchingUp | Stage::Ruling)
    }

    /// Whether totals may be appended to it, and under which version they count. What a partition ruled elsewhere
    /// has applied is not known here; that aggregator ignores totals that it has applied already. The same holds
    /// for an aggregator that takes over a stopped partition. Until then the log keeps the totals.
    pub fn as_target(&self) -> TotalsTarget {
        let is_stopped = matches!(self.stage, Stage::Stopped { .. });
        TotalsTarget {
            is_open: self.announcing || !self.is_ours() || is_stopped,
            version: self.is_ours().then(|| self.ruler.version()),
        }
    }

    /// Whether this version or a newer one rules it, to the last slice.
    pub fn is_under(&self, version: u64) -> bool {
        version <= self.ruler.version() && !self.ruler.has_more()
    }

    /// Whether this process rules it, and it is ready.
    pub fn is_ready(&self) -> bool {
        self.is_ours() && self.why_not_ready().is_none()
    }

    /// The name of its stage for programs, and what it waits for, if it does.
    pub fn stage_shown(&self) -> (&'static str, Option<String>) {
        // Its state is from a snapshot that has yet to be verified against the log.
        match self.position.unverified && !self.position.is_reading_again() {
            true => ("restoring", None),
            false => self.stage.shown(),
        }
    }

    /// Why it is not ready, if it is not.
    pub fn why_not_ready(&self) -> Option<String> {
        let index = self.index;
        match &self.stage {
            Stage::Elsewhere => None,
            Stage::Ruling | Stage::RulingAgain if self.announcing => None,
            Stage::Restoring { .. } => Some(format!("partition {index}: being restored")),
            Stage::Truncated { first, .. } => Some(format!(
                "partition {index}: the log begins at offset {first}, and no snapshot covers the records before: waits for \
                 a snapshot of another group that rules it"
            )),
            Stage::Ruling => Some(format!("partition {index}: waits for its first tick")),
            Stage::CatchingUp | Stage::Returning => Some(format!(
                "partition {index}: catching up, at offset {}",
                self.position.next
            )),
            Stage::RulingAgain => Some(format!(
                "partition {index}: rules denied pairs again under new limits"
            )),
            Stage::Waiting { version } => Some(format!(
                "partition {index}: waits for limits version {version}"
            )),
            Stage::Recording => Some(format!(
                "partition {index}: waits until the log has the decision records and totals of its rulings"
            )),
            Stage::Stopped { why } => Some(format!("partition {index}: stopped: {why}")),
        }
    }

    /// The same for a partition that was ready before the log was gone, until `up`: a log that takes records may not
    /// deliver any yet, and nothing is ruled until it does.
    pub fn why_not_ready_since(&self, up: Span) -> Option<String> {
        let is_ruled = self.ticks.newest.is_some_and(|(_, sent)| up <= sent);
        let text = "waits for its first tick since the log accepts records again";
        (self.is_ours() && !is_ruled).then(|| format!("partition {}: {text}", self.index))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_log::Ticket;

    use super::*;

    #[test]
    fn log_time_runs_on_from_when_the_newest_tick_was_sent() {
        let mut partition = Partition::new(0, 1);
        let clock = Span::from_millis(900);
        assert_eq!(partition.log_now(clock), None);
        partition.ticks.sent = Span::from_millis(600);
        partition.ticks.slot.ticket = Some(Ticket(7));
        let came_back = Timestamp::from_millis(5_000);
        partition.ticks.came_back(0, came_back);
        let log_now = |partition: &Partition| partition.log_now(clock).map(Timestamp::as_micros);
        // The end of the millisecond.
        assert_eq!(log_now(&partition), Some(5_300_999));
        partition.ticks.taken(Ticket(6), Some(came_back));
        assert_eq!(log_now(&partition), Some(5_300_999));
        // The exact instant, once the log has stated it.
        let taken = Timestamp::from_micros(5_000_120);
        partition.ticks.taken(Ticket(7), Some(taken));
        assert_eq!(log_now(&partition), Some(5_300_120));
    }

    #[test]
    fn a_tick_in_a_recreated_log_keeps_its_time_of_sending() {
        let mut partition = Partition::new(0, 1);
        (partition.ticks.number, partition.ticks.sent) = (7, Span::from_secs(600));
        partition.forget_on_the_way();
        assert_eq!(partition.log_now(Span::from_secs(601)), None);
        partition
            .ticks
            .came_back(6, Timestamp::from_millis(1_000_000));
        assert_eq!(partition.log_now(Span::from_secs(601)), None);
        partition
            .ticks
            .came_back(7, Timestamp::from_millis(1_000_000));
        assert_eq!(
            partition.log_now(Span::from_secs(601)),
            Some(Timestamp::from_micros(1_001_000_999))
        );
    }
}
