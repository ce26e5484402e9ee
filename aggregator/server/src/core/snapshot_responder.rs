//! Snapshots for agents: an agent that asks is sent what is in force, one part per turn.
//!
//! ```text
//! query      the point of the feed is taken, and the query is queued
//! turn       the first query in the queue is answered with one part; it stays the first while more is left
//! ```
//!
//! So neither a million denials nor a thousand agents that return at once delay the rulings for longer
//! than one part takes. Each answer is given to its end: agents ask anew if a part does not come for some seconds, so
//! that parts by turns would end no answer of a large fleet. An agent that does not take its parts is passed over until it
//! does, so that what waits for it does not grow. Knows nothing of sockets.
//!
//! What stays true: at most one query of an agent waits, its newest; no part is made for an agent whose
//! connection is full; every part of an answer carries its number and the point of the feed at which the query
//! arrived. Of a partition that was revoked or restarted meanwhile, the later parts state no watermark, since
//! what is in force there is not listed any more.

use std::collections::{HashMap, VecDeque};

use tollgate_shared::descriptors::DescriptorRule;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::{
    CLOSED_BYTES_MAX, GROUPS_BYTES_MAX, Kind, NETWORKS_MAX, Public, PublicAllowed, PublicNetworks,
};

use super::announce::{Announcer, Point, STATEMENTS_MAX};
use super::environment::Environment;
use super::event::{AgentRoom, Now, Peer};
use super::limits_state::LimitsState;
use super::live::At;
use super::ready::ReadyPartitions;

/// Queries that may wait, and the bytes of the names in them. Beyond it the largest query is dropped; its agent asks
/// again.
const WAITING_MAX: usize = 16_384;
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The room that a resource's other fields take in a part, in statements.
const TOPIC_STATEMENTS: usize = 20;

/// A query that is being answered.
#[derive(Debug)]
struct SnapshotAnswer {
    peer: Peer,
    nonce: u64,
    resources: Vec<Box<str>>,
    point: Point,
    /// How many parts have been sent.
    parts: u32,
    /// The resource that the next part begins with, and the last scope of it that was sent.
    next: usize,
    after: Option<At>,
}

impl SnapshotAnswer {
    /// The memory that it takes, approximately.
    fn bytes(&self) -> usize {
        let names = self.resources.iter().map(|name| name.len() + 64);
        names.sum::<usize>() + self.point.watermarks.len() * 64
    }
}

/// The queries that are being answered.
#[derive(Debug, Default)]
pub(super) struct SnapshotResponder {
    /// In the order in which they are answered.
    waiting: VecDeque<SnapshotAnswer>,
    /// Agents that do not take their parts, at most one per connected agent, with their queries.
    full: HashMap<Peer, Option<SnapshotAnswer>>,
    bytes: usize,
    cache: PublicCache,
}

impl SnapshotResponder {
    /// Whether no part is to be made for any agent.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a query, which replaces an earlier one of its agent; returns how many were dropped for want of room.
    fn take(&mut self, giving: SnapshotAnswer) -> u64 {
        let unbegun = |one: &&mut SnapshotAnswer| one.peer == giving.peer && one.parts == 0;
        match self.waiting.iter_mut().find(unbegun) {
            // It keeps its place: behind all others it would be asked for again before its turn.
            Some(before) => {
                self.bytes += giving.bytes();
                self.bytes -= std::mem::replace(before, giving).bytes();
            }
            // One that has begun goes behind the others, or an agent that asks again and again would be the only one.
            None => {
                self.remove(&giving.peer);
                self.put(giving);
            }
        }
        let mut dropped = 0;
        while WAITING_MAX < self.waiting.len() || WAITING_BYTES_MAX < self.bytes {
            let full = self.full.values().flatten();
            let largest = self
                .waiting
                .iter()
                .chain(full)
                .max_by_key(|one| one.bytes());
            let Some(peer) = largest.map(|one| one.peer.clone()) else {
                break;
            };
            self.remove(&peer);
            dropped += 1;
        }
        dropped
    }

