//! What can happen to a partition, what it may read meanwhile, and what follows from it.
//!
//! ```text
//! PartitionEvent ──> Partition::step ──> PartitionEffect, and counts
//!                         │
//!                  PartitionContext: settings and limits, which do not change during a step
//! ```
//!
//! Knows nothing of how effects are carried out. What stays true: a step reads nothing of another partition, so that
//! steps of several partitions may be taken in any order, or at once.

use std::sync::Arc;

use tollgate_engine::engine::{Correction, VerdictDue};
use tollgate_log::{Answer, Delivered, Ticket};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Statement;

use super::super::assignment::Restored;
use super::super::counters::Counters;
use super::super::event::{Effect, Now};
use super::super::limits_state::LimitsState;
use super::super::settings::Settings;
use super::super::tally::Tally;
use super::super::totals::TotalsKey;

/// What can happen to a partition.
#[derive(Debug)]
pub enum PartitionEvent<'a> {
    /// The limits were read for the first time, and this process rules all partitions: it begins.
    Begins,
    /// This process is to rule it.
    Assigned {
        /// Whether the limits that restoring needs were read.
        limits_known: bool,
    },
    /// Another aggregator rules it from now on.
    Revoked,
    /// It was restored, at the request of [`Effect::Restore`].
    Restored {
        /// The attempt, as in the request.
        attempt: u64,
        /// The result.
        restored: Restored,
    },
    /// More limits versions were read.
    LimitsRead,
    /// The log begins to deliver records.
    Following {
        /// From this offset on.
        from: u64,
    },
    /// The log delivers records.
    Delivered(&'a [Delivered]),
    /// All records that existed when following began have been delivered.
    CaughtUp {
        /// The offset of the next record.
        next: u64,
    },
    /// Records do not exist any more.
    Gap {
        /// The offset that was to come.
        wanted: u64,
        /// The offset that follows instead.
        next: u64,
        /// Whether another group rules the partition as well.
        ruled_too: bool,
    },
    /// The log cannot be read any further.
    Broken {
        /// The offset of the record that cannot be read.
        next: u64,
        /// Why, for people.
        why: &'a str,
    },
    /// The log answered appends of this partition.
    Answered {
        /// The answers.
        answers: &'a [Answer],
        /// When the log took the records, where the log states it.
        taken: Option<Timestamp>,
    },
    /// A tick was withheld: the log has to take the partition's identity first.
    NotSent(Ticket),
    /// Writing a snapshot has ended.
    SnapshotSaved {
        /// Whether it was written.
        saved: bool,
    },
    /// Another partition has applied a total of this one.
    TotalApplied {
        /// The total's resource.
        resource: &'a str,
        /// The offset of this partition's record that the total is about.
        offset: u64,
    },
    /// Which totals this other partition has applied is not known any more.
    TargetForgotten(u32),
    /// Part of a turn: look again for snapshots of another group.
    LookAgain,
    /// Part of a turn: rule the next slice of denials that new limits rule again.
    GoOn,
    /// Part of a turn: append totals that are due.
    SendTotals {
        /// The partitions, by number.
        targets: &'a [TotalsTarget],
    },
    /// Part of a turn: append again what the log refused; resume if the partition waited for that.
    Retry,
    /// Part of a turn: take and keep snapshots.
    Snapshot,
    /// Part of a turn: append ticks and activations of new limits.
    Tick,
}

/// What is known of a partition to which totals may be appended.
#[derive(Clone, Copy, Debug)]
pub struct TotalsTarget {
    /// Whether totals may be appended to it now.
    pub is_open: bool,
    /// The limits version that rules it; `None`: this process does not rule it.
    pub version: Option<u64>,
}

/// What follows from an event.
#[derive(Debug)]
pub enum PartitionEffect {
    /// Pass this effect on to the caller of the core: appends, follows, snapshots.
    Ask(Effect),
    /// Have its identity stated, unless one is on the way.
    WantIdentity,
    /// Discard what is known of its identity.
    ForgetIdentity,
    /// It is ready for the first time: announce what is in force.
    Begin(Vec<(Arc<str>, Statement)>),
    /// Announce a statement about this resource.
    Announce(Arc<str>, Statement),
    /// Forget its statements, and what it has applied.
    Forget,
    /// Send an agent the verdict on one of its holds.
    Verdict(VerdictDue),
    /// The engine moved an agent's time stamps.
    Corrected(Correction),
    /// A total of another partition was read.
    TotalRead {
        /// Whose it is.
        key: TotalsKey,
        /// The source offset.
        offset: u64,
    },
    /// A total that names this partition as its source was read, and this partition never made it.
    TotalForged {
        /// Whose it is.
        key: TotalsKey,
        /// The source offset.
        offset: u64,
    },
    /// A total of another partition was applied.
    TotalApplied {
        /// Whose it is.
        key: TotalsKey,
        /// The source offset.
        offset: u64,
    },
    /// The log has refused a total: send none for a while.
    TotalRefused,
    /// The newest limits version rules it.
    UnderLatest,
}

/// What a partition may read beside itself.
#[derive(Clone, Copy, Debug)]
pub struct PartitionContext<'a> {
    /// The settings with which the process was started.
    pub settings: &'a Settings,
    /// The process's instance, which marks its own records.
    pub instance: u128,
    /// Whether partitions come and go.
    pub shared: bool,
    /// The limits that were read so far.
    pub limits: &'a LimitsState,
}

/// The results of steps.
#[derive(Debug, Default)]
pub struct PartitionOutput {
    /// The effects to carry out, in order.
    pub effects: Vec<PartitionEffect>,
    /// The counts.
    pub tally: Tally,
}

/// A step in progress.
pub struct PartitionStep<'a> {
    /// The time of the step.
    pub now: Now,
    /// What the partition may read.
    pub context: &'a PartitionContext<'a>,
    /// Where its results go.
    pub out: &'a mut PartitionOutput,
}

impl PartitionStep<'_> {
    /// The time on the process's clock.
    pub fn clock(&self) -> Span {
        self.now.clock
    }

    /// The counters.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.out.tally.counters
    }

    /// Adds an effect for the caller of the core.
    pub fn ask(&mut self, effect: Effect) {
        self.push(PartitionEffect::Ask(effect));
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: PartitionEffect) {
        self.out.effects.push(effect);
    }
}
