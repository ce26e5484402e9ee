//! Copies of one partition, slowly: a list of holds for each resource, and every count added up when it is needed.
//!
//! ```text
//! limits     the limits on a domain, a group, a whole resource
//! holds      one resource: reserve, hold, release, transfer, seize, and an operator's end
//! lists      the same, by the holds that agents list; agents that are gone and return; time
//! input      the records of a log, and the answers to each
//! partition  all resources over a whole log: limits, operators' acts, agents that are gone
//! records    agents' records: which are in turn, and the verdicts on them
//! standing   bans and full scopes: denials, and their lifts
//! ```
//!
//! Written from the rules' text. The caller states which records are duplicates and by how much an agent's stamps
//! move, as [`crate::log`] computes them. Not modelled: the bounds on how many agents and how many ended numbers
//! are remembered, bans of networks, and resources that belong to another partition. What stays true: no count can
//! be wrong, because no count is stored.

mod holds;
mod input;
mod limits;
mod lists;
mod partition;
mod records;
mod standing;

pub use holds::{HoldRefusal, HoldsModel, KeptBy, ModelHold, Process, StagedCopies};
pub use input::{
    AgentFate, CopiesAct, CopiesOutcome, DigestCheck, DueVerdict, EndReason, HeartbeatRecord,
    HoldAct, HoldsRecord, ModelOp, ModelPart, ModelStatus, PartHolds, RecordTurn, SentBy,
};
pub use limits::{CopiesVersion, CopyScope, HoldLimits, LimitedCopies};
pub use lists::{ListVerdict, ListedHold};
pub use partition::CopiesModel;
pub use standing::CopyStanding;
