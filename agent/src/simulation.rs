//! An agent without its threads and sockets, driven step by step: the agent of the simulation.
//!
//! Calls, recorder, packer, courier, listener and deny list are those of any agent, and so is the driver that connects
//! them; only clock, threads and sockets belong to the driver. What stays true: its behaviour is a function of its
//! identity and of the driver's calls, in order.

use std::collections::VecDeque;

use bytes::Bytes;
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::frame::Topic;

use crate::agent::Agent;
use crate::batch::calls::CallBatch;
use crate::builder::AgentBuilder;
pub use crate::builder::Identity;
use crate::courier::Outgoing;
use crate::flusher::Flusher;
use crate::holds::HoldNotice;
use crate::net::{Driver, DriverEvent, Transport};
use crate::resource::ResourceId;
use crate::timer::Timer;

/// Messages that a link's queue takes, like the real one.
const LINK_MESSAGES_MAX: usize = 256;

/// Batches between flusher and driver, as many as the real channel takes.
const BATCHES_MAX: usize = 1_024;

/// Events of sockets. Aggregators and resources are numbered.
#[derive(Clone, Debug)]
pub enum SocketEvent {
    /// A link is connected.
    LinkUp {
        /// The aggregator's number.
        peer: usize,
    },
    /// A message arrived over a link.
    LinkMessage {
        /// The aggregator's number.
        peer: usize,
        /// The message.
        message: Bytes,
    },
    /// A link is disconnected.
    LinkDown {
        /// The aggregator's number.
        peer: usize,
    },
    /// A feed is open, subscribed to these resources' topics and the control topic.
    FeedUp {
        /// The aggregator's number.
        peer: usize,
        /// Numbers of resources.
        subscribed: Vec<u32>,
    },
    /// A feed subscribed to one more topic.
    Subscribed {
        /// The aggregator's number.
        peer: usize,
        /// The resource's number.
        resource: u32,
    },
    /// A frame arrived over a feed.
    FeedFrame {
        /// The aggregator's number.
        peer: usize,
        /// The frame's topic.
        topic: Topic,
        /// The frame.
        frame: Bytes,
    },
    /// A feed is closed.
    FeedDown {
        /// The aggregator's number.
        peer: usize,
    },
}

/// What the agent wants of its sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketRequest {
    /// Reopen a link.
    ReopenLink {
        /// The aggregator's number.
        peer: usize,
    },
    /// Reopen a feed.
    OpenFeed {
        /// The aggregator's number.
        peer: usize,
        /// The addresses to try.
        addresses: Vec<Box<str>>,
        /// The topics, with their resources' numbers.
        topics: Vec<(u32, Topic)>,
    },
    /// Subscribe to one more topic.
    Subscribe {
        /// The aggregator's number.
        peer: usize,
        /// The resource's number.
        resource: u32,
        /// The resource's topic.
        topic: Topic,
    },
}

/// Queues in place of sockets.
#[derive(Debug)]
struct Queues {
    messages: Vec<VecDeque<Bytes>>,
    requests: Vec<SocketRequest>,
}

impl Transport for Queues {
    fn links(&self) -> usize {
        self.messages.len()
    }

    fn send(&mut self, peer: usize, message: Bytes) {
        if let Some(messages) = self.messages.get_mut(peer)
            && messages.len() < LINK_MESSAGES_MAX
        {
            messages.push_back(message);
        }
    }

    fn reopen_link(&mut self, peer: usize) {
        self.requests.push(SocketRequest::ReopenLink { peer });
    }

    fn open_feed(
        &mut self,
        peer: usize,
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    ) -> bool {
        self.requests.push(SocketRequest::OpenFeed {
            peer,
            addresses,
            topics: topics
                .into_iter()
                .map(|(id, topic)| (id.0, topic))
                .collect(),
        });
        true
    }

    fn meet(&mut self, _: Box<str>) -> Option<usize> {
        // All aggregators are known from the start.
        None
    }

    fn subscribe(&mut self, peer: usize, resource: ResourceId, topic: Topic) -> bool {
        self.requests.push(SocketRequest::Subscribe {
            peer,
            resource: resource.0,
            topic,
        });
        true
    }

    fn fill_link(&mut self, peer: usize, next: &mut dyn FnMut() -> Option<Bytes>) {
        let Some(messages) = self.messages.get_mut(peer) else {
            return;
        };
        while messages.len() < LINK_MESSAGES_MAX {
            match next() {
                Some(message) => messages.push_back(message),
                None => return,
            }
        }
    }

    fn fill_carrier(&mut self, _: &mut dyn FnMut() -> Option<Outgoing>) -> bool {
        false
    }
}

/// The simulated agent.
#[derive(Debug)]
pub struct SimulatedAgent {
    agent: Agent,
    driver: Driver<Queues>,
    flusher: Flusher,
    batches: VecDeque<CallBatch>,
    /// Notices of the hold table.
    notices: Vec<HoldNotice>,
}

