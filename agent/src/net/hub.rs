//! The hub: the one loop of the network thread, woken by sockets, parcels, orders and time.
//!
//! Its order: what happened goes to listener or courier; then what the listener wants is done; then
//! the courier's records go out, as many as the carrier takes. What stays true: the loop never waits
//! for a socket; whatever a socket does not take stays with the courier.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal};

use super::Event;
use super::feed::Feed;
#[cfg(feature = "kafka")]
use super::kafka::Kafka;
use super::link::Link;
use crate::copies::{Keeper, Told};
use crate::courier::{Counts, Courier};
use crate::flusher::{Ending, Parcel};
use crate::listener::{Act, Listener};
use crate::shared::Shared;
use crate::stats::Counters;

/// Events of sockets that may wait; while so many do, sockets are not read.
pub(crate) const EVENTS_MAX: usize = 4_096;

/// How often time is told: leases and ends are as exact as a call's own look at the clock, this only
/// clears up, and looks after silences of hundreds of milliseconds.
const TICK: Duration = Duration::from_millis(20);

/// Aggregators that one agent follows. A fleet has fewer; an agent that has met so many, because they
/// came and went under ever new addresses, meets no more, and says so.
const PEERS_MAX: usize = 1_024;

/// What the agent's owner wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send what is there, until the deadline at the latest, then end.
    Flush {
        deadline: Instant,
        done: oneshot::Sender<()>,
    },
}

/// What carries records to the log.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// The link of an aggregator that answers.
    Links,
    /// Kafka itself.
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
}

/// The hub.
#[derive(Debug)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
    listener: Listener,
    courier: Courier,
    keeper: Keeper,
    /// Of those below, in their order.
    addresses: Vec<Box<str>>,
    /// For sockets that are made later; the others have their own.
    events: mpsc::WeakSender<Event>,
    links: Vec<Link>,
    feeds: Vec<Feed>,
    carrier: Carrier,
    /// The link that carries records now.
    carrying: Option<usize>,
    /// Resources that the listener knows of.
    resources: usize,
    told: Counts,
    #[cfg(feature = "metrics")]
    metrics_told: Option<Instant>,
    writer: Writer,
    ending: Arc<Ending>,
}

impl Hub {
    /// Starts the sockets' tasks; within the runtime that will run the hub.
    pub(crate) fn new(
        shared: Arc<Shared>,
        listener: Listener,
        (courier, keeper): (Courier, Keeper),
        aggregators: &[String],
        carrier: Carrier,
        ending: Arc<Ending>,
        events: &mpsc::Sender<Event>,
    ) -> Self {
        let endpoints = aggregators
            .iter()
            .map(|address| format!("tcp://{address}"))
            .enumerate();
        Self {
            shared,
            courier,
            keeper,
            addresses: aggregators
                .iter()
                .map(|address| address.as_str().into())
                .collect(),
            events: events.downgrade(),
            links: endpoints
                .map(|(peer, endpoint)| Link::start(peer, endpoint, events.clone()))
                .collect(),
            feeds: (0..aggregators.len())
                .map(|peer| Feed::start(peer, listener.topic(), events.clone()))
                .collect(),
            listener,
            carrier,
            carrying: None,
            resources: 0,
            told: Counts::default(),
            #[cfg(feature = "metrics")]
            metrics_told: None,
            writer: Writer::new(),
            ending,
        }
    }