    fn put(&mut self, giving: SnapshotAnswer) {
        self.bytes += giving.bytes();
        match self.full.get_mut(&giving.peer) {
            Some(held) => *held = Some(giving),
            None if giving.parts == 0 => self.waiting.push_back(giving),
            None => self.waiting.push_front(giving),
        }
    }

    /// Removes the query of an agent.
    fn remove(&mut self, peer: &Peer) -> Option<SnapshotAnswer> {
        let held = self.full.get_mut(peer).and_then(Option::take);
        let giving = held.or_else(|| {
            let at = self.waiting.iter().position(|one| one.peer == *peer)?;
            self.waiting.remove(at)
        })?;
        self.bytes -= giving.bytes();
        Some(giving)
    }

    /// Takes the next query out of the queue.
    fn next(&mut self) -> Option<SnapshotAnswer> {
        let giving = self.waiting.pop_front()?;
        self.bytes -= giving.bytes();
        Some(giving)
    }

    /// Notes whether an agent's connection takes answers. Nothing is sent at once.
    pub(super) fn room(&mut self, peer: Peer, room: AgentRoom) {
        let giving = self.remove(&peer);
        match room {
            AgentRoom::Full => drop(self.full.insert(peer, None)),
            AgentRoom::Free | AgentRoom::Gone => drop(self.full.remove(&peer)),
        }
        if let Some(giving) = giving.filter(|_| room != AgentRoom::Gone) {
            self.put(giving);
        }
    }
}

impl SnapshotResponder {
    /// An agent asks what is in force: its query is queued with the current point of the feed.
    pub(super) fn asked(
        &mut self,
        peer: Peer,
        nonce: u64,
        resources: Vec<Box<str>>,
        point: Point,
        env: &mut Environment,
    ) {
        let giving = SnapshotAnswer {
            point,
            peer,
            nonce,
            resources,
            parts: 0,
            next: 0,
            after: None,
        };
        env.out.tally.counters.asks_dropped += self.take(giving);
    }

    /// Sends one part to the agent whose turn it is.
    pub(super) fn give_part(
        &mut self,
        now: Now,
        feed: (&Announcer, &ReadyPartitions),
        limits: &LimitsState,
        env: &mut Environment,
    ) {
        let Some(mut giving) = self.next() else {
            return;
        };
        let part = next_part(now, &mut giving, feed, limits, &mut self.cache);
        let is_last = !part.more;
        env.answer(giving.peer.clone(), &FromAggregator::Snapshot(part));
        if is_last {
            env.out.tally.counters.snapshots += 1;
        } else {
            self.put(giving);
        }
    }
}

/// What agents learn about resources, by resource: many agents ask for the same.
#[derive(Debug, Default)]
struct PublicCache {
    /// The version of the limits.
    version: u64,
    of: HashMap<Box<str>, Cached>,
    /// The room that all of them take, in statements.
    room: usize,
}

#[derive(Debug)]
struct Cached {
    public: Public,
    /// A ban ends then.
    until: Timestamp,
}

/// The room of all cached limits, in statements of 400 bytes.
const CACHED_MAX: usize = 40_000;

impl PublicCache {
    fn of(&mut self, limits: &LimitsState, resource: &str, log_now: Timestamp) -> Public {
        let version = limits.book.latest_number();
        if self.version != version || CACHED_MAX < self.room {
            *self = Self {
                version,
                ..Self::default()
            };
        }
        let cached = self.of.get(resource);
        if let Some(cached) = cached.filter(|cached| log_now < cached.until) {
            return cached.public.clone();
        }
        let public = public_of(limits, resource, log_now);
        let ends = public.networks.iter().filter_map(|one| one.banned_until);
        let cached = Cached {
            until: ends.min().unwrap_or(Timestamp::MAX),
            public: public.clone(),
        };
        self.room += 1 + lists_sent(&public);
        self.of.insert(resource.into(), cached);
        public
    }
}

