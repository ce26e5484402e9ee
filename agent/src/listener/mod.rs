//! The listener: follows the feeds of all aggregators, and keeps the deny list true.
//!
//! ```text
//! hello ──> welcome         where the feed is, how many partitions there are, their clock
//! subscribe, ask ──> snapshot         what is in force, at a point of the feed
//! frame, frame, heartbeat, frame      statements and evidence; a gap or a silence: ask again
//! ```
//!
//! A state machine: sockets and clocks are elsewhere; what happens is told to it with its instant, and
//! what is to be done stands in its acts, in order.
//!
//! What stays true: evidence counts only for a topic of which nothing was missed; frames count only
//! from an instance that answered a hello; nothing that is lost, late or said twice refuses anybody
//! longer than what was said in order.

#[cfg(test)]
mod bench;
mod context;
mod delay;
mod doubts;
mod frames;
mod ledger;
#[cfg(test)]
mod limits_tests;
mod notices;
mod peer;
mod run;
mod snapshots;
mod taught;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tollgate_shared::place::Place;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::{ASK_RESOURCES_MAX, FromAgent, Member};
use tollgate_shared::wire::verdict::Verdict;

use crate::clock::Mono;
use crate::deny::{DenyList, NearList};
use crate::resource::{Resource, ResourceId};
use crate::stats::Counters;
pub(crate) use context::{ListenerAct, ListenerContext};
use ledger::{Ledger, TopicKey};
use peer::{Ask, FeedState, OpenQuestion, Peer};
use taught::CachedLimits;

/// The key of topic names where the fleet has no key.
const TOPIC_KEY_UNPROTECTED: [u8; 16] = [0; 16];

/// How often a link that works is asked whether it does; each answer measures the clocks again.
const HELLO_EVERY: Span = Span::from_secs(1);

/// How often topics that say nothing are looked for: as often as heartbeats come.
const LOOK_EVERY: Span = Span::from_millis(250);

/// A link over which nothing has come for so long after a hello is made anew. One that is closed is
/// noticed earlier, by the sending of the next hello; this is for what stalls, and for nothing shorter,
/// since everything that is not acknowledged is sent again.
const HELLO_PATIENCE: Span = Span::from_secs(3);

/// A hello that has not been answered for so long, on a link over which other things come, is said again:
/// its answer was dropped on the way. Twice the patience, since whoever is this late with an answer is late
/// with the next one too, and only the newest counts.
const HELLO_AGAIN: Span = Span::from_secs(6);

/// A snapshot of which no part has come for so long is asked for again.
const ASK_PATIENCE: Span = Span::from_secs(2);

/// How long to wait with another ask where a snapshot left something open.
const ASK_AGAIN: Span = Span::from_millis(50);

/// The listener of one agent.
#[derive(Debug)]
pub(crate) struct Listener {
    around: ListenerContext,
    deny: DenyList,
    near: NearList,
    ledger: Ledger,
    taught: CachedLimits,
    peers: Vec<Peer>,
    partitions: u32,
    last_nonce: u64,
    /// Bytes of the public limits of each resource, and of all.
    learned: HashMap<ResourceId, usize>,
    learned_bytes: usize,
    /// When a resource was last asked for because its limits changed, or might have.
    refreshed: HashMap<ResourceId, Mono>,
    /// The newest ban of a partition that was asked about where denials are said to be ignored.
    bans_asked: HashMap<(ResourceId, u32), Place>,
    /// Of whom doubted limits are asked next.
    next_doubted: usize,
    /// When topics that say nothing are looked for next.
    next_look: Mono,
    writer: Writer,
    acts: Vec<ListenerAct>,
    /// The agent's own topic.
    topic: Topic,
    verdicts: Vec<Verdict>,
}

impl Listener {
    /// One that has heard nothing, for so many aggregators. Nonces count on from a random number.
    pub(crate) fn new(
        around: ListenerContext,
        (deny, near): (DenyList, NearList),
        peers: usize,
        nonce: u64,
    ) -> Self {
        let topic = Topic::of_agent(&TOPIC_KEY_UNPROTECTED, &around.agent);
        Self {
            topic,
            verdicts: Vec::new(),
            around,
            deny,
            near,
            ledger: Ledger::default(),
            taught: CachedLimits::default(),
            peers: (0..peers).map(|_| Peer::new()).collect(),
            partitions: 0,
            last_nonce: nonce,
            learned: HashMap::new(),
            learned_bytes: 0,
            refreshed: HashMap::new(),
            bans_asked: HashMap::new(),
            next_doubted: 0,
            next_look: Mono::ZERO,
            writer: Writer::new(),
            acts: Vec::new(),
        }
    }

    /// Takes another aggregator, which has not been heard: the next, or one in the place of another.
    pub(crate) fn add_peer(&mut self, index: usize) {
        match self.peers.get_mut(index) {
            Some(peer) => *peer = Peer::new(),
            None => self.peers.push(Peer::new()),
        }
    }

