//! One partition: a state machine of its own.
//!
//! ```text
//! step(now, event) ──> effects        events: what the log delivers and answers, limits, assignment, parts of a turn
//!                                     effects: appends, follows, snapshots, what is announced
//! ```
//!
//! One file for each thing that it does, beside this one: `rule` (records), `following` (where it reads), `assignment`
//! (restoring), `snapshots`, `recordings`, `testimonies`, `turn` (ticks and pointers). Knows nothing of other
//! partitions. What stays true: records are ruled in the order of their offsets, each once; never more than one tick
//! is on its way.

pub mod appends;
pub mod event;
mod position;
mod recovery;
mod slots;
mod stage;

use tollgate_shared::place::LogId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Watermark;

use super::candidates::Candidates;
use super::event::Now;
use super::notices::NearPairs;
use super::ready::Ready;
use super::recordings::Recordings;
use super::ruler::Ruler;
use super::snapshots::Snapshots;
use super::testimonies::StateDigests;
use super::totals::Totals;
use super::usage::Usage;
use tollgate_log::{AppendError, Ticket};

use appends::{AppendPurpose, Appends};
use event::{
    PartitionContext, PartitionEffect, PartitionEvent, PartitionOutput, PartitionStep, TotalsTarget,
};
use position::Position;
use recovery::Recovery;
use slots::{Pointing, Ticks};
pub use stage::Stage;

/// How often an owner brings time into its partitions: half of what a tick's slot is wide, so that one
/// lost tick leaves no slot without one.
pub const TICK_EVERY: Span = Span::from_millis(250);

/// Within what time of its append a record is ruled by an owner that is not behind. Agents take hits for
/// guarded by news of such owners alone.
pub const CURRENT: Span = Span::from_secs(1);

/// One partition.
#[derive(Debug)]
pub struct Partition {
    /// Its number.
    pub index: u32,
    /// Rules it.
    pub ruler: Ruler,
    /// What it is about.
    pub stage: Stage,
    /// How far it was read.
    pub position: Position,
    /// Whether what is ruled is announced: since it was ready for the first time. It stays so in every stage, until
    /// what was ruled is forgotten.
    pub announcing: bool,
    /// Its own ticks.
    pub ticks: Ticks,
    /// Its own pointers.
    pub pointing: Pointing,
    /// What it appended and was not answered yet.
    pub appends: Appends,
    /// Evidence on its way.
    pub recordings: Recordings,
    /// Totals of what it granted, on their way to others.
    pub totals: Totals,
    /// Pairs that were hit and were near their limits then.
    pub near: NearPairs,
    /// Its snapshots.
    pub snapshots: Snapshots,
    /// From what it may be restored.
    pub recovery: Recovery,
    /// What its states were, for others to compare.
    pub testimonies: StateDigests,
    /// Who uses what most.
    pub usage: Usage,
    /// What candidates would have done.
    pub candidates: Candidates,
}

