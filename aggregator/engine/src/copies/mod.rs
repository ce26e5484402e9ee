//! Copies: how many of a resource are held at a time, by whom, and that none is lost for ever.
//!
//! ```text
//! limits    what limits a domain, by one look-up          ops      reserve, hold, release, transfer,
//! state     every count, and the steps that move them              seize, an operator's end
//! holds     holds by id, by agent, by age                 beats    what agents say they hold; gone,
//! groups    groups, and the sets that holds are under              back, over
//! staging   copies between two agents                     ticks    what time ends
//! silence   who has not beaten for how many ticks         views    who holds what
//! table     entries in chunks, which a frozen copy        excess   what of a hold was too much
//!           shares
//! ```
//!
//! [`Copies`] is one resource: operations go in, results and [`Effects`] come out. (Charon, sections
//! 2.2, 3.1 and 4.3, read as in the design: holds count against their domain, the resource, and the
//! groups that the domain belonged to when they were taken.) Knows no records, sequences or
//! partitions; time enters by operations and ticks.
//!
//! What stays true after every operation: no count is below zero, every count is the sum of its
//! live holds and staged copies, and nothing is held by a gone agent; see [`Copies::audit`]. An
//! operation that is refused has changed nothing.

mod agents;
mod audit;
mod beats;
mod chunk;
mod digest;
mod domains;
mod effects;
mod excess;
mod groups;
mod holds;
mod limits;
mod names;
mod ops;
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
pub use beats::{DigestBeat, List, Listed};
pub use domains::NameKey;
pub use effects::{
    AgentIx, CopiesScope, Effects, EndedHold, Grant, HoldId, HoldVerdict, Limiter, OpRefused,
    Taken, TransferId,
};
pub use groups::GroupIx;
pub use limits::{CopyLimits, CopyLimitsBuilder, HOLDS_MAX};
pub use ops::{Ahead, Ask};
pub use snapshot::RestoreFault;
pub use state::{Copies, CopiesCounters};
pub use views::{Count, HoldState, HoldView, StagedView};
