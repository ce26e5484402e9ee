//! The driver: the logic of the network thread, without its sockets.
//!
//! It first passes events to the listener or the courier; then it carries out the listener's acts; then it sends the
//! courier's records, as many as the carrier accepts. What stays true: it never waits for a socket, and has none of
//! its own (a simulation drives it); records that a socket does not accept stay with the courier.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
#[cfg(feature = "metrics")]
use std::time::Instant;

use bytes::Bytes;
use tollgate_shared::log_lines::excerpt;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal};

#[cfg(feature = "kafka")]
use super::AppendOutcome;
use super::DriverEvent;
use super::blindness::{BlindNews, Blindness};
use crate::batch::calls::CallBatch;
use crate::clock::Mono;
use crate::courier::{Courier, CourierCounts, Outgoing};
use crate::holds::{HoldNotice, HoldSession};
use crate::listener::{Listener, ListenerAct};
use crate::log_lines::LogLines;
use crate::resource::ResourceId;
use crate::shared::Shared;
use crate::stats::Counters;

/// How long the log may take nothing by the carrying aggregator, while another one is there. An aggregator that is cut
/// off from the log answers "not now", or nothing, and goes on serving its agents.
const STALLED: Span = Span::from_secs(2);

/// How often the agent says so: while the log itself is gone, it asks one after the other.
const STALLS_EVERY: Duration = Duration::from_secs(60);

/// What the driver needs of its sockets. No function waits.
pub(crate) trait Transport {
    /// How many aggregators have links.
    fn links(&self) -> usize;

    /// Queues a message for a link; a message without room is lost.
    fn send(&mut self, peer: usize, message: Bytes);

    /// Reopens a link.
    fn reopen_link(&mut self, peer: usize);

    /// Reopens a feed. `false` if too many orders wait; the driver tries again.
    fn open_feed(
        &mut self,
        peer: usize,
        addresses: Vec<Box<str>>,
        topics: Vec<(ResourceId, Topic)>,
    ) -> bool;

    /// Follows another aggregator at this address. Returns its number; `None` if it is followed already, or there is
    /// no room.
    fn meet(&mut self, address: Box<str>) -> Option<usize>;

    /// Subscribes to one more topic. `false` if too many orders wait; the driver tries again.
    fn subscribe(&mut self, peer: usize, resource: ResourceId, topic: Topic) -> bool;

    /// Takes messages for a link while it has room and there are messages.
    fn fill_link(&mut self, peer: usize, next: &mut dyn FnMut() -> Option<Bytes>);

    /// Takes records while there is room and there are records, if records go another way than by links. Returns
    /// whether they do.
    fn fill_carrier(&mut self, next: &mut dyn FnMut() -> Option<Outgoing>) -> bool;
}

/// The driver.
#[derive(Debug)]
pub(crate) struct Driver<W> {
    shared: Arc<Shared>,
    listener: Listener,
    courier: Courier,
    session: HoldSession,
    transport: W,
    /// The link that carries records at present.
    carrying: Option<usize>,
    /// Resources that the listener knows, and how many there were when all had been joined.
    resources: usize,
    joined: usize,
    reported: CourierCounts,
    refusals: LogLines,
    stalls: LogLines,
    blindness: Blindness,
    #[cfg(feature = "metrics")]
    metrics_reported: Option<Instant>,
    writer: Writer,
}

impl<W: Transport> Driver<W> {
    /// A driver that has received nothing.
    pub(crate) fn new(
        shared: Arc<Shared>,
        listener: Listener,
        (courier, session): (Courier, HoldSession),
        transport: W,
    ) -> Self {
        Self {
            shared,
            listener,
            courier,
            session,
            transport,
            carrying: None,
            resources: 0,
            joined: 0,
            reported: CourierCounts::default(),
            refusals: LogLines::default(),
            stalls: LogLines::once_in(STALLS_EVERY),
            blindness: Blindness::default(),
            #[cfg(feature = "metrics")]
            metrics_reported: None,
            writer: Writer::new(),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The flusher handed over a batch.
    pub(crate) fn take_batch(&mut self, batch: CallBatch) {
        self.courier.take(batch);
    }

    /// The flusher passed on notices of holds.
    pub(crate) fn take_notices(&mut self, notices: Vec<HoldNotice>) {
        self.session.take(notices, self.shared.clock.read());
    }

    /// Queues the last records of this epoch, if the number of partitions is known. Returns whether it is.
    pub(crate) fn end_epoch(&mut self) -> bool {
        let known = self.session.knows_where_to();
        if known {
            let last = self.session.end();
            last.into_iter()
                .for_each(|payload| self.courier.take(payload));
        }
        known
    }

    /// Whether nothing waits for the log any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.courier.len() == 0 && self.session.waiting() == 0
    }

    /// Whether nothing is in flight, or about to be: then rare ticks are enough.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.courier.len() == 0 && self.session.is_idle() && !self.is_joining()
    }

