//! Aggregators' answers over the link: their identity, and what is in force.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_shared::log_position::{Code, LogPosition};
use tollgate_shared::time::Span;
use tollgate_shared::wire::link::{FromAggregator, Snapshot};
use tollgate_shared::wire::public::{Public, PublicAllowed, PublicNetwork, closed_bytes};

use super::Listener;
use super::ledger::TopicKey;
use super::peer::{Ask, FeedState};
use crate::clock::Mono;
use crate::events::Change;
use crate::resource::Resource;
use crate::stats::Counters;

/// The most scopes of one answer that are remembered, in order to end denials that it does not list: twice as many as
/// the deny list has room for by default.
const LISTED_MAX: usize = 1 << 21;

/// The most bytes of the public limits of all resources: nearly all are groups of domains, closed domains and
/// networks, and rules of descriptors.
const PUBLIC_BYTES_MAX: usize = 64 << 20;

/// About as many bytes as public limits take in memory.
fn public_bytes(public: &Public) -> usize {
    let groups = public.copies.iter().flat_map(|copies| &copies.groups);
    let members = groups.map(|group| {
        let members = group.members.iter().flatten();
        let names: usize = members.map(|name| name.len() + size_of::<Box<str>>()).sum();
        group.name.len() + size_of_val(group) + names
    });
    // Each is stored with its fingerprint.
    let closed = public.closed.iter();
    let closed = closed.map(|domain| closed_bytes(domain) + size_of::<u64>());
    let rules = public.descriptors.iter();
    // Each text is stored as written, and in parts.
    let rules = rules.map(|rule| size_of_val(rule) + 2 * rule.announced_bytes());
    // Each is stored with up to two ranges of addresses.
    let networks = 4 * size_of::<PublicNetwork>() * public.networks.iter().len();
    let allowed = { public.allowed.iter() }.flat_map(PublicAllowed::iter);
    let allowed = allowed.map(closed_bytes).sum::<usize>();
    let lists = networks + allowed + closed.sum::<usize>() + rules.sum::<usize>();
    size_of::<Public>() + members.sum::<usize>() + lists
}

impl Listener {
    /// An aggregator answered over its link. Answers about records go to the courier instead.
    pub(crate) fn take_message(&mut self, index: usize, message: FromAggregator, now: Mono) {
        match message {
            FromAggregator::Welcome {
                nonce,
                instance,
                partitions,
                feeds,
                clock,
                members,
                limits,
            } => {
                if self.welcomed(index, nonce, instance, partitions, feeds, clock, now) {
                    self.meet(members);
                    self.want_outdated(index, limits);
                }
            }
            FromAggregator::Snapshot(snapshot) => self.take_part(index, snapshot, now),
            FromAggregator::Appended { .. } | FromAggregator::Refused { .. } => {}
        }
        self.ask_if_needed(index, now);
    }

    /// Processes a welcome. Returns whether it answers the open hello, of which there is one a second.
    #[allow(clippy::too_many_arguments, reason = "a welcome, taken apart")]
    fn welcomed(
        &mut self,
        index: usize,
        nonce: u64,
        instance: u128,
        partitions: u32,
        feeds: Vec<Box<str>>,
        clock: Span,
        now: Mono,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(index) else {
            return false;
        };
        let Some(open_hello) = peer.hello.filter(|hello| hello.nonce == nonce) else {
            return false;
        };
        Counters::add(&self.around.counters.welcomes, 1);
        peer.hello = None;
        peer.next_hello = open_hello.at.plus(super::HELLO_EVERY);
        let is_new = peer.instance != Some(instance);
        if is_new {
            peer.instance = Some(instance);
            // It is the clock of another process.
            peer.delay = super::delay::Delay::default();
        }
        peer.delay.round_trip(open_hello.at, clock);
        let moved = peer.feeds != feeds;
        peer.feeds = feeds;
        if is_new || moved {
            // The feed is opened below, with the others.
            peer.feed = FeedState::Unknown;
        }
        self.set_partitions(partitions);
        self.tick(now);
        true
    }

