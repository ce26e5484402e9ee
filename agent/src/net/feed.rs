//! The feed of one aggregator: a SUB socket that is reopened whenever it fails or falls silent.
//!
//! An agent wants to receive frames again at once, and to know that it missed some. Knows nothing of frames.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_shared::wire::frame::Topic;
use tollgate_zmtp::{SocketType, subscribe};

use super::DriverEvent;
use super::backoff::Backoff;
use super::inbox::Inbox;
use super::slots::{self, Slots};
use super::socket::{Socket, SocketFault};
use super::task::Task;
use crate::resource::ResourceId;

/// The most orders that may wait: one for each new resource.
const ORDERS_MAX: usize = 4_096;

/// The driver's orders to a feed.
#[derive(Debug)]
enum FeedOrder {
    /// A new socket, to one of these addresses, with these topics.
    Open {
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    },
    /// One more topic.
    Subscribe { resource: ResourceId, topic: Topic },
}

/// The driver's end of a feed.
#[derive(Debug)]
pub(super) struct FeedHandle {
    orders: mpsc::Sender<FeedOrder>,
    _task: Task,
}

impl FeedHandle {
    /// Starts a feed's task on the current runtime; the task waits for an address.
    pub(super) fn start(peer: usize, own: Topic, slots: Slots, events: Inbox) -> Self {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        Self {
            orders: sender,
            _task: Task::start(events.sender(), keep(peer, own, orders, slots, events)),
        }
    }

    /// Reopens the socket. `false` if too many orders wait; the caller tries again.
    pub(super) fn open(&self, addresses: Vec<Box<str>>, topics: Vec<(ResourceId, Topic)>) -> bool {
        self.orders
            .try_send(FeedOrder::Open { addresses, topics })
            .is_ok()
    }

    /// Subscribes to a topic. `false` if too many orders wait; the caller tries again.
    pub(super) fn subscribe(&self, resource: ResourceId, topic: Topic) -> bool {
        self.orders
            .try_send(FeedOrder::Subscribe { resource, topic })
            .is_ok()
    }
}

/// The agent follows notices of this many resources, the first ones: by default, aggregators end connections with
/// more than 10,000 topics, and denials have priority.
const NOTICES_MAX: usize = 4_900;

/// The addresses and topics that a feed follows.
#[derive(Debug, Default)]
struct Followed {
    addresses: Vec<Box<str>>,
    topics: Vec<(ResourceId, Topic)>,
}

impl Followed {
    /// The address of this attempt.
    fn endpoint(&self, attempt: usize) -> Box<str> {
        let turn = attempt.checked_rem(self.addresses.len()).unwrap_or(0);
        self.addresses.get(turn).cloned().unwrap_or_default()
    }

    /// The subscriptions of a new connection.
    fn subscriptions(&self, own: Topic) -> Vec<Bytes> {
        let topics = self.topics.iter().map(|(_, topic)| *topic);
        let notices = topics.clone().take(NOTICES_MAX).map(Topic::notices);
        let all = [Topic::CONTROL, own]
            .into_iter()
            .chain(topics)
            .chain(notices);
        all.map(|topic| subscribe(topic.as_bytes())).collect()
    }

    /// The notices' topic of the last resource that was subscribed to, if its notices are followed.
    fn notices_of(&self, topic: Topic) -> Option<Topic> {
        (self.topics.len() <= NOTICES_MAX).then(|| topic.notices())
    }

    /// Applies an order. Returns whether it requires a new socket.
    fn take(&mut self, order: FeedOrder) -> bool {
        match order {
            FeedOrder::Open { addresses, topics } => {
                *self = Self { addresses, topics };
                true
            }
            FeedOrder::Subscribe { resource, topic } => {
                if !self.topics.contains(&(resource, topic)) {
                    self.topics.push((resource, topic));
                }
                false
            }
        }
    }
}

