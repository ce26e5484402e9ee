//! Inputs of the model of copies, and its answers.
//!
//! Plain data under the model's own names, as in [`crate::log`]. Knows no wire format. What stays true: a verdict
//! on an operation names the operation's position in the record.

use std::collections::BTreeMap;

use super::holds::{HoldRefusal, KeptBy, Process};
use super::lists::ListedHold;

/// The sender of a record. The caller drops duplicates, and records older than the window of duplicates,
/// before they reach the model.
#[derive(Clone, Copy, Debug)]
pub struct SentBy<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// Its random epoch.
    pub epoch: u128,
    /// The record's number in this partition.
    pub sequence: u64,
    /// By how much the agent's stamps move, in microseconds.
    pub moved_us: i64,
    /// When the log appended the record, in microseconds.
    pub appended_us: u64,
}

/// A record of operations on holds.
#[derive(Clone, Debug)]
pub struct HoldsRecord<'a> {
    /// The sender.
    pub sender: SentBy<'a>,
    /// The operations.
    pub ops: Vec<ModelOp<'a>>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct ModelOp<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The number of the hold.
    pub number: u64,
    /// The agent's stamp, in microseconds.
    pub at_us: u64,
    /// The operation itself.
    pub act: HoldAct<'a>,
}

/// The kinds of operation.
#[derive(Clone, Copy, Debug)]
pub enum HoldAct<'a> {
    /// Asks for copies before they are used.
    Reserve {
        /// The domain on whose behalf.
        domain: &'a str,
        /// The greatest number of copies.
        copies: u64,
        /// The least number of copies.
        min: u64,
    },
    /// Reports copies that are in use already.
    Hold {
        /// The domain on whose behalf.
        domain: &'a str,
        /// The number of copies.
        copies: u64,
    },
    /// Gives copies back.
    Release {
        /// The number of copies.
        copies: u64,
    },
    /// Stages copies for another process.
    Transfer {
        /// The number of copies.
        copies: u64,
        /// The id of the transfer.
        to: u128,
        /// For how long, in microseconds.
        ttl_us: u64,
    },
    /// Takes over the copies of a transfer.
    Seize {
        /// The id of the transfer.
        from: u128,
    },
    /// Gives back all copies of the hold.
    Cancel,
}

/// A heartbeat: the holds of a process as the process lists them.
pub struct HeartbeatRecord<'a> {
    /// The sender.
    pub sender: SentBy<'a>,
    /// The earlier epoch of the same agent that this process replaces.
    pub replaces: Option<u128>,
    /// Whether another record continues the list.
    pub more: bool,
    /// Whether this is the process's last heartbeat.
    pub last: bool,
    /// One part for each resource.
    pub parts: Vec<ModelPart<'a>>,
}

/// A heartbeat's part about one resource.
pub struct ModelPart<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The holds.
    pub holds: PartHolds<'a>,
    /// Numbers of reserves and seizes for which the process still waits for a verdict.
    pub awaiting: Vec<u64>,
    /// Numbers in use for which the process missed the verdict.
    pub asked: Vec<u64>,
}

/// Whether numbers, each with its copies, have a digest.
pub type DigestCheck<'a> = Box<dyn Fn(&BTreeMap<u64, u64>) -> bool + 'a>;

/// The holds of a process, as a digest or as a list.
pub enum PartHolds<'a> {
    /// Whether these numbers, each with its copies, have the digest that the process sent.
    Digest(DigestCheck<'a>),
    /// All holds with numbers from `from` to `upto`.
    List {
        /// The first number.
        from: u64,
        /// The last number.
        upto: u64,
        /// The holds, by number.
        listed: Vec<ListedHold<'a>>,
    },
}

/// What an operator does about copies.
#[derive(Clone, Copy, Debug)]
pub enum CopiesAct<'a> {
    /// Ends a hold.
    EndHold {
        /// The resource.
        resource: &'a str,
        /// The agent's name.
        agent: &'a str,
        /// Its epoch.
        epoch: u128,
        /// The number.
        number: u64,
    },
    /// Ends holds. Without an agent it also ends staged transfers.
    EndHolds {
        /// The resource.
        resource: &'a str,
        /// Only holds of this domain. `None` means of all domains.
        domain: Option<&'a str>,
        /// Only holds of this agent. `None` means of all agents.
        agent: Option<&'a str>,
    },
    /// Ends a transfer.
    EndTransfer {
        /// The resource.
        resource: &'a str,
        /// The id.
        id: u128,
    },
    /// Bans a domain until an instant, or lifts its ban.
    Ban {
        /// The resource. `None` means all resources.
        resource: Option<&'a str>,
        /// The domain.
        domain: &'a str,
        /// The end of the ban, in microseconds. `None` lifts it.
        until_us: Option<u64>,
    },
}

/// How the model treated a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordTurn {
    /// It was applied.
    #[default]
    Applied,
    /// Not applied: a newer record of the same process was applied before.
    Overtaken,
    /// Not applied: the process's epoch is over.
    EpochOver,
}

/// The result of a record, a tick or an operator's act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiesOutcome {
    /// Whether the record was applied.
    pub turn: RecordTurn,
    /// The verdicts to send to processes, in order.
    pub verdicts: Vec<DueVerdict>,
    /// Changes in the life of processes, in order.
    pub agents: Vec<(Process, AgentFate)>,
    /// Number of operations that took copies for banned domains.
    pub banned: u64,
    /// Numbers of transfers that a tick ended: those at their time to live, and those at the
    /// greatest age of their copies.
    pub transfers_over: (u64, u64),
}

/// A verdict that is due to a process about one of its holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueVerdict {
    /// The process.
    pub process: Process,
    /// The resource.
    pub resource: String,
    /// The index of the operation in its record; 0 if no operation caused the verdict.
    pub entry: u32,
    /// How the hold stands. `None`: the process shall list all its holds.
    pub status: Option<ModelStatus>,
}

/// How a hold stands after a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStatus {
    /// Its number.
    pub number: u64,
    /// Its copies that count.
    pub copies: u64,
    /// How many of them are above a limit, and the scope of the limit that had no room.
    pub excess: KeptBy,
    /// Why it is over.
    pub ended: Option<EndReason>,
    /// Why the operation, or the hold in a list, was refused.
    pub refused: Option<HoldRefusal>,
    /// The domain of copies that come from a transfer, and when they were taken, in microseconds.
    pub seized: Option<(String, u64)>,
}

impl ModelStatus {
    /// A hold of which this many copies count.
    pub fn of(number: u64, copies: u64) -> Self {
        Self {
            number,
            copies,
            ..Self::default()
        }
    }

    /// A hold that was ended.
    pub fn ended(number: u64, reason: EndReason) -> Self {
        Self {
            ended: Some(reason),
            ..Self::of(number, 0)
        }
    }

    /// The same hold, where this was refused.
    #[must_use]
    pub fn refused(self, why: HoldRefusal) -> Self {
        if why == HoldRefusal::HoldEnded {
            return Self::ended(self.number, EndReason::Earlier);
        }
        Self {
            refused: Some(why),
            ..self
        }
    }
}

/// The cause that ended a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its age, with this record or tick.
    Age,
    /// An operator, with this act.
    Operator,
    /// Age or an operator, earlier.
    Earlier,
}

/// A change in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentFate {
    /// It was silent for too long. This many copies became free.
    Gone(u64),
    /// It had been gone, and a record of it arrived.
    Returned,
    /// Its epoch is over. This many copies became free.
    Over(u64),
    /// Another process of the same name is alive beside it.
    Twin,
}
