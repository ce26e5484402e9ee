//! The content of one record of the log: calls, operations on holds, or a heartbeat.
//!
//! Each type owns its content until the log has it: the courier encodes it at each sending. Knows nothing of queues and
//! sockets. What stays true: one of these becomes one record.

pub(crate) mod calls;
pub(crate) mod holds;

use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::Sender;

use crate::resource::Resources;
use calls::CallBatch;
use holds::{Heartbeat, HoldOps};

/// One record's content.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Calls.
    Hits(CallBatch),
    /// Operations on holds.
    Holds(HoldOps),
    /// A heartbeat: what the agent holds.
    Heartbeat(Heartbeat),
}

impl From<CallBatch> for Payload {
    fn from(batch: CallBatch) -> Self {
        Self::Hits(batch)
    }
}

impl Payload {
    pub(crate) fn partition(&self) -> u32 {
        match self {
            Self::Hits(batch) => batch.partition,
            Self::Holds(payload) => payload.partition,
            Self::Heartbeat(payload) => payload.partition,
        }
    }

    /// Calls in this record that were let through.
    pub(crate) fn hits(&self) -> u64 {
        match self {
            Self::Hits(batch) => batch.hits,
            Self::Holds(_) | Self::Heartbeat(_) => 0,
        }
    }

    /// Calls in this record that were refused.
    pub(crate) fn refused_calls(&self) -> u64 {
        match self {
            Self::Hits(batch) => batch.refused_calls,
            Self::Holds(_) | Self::Heartbeat(_) => 0,
        }
    }

    /// Whether the record is about holds, and so useful only in its order.
    pub(crate) fn is_of_holdings(&self) -> bool {
        !matches!(self, Self::Hits(_))
    }

    /// Writes the record.
    pub(crate) fn encode(&self, writer: &mut Writer, sender: &Sender<'_>, resources: &Resources) {
        match self {
            Self::Hits(batch) => batch.encode(writer, sender, resources),
            Self::Holds(payload) => payload.encode(writer, sender),
            Self::Heartbeat(payload) => payload.encode(writer, sender),
        }
    }
}
