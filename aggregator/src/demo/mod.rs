//! `tollgate demo`: shows a fleet at work.
//!
//! ```text
//! aggregator (a process) ◄── hits ── agent 1, agent 2 (processes, each with its part of a schedule)
//!        └── denials ──►
//! this process: starts and stops them, shows what they report, and in the end reads the log and checks
//! ```
//!
//! The aggregator is killed for a while and started again. Then a process that holds copies is killed, and another
//! one waits until they are back. In the end the independent model replays the log, and the log has to justify
//! every refusal of an agent. What stays true: no process is left behind, however this one ends.

mod attach;
mod clock;
mod copies;
pub mod cost;
mod delays;
mod effect;
pub mod figures;
mod fleet;
pub mod holder;
mod inbox;
mod limited;
mod log_source;
mod outage;
pub mod part;
mod plan;
pub mod player;
pub mod replayed;
pub mod report;
mod run;
pub mod schedule;
mod secured;
pub mod verdict;
mod view;

pub use attach::{Attached, attach};
pub use inbox::Interrupted;
pub use plan::{AttachedLog, Log, Plan, TrafficSource};
pub use run::run;