    /// Asks again for resources of which the agent knows older limits than those of this version, which has news; of those
    /// in an open ask, too, whose answer may have begun before. Of any other resource a snapshot is needed anyway.
    fn want_outdated(&mut self, index: usize, limits: u64) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(&mut peer.limits, limits);
        if limits <= before {
            return;
        }
        for resource in self.around.resources.all() {
            let is_asked = peer
                .ask
                .as_ref()
                .is_some_and(|ask| ask.resources.contains(&resource.id));
            let is_joined = peer.is_joined(TopicKey::Of(resource.id));
            if (is_joined || is_asked) && resource.public().version < limits {
                peer.wanted.insert(resource.id);
            }
        }
    }

    fn take_part(&mut self, index: usize, mut snapshot: Snapshot, now: Mono) {
        self.drop_unknown_partitions(&mut snapshot.watermarks);
        let Some((mut ask, late)) = self.ask_of(index, &snapshot, now) else {
            return;
        };
        let foreign = self.note_logs(&snapshot.watermarks, now);
        let below: HashMap<u32, LogPosition> = snapshot
            .watermarks
            .iter()
            .filter(|one| !foreign.contains(&one.partition))
            .map(|one| (one.partition, LogPosition::of_record(one.log, one.ruled)))
            .collect();
        let teaches = self.cached_limits.take(&snapshot.watermarks, &foreign);
        for topic in &snapshot.topics {
            let resource = self.around.resources.find(&topic.resource);
            let Some(resource) = resource.filter(|one| ask.resources.contains(&one.id)) else {
                continue;
            };
            if teaches {
                self.learn(&resource, &topic.public, now);
            }
            ask.sequences.insert(resource.id, topic.sequence);
            for notice in topic
                .statements
                .iter()
                .filter(|notice| !foreign.contains(&notice.partition))
            {
                // A snapshot from before what was received without a gap contains nothing new about open scopes. Any
                // other snapshot fills a gap, whatever the age of its statements.
                let ruled = self
                    .ledger
                    .ruled(TopicKey::Of(resource.id), notice.partition);
                let settled =
                    ruled.filter(|ruled| below.get(&notice.partition).is_none_or(|at| at < ruled));
                let listed = self.take_statement(index, &resource, notice, late, settled, now);
                // An answer that never ends must not take unbounded memory; scopes that are not remembered are open.
                if ask.listed.len() < LISTED_MAX {
                    ask.listed.extend(listed);
                }
            }
        }
        if !snapshot.more {
            Counters::add(&self.around.counters.snapshots, 1);
            self.end_unlisted(&ask, &below, now);
            self.join(index, &ask, &snapshot, late, now);
        } else if let Some(peer) = self.peers.get_mut(index) {
            peer.ask = Some(ask);
        }
    }

    /// Takes the request that a part answers; returns it, and the part's delay. `None` if the part answers no request, or
    /// if a part before it is missing.
    fn ask_of(&mut self, index: usize, part: &Snapshot, now: Mono) -> Option<(Ask, Span)> {
        let peer = self.peers.get_mut(index)?;
        let ask = peer.ask.as_ref()?;
        if ask.asked.nonce != part.nonce || peer.instance != Some(part.instance) {
            return None;
        }
        if ask.parts != part.part {
            // A part was lost on its way: the scopes in it would count as open.
            Counters::add(&self.around.counters.snapshots_torn, 1);
            peer.abandon_ask();
            peer.next_ask = now.plus(super::ASK_AGAIN);
            return None;
        }
        let mut ask = peer.ask.take()?;
        ask.last_part = now;
        ask.parts = ask.parts.saturating_add(1);
        peer.delay.round_trip(ask.asked.at, part.clock);
        let late = peer.delay.late(part.clock, now);
        Some((ask, late))
    }

    /// Applies a resource's public limits, unless those of all resources together would take too much memory.
    fn learn(&mut self, resource: &Resource, public: &Public, now: Mono) {
        let bytes = public_bytes(public);
        let before = self.learned.get(&resource.id).copied().unwrap_or(0);
        let all = self.learned_bytes - before + bytes;
        if PUBLIC_BYTES_MAX < all {
            return Counters::add(&self.around.counters.statements_ignored, 1);
        }
        self.learned.insert(resource.id, bytes);
        self.learned_bytes = all;
        let was_of_copies = resource.is_of_copies();
        if resource.learn(public) {
            self.around.resources.limits_changed();
            if resource.is_of_copies() && !was_of_copies {
                self.ledger.shorten(TopicKey::Of(resource.id), now);
            }
            self.near.void_resource(resource.id);
            self.deny.note_closed(resource, &public.closed);
        }
    }

    fn end_unlisted(&mut self, ask: &Ask, below: &HashMap<u32, LogPosition>, now: Mono) {
        for ended in self.deny.end_unlisted(&ask.resources, below, &ask.listed) {
            Counters::add(&self.around.counters.lifts_taken, 1);
            if let Some(resource) = self.resource(ended.resource) {
                let code = Code {
                    partition: ended.partition,
                    position: ended.position,
                };
                let name = (&*ended.domain, ended.is_group);
                self.call_back(&resource, name, code, Change::Opened, now);
            }
        }
    }

    /// All parts have arrived: topics continue from the sequences in it.
    fn join(&mut self, index: usize, ask: &Ask, snapshot: &Snapshot, late: Span, now: Mono) {
        let foreign = self.note_logs(&snapshot.watermarks, now);
        self.take_watermarks(&snapshot.watermarks, &foreign, late, now);
        let joined: Vec<Arc<Resource>> = ask
            .resources
            .iter()
            .filter_map(|id| self.resource(*id))
            .collect();
        for resource in joined {
            let key = TopicKey::Of(resource.id);
            let Some(peer) = self.peers.get_mut(index) else {
                return;
            };
            let Some(sequence) = ask.sequences.get(&resource.id) else {
                peer.leave_out(resource.id, now);
                continue;
            };
            peer.is_in(resource.id);
            // One whose answer is too old is asked for again.
            if peer.run(key).snapshot(*sequence) {
                peer.run(key).came(now);
                peer.has_stated(resource.id, &snapshot.watermarks);
                self.advance_topic(key, &snapshot.watermarks, &foreign, late, now);
                resource.set_joined();
            } else {
                peer.wanted.insert(resource.id);
                peer.next_ask = now.plus(super::ASK_AGAIN);
            }
        }
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if peer
            .run(TopicKey::Control)
            .snapshot(snapshot.control_sequence)
        {
            self.advance_topic(TopicKey::Control, &snapshot.watermarks, &foreign, late, now);
        } else {
            peer.next_ask = now.plus(super::ASK_AGAIN);
        }
    }
}
