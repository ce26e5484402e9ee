//! An index of subscriptions: from topics to connections, and back.
//!
//! ```text
//! topic "r…1" ──> connections 4, 9           connection 4 ──> topics "r…1", "c…"
//! ```
//!
//! A frame of a topic costs as much as the topic has subscribers, however many connections and other topics there
//! are. Subscribing and cancelling cost the same however many subscribers a topic has; otherwise many connections
//! that leave at once would delay frames for seconds. Topics are compared as a whole, not by prefix. What stays true:
//! both directions agree; a topic without subscribers and a connection without topics take no memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// The subscriptions of all connections, which are identified by numbers; `Topic` is compared as a whole.
#[derive(Debug)]
pub struct Subscriptions<Topic> {
    by_topic: HashMap<Topic, Vec<u64>>,
    /// For each topic of a connection, the connection's index in the topic's list.
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
    /// Adds a subscription; a second one to the same topic changes nothing. Returns how many the connection has.
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

    /// Removes a subscription, if it exists.
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

    /// Removes a connection with all its subscriptions.
    pub fn remove(&mut self, connection: u64) {
        for (topic, at) in self.by_connection.remove(&connection).unwrap_or_default() {
            self.unlist(&topic, at);
        }
    }

    /// The connections that subscribe to a topic, in arbitrary order.
    pub fn subscribers(&self, topic: &Topic) -> &[u64] {
        self.by_topic.get(topic).map_or(&[], Vec::as_slice)
    }

    /// The topics that have subscribers, in arbitrary order.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Topic> {
        self.by_topic.keys()
    }

    /// Number of topics to which a connection subscribes.
    pub fn of_connection(&self, connection: u64) -> usize {
        self.by_connection.get(&connection).map_or(0, HashMap::len)
    }

    /// Number of subscriptions of all connections.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no subscriptions.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes the connection at an index from a topic's list. The last one of the list takes its index.
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
