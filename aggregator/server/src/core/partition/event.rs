//! What can happen to a partition, what it may look at meanwhile, and what follows from it.
//!
//! ```text
//! PartitionEvent ──> Partition::step ──> PartitionEffect, and what was counted
//!                         │
//!                  PartitionContext: settings and limits, which nobody changes during a step
//! ```
//!
//! Knows nothing of who carries effects out. What stays true: a step reads nothing of another partition, so that
//! steps of several partitions may be taken in any order, or at once.

use std::sync::Arc;

use tollgate_engine::engine::{Correction, VerdictDue};
use tollgate_log::{AppendError, Delivered, Ticket};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Statement;

use super::super::assignment::Restored;
use super::super::counters::Counters;
use super::super::event::{Effect, Now};
use super::super::limits_desk::LimitsDesk;
use super::super::ruler::Met;
use super::super::settings::Settings;
use super::super::tally::Tally;
use super::super::totals::ChainKey;

/// What can happen to a partition.
#[derive(Debug)]
pub enum PartitionEvent<'a> {
    /// The limits were read for the first time, and nobody else rules it: it begins.
    Begins,
    /// This process is to rule it.
    Assigned {
        /// Whether the limits were read, by which it can be restored.
        limits_known: bool,
    },
    /// Another rules it from now on.
    Revoked,
    /// It was restored, as [`Effect::Restore`] asked.
    Restored {
        /// As it was asked.
        attempt: u64,
        /// What came of it.
        restored: Restored,
    },
    /// More of the limits was read.
    LimitsRead,
    /// A follow begins.
    Following {
        /// At this offset.
        from: u64,
    },
    /// The log delivers records.
    Delivered(&'a [Delivered]),
    /// All records that were there when the follow began have been delivered.
    CaughtUp {
        /// The offset of the next one.
        next: u64,
    },
    /// Records are not there any more.
    Gap {
        /// The offset that was wanted.
        wanted: u64,
        /// The one that follows.
        next: u64,
        /// Whether another group rules the partition, too.
        ruled_too: bool,
    },
    /// The log cannot be read any further.
    Broken {
        /// The offset of the record that cannot be read.
        next: u64,
        /// Why, for people.
        why: &'a str,
    },
    /// The log answers an append.
    Answered {
        /// Which one.
        ticket: Ticket,
        /// What it says.
        result: &'a Result<u64, AppendError>,
        /// When the log took it, where the log says so.
        taken: Option<Timestamp>,
    },
    /// A tick was not given to the log, which is to take the partition's identity before.
    NotSent(Ticket),
    /// A snapshot was written, or could not be.
    SnapshotSaved {
        /// Which of the two.
        saved: bool,
    },
    /// Another partition has applied a total of this one.
    TotalApplied {
        /// Of this resource.
        resource: &'a str,
        /// Of this record.
        offset: u64,
    },
    /// What another partition has applied is not known any more.
    TargetForgotten(u32),
    /// Part of a turn: snapshots of another group are looked for again.
    LookAgain,
    /// Part of a turn: the next slice of denials that new limits rule again.
    GoOn,
    /// Part of a turn: totals that are due are appended.
    SendTotals {
        /// The partitions, by their numbers.
        targets: &'a [TotalsTarget],
    },
    /// Part of a turn: what the log refused is appended again, and a partition that waited for it returns.
    Retry,
    /// Part of a turn: snapshots are taken, and kept.
    Snapshot,
    /// Part of a turn: time and new limits are brought into the partition.
    Tick,
}

/// What is known of a partition that totals may be appended to.
#[derive(Clone, Copy, Debug)]
pub struct TotalsTarget {
    /// Whether they may be.
    pub is_open: bool,
    /// The limits version that rules it; `None`: another process knows.
    pub version: Option<u64>,
}

/// What follows from an event.
#[derive(Debug)]
pub enum PartitionEffect {
    /// Ask this of whoever runs the core: appends, follows, snapshots.
    Ask(Effect),
    /// Have its identity stated, if it is not on the way.
    WantIdentity,
    /// What is known of its identity is of no use any more.
    ForgetIdentity,
    /// It is ready for the first time: say what is in force.
    Begin(Vec<(Arc<str>, Statement)>),
    /// Say this of a resource.
    Announce(Arc<str>, Statement),
    /// Forget what it said, and what it has applied.
    Forget,
    /// Tell an agent how a hold of it stands.
    Tell(VerdictDue),
    /// An agent's stamps were moved.
    Corrected(Correction),
    /// A total of another partition was read.
    TotalRead {
        /// The chain.
        key: ChainKey,
        /// The source offset.
        offset: u64,
    },
    /// A total of its own was read that it never had.
    TotalForged {
        /// The chain.
        key: ChainKey,
        /// The source offset.
        offset: u64,
    },
    /// A total was met, and this became of it.
    TotalMet {
        /// The chain.
        key: ChainKey,
        /// What became of it.
        met: Met,
        /// Of a stray one: the source offset of the last that was applied.
        applied: Option<u64>,
    },
    /// The log has refused a total: none is sent for a while.
    TotalRefused,
    /// It is under the newest limits.
    UnderLatest,
}

/// What a partition may look at beside itself.
#[derive(Clone, Copy, Debug)]
pub struct PartitionContext<'a> {
    /// What the process was started with.
    pub settings: &'a Settings,
    /// The process's instance, by which its own records are known.
    pub instance: u128,
    /// Whether partitions come and go.
    pub shared: bool,
    /// The limits, as far as they were read.
    pub limits: &'a LimitsDesk,
}

/// What steps leave behind.
#[derive(Debug, Default)]
pub struct PartitionOutput {
    /// What is to be done, in order.
    pub effects: Vec<PartitionEffect>,
    /// What was counted.
    pub tally: Tally,
}

/// A step that is being taken.
pub struct PartitionStep<'a> {
    /// When.
    pub now: Now,
    /// What may be looked at.
    pub context: &'a PartitionContext<'a>,
    /// What is left behind.
    pub out: &'a mut PartitionOutput,
}

impl PartitionStep<'_> {
    /// The time on the process's clock.
    pub fn clock(&self) -> Span {
        self.now.clock
    }

    /// What is counted.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.out.tally.counters
    }

    /// What whoever runs the core is asked for next.
    pub fn ask(&mut self, effect: Effect) {
        self.push(PartitionEffect::Ask(effect));
    }

    /// What follows next.
    pub fn push(&mut self, effect: PartitionEffect) {
        self.out.effects.push(effect);
    }
}
