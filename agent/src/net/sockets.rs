//! The sockets of the network thread, and the one loop that handles everything.
//!
//! ```text
//! link tasks (DEALER) ──┐                       ┌──> listener ──> deny list
//! feed tasks (SUB) ─────┼── event ──> the driver ──┤
//! flusher's batches ────┘                       └──> courier ──> link task, or Kafka's thread
//! ```
//!
//! Decides nothing: the driver does. What stays true: the loop never waits for a socket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tollgate_shared::log_lines::excerpt;
use tollgate_shared::wire::frame::Topic;

use super::DriverEvent;
use super::credentials::Credentials;
use super::driver::{Driver, Transport};
use super::feed::FeedHandle;
use super::inbox::{Inbox, InboxRoom, cost};
#[cfg(feature = "kafka")]
use super::kafka::Kafka;
use super::link::Link;
use super::names;
use super::slots::Slots;
use crate::batch::calls::CallBatch;
use crate::courier::Outgoing;
use crate::flusher::Ending;
use crate::holds::HoldNotice;
use crate::log_lines::LogLines;
use crate::resource::ResourceId;
use crate::stats::Counters;

/// The most events of sockets that may wait; at the bound, sockets are not read.
pub(crate) const EVENTS_MAX: usize = 4_096;

/// The interval of ticks. Leases and ends are as exact as a call's own look at the clock; a tick only removes what
/// has ended, and checks for silences of hundreds of milliseconds.
const TICK: Duration = Duration::from_millis(20);

/// The interval while nothing is in flight and nothing arrives: longer than the interval of feed heartbeats of an
/// aggregator that rules nothing but ticks, 450 ms at most, with which ticks go then. Not 500 ms: tokio's timer wheel wakes
/// up to 64 ms before such a timer is due. Ended denials are removed that much later, but they end by themselves; a silent
/// feed is noticed after about 2 s.
const TICK_QUIET: Duration = Duration::from_millis(550);

/// The most waiting items that one turn takes: a turn costs as much as some messages.
const AT_ONCE: usize = 64;

/// The most aggregators that one agent knows. A fleet has fewer. An agent may reach this bound because aggregators
/// return under ever new addresses, or because one of them names addresses that do not exist. It then replaces those
/// that are gone. Another bound limits its simultaneous connections.
const PEERS_MAX: usize = 1_024;

/// An aggregator that the agent only learnt, and whose link has not been READY for this long, can be replaced. All of
/// them are tried once within 32 s: 64 at a time, 2 s each.
const GONE_AFTER: Duration = Duration::from_secs(60);

/// If no aggregator could be replaced, the next search waits for this long: a welcome may name a thousand.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Requests of the agent's handle.
#[derive(Debug)]
pub(crate) enum AgentOrder {
    /// Send what is recorded, until the deadline at the latest, then end.
    Flush {
        deadline: Instant,
        done: oneshot::Sender<()>,
    },
}

/// The carrier of records to the log.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The link of an aggregator that answers.
    Links,
    /// Kafka itself.
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
}

/// The sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    links: Vec<Link>,
    feeds: Vec<FeedHandle>,
    carrier: Carrier,
    /// The addresses of the links and feeds above, in their order.
    addresses: Vec<Box<str>>,
    /// For sockets that are opened later; the others have their own.
    events: mpsc::WeakSender<DriverEvent>,
    room: InboxRoom,
    /// For the links and for the feeds of aggregators that the agent only learnt.
    met: (Slots, Slots),
    /// How many aggregators the agent was configured with; they come first.
    configured: usize,
    next_look: Instant,
    counters: Arc<Counters>,
    lines: MetLines,
    topic: Topic,
}

/// Log lines about aggregators that the agent learnt, by kind.
#[derive(Debug, Default)]
struct MetLines {
    followed: LogLines,
    not_followed: LogLines,
}

impl Sockets {
    /// Starts the sockets' tasks, all feeds with the agent's own topic. Called within the runtime that runs the driver.
    pub(crate) fn start(
        aggregators: &[String],
        topic: Topic,
        carrier: Carrier,
        events: &mpsc::Sender<DriverEvent>,
        (counters, credentials): (&Arc<Counters>, Credentials),
    ) -> Self {
        let slots = Slots::new(Arc::clone(counters), Arc::new(credentials));
        let room = InboxRoom::new();
        let inbox = || Inbox::new(events.clone(), room.clone());
        let endpoints = aggregators
            .iter()
            .map(|address| format!("tcp://{address}"))
            .enumerate();
        names::follow(aggregators, events);
        Self {
            links: endpoints
                .map(|(peer, endpoint)| Link::start(peer, endpoint, slots.another(), inbox()))
                .collect(),
            feeds: (0..aggregators.len())
                .map(|peer| FeedHandle::start(peer, topic, slots.another(), inbox()))
                .collect(),
            carrier,
            addresses: aggregators.iter().map(|one| one.as_str().into()).collect(),
            events: events.downgrade(),
            met: (slots.bounded(), slots.bounded()),
            room,
            configured: aggregators.len(),
            next_look: Instant::now(),
            counters: Arc::clone(counters),
            lines: MetLines::default(),
            topic,
        }
    }

