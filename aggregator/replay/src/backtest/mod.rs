//! Recorded traffic under other limits: which calls would have been granted, and which refused?
//!
//! ```text
//! read     files of rows ──► pairs (names as numbers) and a tape (calls in order)
//! log      a log of Tollgate's own, the same; calls: of one record; senders: their agents, and
//!          whose clocks are wrong; copies: what is left out
//! replay   the tape against each limits file: the engine's in-line rules, tallied
//! suggest  the tape against trial limits, until the least sufficient one is found
//! report   tallies ──► one object for programs, tables and a page for people
//! ```
//!
//! Here calls are requests to an ideal in-line limiter, in order of their stamps. Knows nothing of
//! a running fleet. What stays true: memory grows with pairs and with what their windows hold,
//! never with calls; there is no result for a recording that could not be read to its end.

mod ahead;
mod answer;
mod calls;
pub mod copies;
pub mod follow;
mod fronts;
pub mod html;
pub mod inputs;
pub mod log;
mod moved;
mod networks;
pub mod pairs;
pub mod read;
pub mod replay;
pub mod report;
mod senders;
mod shared_limits;
pub mod states;
pub mod suggest;
pub mod table;
pub mod tally;
pub mod tape;
pub mod trace;
