//! The connections of subscribers, and what each of them subscribes to.
//!
//! Where no token is required, a connection may subscribe to any whole topic: every peer that can connect can learn
//! which domains are denied, which the network has to prevent, and costs no more than its bounds allow: topics,
//! changes per second, and its queue. Under a token for some namespaces only, a connection hears the control topic,
//! and topics that links under a token of the same scope have asked for; other subscriptions wait until a link has
//! asked ([`Hearing`]). Under a token for some agents' names only, the same holds for the topics of agents.
//!
//! A subscriber shows the token itself, as its link does, and not a ticket from the link: both connections end at
//! aggregators of one fleet under one server name, so the feed's peer learns nothing that the link's does not know,
//! and revoking a token ends both.
//!
//! [`Hearing`]: crate::security::Hearing

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tollgate_shared::wire::frame::{TOPIC_BYTES, Topic};
use tollgate_zmtp::{Event, PeerLimits, SocketType, Subscriptions};

use super::FeedCounters;
use super::shares::Shares;
use crate::edge::bounds::FEED_LIMITS;
use crate::edge::{Bounds, Connection, Conversation, Edge, Ended, Port, PortCounters};
use crate::security::{GrantScope, PortKind, TokenGrant};

/// The time in which a connection may subscribe to as many topics as it may have, and cancel as many. Beyond
/// that it is not read, since its changes keep the publishing thread busy.
const CHANGES_WITHIN: Duration = Duration::from_secs(1);

/// The subscribers, and what they subscribe to.
#[derive(Debug)]
struct Subscribers {
    connections: HashMap<u64, Subscriber>,
    subscriptions: Subscriptions<Topic>,
    shares: Shares,
}

/// One subscriber.
#[derive(Debug)]
struct Subscriber {
    connection: Arc<Connection>,
    /// The number of its topics as counted in the shares, including those that it may not hear yet.
    topics: usize,
}

impl Subscribers {
    /// Sets the number of a connection's topics, if that is allowed.
    fn has(&mut self, number: u64, topics: usize) -> Result<(), Ended> {
        let Some(one) = self.connections.get_mut(&number) else {
            return Ok(());
        };
        let address = one.connection.network;
        self.shares.change(address, one.topics, topics)?;
        one.topics = topics;
        Ok(())
    }
}

/// The feed's port.
#[derive(Clone, Debug)]
pub(super) struct FeedPort {
    edge: Arc<Edge>,
    counters: Arc<FeedCounters>,
    subscribers: Arc<Mutex<Subscribers>>,
}

impl FeedPort {
    pub(super) fn new(edge: Arc<Edge>, counters: Arc<FeedCounters>) -> Self {
        let subscribers = Subscribers {
            connections: HashMap::new(),
            subscriptions: Subscriptions::default(),
            shares: Shares::new(&edge.bounds),
        };
        Self {
            edge,
            counters,
            subscribers: Arc::new(Mutex::new(subscribers)),
        }
    }

    /// Calls `each` with every connection that subscribes to a topic.
    pub(super) fn for_subscribers(&self, topic: &Topic, mut each: impl FnMut(&Arc<Connection>)) {
        let subscribers = self.lock();
        for number in subscribers.subscriptions.subscribers(topic) {
            if let Some(one) = subscribers.connections.get(number) {
                each(&one.connection);
            }
        }
    }

    /// The topics that have subscribers: all; or, if fewer are listed, so many of `list`, those of them.
    pub(super) fn subscribed(&self, listed: usize, list: &dyn Fn() -> Vec<Topic>) -> Vec<Topic> {
        let subscribers = self.lock();
        let subscriptions = &subscribers.subscriptions;
        if subscriptions.topics().len() <= listed {
            return subscriptions.topics().copied().collect();
        }
        // The list is made without the lock, which publishing needs.
        drop(subscribers);
        let mut list = list();
        let subscribers = self.lock();
        list.retain(|topic| !subscribers.subscriptions.subscribers(topic).is_empty());
        list
    }

    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn publish_count(&self, subscribers: &Subscribers) {
        let count = subscribers.subscriptions.len() as u64;
        self.counters.subscriptions.store(count, Ordering::Relaxed);
    }
}

impl Port for FeedPort {
    type Conversation = SubscriberConversation;

    const NAME: &'static str = "feed";
    const KIND: PortKind = PortKind::Feed;

    fn counters(edge: &Edge) -> &PortCounters {
        &edge.feed
    }

    fn open(&self, connection: &Arc<Connection>) -> SubscriberConversation {
        let one = Subscriber {
            connection: Arc::clone(connection),
            topics: 0,
        };
        self.lock().connections.insert(connection.number, one);
        SubscriberConversation {
            port: self.clone(),
            number: connection.number,
            scope: None,
            parked: BTreeSet::new(),
            looked: 0,
            changes: 0,
            since: Instant::now(),
        }
    }

