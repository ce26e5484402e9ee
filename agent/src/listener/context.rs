//! What a listener is given, and what it wants done.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::wire::frame::Topic;

use crate::clock::Clock;
use crate::heard::{OnHeard, OnNear};
use crate::most::Mosts;
use crate::resource::{ResourceId, Resources};
use crate::sight::Liveness;
use crate::stats::Counters;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenerAct {
    /// Send this over the link of an aggregator.
    Say { peer: usize, message: Bytes },
    /// Make the link of an aggregator anew.
    ReopenLink { peer: usize },
    /// Make the feed of an aggregator anew: at one of these addresses, with these topics.
    OpenFeed {
        peer: usize,
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    },
    /// Follow another aggregator of the fleet, at this address, if that is not done already.
    Meet { address: Box<str> },
    /// Subscribe to one topic more.
    Subscribe {
        peer: usize,
        resource: ResourceId,
        topic: Topic,
    },
}

/// What a listener needs to know of its agent.
#[derive(Debug)]
pub(crate) struct ListenerContext {
    pub(crate) agent: Box<str>,
    /// Proves the agent's epoch.
    pub(crate) secret: EpochSecret,
    /// Proves the epoch of the process before it, if that is known.
    pub(crate) before: Option<EpochSecret>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) mosts: Arc<Mosts>,
    pub(crate) sight: Arc<Liveness>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) on_heard: Option<OnHeard>,
    pub(crate) on_near: Option<OnNear>,
}