    /// Hears of the others of a fleet: those that do not answer here already are to be followed too.
    pub(super) fn meet(&mut self, members: Vec<Member>) {
        for Member { instance, address } in members {
            let known = |peer: &Peer| peer.instance == Some(instance);
            if !self.peers.iter().any(known) {
                self.acts.push(ListenerAct::Meet { address });
            }
        }
    }

    /// What is to be done, in order.
    pub(crate) fn take_acts(&mut self) -> Vec<ListenerAct> {
        std::mem::take(&mut self.acts)
    }

    /// What was said about the agent's holds since it was last asked.
    pub(crate) fn take_verdicts_heard(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    /// The agent's own topic.
    pub(crate) fn topic(&self) -> Topic {
        self.topic
    }

    /// Up to where a resource's statements about a partition have been heard without a gap.
    #[cfg(feature = "simulation")]
    pub(crate) fn heard_upto(
        &self,
        resource: ResourceId,
        partition: u32,
    ) -> Option<tollgate_shared::place::Place> {
        self.ledger.ruled(TopicKey::Of(resource), partition)
    }

    /// The log that a partition's is taken to be.
    pub(crate) fn known_log(&self, partition: u32) -> Option<tollgate_shared::place::LogId> {
        self.ledger.log_of(partition)
    }

    /// Whether an aggregator has answered on a link that works.
    pub(crate) fn is_welcome(&self, peer: usize) -> bool {
        self.peers
            .get(peer)
            .is_some_and(|peer| peer.link_up && peer.instance.is_some())
    }

    /// The agent uses a resource.
    pub(crate) fn use_resource(&mut self, resource: &Resource) {
        let topic = topic_of(resource);
        for (index, peer) in self.peers.iter().enumerate() {
            // One that is being opened gets it afterwards, in case it was opened without.
            if peer.feed != FeedState::Unknown {
                self.acts.push(ListenerAct::Subscribe {
                    peer: index,
                    resource: resource.id,
                    topic,
                });
            }
        }
    }

    /// A link can carry messages.
    pub(crate) fn link_up(&mut self, index: usize, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.link_up = true;
            peer.hello = None;
            peer.next_hello = now;
            peer.ask_came_to_nothing();
        }
        self.tick(now);
    }

