//! The listener's surroundings, and the actions that it requests.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::wire::frame::Topic;

use crate::clock::Clock;
use crate::events::{OnNear, OnStatement};
use crate::feed_liveness::Liveness;
use crate::most::Mosts;
use crate::resource::{ResourceId, Resources};
use crate::stats::Counters;

/// An action that the listener requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenerAct {
    /// Send this over the link of an aggregator.
    Send { peer: usize, message: Bytes },
    /// Reopen the link of an aggregator.
    ReopenLink { peer: usize },
    /// Reopen the feed of an aggregator: at one of these addresses, with these topics.
    OpenFeed {
        peer: usize,
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    },
    /// Follow another aggregator of the fleet, at this address, unless that is done already.
    FollowMember { address: Box<str> },
    /// Subscribe to another topic.
    Subscribe {
        peer: usize,
        resource: ResourceId,
        topic: Topic,
    },
}

/// What a listener needs of its agent.
#[derive(Debug)]
pub(crate) struct ListenerContext {
    pub(crate) agent: Box<str>,
    /// Proves the agent's epoch.
    pub(crate) secret: EpochSecret,
    /// Proves the epoch of the predecessor, if known.
    pub(crate) before: Option<EpochSecret>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) mosts: Arc<Mosts>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) on_statement: Option<OnStatement>,
    pub(crate) on_near: Option<OnNear>,
}
