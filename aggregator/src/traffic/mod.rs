//! Recorded traffic from elsewhere: access logs, plain or compressed.
//!
//! Knows nothing of limits. What stays true: a line that cannot be read is counted and, for the
//! first of them, shown; it never ends the reading and never counts as a request.

pub mod access_log;
pub mod open;

pub use access_log::{AccessLog, Request, Unreadable};
pub use open::open;
