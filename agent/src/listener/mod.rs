//! The listener: follows the feeds of all aggregators, and updates the deny list.
//!
//! ```text
//! hello ──> welcome         where the feed is, how many partitions there are, the aggregator's clock
//! subscribe, ask ──> snapshot         what is in force, at a point of the feed
//! frame, frame, heartbeat, frame      statements and watermarks; after a gap or a silence: ask again
//! ```
//!
//! A state machine without sockets and clocks: its driver passes each event with its instant, and carries out the
//! acts of the listener, in order.
//!
//! What stays true: a watermark counts only for a topic without a gap; frames count only from an instance that
//! answered a hello; a lost, late or repeated message never refuses a call for longer than all messages in order
//! would.

#[cfg(test)]
mod bench;
mod cached_limits;
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
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::{ASK_RESOURCES_MAX, FromAgent, Member};
use tollgate_shared::wire::verdict::Verdict;

use crate::clock::Mono;
use crate::deny::{DenyList, NearList};
use crate::resource::{Resource, ResourceId};
use crate::stats::Counters;
use cached_limits::CachedLimits;
pub(crate) use context::{ListenerAct, ListenerContext};
use ledger::{Ledger, TopicKey};
use peer::{Ask, FeedState, OpenQuestion, Peer};

/// The key of topic names if the fleet has no key.
const TOPIC_KEY_UNPROTECTED: [u8; 16] = [0; 16];

/// How often the agent checks a working link; each answer measures the clocks again.
const HELLO_EVERY: Span = Span::from_secs(1);

/// How often the listener looks for silent topics: as often as heartbeats come.
const LOOK_EVERY: Span = Span::from_millis(250);

/// If nothing has arrived over a link for this long after a hello, the link is reopened. A closed link is noticed
/// earlier, when the next hello is sent; this limit is for stalls. It is not shorter, since after reopening
/// everything that is not acknowledged is sent again.
const HELLO_PATIENCE: Span = Span::from_secs(3);

/// If a hello has had no answer for this long, on a link over which other messages arrive, it is sent again: its
/// answer was lost. Twice the patience, since an aggregator that is this late with an answer is late with the next
/// one too, and only the newest counts.
const HELLO_AGAIN: Span = Span::from_secs(6);

/// If no part of a snapshot has arrived for this long, the listener asks again.
const ASK_PATIENCE: Span = Span::from_secs(2);

/// How long to wait before another ask if a snapshot was incomplete.
const ASK_AGAIN: Span = Span::from_millis(50);

/// The listener of one agent.
#[derive(Debug)]
pub(crate) struct Listener {
    around: ListenerContext,
    deny: DenyList,
    near: NearList,
    ledger: Ledger,
    cached_limits: CachedLimits,
    peers: Vec<Peer>,
    partitions: u32,
    last_nonce: u64,
    /// Bytes of the public limits of each resource, and of all.
    learned: HashMap<ResourceId, usize>,
    learned_bytes: usize,
    /// When the listener last asked for a resource because its limits changed, or might have.
    refreshed: HashMap<ResourceId, Mono>,
    /// The newest ban of a partition about which the listener asked although denials are ignored.
    bans_asked: HashMap<(ResourceId, u32), LogPosition>,
    /// Which aggregator the listener asks next about doubted limits.
    next_doubted: usize,
    /// When the listener next looks for silent topics.
    next_look: Mono,
    writer: Writer,
    acts: Vec<ListenerAct>,
    /// The agent's own topic.
    topic: Topic,
    verdicts: Vec<Verdict>,
}

impl Listener {
    /// A listener that has received nothing, for this many aggregators. Its nonces start at a random number.
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
            cached_limits: CachedLimits::default(),
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

    /// Adds another aggregator, of which nothing was received: at the end, or in place of another.
    pub(crate) fn add_peer(&mut self, index: usize) {
        match self.peers.get_mut(index) {
            Some(peer) => *peer = Peer::new(),
            None => self.peers.push(Peer::new()),
        }
    }

    /// Processes the other members of a fleet: the listener also follows those that have not answered here already.
    pub(super) fn meet(&mut self, members: Vec<Member>) {
        for Member { instance, address } in members {
            let known = |peer: &Peer| peer.instance == Some(instance);
            if !self.peers.iter().any(known) {
                self.acts.push(ListenerAct::FollowMember { address });
            }
        }
    }

    /// The acts to carry out, in order.
    pub(crate) fn take_acts(&mut self) -> Vec<ListenerAct> {
        std::mem::take(&mut self.acts)
    }