    /// Whether an aggregator answers, and the agent is not yet ready.
    fn is_joining(&mut self) -> bool {
        // Readiness is computed once for each number of resources, because there may be thousands.
        if self.carrying.is_none() || self.joined == self.resources {
            return false;
        }
        let is_ready = self.shared.is_ready();
        if is_ready {
            self.joined = self.resources;
        }
        !is_ready
    }

    /// The listener, for inspection.
    #[cfg(feature = "simulation")]
    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    pub(crate) fn transport(&mut self) -> &mut W {
        &mut self.transport
    }

    /// A socket reported an event.
    pub(crate) fn take(&mut self, event: DriverEvent) {
        let now = self.shared.clock.read();
        match event {
            DriverEvent::LinkUp { peer } => self.listener.link_up(peer, now),
            DriverEvent::LinkMessage { peer, message } => self.take_message(peer, &message),
            DriverEvent::LinkDown { peer } => {
                self.listener.link_down(peer);
                self.carry_no_more(peer);
            }
            DriverEvent::FeedUp { peer, subscribed } => {
                self.listener.feed_up(peer, subscribed, now)
            }
            DriverEvent::Subscribed { peer, resource } => {
                self.listener.subscribed(peer, resource, now)
            }
            DriverEvent::FeedFrame { peer, topic, frame } => {
                self.listener.take_frame(peer, topic, &frame, now)
            }
            DriverEvent::FeedDown { peer } => self.listener.feed_down(peer),
            DriverEvent::Found { address } => self.act(ListenerAct::FollowMember { address }),
            DriverEvent::Panicked(panic) => panic.resume(),
            #[cfg(feature = "kafka")]
            DriverEvent::Partitions(partitions) => self
                .shared
                .log_partitions
                .store(partitions, Ordering::Relaxed),
            #[cfg(feature = "kafka")]
            DriverEvent::Delivered { id, outcome } => match outcome {
                AppendOutcome::Taken => self.courier.acknowledged(id),
                AppendOutcome::SendAgain => self.courier.not_now(id, now),
                AppendOutcome::GivenUp => self.courier.failed(id),
            },
        }
    }