impl SimulatedAgent {
    /// An agent that has received nothing, with this many aggregators. Of the builder's settings only the bounds
    /// apply. Clocks stand as given until they are set.
    pub fn new(
        builder: AgentBuilder,
        identity: &Identity,
        aggregators: usize,
        wall: Timestamp,
    ) -> Self {
        let queues = Queues {
            messages: vec![VecDeque::new(); aggregators],
            requests: Vec::new(),
        };
        let (agent, driver, flusher) = builder.simulated(identity, aggregators, wall, queues);
        Self {
            agent,
            driver,
            flusher,
            batches: VecDeque::new(),
            notices: Vec::new(),
        }
    }

    /// The agent that services call.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Sets both clocks: microseconds since the agent's start, and wall time. Calls see the wall clock
    /// as the flusher last cached it.
    pub fn set_clocks(&self, since_start_us: u64, wall: Timestamp) {
        self.driver.shared().clock.set(since_start_us, wall);
    }

    /// A visit of the flusher.
    pub fn flush(&mut self) {
        let batches = &mut self.batches;
        let shared = self.driver.shared();
        // Like the flusher: while notices wait to be accepted, further ones wait in the hold table.
        if self.notices.is_empty() {
            shared.hold_table.sweep(&mut self.notices);
        }
        self.flusher.come_by(shared, false, |batch| {
            if BATCHES_MAX <= batches.len() {
                return Some(batch);
            }
            batches.push_back(batch);
            None
        });
    }

    /// The driver takes what the flusher handed over.
    pub fn take_parcels(&mut self) {
        if self.batches.is_empty() && self.notices.is_empty() {
            return;
        }
        if !self.notices.is_empty() {
            self.driver.take_notices(std::mem::take(&mut self.notices));
        }
        for batch in self.batches.drain(..) {
            self.driver.take_batch(batch);
        }
        self.driver.turn();
    }

    /// A socket reported an event.
    pub fn handle(&mut self, event: SocketEvent) {
        if let SocketEvent::LinkUp { peer } = event
            && let Some(messages) = self.driver.transport().messages.get_mut(peer)
        {
            // Waiting messages were meant for the previous connection.
            messages.clear();
        }
        self.driver.take(event_of(event));
        self.driver.turn();
    }

    /// Time passes; every 20 ms.
    pub fn tick(&mut self) {
        self.driver.tick();
        self.driver.turn();
    }

    /// A resource was used for the first time.
    pub fn look_for_new_resources(&mut self) {
        self.driver.turn();
    }

    /// Waiting calls with a deadline look at the clock again.
    pub fn wake(&self) {
        if let Timer::Hand(moved) = &self.driver.shared().timer {
            moved.notify_waiters();
        }
    }

    /// The agent's own topic, for a subscription on every feed.
    pub fn topic(&self) -> Topic {
        self.driver.listener().topic()
    }

    /// The next message that waits for a link.
    pub fn next_message(&mut self, peer: usize) -> Option<Bytes> {
        self.driver.transport().messages.get_mut(peer)?.pop_front()
    }

    /// Messages that wait for a link.
    pub fn messages_waiting(&mut self, peer: usize) -> usize {
        self.driver
            .transport()
            .messages
            .get(peer)
            .map_or(0, VecDeque::len)
    }

    /// What the agent wants of its sockets.
    pub fn take_requests(&mut self) -> Vec<SocketRequest> {
        std::mem::take(&mut self.driver.transport().requests)
    }

    /// Whether nothing waits for the log any more.
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.notices.is_empty() && self.driver.is_empty()
    }

    /// Up to which log position the agent has received a resource's statements about a partition without a gap: it
    /// knows everything below.
    pub fn received_upto(&self, resource: &str, partition: u32) -> Option<LogPosition> {
        let resource = self.driver.shared().resources.find(resource)?;
        self.driver.listener().received_upto(resource.id, partition)
    }

    /// The version of the known limits of a resource; `None` if the agent knows no limits of the followed log.
    pub fn known_version(&self, resource: &str) -> Option<u64> {
        let resource = self.driver.shared().resources.find(resource)?;
        Some(resource.public().version).filter(|version| *version != 0)
    }

    /// The log of a partition, as far as the agent knows.
    pub fn known_log(&self, partition: u32) -> Option<LogId> {
        self.driver.listener().known_log(partition)
    }
}

fn event_of(event: SocketEvent) -> DriverEvent {
    match event {
        SocketEvent::LinkUp { peer } => DriverEvent::LinkUp { peer },
        SocketEvent::LinkMessage { peer, message } => DriverEvent::LinkMessage { peer, message },
        SocketEvent::LinkDown { peer } => DriverEvent::LinkDown { peer },
        SocketEvent::FeedUp { peer, subscribed } => DriverEvent::FeedUp {
            peer,
            subscribed: subscribed.into_iter().map(ResourceId).collect(),
        },
        SocketEvent::Subscribed { peer, resource } => DriverEvent::Subscribed {
            peer,
            resource: ResourceId(resource),
        },
        SocketEvent::FeedFrame { peer, topic, frame } => {
            DriverEvent::FeedFrame { peer, topic, frame }
        }
        SocketEvent::FeedDown { peer } => DriverEvent::FeedDown { peer },
    }
}
