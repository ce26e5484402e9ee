//! The link: the one address that agents need. ZeroMQ ROUTER; its messages are defined in `wire::link`.
//!
//! `session` decodes and checks every message of an agent completely before any other part sees it: records that
//! only aggregators may write, batches of other agents, malformed ones, and those for unknown partitions are
//! refused with a reason, and never reach the log. Knows nothing of rules.
//!
//! What stays true: an agent that does not read its answers costs other agents nothing, and is not read itself; an
//! agent repeats by its own rules what was lost with its connection; a connection that sends anything else than
//! hello, append and ask of one agent ends.

mod conversation;
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
