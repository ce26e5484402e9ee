//! One partition: its engine, how far it has been ruled, its ticks, and what is on its way to it.
//!
//! ```text
//!             CaughtUp
//! CatchingUp ──────────> Ruling ──> ready once the first own tick has come back
//!     ^  │ a version that is not known yet
//!     │  v
//!     │ Waiting ── the version comes ──> Returning ── Following ──┐
//!     └───────────────────────────────────────────────────────────┘
//! Ruling, CatchingUp ── new limits ──> RulingAgain ── the last slice is done ──> Returning
//! Elsewhere, Restoring: see `assignment`
//! any of them ── an unknown kind that may not be skipped, damage ──> Stopped
//! ```
//!
//! Knows nothing of other partitions. What stays true: records are ruled in the order of their offsets,
//! each once; never more than one tick is on its way.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::place::LogId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Evidence;

use super::announce::Ready;
use super::candidates::Candidates;
use super::recordings::Recordings;
use super::ruler::Ruler;
use super::snapshots::Snapshots;
use super::testimonies::Testimonies;
use super::usage::Usage;
use tollgate_log::{Delivered, RETRY_AFTER, Ticket};

/// How often an owner brings time into its partitions: half of what a tick's slot is wide, so that one
/// lost tick leaves no slot without one.
pub const TICK_EVERY: Span = Span::from_millis(250);

/// Within what time of its append a record is ruled by an owner that is not behind. Agents take hits for
/// guarded by news of such owners alone.
pub const CURRENT: Span = Span::from_secs(1);

/// What a partition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another rules it.
    Elsewhere,
    /// It is being restored.
    Restoring {
        /// Which attempt it is; answers to earlier ones are of no use.
        attempt: u64,
        /// It waits for limits that include this version; nothing: for the answer.
        limits: Option<u64>,
    },
    /// It reads what was there when following began.
    CatchingUp,
    /// It rules what comes.
    Ruling,
    /// It has met a pointer to a limits version that is not known yet.
    Waiting {
        /// The version.
        version: u64,
    },
    /// The log does not have the evidence or the totals of so much that it rules on when some are there.
    Recording,
    /// New limits rule the denials in force again, a slice a turn; until then no record is ruled.
    RulingAgain,
    /// It follows again from where it stood; until the log says that this begins, what is delivered is
    /// of the old following.
    Returning,
    /// The log's beginning is gone, no snapshot has what stood there, and another group rules it: a
    /// snapshot of that one is waited for, because what is ruled from the rest alone may be too little.
    Headless {
        /// The first offset that the log has.
        first: u64,
        /// When snapshots are looked at again.
        again: Span,
    },
    /// It cannot go on.
    Stopped {
        /// Why, for people.
        why: String,
    },
}

/// A thing that is appended now and then, at most once at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// What is on its way: appended, and not seen in the log yet.
    pub ticket: Option<Ticket>,
    /// Not before this.
    pub not_before: Span,
}

impl Slot {
    /// Whether one may be appended now.
    pub fn is_free(&self, clock: Span) -> bool {
        self.ticket.is_none() && self.not_before <= clock
    }

    /// It did not reach the log.
    pub fn failed(&mut self, clock: Span) {
        self.ticket = None;
        self.not_before = clock.saturating_add(RETRY_AFTER);
    }

    /// What this ticket named did not reach the log, if that is waited for.
    pub fn failed_of(&mut self, ticket: Ticket, clock: Span) {
        if self.ticket == Some(ticket) {
            self.failed(clock);
        }
    }
}

/// The ticks of an owner in one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// On its way, or not.
    pub slot: Slot,
    /// The number of the last one that was appended.
    pub number: u64,
    /// When that was sent.
    pub sent: Span,
    /// Of the newest one that came back: when the log took it at the latest, and when it was sent.
    pub newest: Option<(Timestamp, Span)>,
    /// The newest one that came back, until the log has answered its append.
    unanswered: Option<Ticket>,
}

impl Ticks {
    /// One came back, which the log took then.
    pub fn came_back(&mut self, number: u64, appended: Timestamp) {
        if number == self.number {
            self.newest = Some((appended.end_of_millisecond(), self.sent));
            self.unanswered = self.slot.ticket.take();
        }
    }

    /// The log says when it took one, more exactly than by the record: deliveries come before answers.
    pub fn taken(&mut self, ticket: Ticket, at: Option<Timestamp>) {
        if self.unanswered == Some(ticket) {
            self.unanswered = None;
            if let (Some((latest, _)), Some(at)) = (&mut self.newest, at) {
                *latest = at.min(*latest);
            }
        }
    }

    /// None has come back and none is waited for. Numbers go on; and the last one may come back yet, or be read once
    /// more, so that it stays known when it was sent.
    #[must_use]
    pub fn begun_anew(self) -> Self {
        Self {
            number: self.number,
            sent: self.sent,
            ..Self::default()
        }
    }
}

