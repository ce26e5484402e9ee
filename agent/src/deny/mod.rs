//! The deny list: who is refused, until when, and by whose word.
//!
//! ```text
//! call ── fingerprint ──> filter ── "surely not" ──> let through          a few nanoseconds
//!                           └────── "maybe" ──> exact list ──> name, lease, end ──> refused
//! ```
//!
//! One writer, the listener, orders statements by their place; any number of callers read. Knows
//! nothing of sockets and of how statements travel.

mod filter;
mod list;
mod view;

pub(crate) use list::{DenyList, Said, Taken, Word};
#[cfg(test)]
pub(crate) use view::Closed;
pub(crate) use view::{DenyView, Lease, Refusal, Unhashed};

#[cfg(test)]
mod model_tests;
