//! Copies: how many of a resource are held at a time, by which agent and domain; and that no copy is
//! lost for ever.
//!
//! ```text
//! limits    what limits a domain, by one look-up          ops         reserve, hold, release, transfer,
//! state     every count, and the steps that change them               seize, an end by an operator
//! holds     holds by id, by agent, by age                 heartbeats  what agents list as held; agents that
//! groups    groups, and the sets that holds are under                 are gone, return, or are over
//! staging   copies between two agents                     ticks       what ends because of time
//! silence   how many ticks each agent has been silent     views       which holds there are, and whose
//! table     entries in chunks, which a frozen copy        excess      how many copies of a hold were too many
//!           shares                                        room        how many more copies a domain may get
//! ```
//!
//! [`Copies`] is one resource: operations go in, results and [`Effects`] come out. (Charon, sections
//! 2.2, 3.1 and 4.3, read as in the design: holds count against their domain, the resource, and the
//! groups that the domain belonged to when they were taken.) Knows no records, sequences or
//! partitions; time enters by operations and ticks.
//!
//! What stays true after every operation: no count is below zero, every count is the sum of its live
//! holds and staged copies, and a gone agent holds nothing; see [`Copies::audit`]. A refused
//! operation has changed nothing.

mod agents;
mod audit;
mod chunk;
mod digest;
mod domains;
mod effects;
mod excess;
mod groups;
mod heartbeats;
mod holds;
mod limits;
mod names;
mod ops;
mod room;
pub mod silence;
mod snapshot;
mod staging;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod ticks;
mod views;

pub use agents::ENDED_IDS_MAX;
pub use audit::Miscount;
pub use domains::NameKey;
pub use effects::{
    AgentIx, CopiesScope, Effects, EndedHold, Grant, HoldId, HoldVerdict, Limiter, OpRefused,
    Taken, TransferId,
};
pub use groups::GroupIx;
pub use heartbeats::{DigestOutcome, List, Listed};
pub use limits::{CopyLimits, CopyLimitsBuilder, HOLDS_MAX};
pub use ops::{Ahead, CopiesRequest};
pub use snapshot::RestoreFault;
pub use state::{Copies, CopiesCounters};
pub use views::{Count, HoldState, HoldView, StagedView};
