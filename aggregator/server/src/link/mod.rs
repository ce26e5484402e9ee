//! The link: the one address that agents need. ZeroMQ ROUTER; what is said stands in `wire::link`.
//!
//! What an agent sends is decoded and checked in `session`, whole, before anything else sees it: what only
//! aggregators may write, what is another agent's to say, what cannot be read and what is not there is
//! refused with a reason, and never reaches the log. Knows nothing of rules.
//!
//! What stays true: an agent that does not read its answers costs the others nothing, and is not read
//! itself; what is lost on the way to it (with its connection) it asks or sends again by its own rules;
//! a connection that sends anything else than hello, append and ask of one agent ends.

mod fault;
mod flights;
mod session;
mod socket;

pub use fault::{BatchFault, RefusedBatches};
pub use session::{Admitted, Session};
pub use socket::{Answers, LinkCounters, Sent, serve};

use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::FromAggregator;

/// The bytes of an answer.
fn encode(answer: &FromAggregator, writer: &mut Writer) -> Vec<u8> {
    answer.encode(writer);
    writer.as_slice().to_vec()
}