/// What agents learn about a resource. Bans that have ended by log time are left out, whatever agents' clocks say.
fn public_of(limits: &LimitsState, resource: &str, log_now: Timestamp) -> Public {
    let Some(version) = limits.book.latest() else {
        return Public::default();
    };
    let public = version.limits.public(resource, version.number);
    let namespace = version.limits.namespace_of(resource);
    // While a namespace ignores limits, bans deny nobody there, whether the resource has limits or not.
    let are_denied = !public.ignored && !namespace.ignore_configured;
    let are_denied = are_denied && public.kind != Kind::Descriptors;
    let banned = limits.book.bans().networks_of(resource, log_now);
    let banned = banned.filter(|_| are_denied);
    Public {
        limits_of: match version.limits_of == version.number {
            true => 0,
            false => version.limits_of,
        },
        networks: PublicNetworks::of(public.networks.iter().copied().chain(banned)),
        ..public
    }
}

fn next_part(
    now: Now,
    giving: &mut SnapshotAnswer,
    (announcer, ready): (&Announcer, &ReadyPartitions),
    limits: &LimitsState,
    cache: &mut PublicCache,
) -> Snapshot {
    let log_now = ready.iter().map(|ready| ready.log_now).max();
    let log_now = log_now.unwrap_or(Timestamp::ZERO);
    // Otherwise an agent would take everything that it knows of such a partition for open.
    giving.point.watermarks.retain(|then| {
        let now = ready.get(then.partition).map(|ready| ready.watermark);
        now.is_some_and(|now| now.log == then.log && then.ruled <= now.ruled)
    });
    let mut topics = Vec::new();
    let mut room = STATEMENTS_MAX;
    while TOPIC_STATEMENTS < room {
        let Some(resource) = giving.resources.get(giving.next) else {
            break;
        };
        let public = cache.of(limits, resource, log_now);
        let weight = TOPIC_STATEMENTS + lists_sent(&public);
        if room <= weight && !topics.is_empty() {
            break;
        }
        let after = giving.after.take();
        let (notices, more) = announcer.slice(
            resource,
            after.as_ref(),
            room.saturating_sub(weight).max(1),
            ready,
        );
        room = room.saturating_sub(notices.len() + weight);
        topics.push(TopicSnapshot {
            resource: resource.clone(),
            sequence: giving
                .point
                .sequences
                .get(giving.next)
                .copied()
                .unwrap_or(0),
            public,
            statements: notices,
        });
        match more {
            Some(last) => {
                giving.after = Some(last);
                break;
            }
            None => giving.next += 1,
        }
    }
    let part = giving.parts;
    giving.parts += 1;
    Snapshot {
        nonce: giving.nonce,
        part,
        more: giving.next < giving.resources.len(),
        instance: giving.point.instance,
        clock: now.clock,
        watermarks: giving.point.watermarks.clone(),
        control_sequence: giving.point.control_sequence,
        topics,
    }
}

/// The room that the groups, closed domains, networks and descriptor rules of public limits take in a part, in statements.
fn lists_sent(public: &Public) -> usize {
    /// No more than what a statement may take.
    const STATEMENT_BYTES: usize = 400;
    const HEADS: usize = 48;
    /// The names of two fields, the network and the end of its ban.
    const NETWORK_BYTES: usize = 80;
    let groups = public.copies.iter().flat_map(|copies| &copies.groups);
    let bytes: usize = groups
        .map(|group| {
            let members = group.members.iter().flatten();
            let members: usize = members.map(|name| name.len() + 3).sum();
            group.name.len() + HEADS + members
        })
        .sum();
    let closed: usize = public.closed.iter().map(|name| name.len() + 3).sum();
    let networks = public.networks.iter().len() * NETWORK_BYTES;
    let rules = public
        .descriptors
        .iter()
        .map(DescriptorRule::announced_bytes);
    let allowed = { public.allowed.iter() }.flat_map(PublicAllowed::iter);
    let allowed: usize = allowed.map(|name| name.len() + 3).sum();
    (bytes + closed + allowed + networks + rules.sum::<usize>()).div_ceil(STATEMENT_BYTES)
}

// All groups of a resource, its closed domains, or all rules of a domain of descriptors, fit into one part, with its
// networks.
const _: () = assert!(
    TOPIC_STATEMENTS + (GROUPS_BYTES_MAX + 2 * CLOSED_BYTES_MAX + NETWORKS_MAX * 80).div_ceil(400)
        < STATEMENTS_MAX
);
const _: () = assert!(CLOSED_BYTES_MAX <= GROUPS_BYTES_MAX);