impl Partition {
    /// One of so many that has ruled nothing.
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
            testimonies: StateDigests::default(),
            usage: Usage::default(),
            candidates: Candidates::default(),
        }
    }

    /// Takes one event; what follows from it is added to `out`, in order.
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
            PartitionEvent::Answered {
                ticket,
                result,
                taken,
            } => self.answered(ticket, result, taken, step),
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

    /// The log says what became of an append.
    fn answered(
        &mut self,
        ticket: Ticket,
        result: &Result<u64, AppendError>,
        taken: Option<Timestamp>,
        step: &mut PartitionStep<'_>,
    ) {
        let Some(purpose) = self.appends.answered(ticket) else {
            return;
        };
        if let Err(error) = result {
            step.counters().append_failures += 1;
            tracing::debug!(partition = self.index, ?purpose, %error, "an append failed");
        }
        let (done, clock) = (result.is_ok(), step.clock());
        match purpose {
            // One that the log has is on its way until it comes back.
            AppendPurpose::Tick if done => self.ticks.taken(ticket, taken),
            AppendPurpose::Tick => self.ticks.slot.failed_of(ticket, clock),
            AppendPurpose::Pointer if done => {}
            AppendPurpose::Pointer => self.pointing.slot.failed_of(ticket, clock),
            AppendPurpose::Total(resource) if done => self.totals.acknowledged(&resource, ticket),
            AppendPurpose::Total(resource) => {
                if self.totals.failed(&resource, ticket) {
                    step.push(PartitionEffect::TotalRefused);
                }
            }
            AppendPurpose::Evidence if done => {
                step.counters().denials_recorded += 1;
                self.recordings.acknowledged(ticket);
            }
            AppendPurpose::Evidence => self.recordings.failed(ticket, clock),
            // One that is missing is one comparison less; the next is due in 10 s.
            AppendPurpose::Testimony => {}
        }
    }

    /// The log's identity, once it is known.
    pub fn log(&self) -> Option<LogId> {
        self.ruler.log()
    }

    /// The log's time now: when it took the newest own tick, and what has gone by since that was sent.
    /// A little late by how long the tick was on its way, which is lenient. Where the log does not say the instant
    /// itself, the end of its millisecond stands for it, because the start would be early by up to one, and agents
    /// would refuse that long beyond a denial's end.
    pub fn log_now(&self, clock: Span) -> Option<Timestamp> {
        let (latest, sent) = self.ticks.newest?;
        Some(latest.saturating_add(clock.saturating_sub(sent)))
    }

    /// Whether the record that was ruled last, at `clock`, was appended less than [`CURRENT`] before. Not
    /// before the log's time is known: whoever catches up after a start has nothing to compare with.
    pub fn is_current(&self, clock: Span) -> bool {
        let appended = self.position.appended;
        self.log_now(clock)
            .is_some_and(|now| now.since(appended) <= CURRENT)
    }

    /// The greatest generation of the logs that were met here, the present one among them; 0: none was.
    pub fn generation_met(&self) -> u32 {
        let present = self.log().map_or(0, |log| log.generation);
        present.max(self.recovery.generation_before)
    }

    /// What the announcer needs; none before it announces.
    pub fn ready(&self, clock: Span) -> Option<Ready> {
        let (log, log_now) = (self.log()?, self.log_now(clock)?);
        self.announcing.then_some(Ready {
            evidence: Watermark {
                partition: self.index,
                log,
                ruled: self.ruled(),
                appended: self.position.appended,
                current: self.position.current,
            },
            log_now,
        })
    }

    /// All records below this offset have been ruled, to their last slice: an agent that was told more would
    /// take what later slices say for what it knows already.
    fn ruled(&self) -> u64 {
        let read_upto = self.position.read_upto();
        read_upto.saturating_sub(u64::from(self.ruler.has_more()))
    }

    /// What it appended and has not seen in the log yet may be gone with the log that took it, and is not
    /// waited for.
    pub fn forget_on_the_way(&mut self) {
        self.ticks = self.ticks.begun_anew();
        self.pointing = Pointing::default();
    }

    /// Becomes one that has ruled nothing and is another's. What targets have applied of its totals stays known:
    /// they are ruled here, and say so, whoever rules this one.
    pub(super) fn give_away(&mut self, partitions: u32) {
        let generation_met = self.generation_met();
        let before = std::mem::replace(self, Self::new(self.index, partitions));
        self.stage = Stage::Elsewhere;
        self.ticks = before.ticks.begun_anew();
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

    /// It cannot go on.
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

    /// Whether totals may be appended to it, and under which version they count. What one elsewhere has applied is not
    /// known here, and passed over there; and so it is by whoever takes up one that has stopped. Until then the log
    /// keeps it.
    pub fn as_target(&self) -> TotalsTarget {
        let is_stopped = matches!(self.stage, Stage::Stopped { .. });
        TotalsTarget {
            is_open: self.announcing || !self.is_ours() || is_stopped,
            version: self.is_ours().then(|| self.ruler.version()),
        }
    }

    /// Whether the newest of these versions rules it, to the last slice.
    pub fn is_under(&self, version: u64) -> bool {
        version <= self.ruler.version() && !self.ruler.has_more()
    }

    /// Whether it is this process's, and ready.
    pub fn is_ready(&self) -> bool {
        self.is_ours() && self.why_not_ready().is_none()
    }

    /// Its stage as programs know it, and for what it waits, if it does.
    pub fn stage_shown(&self) -> (&'static str, Option<String>) {
        // Its state is a snapshot's: the log has the last word on whether it is its own.
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
            Stage::Headless { first, .. } => Some(format!(
                "partition {index}: the log begins at offset {first}, and no snapshot has what came before: waits for \
                 one of the other group that rules it"
            )),
            Stage::Ruling => Some(format!("partition {index}: waits for its first tick")),
            Stage::CatchingUp | Stage::Returning => Some(format!(
                "partition {index}: catching up, at offset {}",
                self.position.next
            )),
            Stage::RulingAgain => Some(format!(
                "partition {index}: rules what is denied again under new limits"
            )),
            Stage::Waiting { version } => Some(format!(
                "partition {index}: waits for limits version {version}"
            )),
            Stage::Recording => Some(format!(
                "partition {index}: waits until the log has evidence and totals of what it ruled"
            )),
            Stage::Stopped { why } => Some(format!("partition {index}: stopped: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
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
        // Some instant of its millisecond.
        assert_eq!(log_now(&partition), Some(5_300_999));
        partition.ticks.taken(Ticket(6), Some(came_back));
        assert_eq!(log_now(&partition), Some(5_300_999));
        // That very one, once the log has said it.
        let taken = Timestamp::from_micros(5_000_120);
        partition.ticks.taken(Ticket(7), Some(taken));
        assert_eq!(log_now(&partition), Some(5_300_120));
    }

    #[test]
    fn a_tick_that_comes_after_its_log_was_made_anew_was_sent_when_it_was_sent() {
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