    /// The number for the next aggregator: a new one, or that of an aggregator that has been gone for long.
    fn place_for_another(&mut self) -> Option<usize> {
        if self.links.len() < PEERS_MAX {
            return Some(self.links.len());
        }
        let now = Instant::now();
        if now < self.next_look {
            return None;
        }
        let met = self.links.iter().enumerate().skip(self.configured);
        let down = met.filter_map(|(peer, link)| Some((link.down_since()?, peer)));
        let gone = down.filter(|(since, _)| GONE_AFTER <= now.saturating_duration_since(*since));
        let longest = gone.min().map(|(_, peer)| peer);
        if longest.is_none() {
            self.next_look = now + LOOK_EVERY;
        }
        longest
    }
}

/// Replaces an element, or appends one.
fn put<T>(all: &mut Vec<T>, at: usize, one: T) {
    match all.get_mut(at) {
        Some(place) => *place = one,
        None => all.push(one),
    }
}

impl Transport for Sockets {
    fn links(&self) -> usize {
        self.links.len()
    }

    fn send(&mut self, peer: usize, message: Bytes) {
        if let Some(link) = self.links.get(peer) {
            let _ = link.messages.try_send(message);
        }
    }

    fn reopen_link(&mut self, peer: usize) {
        if let Some(link) = self.links.get(peer) {
            link.reopen();
        }
    }

    fn open_feed(
        &mut self,
        peer: usize,
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    ) -> bool {
        self.feeds
            .get(peer)
            .is_some_and(|feed| feed.open(addresses, topics))
    }

    fn meet(&mut self, address: Box<str>) -> Option<usize> {
        if self.addresses.contains(&address) {
            return None;
        }
        let Some(peer) = self.place_for_another() else {
            Counters::add(&self.counters.members_not_followed, 1);
            if let Some(unsaid) = self.lines.not_followed.may() {
                let address = excerpt(&address);
                tracing::warn!(%address, unsaid, "an aggregator is not followed: {PEERS_MAX} are followed already");
            }
            return None;
        };
        // The channel is gone once the last of the sockets' tasks has ended.
        let events = self.events.upgrade()?;
        if let Some(unsaid) = self.lines.followed.may() {
            let address = excerpt(&address);
            tracing::debug!(%address, unsaid, "found another aggregator of the fleet");
        }
        let endpoint = format!("tcp://{address}");
        let inbox = Inbox::new(events, self.room.clone());
        let (links, feeds) = self.met.clone();
        put(
            &mut self.links,
            peer,
            Link::start(peer, endpoint, links, inbox.clone()),
        );
        put(
            &mut self.feeds,
            peer,
            FeedHandle::start(peer, self.topic, feeds, inbox),
        );
        put(&mut self.addresses, peer, address);
        Some(peer)
    }

    fn subscribe(&mut self, peer: usize, resource: ResourceId, topic: Topic) -> bool {
        self.feeds
            .get(peer)
            .is_some_and(|feed| feed.subscribe(resource, topic))
    }

    fn fill_link(&mut self, peer: usize, next: &mut dyn FnMut() -> Option<Bytes>) {
        let Some(link) = self.links.get(peer) else {
            return;
        };
        while let Ok(room) = link.messages.try_reserve() {
            match next() {
                Some(message) => room.send(message),
                None => return,
            }
        }
    }

    fn fill_carrier(&mut self, next: &mut dyn FnMut() -> Option<Outgoing>) -> bool {
        match &self.carrier {
            Carrier::Links => {
                // Only a carrier beside the links takes records here.
                let _ = next;
                false
            }
            #[cfg(feature = "kafka")]
            Carrier::Kafka(kafka) => {
                while let Ok(room) = kafka.records.try_reserve() {
                    match next() {
                        Some(outgoing) => room.send(outgoing),
                        None => break,
                    }
                }
                true
            }
        }
    }
}

