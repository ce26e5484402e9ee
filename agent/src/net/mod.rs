//! The network thread: sockets (`socket`, `link`, `feed`, `kafka`), and the logic behind them (`driver`).
//!
//! One thread with a runtime of its own, so that an agent works in a service without one.

mod backoff;
mod blindness;
mod credentials;
mod driver;
mod feed;
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
pub(crate) use driver::Driver;
#[cfg(feature = "simulation")]
pub(crate) use driver::Transport;
#[cfg(feature = "kafka")]
pub(crate) use kafka::{Kafka, check_properties};
pub(crate) use sockets::{AgentOrder, Carrier, EVENTS_MAX, Sockets};

use bytes::Bytes;
use tollgate_shared::wire::frame::Topic;

use crate::resource::ResourceId;

/// What sockets report to the driver.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// A link is connected.
    LinkUp { peer: usize },
    /// A message arrived over a link.
    LinkMessage { peer: usize, message: Bytes },
    /// A link is disconnected; another is being opened.
    LinkDown { peer: usize },
    /// A feed is open, with subscriptions to these resources' topics and the control topic.
    FeedUp {
        peer: usize,
        subscribed: Vec<ResourceId>,
    },
    /// An open feed subscribed to a topic.
    Subscribed { peer: usize, resource: ResourceId },
    /// A frame arrived over a feed.
    FeedFrame {
        peer: usize,
        topic: Topic,
        frame: Bytes,
    },
    /// A feed is closed; another is being opened.
    FeedDown { peer: usize },
    /// An aggregator may be found at this address, `host:port`.
    Found { address: Box<str> },
    /// A task panicked.
    Panicked(task::Panic),
    /// The number of partitions of the topic of hits in Kafka.
    #[cfg(feature = "kafka")]
    Partitions(u32),
    /// The result of a record that was given to Kafka.
    #[cfg(feature = "kafka")]
    Delivered { id: u64, outcome: AppendOutcome },
}

/// The result of a record.
#[cfg(feature = "kafka")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// Kafka has it.
    Taken,
    /// Kafka may have the record or not, and it has to be sent again.
    SendAgain,
    /// The record was given up.
    GivenUp,
}