/// One partition.
#[derive(Debug)]
pub struct Partition {
    /// Its number.
    pub index: u32,
    /// Rules it.
    pub ruler: Ruler,
    /// What it is about.
    pub stage: Stage,
    /// The offset of the next record to rule; while it is unproved, of the record that proves it.
    pub next: u64,
    /// It was restored from a snapshot, or had stopped reading, and the log was not seen to have the record that
    /// its state ends with.
    pub unproved: bool,
    /// Snapshots from this offset on are not of this log.
    pub restore_before: Option<u64>,
    /// Where the snapshot ends behind which records were gone by age: a newer one was asked for.
    pub overtaken_at: Option<u64>,
    /// Until when another group's snapshot is waited for, once it is: see [`Stage::Headless`].
    pub headless_until: Option<Span>,
    /// The append time of the last record that was ruled.
    pub appended: Timestamp,
    /// Whether that record was ruled within [`CURRENT`] of its append.
    pub current: bool,
    /// The record that was read last, where it was read here: the one before `next`, or at `next` while that is to
    /// prove it.
    pub last: Option<Delivered>,
    /// Its own ticks.
    pub ticks: Ticks,
    /// A pointer on its way.
    pub pointer: Slot,
    /// The version that it points at, or the last one did.
    pub pointed: u64,
    /// Whether what is ruled is announced: since it was ready for the first time.
    pub announcing: bool,
    /// Evidence on its way.
    pub recordings: Recordings,
    /// Its snapshots.
    pub snapshots: Snapshots,
    /// What its states were, for others to compare.
    pub testimonies: Testimonies,
    /// Who uses what most.
    pub usage: Usage,
    /// What candidates would have done.
    pub candidates: Candidates,
    /// The greatest generation of the logs that were met here before the present one; 0: none was.
    pub generation_before: u32,
    /// The offset of the snapshot that it was restored from.
    pub restored_upto: Option<u64>,
    /// How many snapshots were given up because another came to another state.
    pub given_up: u32,
}

impl Partition {
    /// One of so many that has ruled nothing.
    pub fn new(index: u32, partitions: u32) -> Self {
        Self {
            index,
            ruler: Ruler::new(index, partitions),
            stage: Stage::CatchingUp,
            next: 0,
            unproved: false,
            restore_before: None,
            overtaken_at: None,
            headless_until: None,
            appended: Timestamp::ZERO,
            current: false,
            last: None,
            ticks: Ticks::default(),
            pointer: Slot::default(),
            pointed: 0,
            announcing: false,
            recordings: Recordings::default(),
            snapshots: Snapshots::default(),
            testimonies: Testimonies::default(),
            usage: Usage::default(),
            candidates: Candidates::default(),
            generation_before: 0,
            restored_upto: None,
            given_up: 0,
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
        let clock = if planted(Bug::RestFromTick) {
            sent
        } else {
            clock
        };
        Some(latest.saturating_add(clock.saturating_sub(sent)))
    }

    /// Whether the record that was ruled last, at `clock`, was appended less than [`CURRENT`] before. Not
    /// before the log's time is known: whoever catches up after a start has nothing to compare with.
    pub fn is_current(&self, clock: Span) -> bool {
        self.log_now(clock)
            .is_some_and(|now| now.since(self.appended) <= CURRENT && !planted(Bug::NeverCurrent))
    }

    /// The greatest generation of the logs that were met here, the present one among them; 0: none was.
    pub fn generation_met(&self) -> u32 {
        let present = self.log().map_or(0, |log| log.generation);
        present.max(self.generation_before)
    }

    /// What the announcer needs; none before it announces.
    pub fn ready(&self, clock: Span) -> Option<Ready> {
        let (log, log_now) = (self.log()?, self.log_now(clock)?);
        self.announcing.then_some(Ready {
            evidence: Evidence {
                partition: self.index,
                log,
                ruled: self.ruled(),
                appended: self.appended,
                current: self.current,
            },
            log_now,
        })
    }

    /// All records below this offset have been ruled, to their last slice: an agent that was told more would
    /// take what later slices say for what it knows already.
    fn ruled(&self) -> u64 {
        (self.next + u64::from(self.unproved)).saturating_sub(u64::from(self.ruler.has_more()))
    }

    /// What it appended and has not seen in the log yet may be gone with the log that took it, and is not
    /// waited for.
    pub fn forget_on_the_way(&mut self) {
        self.ticks = self.ticks.begun_anew();
        (self.pointer, self.pointed) = (Slot::default(), 0);
    }

    /// Whether it waits for the record that it had read last, as a proof that the log is the same.
    pub fn is_reading_again(&self) -> bool {
        self.unproved && self.last.is_some()
    }

    /// Whether this process rules it, or is about to.
    pub fn is_ours(&self) -> bool {
        self.stage != Stage::Elsewhere
    }

    /// Whether records that are delivered now are to be ruled.
    pub fn takes(&self) -> bool {
        matches!(self.stage, Stage::CatchingUp | Stage::Ruling)
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
                self.next
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