    fn close(&self, connection: &Arc<Connection>) {
        let mut subscribers = self.lock();
        // Having fewer topics is always allowed.
        let _ = subscribers.has(connection.number, 0);
        subscribers.connections.remove(&connection.number);
        subscribers.subscriptions.remove(connection.number);
        self.publish_count(&subscribers);
    }
}

/// Handles what one subscriber sends.
pub(super) struct SubscriberConversation {
    port: FeedPort,
    number: u64,
    /// The scope of its grant, if that does not cover everything.
    scope: Option<GrantScope>,
    /// Topics that it wants and may not hear yet, and up to which change of [`Hearing`] they were checked.
    parked: BTreeSet<Topic>,
    looked: u64,
    /// How many topics were subscribed to or cancelled since this instant.
    changes: usize,
    since: Instant,
}

impl SubscriberConversation {
    fn subscribe(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let topic = topic(bytes)?;
        if self.may_hear(&topic) {
            return self.enter(topic);
        }
        self.parked.insert(topic);
        self.count(&mut self.port.lock())
    }

    fn may_hear(&self, topic: &Topic) -> bool {
        let hearing = &self.port.edge.hearing;
        let scope = self.scope.as_ref();
        *topic == Topic::CONTROL || scope.is_none_or(|scope| hearing.is_allowed(scope, topic))
    }

    /// Subscribes to parked topics that may be heard by now.
    fn look_at_parked(&mut self) {
        let changes = self.port.edge.hearing.changes();
        if self.parked.is_empty() || self.looked == changes {
            return;
        }
        self.looked = changes;
        let topics: Vec<Topic> = {
            let parked = self.parked.iter();
            parked
                .filter(|topic| self.may_hear(topic))
                .copied()
                .collect()
        };
        for topic in topics {
            self.parked.remove(&topic);
            if let Err(ended) = self.enter(topic) {
                self.port.edge.end(self.number, ended);
            }
        }
    }

    fn enter(&self, topic: Topic) -> Result<(), Ended> {
        let mut subscribers = self.port.lock();
        subscribers.subscriptions.subscribe(self.number, topic);
        self.port.publish_count(&subscribers);
        self.count(&mut subscribers)
    }

    /// Counts its topics, heard or parked; fails beyond a bound.
    fn count(&self, subscribers: &mut Subscribers) -> Result<(), Ended> {
        let topics = subscribers.subscriptions.of_connection(self.number);
        subscribers.has(self.number, topics + self.parked.len())
    }
}

/// The whole topic that these bytes are. Whether the agent uses its resource is not checked: topics are hashes,
/// and another connection states what they stand for.
fn topic(bytes: &[u8]) -> Result<Topic, Ended> {
    Topic::from_bytes(bytes).ok_or(Ended::Topic {
        found: bytes.len(),
        allowed: TOPIC_BYTES,
    })
}

impl Conversation for SubscriberConversation {
    const ROLE: SocketType = SocketType::Pub;
    const LIMITS: PeerLimits = FEED_LIMITS;

    fn admitted(&mut self, grant: Option<Arc<TokenGrant>>) {
        self.scope = grant.and_then(|grant| GrantScope::of(&grant));
    }

    fn take(&mut self, event: Event) -> Result<(), Ended> {
        if CHANGES_WITHIN <= self.since.elapsed() {
            (self.changes, self.since) = (0, Instant::now());
        }
        self.changes += 1;
        match event {
            Event::Subscribe(bytes) => self.subscribe(&bytes),
            Event::Cancel(bytes) => {
                let topic = topic(&bytes)?;
                self.parked.remove(&topic);
                let mut subscribers = self.port.lock();
                subscribers.subscriptions.cancel(self.number, &topic);
                self.port.publish_count(&subscribers);
                self.count(&mut subscribers)
            }
            // A publisher's decoder lets nothing else through.
            _ => Ok(()),
        }
    }

    fn may_take(&self) -> bool {
        // The connection is checked again at least as often as it pings.
        let allowed = self.port.edge.bounds.subscriptions.saturating_mul(2);
        self.changes < allowed || CHANGES_WITHIN <= self.since.elapsed()
    }

    fn is_behind(&self) -> bool {
        false
    }

    fn catch_up(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    fn has_begun(&self) -> bool {
        0 < self.changes
    }

    fn may_be_silent(&self) -> bool {
        // A subscriber that understands no pings is silent for as long as it listens.
        !self.parked.is_empty() || 0 < self.port.lock().subscriptions.of_connection(self.number)
    }

    fn sent(&mut self, _waiting: usize) {
        self.look_at_parked();
    }

    fn read_while(&self, bounds: &Bounds) -> usize {
        // Beyond the room for frames there is room for answers to pings.
        bounds.subscriber_bytes.saturating_mul(2)
    }
}