    fn take_message(&mut self, peer: usize, message: &Bytes) {
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
                if !self.courier.refused(id) {
                    return Counters::add(&self.shared.counters.refusals_unknown, 1);
                }
                if let Some(unsaid) = self.refusals.may() {
                    let reason = excerpt(&text);
                    tracing::warn!(%reason, unsaid, "the log refused a batch of hits");
                }
            }
            Ok(answer) => self.listener.take_message(peer, answer, now),
            Err(_) => Counters::add(&self.shared.counters.frames_refused, 1),
        }
    }

    /// Time passes. To be called several times a second.
    pub(crate) fn tick(&mut self) {
        let now = self.shared.clock.read();
        self.listener.tick(now);
        self.courier.tick(now);
        self.carry_by_another(now);
        self.say_if_blind(now);
        #[cfg(feature = "metrics")]
        self.report_metrics();
    }

    fn say_if_blind(&mut self, now: Mono) {
        match self.blindness.look(self.shared.liveness.blind_since(), now) {
            Some(BlindNews::Blind(blind_for)) => tracing::warn!(
                %blind_for,
                "some or all partitions are ruled by nobody, as far as this agent has heard: their calls pass, unless the \
                 limits that it knows state otherwise (`blind`)"
            ),
            Some(BlindNews::Over) => tracing::info!("aggregators rule all partitions again"),
            None => {}
        }
    }

    #[cfg(feature = "metrics")]
    fn report_metrics(&mut self) {
        if self
            .metrics_reported
            .is_none_or(|last| crate::metrics::EVERY <= last.elapsed())
        {
            let is_first = self.metrics_reported.replace(Instant::now()).is_none();
            let stats = self.shared.stats();
            crate::callback::call(&self.shared.counters, "metrics", || {
                if is_first {
                    crate::metrics::describe();
                }
                crate::metrics::report(self.courier.agent(), &stats);
            });
        }
    }

    /// Does what follows from the events.
    pub(crate) fn turn(&mut self) {
        self.use_new_resources();
        for act in self.listener.take_acts() {
            self.act(act);
        }
        self.keep_holdings();
        self.send_records();
        self.report_counts();
        self.shared.news.notify_waiters();
    }

    /// Passes verdicts to the hold session, and its operations and heartbeats to the courier.
    fn keep_holdings(&mut self) {
        let now = self.shared.clock.read();
        let partitions = self.shared.log_partitions.load(Ordering::Relaxed);
        self.session.set_partitions(partitions, now);
        let listener = &self.listener;
        self.session.know_logs(|one| listener.known_log(one), now);
        let verdicts = self.listener.take_verdicts_heard();
        if !verdicts.is_empty() {
            self.session.take_verdicts(verdicts, now);
        }
        for partition in self.courier.take_shaken() {
            self.session.heal(partition, now);
        }
        let courier = &self.courier;
        let payloads = self.session.next(now, |one| courier.under_way(one));
        payloads
            .into_iter()
            .for_each(|payload| self.courier.take(payload));
    }

    fn use_new_resources(&mut self) {
        if self.shared.resources.len() == self.resources {
            return;
        }
        let all = self.shared.resources.all();
        for resource in all.iter().skip(self.resources) {
            self.listener.use_resource(resource);
            if resource.is_of_copies() {
                self.session
                    .use_resource(resource, self.shared.clock.read());
            }
        }
        self.resources = all.len();
    }

    fn act(&mut self, act: ListenerAct) {
        match act {
            // A message without room is sent again later.
            ListenerAct::Send { peer, message } => self.transport.send(peer, message),
            ListenerAct::ReopenLink { peer } => {
                self.transport.reopen_link(peer);
                self.carry_no_more(peer);
            }
            ListenerAct::OpenFeed {
                peer,
                addresses,
                topics,
            } => {
                if !self.transport.open_feed(peer, addresses, topics) {
                    self.listener.feed_busy(peer);
                }
            }
            ListenerAct::FollowMember { address } => {
                if let Some(peer) = self.transport.meet(address) {
                    self.listener.add_peer(peer);
                }
            }
            ListenerAct::Subscribe {
                peer,
                resource,
                topic,
            } => {
                if !self.transport.subscribe(peer, resource, topic) {
                    self.listener.feed_busy(peer);
                }
            }
        }
    }

    fn carry_no_more(&mut self, peer: usize) {
        if self.carrying == Some(peer) {
            self.carrying = None;
            self.courier.connection_lost(self.shared.clock.read());
        }
    }

    /// Changes to another aggregator if the log takes nothing by this one: that aggregator may be cut off from the log,
    /// and go on serving its agents.
    fn carry_by_another(&mut self, now: Mono) {
        let Some(peer) = self.carrying else {
            return;
        };
        if self.courier.stalled_for(now) < STALLED {
            return;
        }
        let mut others = (peer + 1..self.transport.links()).chain(0..peer);
        if let Some(other) = others.find(|other| self.listener.is_welcome(*other)) {
            self.carry_no_more(peer);
            self.carrying = Some(other);
            if let Some(unsaid) = self.stalls.may() {
                tracing::warn!(
                    peer,
                    other,
                    unsaid,
                    "an aggregator passes nothing on to the log, another one is asked"
                );
            }
        }
    }

    fn send_records(&mut self) {
        let now = self.shared.clock.read();
        let wall = self.shared.clock.read_wall_anew(now);
        let courier = &mut self.courier;
        if self.transport.fill_carrier(&mut || courier.next(now, wall)) {
            return;
        }
        if self
            .carrying
            .is_none_or(|peer| !self.listener.is_welcome(peer))
        {
            if let Some(peer) = self.carrying {
                self.carry_no_more(peer);
            }
            self.carrying =
                (0..self.transport.links()).find(|peer| self.listener.is_welcome(*peer));
        }
        self.shared
            .log_partitions
            .store(self.shared.liveness.partitions(), Ordering::Relaxed);
        let Some(peer) = self.carrying else {
            return;
        };
        let (courier, writer) = (&mut self.courier, &mut self.writer);
        self.transport.fill_link(peer, &mut || {
            let outgoing = courier.next(now, wall)?;
            let append = FromAgent::Append {
                id: outgoing.id,
                partition: outgoing.partition,
                record: &outgoing.record,
            };
            append.encode(writer);
            Some(Bytes::copy_from_slice(writer.as_slice()))
        });
    }

    fn report_counts(&mut self) {
        let (counts, reported) = (self.courier.counts(), self.reported);
        let counters = &self.shared.counters;
        counters
            .batches_waiting
            .store(self.courier.len() as u64, Ordering::Relaxed);
        if counts == reported {
            return;
        }
        let counted = [
            (
                &counters.batches_sent,
                counts.batches_sent,
                reported.batches_sent,
            ),
            (
                &counters.batches_sent_again,
                counts.batches_sent_again,
                reported.batches_sent_again,
            ),
            (
                &counters.batches_acknowledged,
                counts.batches_acknowledged,
                reported.batches_acknowledged,
            ),
            (
                &counters.batches_given_up,
                counts.batches_given_up,
                reported.batches_given_up,
            ),
            (
                &counters.batches_refused,
                counts.batches_refused,
                reported.batches_refused,
            ),
            (
                &counters.hits_acknowledged,
                counts.hits_acknowledged,
                reported.hits_acknowledged,
            ),
            (
                &counters.hits_given_up,
                counts.hits_given_up,
                reported.hits_given_up,
            ),
            (
                &counters.refused_given_up,
                counts.refused_calls_given_up,
                reported.refused_calls_given_up,
            ),
        ];
        for (counter, now, before) in counted {
            Counters::add(counter, now - before);
        }
        self.reported = counts;
    }

    /// Gives up what is left, and counts it; from here on the agent is blind.
    pub(crate) fn end(&mut self) {
        self.shared.end();
        self.courier.give_up();
        self.report_counts();
        self.shared.liveness.end(self.shared.clock.read());
        self.shared.news.notify_waiters();
    }
}
