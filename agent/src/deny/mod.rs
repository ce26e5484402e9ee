//! The deny list: which scopes are refused, until when, and by which aggregator's statement.
//!
//! ```text
//! call ── fingerprint ──> filter ── "surely not" ──> let through          a few nanoseconds
//!                           └────── "maybe" ──> exact list ──> name, lease, end ──> refused
//! ```
//!
//! Behind the same filter: which pairs are near their limits, and what they have left; which domains the limits close;
//! and, for the flusher, which pairs had a recent denial or notice.
//!
//! One writer, the listener, orders statements by their log position; any number of callers read. Knows nothing of
//! sockets and of how statements travel.

mod beside;
mod closed;
mod filter;
mod list;
mod name;
mod near;
mod opened;
mod recent;
mod view;

pub(crate) use list::{DenyList, ScopeChange, ScopeNotice, StatementOutcome};
pub(crate) use near::{NEAR_MAX, NearList, Noticed, Taking};
#[cfg(test)]
pub(crate) use view::Closed;
pub(crate) use view::{DenyView, Lease, Refusal, Unhashed};

#[cfg(test)]
mod model_tests;
