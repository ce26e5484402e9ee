//! What the model of copies is fed, and what it answers.
//!
//! Plain data under the model's own names, as in [`crate::log`]. Knows no wire format. What stays true: what is said of
//! an operation names its place in the record.

use std::collections::BTreeMap;

use super::holds::{HoldRefusal, KeptBy, Process};
use super::limits::CopyScope;
use super::lists::ListedHold;

/// Who sent a record. One that was seen before, or is older than is remembered, is not fed at all.
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

/// A record of operations.
#[derive(Clone, Debug)]
pub struct HoldsRecord<'a> {
    /// Whose.
    pub sender: SentBy<'a>,
    /// The operations.
    pub ops: Vec<ModelOp<'a>>,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct ModelOp<'a> {
    /// On what.
    pub resource: &'a str,
    /// The number of the hold.
    pub number: u64,
    /// The agent's stamp, in microseconds.
    pub at_us: u64,
    /// What is done.
    pub act: HoldAct<'a>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub enum HoldAct<'a> {
    /// Asks for copies before they are used.
    Reserve {
        /// For whom.
        domain: &'a str,
        /// How many at most.
        copies: u64,
        /// How many at least.
        min: u64,
    },
    /// Copies are in use.
    Hold {
        /// For whom.
        domain: &'a str,
        /// How many.
        copies: u64,
    },
    /// Gives copies back.
    Release {
        /// How many.
        copies: u64,
    },
    /// Stages copies.
    Transfer {
        /// How many.
        copies: u64,
        /// Under which id.
        to: u128,
        /// For how long, in microseconds.
        ttl_us: u64,
    },
    /// Takes what is staged.
    Seize {
        /// Under which id.
        from: u128,
    },
    /// Gives back whatever the hold has.
    Cancel,
}

/// A heartbeat: what a process says it holds.
pub struct BeatRecord<'a> {
    /// Whose.
    pub sender: SentBy<'a>,
    /// The epoch of the same name that it takes the place of.
    pub replaces: Option<u128>,
    /// Whether another record goes on with the list.
    pub more: bool,
    /// Whether the process ends with it.
    pub last: bool,
    /// What it says of each resource.
    pub parts: Vec<ModelPart<'a>>,
}

/// What a heartbeat says of one resource.
pub struct ModelPart<'a> {
    /// The resource.
    pub resource: &'a str,
    /// What is held.
    pub holds: PartHolds<'a>,
    /// Numbers whose reserves or seizes await a verdict.
    pub awaiting: Vec<u64>,
    /// Numbers in use whose verdicts were missed.
    pub asked: Vec<u64>,
}

/// What a process says it holds.
pub enum PartHolds<'a> {
    /// Whether these numbers, each with its copies, have the digest that it sent.
    Digest(Box<dyn Fn(&BTreeMap<u64, u64>) -> bool + 'a>),
    /// The holds of the numbers from the first to the last.
    List {
        /// The first.
        from: u64,
        /// The last.
        upto: u64,
        /// The holds, by number.
        listed: Vec<ListedHold<'a>>,
    },
}

/// What an operator does.
#[derive(Clone, Copy, Debug)]
pub enum CopiesAct<'a> {
    /// Ends a hold.
    EndHold {
        /// Of what.
        resource: &'a str,
        /// The agent's name.
        agent: &'a str,
        /// Its epoch.
        epoch: u128,
        /// The number.
        number: u64,
    },
    /// Ends holds, and what is staged unless an agent is named.
    EndHolds {
        /// Of what.
        resource: &'a str,
        /// Of this domain. `None` means of all.
        domain: Option<&'a str>,
        /// Of this agent. `None` means of all.
        agent: Option<&'a str>,
    },
    /// Ends a transfer.
    EndTransfer {
        /// Of what.
        resource: &'a str,
        /// The id.
        id: u128,
    },
    /// Bans a domain until an instant, or takes its ban back.
    Ban {
        /// From what. `None` means from everything.
        resource: Option<&'a str>,
        /// The domain.
        domain: &'a str,
        /// Until when, in microseconds. `None` takes the ban back.
        until_us: Option<u64>,
    },
}

/// What became of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordTurn {
    /// It was applied.
    #[default]
    Applied,
    /// A newer record of its process was applied before.
    Overtaken,
    /// The epoch of its process is over.
    EpochOver,
}

/// What a record, a tick or an act came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiesOutcome {
    /// Whether it was applied.
    pub turn: RecordTurn,
    /// What processes are told, in order.
    pub verdicts: Vec<DueVerdict>,
    /// What became of processes, in order.
    pub agents: Vec<(Process, AgentFate)>,
    /// Operations that took copies for banned domains.
    pub banned: u64,
    /// Transfers that a tick ended: at their end, and at the greatest age of their copies.
    pub transfers_over: (u64, u64),
}

/// What a process is told about one of its holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueVerdict {
    /// The process.
    pub process: Process,
    /// The resource.
    pub resource: String,
    /// The number of the operation in its record; otherwise 0.
    pub entry: u32,
    /// The hold's number; 0 where a list is wanted.
    pub number: u64,
    /// What it is told.
    pub says: HoldSays,
}

/// What is said of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldSays {
    /// A reserve was granted so many copies.
    Granted(KeptBy),
    /// It counts, and so much of it is too many.
    Counted(KeptBy),
    /// It counts, and comes from a transfer.
    Seized {
        /// For whom.
        domain: String,
        /// How many copies.
        copies: u64,
        /// When they were taken, in microseconds.
        start_us: u64,
    },
    /// It counts.
    Held {
        /// How many copies.
        copies: u64,
        /// What of them is too many.
        excess: u64,
        /// By what.
        by: Option<CopyScope>,
    },
    /// It does not count.
    NotHeld,
    /// It was ended.
    Ended(EndReason),
    /// The operation was not done.
    Refused(HoldRefusal),
    /// A list of all holds is wanted.
    ListWanted,
}

/// What ended a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Its age, just now.
    Age,
    /// An operator, just now.
    Operator,
    /// One of them, before.
    Earlier,
}

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentFate {
    /// It was silent for too long. So many copies came back.
    Gone(u64),
    /// It was gone, and was heard.
    Returned,
    /// Its epoch is over. So many copies came back.
    Over(u64),
    /// Another process of the same name lives beside it.
    Twin,
}