impl Driver<Sockets> {
    /// Runs until the agent is flushed or dropped.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::Receiver<DriverEvent>,
        (mut batches, mut holdings): (mpsc::Receiver<CallBatch>, mpsc::Receiver<Vec<HoldNotice>>),
        mut orders: mpsc::Receiver<AgentOrder>,
        ending: Arc<Ending>,
    ) {
        let shared = Arc::clone(self.shared());
        let (mut tick_at, mut ticked) = (Instant::now(), Instant::now());
        let mut flushing: Option<(Instant, oneshot::Sender<()>)> = None;
        let (mut batches_are_all, mut notices_are_all) = (false, false);
        let mut has_ended_epoch = false;
        loop {
            let deadline = flushing.as_ref().map(|(deadline, _)| *deadline);
            tokio::select! {
                Some(event) = events.recv() => {
                    let bytes = cost(&event);
                    self.take(event);
                    self.transport().room.free(bytes);
                }
                batch = batches.recv(), if !batches_are_all => match batch {
                    Some(batch) => self.take_batch(batch),
                    None if ending.is_flushing() && !ending.is_now() => batches_are_all = true,
                    // The flusher is gone, and nobody records calls any more.
                    None => break,
                },
                notices = holdings.recv(), if !notices_are_all => match notices {
                    Some(notices) => self.take_notices(notices),
                    None => notices_are_all = true,
                },
                order = orders.recv(), if flushing.is_none() => match order {
                    Some(AgentOrder::Flush { deadline, done }) => flushing = Some((deadline, done)),
                    None => break,
                },
                () = shared.new_resource.notified() => {}
                () = async { tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)).await },
                    if deadline.is_some() => break,
                () = tokio::time::sleep_until(tick_at) => {}
            }
            self.take_waiting(&mut events, &mut batches);
            // On any wake-up, because a wake-up costs more than a tick.
            if TICK <= ticked.elapsed() || tick_at <= Instant::now() {
                self.tick();
                ticked = Instant::now();
                tick_at = ticked + TICK_QUIET;
            }
            let all_said = flushing.is_some() && batches_are_all && notices_are_all;
            if all_said && !has_ended_epoch {
                has_ended_epoch = self.end_epoch();
            }
            self.turn();
            if all_said && self.is_empty() {
                break;
            }
            tick_at = match self.is_quiet() {
                true => ticked + TICK_QUIET,
                false => tick_at.min(Instant::now() + TICK),
            };
        }
        self.wait_for_the_flusher(&ending, &mut batches).await;
        self.end();
        drop(flushing);
    }

    /// Asks the flusher to end, and takes its last batches. It drops its sender once it has counted what it could not
    /// hand over, about a millisecond later. Without waiting for that, [`Flushed`](crate::Flushed) would report fewer
    /// drops than there were.
    async fn wait_for_the_flusher(
        &mut self,
        ending: &Ending,
        batches: &mut mpsc::Receiver<CallBatch>,
    ) {
        crate::threads::end(self.shared(), ending);
        while let Some(batch) = batches.recv().await {
            self.take_batch(batch);
        }
    }

    /// Takes what arrived during the last turn, up to a bound of each kind.
    fn take_waiting(
        &mut self,
        events: &mut mpsc::Receiver<DriverEvent>,
        batches: &mut mpsc::Receiver<CallBatch>,
    ) {
        for _ in 0..AT_ONCE {
            let batch = batches.try_recv().map(|batch| self.take_batch(batch));
            let event = events.try_recv().map(|event| {
                let bytes = cost(&event);
                self.take(event);
                self.transport().room.free(bytes);
            });
            if batch.is_err() && event.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;
    use tollgate_zmtp::{SocketType, message, opening};

    use super::*;

    /// An aggregator that is there, and sends something now and then.
    async fn ready() -> Box<str> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream
                .write_all(&opening(SocketType::Router))
                .await
                .unwrap();
            while stream.write_all(&message(&[b"x"])).await.is_ok() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        address.into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_never_reached_makes_room_for_another() {
        let (events, mut received) = mpsc::channel(EVENTS_MAX);
        let counters = Arc::new(Counters::default());
        let mut sockets = Sockets::start(
            &["127.0.0.1:1".to_owned()],
            Topic::CONTROL,
            Carrier::Links,
            &events,
            (&counters, Credentials::default()),
        );
        tokio::spawn(async move { while received.recv().await.is_some() {} });
        // This port number does not exist, so the connection is refused at once.
        let absent = |n: usize| Box::from(format!("127.1.{}.{}:0", n / 250, n % 250 + 1));
        assert_eq!(sockets.meet(ready().await), Some(1));
        for peer in 2..PEERS_MAX {
            assert_eq!(sockets.meet(absent(peer)), Some(peer));
        }
        assert_eq!(sockets.meet(absent(2)), None, "it is followed");
        let not_followed = || counters.members_not_followed.load(Ordering::Relaxed);
        assert_eq!(not_followed(), 0);
        assert_eq!(sockets.meet("127.2.0.1:0".into()), None);
        assert_eq!(not_followed(), 1);
        tokio::time::sleep(GONE_AFTER + LOOK_EVERY).await;
        // Neither the one that was configured nor the one that is there.
        assert_eq!(sockets.meet("127.2.0.1:0".into()), Some(2));
        assert_eq!(sockets.meet("127.2.0.2:0".into()), Some(3));
        assert_eq!(sockets.meet(absent(2)), Some(4), "it was forgotten");
        assert_eq!(
            (sockets.links(), sockets.addresses.len()),
            (PEERS_MAX, PEERS_MAX)
        );
        tokio::time::sleep(GONE_AFTER / 2).await;
        for n in 5..PEERS_MAX {
            let another = format!("127.3.{}.{}:0", n / 250, n % 250 + 1);
            assert_eq!(sockets.meet(another.into()), Some(n));
        }
        assert_eq!(sockets.meet("127.2.0.3:0".into()), None, "all are new");
    }
}
