//! The connections of subscribers, and what each of them subscribes to.
//!
//! A connection here shows nobody's identity, so it may subscribe to any whole topic, not only to those
//! that an agent's link asked for. To tie the two together there has to be something that the feed's peer
//! can show and others cannot: a ticket, which comes with tokens. The peer's address is none, for agents
//! behind one address are many. Until then whoever can connect can hear who is denied, which the
//! network has to prevent, and costs no more than its bounds: topics, changes a second, and its queue.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tollgate_shared::wire::frame::{TOPIC_BYTES, Topic};
use tollgate_zmtp::{Event, Limits, SocketType, Subscriptions};

use super::FeedCounters;
use crate::edge::bounds::{FEED_LIMITS, SUBSCRIPTIONS_MAX};
use crate::edge::{Bounds, Connection, Conversation, Edge, Ended, Port, PortCounters};

/// Within this time a connection may subscribe to all the topics that it may have, and cancel as many:
/// beyond that it is not read, since what it asks for keeps the thread that publishes.
const CHANGES_WITHIN: Duration = Duration::from_secs(1);

/// Who is there, and what they subscribe to.
#[derive(Debug, Default)]
struct Subscribers {
    connections: HashMap<u64, Arc<Connection>>,
    subscriptions: Subscriptions<Topic>,
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
        Self {
            edge,
            counters,
            subscribers: Arc::default(),
        }
    }

    /// Calls `each` with every connection that subscribes to a topic.
    pub(super) fn for_subscribers(&self, topic: &Topic, mut each: impl FnMut(&Arc<Connection>)) {
        let subscribers = self.lock();
        for number in subscribers.subscriptions.subscribers(topic) {
            if let Some(connection) = subscribers.connections.get(number) {
                each(connection);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn tell(&self, subscribers: &Subscribers) {
        let count = subscribers.subscriptions.len() as u64;
        self.counters.subscriptions.store(count, Ordering::Relaxed);
    }
}

impl Port for FeedPort {
    type Conversation = SubscriberConversation;

    const NAME: &'static str = "feed";

    fn counters(edge: &Edge) -> &PortCounters {
        &edge.feed
    }

    fn open(&self, connection: &Arc<Connection>) -> SubscriberConversation {
        let connections = &mut self.lock().connections;
        connections.insert(connection.number, Arc::clone(connection));
        SubscriberConversation {
            port: self.clone(),
            number: connection.number,
            changes: 0,
            since: Instant::now(),
        }
    }

    fn close(&self, connection: &Arc<Connection>) {
        let mut subscribers = self.lock();
        subscribers.connections.remove(&connection.number);
        subscribers.subscriptions.remove(connection.number);
        self.tell(&subscribers);
    }
}

/// What one subscriber says.
pub(super) struct SubscriberConversation {
    port: FeedPort,
    number: u64,
    /// Topics that were subscribed to or cancelled since this instant.
    changes: usize,
    since: Instant,
}

impl SubscriberConversation {
    fn subscribe(&self, bytes: &[u8]) -> Result<(), Ended> {
        let topic = topic(bytes)?;
        let allowed = self.port.edge.bounds.subscriptions;
        let mut subscribers = self.port.lock();
        let found = subscribers.subscriptions.subscribe(self.number, topic);
        if allowed < found {
            return Err(Ended::Subscriptions { found, allowed });
        }
        let all = subscribers.subscriptions.len();
        if SUBSCRIPTIONS_MAX < all
            && let Some(greatest) = subscribers.subscriptions.greatest()
        {
            let found = subscribers.subscriptions.of_connection(greatest);
            subscribers.subscriptions.remove(greatest);
            self.port
                .edge
                .end(greatest, Ended::Subscriptions { found, allowed });
        }
        self.port.tell(&subscribers);
        Ok(())
    }
}

/// The topic that these bytes are, whole. That it is one of a resource that the agent uses is not
/// checked: topics are hashes, and what they are of is said over another connection.
fn topic(bytes: &[u8]) -> Result<Topic, Ended> {
    Topic::from_bytes(bytes).ok_or(Ended::Topic {
        found: bytes.len(),
        allowed: TOPIC_BYTES,
    })
}

impl Conversation for SubscriberConversation {
    const ROLE: SocketType = SocketType::Pub;
    const LIMITS: Limits = FEED_LIMITS;

    fn take(&mut self, event: Event) -> Result<(), Ended> {
        if CHANGES_WITHIN <= self.since.elapsed() {
            (self.changes, self.since) = (0, Instant::now());
        }
        self.changes += 1;
        match event {
            Event::Subscribe(bytes) => self.subscribe(&bytes),
            Event::Cancel(bytes) => {
                let topic = topic(&bytes)?;
                let mut subscribers = self.port.lock();
                subscribers.subscriptions.cancel(self.number, &topic);
                self.port.tell(&subscribers);
                Ok(())
            }
            // Nothing else gets through a publisher's decoder.
            _ => Ok(()),
        }
    }

    fn may_take(&self) -> bool {
        // The connection looks again at least as often as it pings.
        let allowed = self.port.edge.bounds.subscriptions.saturating_mul(2);
        self.changes < allowed || CHANGES_WITHIN <= self.since.elapsed()
    }

    fn is_behind(&self) -> bool {
        false
    }

    fn catch_up(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    fn may_be_silent(&self) -> bool {
        // A subscriber that understands no pings says nothing for as long as it listens.
        0 < self.port.lock().subscriptions.of_connection(self.number)
    }

    fn sent(&mut self, _waiting: usize) {}

    fn read_while(&self, bounds: &Bounds) -> usize {
        // Beyond what frames may take there is room for answers to pings.
        bounds.subscriber_bytes.saturating_mul(2)
    }
}