    /// Verdicts on the agent's holds since the last call.
    pub(crate) fn take_verdicts_heard(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    /// The agent's own topic.
    pub(crate) fn topic(&self) -> Topic {
        self.topic
    }

    /// Up to which log position a resource's statements about a partition have been received without a gap.
    #[cfg(feature = "simulation")]
    pub(crate) fn received_upto(
        &self,
        resource: ResourceId,
        partition: u32,
    ) -> Option<tollgate_shared::log_position::LogPosition> {
        self.ledger.ruled(TopicKey::Of(resource), partition)
    }

    /// The log of a partition, as far as known.
    pub(crate) fn known_log(&self, partition: u32) -> Option<tollgate_shared::log_position::LogId> {
        self.ledger.log_of(partition)
    }

    /// Whether an aggregator has answered on a working link.
    pub(crate) fn is_welcome(&self, peer: usize) -> bool {
        self.peers
            .get(peer)
            .is_some_and(|peer| peer.link_up && peer.instance.is_some())
    }

    /// The agent uses a resource.
    pub(crate) fn use_resource(&mut self, resource: &Resource) {
        let topic = topic_of(resource);
        for (index, peer) in self.peers.iter().enumerate() {
            // A feed that is being opened subscribes afterwards, in case it was opened without the topic.
            if peer.feed != FeedState::Unknown {
                self.acts.push(ListenerAct::Subscribe {
                    peer: index,
                    resource: resource.id,
                    topic,
                });
            }
        }
    }

    /// A link is connected.
    pub(crate) fn link_up(&mut self, index: usize, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.link_up = true;
            peer.forget_left_out();
            peer.hello = None;
            peer.next_hello = now;
            peer.abandon_ask();
        }
        self.tick(now);
    }

    /// Something arrived over a link.
    pub(crate) fn link_alive(&mut self, index: usize, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.link_received_at = now;
        }
    }

    /// A link is disconnected.
    pub(crate) fn link_down(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index) {
            if peer.link_up {
                Counters::add(&self.around.counters.links_lost, 1);
            }
            peer.link_up = false;
            peer.hello = None;
            peer.abandon_ask();
        }
    }

    /// A feed's socket is open, and has its subscriptions.
    pub(crate) fn feed_up(&mut self, index: usize, subscribed: Vec<ResourceId>, now: Mono) {
        if let Some(peer) = self.peers.get_mut(index) {
            Counters::add(&self.around.counters.feeds_opened, 1);
            peer.interrupt();
            peer.feed = FeedState::Open;
            peer.feed_received_at = now;
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

    /// A feed's socket is closed; another is being opened.
    pub(crate) fn feed_down(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index)
            && peer.feed == FeedState::Open
        {
            peer.interrupt();
            peer.feed = FeedState::Opening;
        }
    }

    /// A feed could not accept a subscription; it is opened again, with all of them.
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
        // By the cached clock: calls are stamped by it, and once a denial is removed from the filter, no call may get
        // a stamp from before the denial's end.
        self.deny.expire(now.min(self.around.clock.cached()));
        self.tick_notices(now);
        self.around.liveness.update(now);
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
            if HELLO_PATIENCE <= now.since(hello.at.max(peer.link_received_at)) {
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
        self.acts.push(ListenerAct::Send {
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
        if peer.feed == FeedState::Open && peer.silence <= now.since(peer.feed_received_at) {
            // Twice as patient with the next one, in case its heartbeats are slower than known.
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
            && ASK_PATIENCE <= now.since(ask.last_part)
        {
            peer.abandon_ask();
        }
        peer.want_left_out(now);
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
            last_part: now,
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
        self.acts.push(ListenerAct::Send {
            peer: index,
            message,
        });
    }

    /// Asks all aggregators again for everything.
    fn want_all(&mut self) {
        let all = self.around.resources.all();
        for peer in &mut self.peers {
            peer.wanted.extend(all.iter().map(|one| one.id));
        }
    }

    /// From now on limits of any version are accepted: see [`cached_limits`].
    fn forget_versions(&self) {
        let all = self.around.resources.all();
        all.iter().for_each(|one| one.forget_version());
        self.around.mosts.forget();
    }

    fn set_partitions(&mut self, partitions: u32) {
        if partitions == 0 || partitions == self.partitions {
            return;
        }
        if self.partitions != 0 {
            // Pairs are in other partitions now, so no earlier statement can be confirmed.
            self.deny.void_all();
            self.ledger.end_all();
            self.cached_limits.give_up_all();
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
            .liveness
            .set_partitions(partitions, leases, copies_leases);
    }
}

fn topic_of(resource: &Resource) -> Topic {
    Topic::of_resource(&TOPIC_KEY_UNPROTECTED, &resource.name)
}
