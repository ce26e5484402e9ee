//! The feed of one aggregator: a SUB socket that is made anew whenever it fails or falls silent.
//!
//! The crate's SUB connects again by itself, but after seconds; an agent wants to hear at once, and to
//! know that it missed something. Knows nothing of frames.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tollgate_shared::wire::frame::Topic;
use zeromq::{Socket as _, SocketRecv as _, SubSocket, ZmqMessage};

use super::{CONNECT_WITHIN, Event, PAUSE_FIRST, longer, socket_options};
use crate::resource::ResourceId;

/// Orders that may wait: one for each resource that is new.
const ORDERS_MAX: usize = 4_096;

/// What the hub wants of a feed.
#[derive(Debug)]
enum Order {
    /// A new socket, to one of these addresses, with these topics.
    Open {
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    },
    /// One topic more.
    Subscribe { resource: ResourceId, topic: Topic },
}

/// The hub's end of a feed.
#[derive(Debug)]
pub(super) struct Feed {
    orders: mpsc::Sender<Order>,
}

impl Feed {
    /// Starts a feed's task on the current runtime; it waits for an address.
    pub(super) fn start(peer: usize, own: Topic, events: mpsc::Sender<Event>) -> Self {
        let (sender, orders) = mpsc::channel(ORDERS_MAX);
        tokio::spawn(keep(peer, own, orders, events));
        Self { orders: sender }
    }

    /// Makes the socket anew. False: too much is waiting, to be tried again.
    pub(super) fn open(&self, addresses: Vec<Box<str>>, topics: Vec<(ResourceId, Topic)>) -> bool {
        self.orders
            .try_send(Order::Open { addresses, topics })
            .is_ok()
    }

    /// Subscribes to a topic. False: too much is waiting, to be tried again.
    pub(super) fn subscribe(&self, resource: ResourceId, topic: Topic) -> bool {
        self.orders
            .try_send(Order::Subscribe { resource, topic })
            .is_ok()
    }
}

/// What a feed follows.
#[derive(Debug, Default)]
struct Followed {
    addresses: Vec<Box<str>>,
    topics: Vec<(ResourceId, Topic)>,
}

impl Followed {
    /// Takes an order; whether it asks for a new socket.
    fn take(&mut self, order: Order) -> bool {
        match order {
            Order::Open { addresses, topics } => {
                *self = Self { addresses, topics };
                true
            }
            Order::Subscribe { resource, topic } => {
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
    mut orders: mpsc::Receiver<Order>,
    events: mpsc::Sender<Event>,
) {
    let mut followed = Followed::default();
    let mut attempt = 0;
    let mut pause = PAUSE_FIRST;
    loop {
        if followed.addresses.is_empty() {
            match orders.recv().await {
                Some(order) => followed.take(order),
                None => return,
            };
            continue;
        }
        let socket = connect(&followed, own, attempt).await;
        attempt += 1;
        let Some(mut socket) = socket else {
            pause = longer(pause);
            if !wait(pause, &mut orders, &mut followed).await {
                return;
            }
            continue;
        };
        pause = PAUSE_FIRST;
        let subscribed = followed
            .topics
            .iter()
            .map(|(resource, _)| *resource)
            .collect();
        if events
            .send(Event::FeedUp { peer, subscribed })
            .await
            .is_err()
        {
            return;
        }
        if !follow(peer, &mut socket, &mut orders, &mut followed, &events).await {
            return;
        }
        drop(socket);
        if events.send(Event::FeedDown { peer }).await.is_err() {
            return;
        }
    }
}

/// A socket with all subscriptions, if somebody answers at the address whose turn it is.
async fn connect(followed: &Followed, own: Topic, attempt: usize) -> Option<SubSocket> {
    let turn = attempt.checked_rem(followed.addresses.len()).unwrap_or(0);
    let address = followed.addresses.get(turn)?;
    let mut socket = SubSocket::with_options(socket_options());
    // Subscriptions before the connection, so that nothing is missed between the two.
    socket.subscribe(Topic::CONTROL.as_text()).await.ok()?;
    socket.subscribe(own.as_text()).await.ok()?;
    for (_, topic) in &followed.topics {
        socket.subscribe(topic.as_text()).await.ok()?;
    }
    timeout(CONNECT_WITHIN, socket.connect(address))
        .await
        .ok()?
        .ok()?;
    Some(socket)
}

/// Waits, and takes orders meanwhile; whether anybody is still there.
async fn wait(
    pause: Duration,
    orders: &mut mpsc::Receiver<Order>,
    followed: &mut Followed,
) -> bool {
    let over = tokio::time::sleep(pause);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return true,
            order = orders.recv() => match order {
                // The new address may be tried at once.
                Some(order) => if followed.take(order) { return true },
                None => return false,
            },
        }
    }
}

/// Hands frames on until the socket fails or is to be made anew; whether anybody is still there.
async fn follow(
    peer: usize,
    socket: &mut SubSocket,
    orders: &mut mpsc::Receiver<Order>,
    followed: &mut Followed,
    events: &mpsc::Sender<Event>,
) -> bool {
    loop {
        tokio::select! {
            message = socket.recv() => {
                let Ok(message) = message else {
                    return true;
                };
                let Some((topic, frame)) = parts(message) else {
                    continue;
                };
                if events.send(Event::FeedSaid { peer, topic, frame }).await.is_err() {
                    return false;
                }
            }
            order = orders.recv() => {
                let Some(order) = order else {
                    return false;
                };
                let new = match order {
                    Order::Subscribe { resource, topic } => Some((resource, topic)),
                    Order::Open { .. } => None,
                };
                if followed.take(order) {
                    return true;
                }
                let Some((resource, topic)) = new else {
                    continue;
                };
                if socket.subscribe(topic.as_text()).await.is_err() {
                    return true;
                }
                if events.send(Event::Subscribed { peer, resource }).await.is_err() {
                    return false;
                }
            }
        }
    }
}

/// Topic and frame of a message; none of anything else.
fn parts(message: ZmqMessage) -> Option<(Topic, Bytes)> {
    let mut parts = message.into_vecdeque();
    let topic = Topic::from_bytes(&parts.pop_front()?)?;
    let frame = parts.pop_front()?;
    parts.is_empty().then_some((topic, frame))
}
