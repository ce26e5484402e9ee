//! Who subscribes to what: an index from topics to connections, and back.
//!
//! ```text
//! topic "r…1" ──> connections 4, 9           connection 4 ──> topics "r…1", "c…"
//! ```
//!
//! A frame of a topic costs as much as the topic has subscribers, however many connections and other
//! topics there are. To subscribe and to leave costs the same however many subscribers a topic has, or a
//! crowd that leaves would hold up frames for seconds. Topics are whole: nothing is compared by its beginning. What stays true: both
//! directions say the same; a topic without subscribers and a connection without topics take no memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// The subscriptions of all connections, which have numbers; `Topic` is what is compared whole.
#[derive(Debug)]
pub struct Subscriptions<Topic> {
    by_topic: HashMap<Topic, Vec<u64>>,
    /// With each topic, at which index of the topic's connections this one stands.
    by_connection: HashMap<u64, HashMap<Topic, usize>>,
    count: usize,
}

impl<Topic> Default for Subscriptions<Topic> {
    fn default() -> Self {
        Self {
            by_topic: HashMap::new(),
            by_connection: HashMap::new(),
            count: 0,
        }
    }
}

impl<Topic: Clone + Eq + Hash> Subscriptions<Topic> {
    /// Adds one; subscribing twice is subscribing once. Returns how many the connection has.
    pub fn subscribe(&mut self, connection: u64, topic: Topic) -> usize {
        let topics = self.by_connection.entry(connection).or_default();
        if let Entry::Vacant(place) = topics.entry(topic) {
            let subscribers = self.by_topic.entry(place.key().clone()).or_default();
            place.insert(subscribers.len());
            subscribers.push(connection);
            self.count += 1;
        }
        topics.len()
    }

    /// Takes one back, if it is there.
    pub fn cancel(&mut self, connection: u64, topic: &Topic) {
        let Some(topics) = self.by_connection.get_mut(&connection) else {
            return;
        };
        let Some(at) = topics.remove(topic) else {
            return;
        };
        if topics.is_empty() {
            self.by_connection.remove(&connection);
        }
        self.unlist(topic, at);
    }

    /// A connection is gone, and all its subscriptions with it.
    pub fn remove(&mut self, connection: u64) {
        for (topic, at) in self.by_connection.remove(&connection).unwrap_or_default() {
            self.unlist(&topic, at);
        }
    }

    /// The connections that subscribe to a topic, in no order.
    pub fn subscribers(&self, topic: &Topic) -> &[u64] {
        self.by_topic.get(topic).map_or(&[], Vec::as_slice)
    }

    /// How many topics a connection subscribes to.
    pub fn of_connection(&self, connection: u64) -> usize {
        self.by_connection.get(&connection).map_or(0, HashMap::len)
    }

    /// All subscriptions of all connections.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether nobody subscribes to anything.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the connection at an index off a topic's list. The last one of the list takes its index.
    fn unlist(&mut self, topic: &Topic, at: usize) {
        let Some(subscribers) = self.by_topic.get_mut(topic) else {
            return;
        };
        if at < subscribers.len() {
            subscribers.swap_remove(at);
            self.count -= 1;
        }
        if let Some(moved) = subscribers.get(at)
            && let Some(topics) = self.by_connection.get_mut(moved)
            && let Some(its) = topics.get_mut(topic)
        {
            *its = at;
        }
        if subscribers.is_empty() {
            self.by_topic.remove(topic);
        }
    }
}
