//! Copies of one partition, slowly: a list of holds for each resource, and every count added up when it is asked for.
//!
//! ```text
//! limits     what limits a domain, a group, a whole resource
//! holds      one resource: reserve, hold, release, transfer, seize, and an operator's end
//! lists      the same, by what agents say they hold; agents that are gone and come back; time
//! input      the records of a log, and what is said of each
//! partition  all resources over a whole log: limits, operators' acts, who is gone
//! records    agents' records: which come in turn, and what they are told
//! standing   bans and full scopes: what is denied, and what is said to be open again
//! ```
//!
//! Written from the rules' text. A caller says which records are duplicates and by how much an agent's stamps move, as
//! [`crate::log`] finds out. Not modelled: the bounds on how many agents and how many ended numbers are remembered,
//! bans of networks, and resources that belong to another partition. What stays true: no count in here can be wrong,
//! because none is kept.

mod holds;
mod input;
mod limits;
mod lists;
mod partition;
mod records;
mod standing;

pub use holds::{HoldRefusal, HoldsModel, KeptBy, ModelHold, Process, StagedCopies};
pub use input::{
    AgentFate, BeatRecord, CopiesAct, CopiesOutcome, DueVerdict, EndReason, HoldAct, HoldSays,
    HoldsRecord, ModelOp, ModelPart, PartHolds, RecordTurn, SentBy,
};
pub use limits::{CopiesVersion, CopyScope, HoldLimits, LimitedCopies};
pub use lists::{ListVerdict, ListedHold};
pub use partition::CopiesModel;
pub use standing::CopyStanding;