    /// Runs until the agent is flushed or dropped.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        (mut parcels, mut words): (mpsc::Receiver<Parcel>, mpsc::Receiver<Vec<Told>>),
        mut orders: mpsc::Receiver<Order>,
    ) {
        let shared = Arc::clone(&self.shared);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut flushing: Option<(Instant, oneshot::Sender<()>)> = None;
        let (mut parcels_are_all, mut words_are_all) = (false, false);
        let mut has_ended_epoch = false;
        loop {
            let deadline = flushing.as_ref().map(|(deadline, _)| *deadline);
            tokio::select! {
                Some(event) = events.recv() => self.take(event),
                parcel = parcels.recv(), if !parcels_are_all => match parcel {
                    Some(parcel) => self.courier.take(parcel),
                    None => parcels_are_all = true,
                },
                told = words.recv(), if !words_are_all => match told {
                    Some(told) => self.keeper.take(told, shared.clock.read()),
                    None => words_are_all = true,
                },
                order = orders.recv(), if flushing.is_none() => match order {
                    Some(Order::Flush { deadline, done }) => flushing = Some((deadline, done)),
                    None => break,
                },
                () = shared.new_resource.notified() => {}
                () = async { tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)).await },
                    if deadline.is_some() => break,
                _ = ticks.tick() => self.tick(),
            }
            let all_said = flushing.is_some() && parcels_are_all && words_are_all;
            if all_said && !has_ended_epoch && self.keeper.knows_where_to() {
                has_ended_epoch = true;
                let last = self.keeper.end();
                last.into_iter().for_each(|cargo| self.courier.take(cargo));
            }
            self.turn();
            if all_said && self.courier.len() == 0 && self.keeper.waiting() == 0 {
                break;
            }
        }
        self.end(parcels).await;
        drop(flushing);
    }

    fn take(&mut self, event: Event) {
        let now = self.shared.clock.read();
        match event {
            Event::LinkUp { peer } => self.listener.link_up(peer, now),
            Event::LinkSaid { peer, message } => self.link_said(peer, &message),
            Event::LinkDown { peer } => {
                self.listener.link_down(peer);
                self.carry_no_more(peer);
            }
            Event::FeedUp { peer, subscribed } => self.listener.feed_up(peer, subscribed, now),
            Event::Subscribed { peer, resource } => self.listener.subscribed(peer, resource, now),
            Event::FeedSaid { peer, topic, frame } => {
                self.listener.feed_said(peer, topic, &frame, now)
            }
            Event::FeedDown { peer } => self.listener.feed_down(peer),
            #[cfg(feature = "kafka")]
            Event::Partitions(partitions) => self
                .shared
                .log_partitions
                .store(partitions, Ordering::Relaxed),
            #[cfg(feature = "kafka")]
            Event::Delivered { id, ok } => {
                if ok {
                    self.courier.acknowledged(id)
                } else {
                    self.courier.failed(id)
                }
            }
        }
    }

    fn link_said(&mut self, peer: usize, message: &Bytes) {
        let now = self.shared.clock.read();
        self.listener.link_alive(peer, now);
        match FromAggregator::decode(message) {
            Ok(FromAggregator::Appended { id, .. }) => self.courier.acknowledged(id),
            Ok(FromAggregator::Refused {
                id,
                reason: Refusal::NotNow,
                ..
            }) => self.courier.not_now(id, now),
            Ok(FromAggregator::Refused {
                id,
                reason: Refusal::Never,
                text,
            }) => {
                tracing::warn!(reason = %text, "the log refused a batch of hits");
                self.courier.refused(id);
            }
            Ok(answer) => self.listener.link_said(peer, answer, now),
            Err(_) => Counters::add(&self.shared.counters.frames_refused, 1),
        }
    }

    fn tick(&mut self) {
        let now = self.shared.clock.read();
        self.listener.tick(now);
        self.courier.tick(now);
        #[cfg(feature = "metrics")]
        self.tell_metrics();
    }

    #[cfg(feature = "metrics")]
    fn tell_metrics(&mut self) {
        if self
            .metrics_told
            .is_none_or(|last| crate::metrics::EVERY <= last.elapsed())
        {
            self.metrics_told = Some(Instant::now());
            crate::metrics::tell(self.courier.agent(), &self.shared.stats());
        }
    }

    /// What follows from whatever happened.
    fn turn(&mut self) {
        self.use_new_resources();
        for act in self.listener.take_acts() {
            self.act(act);
        }
        self.keep_holdings();
        self.send_records();
        self.tell_counts();
        self.shared.news.notify_waiters();
    }

    /// Verdicts go in, operations and beats come out.
    fn keep_holdings(&mut self) {
        let now = self.shared.clock.read();
        let partitions = self.shared.log_partitions.load(Ordering::Relaxed);
        self.keeper.set_partitions(partitions, now);
        let verdicts = self.listener.take_verdicts_heard();
        if !verdicts.is_empty() {
            self.keeper.hear(verdicts, now);
        }
        for partition in self.courier.take_shaken() {
            self.keeper.heal(partition, now);
        }
        let courier = &self.courier;
        let cargoes = self.keeper.next(now, |one| courier.holdings_len(one));
        cargoes
            .into_iter()
            .for_each(|cargo| self.courier.take(cargo));
    }

    fn use_new_resources(&mut self) {
        if self.shared.resources.len() == self.resources {
            return;
        }
        let all = self.shared.resources.all();
        for resource in all.iter().skip(self.resources) {
            self.listener.use_resource(resource);
            if resource.is_of_copies() {
                self.keeper.use_resource(resource, self.shared.clock.read());
            }
        }
        self.resources = all.len();
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Say { peer, message } => {
                // What finds no room is asked again, by and by.
                if let Some(link) = self.links.get(peer) {
                    let _ = link.messages.try_send(message);
                }
            }
            Act::ReopenLink { peer } => {
                if let Some(link) = self.links.get(peer) {
                    link.reopen();
                }
                self.carry_no_more(peer);
            }
            Act::OpenFeed {
                peer,
                addresses,
                topics,
            } => {
                if !self
                    .feeds
                    .get(peer)
                    .is_some_and(|feed| feed.open(addresses, topics))
                {
                    self.listener.feed_busy(peer);
                }
            }
            Act::Meet { address } => self.meet(address),
            Act::Subscribe {
                peer,
                resource,
                topic,
            } => {
                if !self
                    .feeds
                    .get(peer)
                    .is_some_and(|feed| feed.subscribe(resource, topic))
                {
                    self.listener.feed_busy(peer);
                }
            }
        }
    }

    /// Follows another aggregator that one of them told of.
    fn meet(&mut self, address: Box<str>) {
        if self.addresses.contains(&address) {
            return;
        }
        if PEERS_MAX <= self.links.len() {
            tracing::warn!(%address, "an aggregator is not followed: too many have been met");
            return;
        }
        // Without one, the last of the sockets' tasks has ended.
        let Some(events) = self.events.upgrade() else {
            return;
        };
        tracing::debug!(%address, "meets another aggregator of the fleet");
        let peer = self.links.len();
        let endpoint = format!("tcp://{address}");
        self.links.push(Link::start(peer, endpoint, events.clone()));
        self.feeds
            .push(Feed::start(peer, self.listener.topic(), events));
        self.listener.add_peer();
        self.addresses.push(address);
    }

    fn carry_no_more(&mut self, peer: usize) {
        if self.carrying == Some(peer) {
            self.carrying = None;
            self.courier.connection_lost(self.shared.clock.read());
        }
    }

    fn send_records(&mut self) {
        match &self.carrier {
            Carrier::Links => {
                if self
                    .carrying
                    .is_none_or(|peer| !self.listener.is_welcome(peer))
                {
                    if let Some(peer) = self.carrying {
                        self.carry_no_more(peer);
                    }
                    self.carrying =
                        (0..self.links.len()).find(|peer| self.listener.is_welcome(*peer));
                }
                self.shared
                    .log_partitions
                    .store(self.shared.sight.partitions(), Ordering::Relaxed);
                self.send_by_link();
            }
            #[cfg(feature = "kafka")]
            Carrier::Kafka(kafka) => {
                let (now, wall) = (self.shared.clock.read(), self.shared.clock.read_wall());
                while let Ok(room) = kafka.records.try_reserve() {
                    match self.courier.next(now, wall) {
                        Some(outgoing) => room.send(outgoing),
                        None => break,
                    }
                }
            }
        }
    }

    fn send_by_link(&mut self) {
        let Some(link) = self.carrying.and_then(|peer| self.links.get(peer)) else {
            return;
        };
        let (now, wall) = (self.shared.clock.read(), self.shared.clock.read_wall());
        while let Ok(room) = link.messages.try_reserve() {
            let Some(outgoing) = self.courier.next(now, wall) else {
                return;
            };
            let append = FromAgent::Append {
                id: outgoing.id,
                partition: outgoing.partition,
                record: &outgoing.record,
            };
            append.encode(&mut self.writer);
            room.send(Bytes::copy_from_slice(self.writer.as_slice()));
        }
    }

    fn tell_counts(&mut self) {
        let (counts, told) = (self.courier.counts(), self.told);
        let counters = &self.shared.counters;
        counters
            .batches_waiting
            .store(self.courier.len() as u64, Ordering::Relaxed);
        if counts == told {
            return;
        }
        let counted = [
            (
                &counters.batches_sent,
                counts.batches_sent,
                told.batches_sent,
            ),
            (
                &counters.batches_sent_again,
                counts.batches_sent_again,
                told.batches_sent_again,
            ),
            (
                &counters.batches_acknowledged,
                counts.batches_acknowledged,
                told.batches_acknowledged,
            ),
            (
                &counters.batches_given_up,
                counts.batches_given_up,
                told.batches_given_up,
            ),
            (
                &counters.batches_refused,
                counts.batches_refused,
                told.batches_refused,
            ),
            (
                &counters.hits_acknowledged,
                counts.hits_acknowledged,
                told.hits_acknowledged,
            ),
            (
                &counters.hits_given_up,
                counts.hits_given_up,
                told.hits_given_up,
            ),
            (
                &counters.refused_given_up,
                counts.refused_calls_given_up,
                told.refused_calls_given_up,
            ),
        ];
        for (counter, now, before) in counted {
            Counters::add(counter, now - before);
        }
        self.told = counts;
    }

    /// Gives up what is left, and counts it; from here on the agent is blind. Waits for the flusher,
    /// which lets go of its parcels once it has counted what it could not hand over: a pause of its, a
    /// millisecond or so, without which whoever asked for the end would be told less than was dropped.
    async fn end(&mut self, mut parcels: mpsc::Receiver<Parcel>) {
        self.shared.ended.store(true, Ordering::Release);
        self.ending.now.store(true, Ordering::Release);
        self.shared.desk.close();
        while let Some(parcel) = parcels.recv().await {
            self.courier.take(parcel);
        }
        self.courier.give_up();
        self.tell_counts();
        self.shared.sight.end(self.shared.clock.read());
        self.shared.news.notify_waiters();
    }
}
