//! What this agent holds: where calls take copies and give them back, and what it tells the log about them.
//!
//! ```text
//! calls ──> hold table ── notices ──> hold session ── operations, heartbeats ──> courier
//!                                          ^── verdicts ── listener
//! ```
//!
//! Knows nothing of limits, calls' answers and sockets. What stays true: everything here is bounded, and no lock is
//! held while a caller waits.

mod excess;
pub(crate) mod news;
pub(crate) mod notice;
mod revoked;
mod session;
pub(crate) mod table;

pub(crate) use news::OnHold;
pub(crate) use notice::HoldNotice;
pub(crate) use revoked::RevokedHolds;
pub(crate) use session::{HoldSession, Origin};
pub(crate) use table::{HOLDS_MAX, HoldTable};