    /// Something came over a link.
    pub(crate) fn link_alive(&mut self, index: usize, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.link_heard = now;
        }
    }

    /// A link carries nothing any more.
    pub(crate) fn link_down(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index) {
            if peer.link_up {
                Counters::add(&self.around.counters.links_lost, 1);
            }
            peer.link_up = false;
            peer.hello = None;
            peer.ask_came_to_nothing();
        }
    }

    /// A feed's socket is there, and has its subscriptions.
    pub(crate) fn feed_up(&mut self, index: usize, subscribed: Vec<ResourceId>, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            Counters::add(&self.around.counters.feeds_opened, 1);
            peer.interrupt();
            peer.feed = FeedState::Open;
            peer.feed_heard = now;
            peer.wanted = subscribed.into_iter().collect();
        }
        self.tick(now);
    }

    /// A topic was subscribed to on a feed that is open.
    pub(crate) fn subscribed(&mut self, index: usize, resource: ResourceId, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index)
            && !peer.is_joined(TopicKey::Of(resource))
        {
            peer.wanted.insert(resource);
        }
        self.tick(now);
    }

    /// A feed's socket is gone; another is being made.
    pub(crate) fn feed_down(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index)
            && peer.feed == FeedState::Open
        {
            peer.interrupt();
            peer.feed = FeedState::Opening;
        }
    }

    /// A feed could not take what was wanted of it; it is opened again, with everything.
    pub(crate) fn feed_busy(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.interrupt();
            peer.feed = FeedState::Unknown;
        }
    }

    /// Time passes. To be called several times a second.
    pub(crate) fn tick(&mut self, now: Mono) {
        self.refresh_doubted(now);
        let is_look_due = self.next_look <= now;
        if is_look_due {
            self.next_look = now.plus(LOOK_EVERY);
        }
        for index in 0..self.peers.len() {
            self.keep_link(index, now);
            self.keep_feed(index, now);
            if is_look_due {
                self.doubt_silent_topics(index, now);
            }
            self.ask_if_needed(index, now);
        }
        // By the cached clock: when the filter has let go of a denial, calls are stamped by that, and none
        // is to bear a stamp of before its end.
        self.deny.expire(now.min(self.around.clock.cached()));
        self.tick_notices(now);
        self.around.sight.update(now);
        let live = u64::try_from(self.deny.len()).unwrap_or(u64::MAX);
        self.around
            .counters
            .denials_live
            .store(live, Ordering::Relaxed);
    }

    fn keep_link(&mut self, index: usize, now: Mono) {
        let Some(peer) = self.peers.get_mut(index).filter(|peer| peer.link_up) else {
            return;
        };
        if let Some(hello) = peer.hello {
            if HELLO_PATIENCE <= now.since(hello.at.max(peer.link_heard)) {
                peer.hello = None;
                peer.link_up = false;
                Counters::add(&self.around.counters.links_lost, 1);
                self.acts.push(ListenerAct::ReopenLink { peer: index });
                return;
            }
            if now.since(hello.at) < HELLO_AGAIN {
                return;
            }
        }
        if now < peer.next_hello {
            return;
        }
        self.last_nonce = self.last_nonce.wrapping_add(1);
        peer.hello = Some(OpenQuestion {
            nonce: self.last_nonce,
            at: now,
        });
        peer.next_hello = now.plus(HELLO_EVERY);
        let hello = FromAgent::Hello {
            nonce: self.last_nonce,
            agent: &self.around.agent,
            secret: self.around.secret,
            before: self.around.before,
        };
        hello.encode(&mut self.writer);
        let message = Bytes::copy_from_slice(self.writer.as_slice());
        self.acts.push(ListenerAct::Say {
            peer: index,
            message,
        });
    }

    fn keep_feed(&mut self, index: usize, now: Mono) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if peer.feed == FeedState::Unknown && !peer.feeds.is_empty() {
            return self.open_feed(index);
        }
        if peer.feed == FeedState::Open && peer.silence <= now.since(peer.feed_heard) {
            // Two times as patient with the next one, in case it keeps a slower time than is known.
            let twice = Span::from_micros(peer.silence.as_micros().saturating_mul(2));
            peer.silence = twice.min(peer::SILENCE_MAX);
            Counters::add(&self.around.counters.silences, 1);
            self.open_feed(index);
        }
    }

    fn open_feed(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        peer.interrupt();
        peer.feed = FeedState::Opening;
        let addresses = peer.feeds.clone();
        let topics = self
            .around
            .resources
            .all()
            .iter()
            .map(|one| (one.id, topic_of(one)))
            .collect();
        self.acts.push(ListenerAct::OpenFeed {
            peer: index,
            addresses,
            topics,
        });
    }

    fn ask_if_needed(&mut self, index: usize, now: Mono) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if let Some(ask) = &peer.ask
            && ASK_PATIENCE <= now.since(ask.heard)
        {
            peer.ask_came_to_nothing();
        }
        let needed = !peer.is_joined(TopicKey::Control) || !peer.wanted.is_empty();
        let possible = peer.link_up
            && peer.instance.is_some()
            && peer.feed == FeedState::Open
            && peer.ask.is_none();
        let possible = possible && peer.next_ask <= now;
        if !needed || !possible {
            return;
        }
        let known: Vec<Arc<Resource>> = std::iter::from_fn(|| peer.wanted.pop_first())
            .take(ASK_RESOURCES_MAX)
            .filter_map(|id| self.around.resources.by_id(id))
            .collect();
        self.last_nonce = self.last_nonce.wrapping_add(1);
        let asked = OpenQuestion {
            nonce: self.last_nonce,
            at: now,
        };
        peer.ask = Some(Ask {
            asked,
            heard: now,
            parts: 0,
            resources: known.iter().map(|one| one.id).collect(),
            listed: std::collections::HashSet::new(),
            sequences: HashMap::new(),
        });
        let resources = known.iter().map(|one| &*one.name).collect();
        FromAgent::Ask {
            nonce: asked.nonce,
            resources,
        }
        .encode(&mut self.writer);
        let message = Bytes::copy_from_slice(self.writer.as_slice());
        self.acts.push(ListenerAct::Say {
            peer: index,
            message,
        });
    }

    /// Everything is asked for again, of everybody.
    fn want_all(&mut self) {
        let all = self.around.resources.all();
        for peer in &mut self.peers {
            peer.wanted.extend(all.iter().map(|one| one.id));
        }
    }

    /// Limits of any version are news from now on: see [`taught`].
    fn forget_versions(&self) {
        let all = self.around.resources.all();
        all.iter().for_each(|one| one.forget_version());
    }

    fn set_partitions(&mut self, partitions: u32) {
        if partitions == 0 || partitions == self.partitions {
            return;
        }
        if self.partitions != 0 {
            // Pairs belong elsewhere now: nothing that was said can be told to be true.
            self.deny.void_all();
            self.ledger.end_all();
            self.taught.give_up_all();
            self.forget_versions();
            self.bans_asked.clear();
            self.peers.iter_mut().for_each(Peer::interrupt);
            self.want_all();
        }
        self.partitions = partitions;
        let leases = (0..partitions)
            .map(|one| self.ledger.lease(TopicKey::Control, one))
            .collect();
        let copies_leases = (0..partitions)
            .map(|one| self.ledger.copies_lease(one))
            .collect();
        self.around
            .sight
            .set_partitions(partitions, leases, copies_leases);
    }
}

fn topic_of(resource: &Resource) -> Topic {
    Topic::of_resource(&TOPIC_KEY_UNPROTECTED, &resource.name)
}