async fn keep(
    peer: usize,
    own: Topic,
    mut orders: mpsc::Receiver<FeedOrder>,
    slots: Slots,
    events: Inbox,
) {
    let mut followed = Followed::default();
    let mut attempt = 0;
    let mut backoff = Backoff::new();
    loop {
        if followed.addresses.is_empty() {
            match orders.recv().await {
                Some(order) => followed.take(order),
                None => return,
            };
            continue;
        }
        let slot = slots.take().await;
        let endpoint = followed.endpoint(attempt);
        attempt += 1;
        let subscriptions = followed.subscriptions(own);
        let socket = slots::connect(SocketType::Sub, &endpoint, &slots, &subscriptions).await;
        if let Some(mut socket) = socket {
            let subscribed = followed.topics.iter().map(|(resource, _)| *resource);
            let subscribed = subscribed.collect();
            if !events.send(DriverEvent::FeedUp { peer, subscribed }).await {
                return;
            }
            let mut has_received = false;
            let (orders, followed) = (&mut orders, &mut followed);
            let over = follow(
                peer,
                &mut socket,
                orders,
                followed,
                &events,
                &mut has_received,
            )
            .await;
            drop(socket);
            if !events.send(DriverEvent::FeedDown { peer }).await {
                return;
            }
            if has_received {
                backoff.worked();
            }
            match over {
                // The new address may be tried at once.
                Ok(FeedEnd::OpenAgain) => continue,
                Ok(FeedEnd::Alone) => return,
                Err(fault) => slots.note(&endpoint, Err(fault)),
            }
        }
        drop(slot);
        if !wait(backoff.pause(rand::random()), &mut orders, &mut followed).await {
            return;
        }
    }
}

/// Waits, and applies orders meanwhile. Returns whether the driver still exists.
async fn wait(
    pause: Duration,
    orders: &mut mpsc::Receiver<FeedOrder>,
    followed: &mut Followed,
) -> bool {
    let over = tokio::time::sleep(pause);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return true,
            order = orders.recv() => match order {
                // The driver knows the address, or that the aggregator is there again: try at once.
                Some(order) => if followed.take(order) { return true },
                None => return false,
            },
        }
    }
}

/// Why a working socket is no longer read.
enum FeedEnd {
    /// The driver wants another one.
    OpenAgain,
    /// The driver has ended.
    Alone,
}

/// Passes frames on until the socket fails or has to be reopened.
async fn follow(
    peer: usize,
    socket: &mut Socket,
    orders: &mut mpsc::Receiver<FeedOrder>,
    followed: &mut Followed,
    events: &Inbox,
    has_received: &mut bool,
) -> Result<FeedEnd, SocketFault> {
    loop {
        let has_room = socket.has_room();
        tokio::select! {
            received = socket.next() => {
                let Some((topic, frame)) = parts(received?) else {
                    continue;
                };
                *has_received = true;
                if !events.send(DriverEvent::FeedFrame { peer, topic, frame }).await {
                    return Ok(FeedEnd::Alone);
                }
            }
            order = orders.recv(), if has_room => {
                let Some(order) = order else {
                    return Ok(FeedEnd::Alone);
                };
                let new = match order {
                    FeedOrder::Subscribe { resource, topic } => Some((resource, topic)),
                    FeedOrder::Open { .. } => None,
                };
                if followed.take(order) {
                    return Ok(FeedEnd::OpenAgain);
                }
                let Some((resource, topic)) = new else {
                    continue;
                };
                socket.send(subscribe(topic.as_bytes()));
                if let Some(notices) = followed.notices_of(topic) {
                    socket.send(subscribe(notices.as_bytes()));
                }
                if !events.send(DriverEvent::Subscribed { peer, resource }).await {
                    return Ok(FeedEnd::Alone);
                }
            }
        }
    }
}

/// Topic and frame of a message; `None` for anything else.
fn parts(message: Vec<Bytes>) -> Option<(Topic, Bytes)> {
    let [topic, frame] = <[Bytes; 2]>::try_from(message).ok()?;
    Some((Topic::from_bytes(&topic)?, frame))
}
