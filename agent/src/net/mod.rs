//! The network thread: sockets (`socket`, `link`, `feed`, `kafka`), and what is made of what they say
//! (`hub`).
//!
//! One thread with a runtime of its own, so that an agent works in a service that has none.

mod backoff;
mod credentials;
mod feed;
mod hub;
mod inbox;
#[cfg(feature = "kafka")]
mod kafka;
mod link;
#[cfg(feature = "kafka")]
mod members;
mod names;
mod slots;
mod socket;
mod sockets;
mod task;
mod wire;

pub(crate) use credentials::Credentials;
#[cfg(feature = "tls")]
pub(crate) use credentials::TokenFile;
pub(crate) use hub::Driver;
#[cfg(feature = "simulation")]
pub(crate) use hub::Transport;
#[cfg(feature = "kafka")]
pub(crate) use kafka::{Kafka, check_properties};
pub(crate) use sockets::{AgentOrder, Carrier, EVENTS_MAX, Sockets};

use bytes::Bytes;
use tollgate_shared::wire::frame::Topic;

use crate::resource::ResourceId;

/// What sockets report to the hub.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// A link can carry messages.
    LinkUp { peer: usize },
    /// A message came over a link.
    LinkSaid { peer: usize, message: Bytes },
    /// A link is gone; another is being made.
    LinkDown { peer: usize },
    /// A feed is there, with subscriptions to these resources' topics and the control topic.
    FeedUp {
        peer: usize,
        subscribed: Vec<ResourceId>,
    },
    /// A topic was subscribed to on a feed that is there.
    Subscribed { peer: usize, resource: ResourceId },
    /// A frame came over a feed.
    FeedSaid {
        peer: usize,
        topic: Topic,
        frame: Bytes,
    },
    /// A feed is gone; another is being made.
    FeedDown { peer: usize },
    /// An aggregator may be found at this address, `host:port`.
    Found { address: Box<str> },
    /// Kafka says how many partitions the topic of hits has.
    #[cfg(feature = "kafka")]
    Partitions(u32),
    /// What became of a record that was given to Kafka.
    #[cfg(feature = "kafka")]
    Delivered { id: u64, outcome: AppendOutcome },
}

/// What became of a record.
#[cfg(feature = "kafka")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// Kafka has it.
    Taken,
    /// Kafka may have it or not, and it is to be sent again.
    SendAgain,
    /// It was given up.
    GivenUp,
}
