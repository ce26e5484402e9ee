//! Giving: what is in force goes to the agents that ask for it, a part a turn.
//!
//! ```text
//! ask        the point of the feed is taken, and the ask queues
//! turn       the first in the queue is given one part; it queues again while more is left
//! ```
//!
//! So neither a million denials nor a thousand agents that come back at once hold up the rulings for
//! longer than one part takes. An agent that does not take its parts is passed over until it does, so that
//! what waits for it does not grow. Knows nothing of sockets.
//!
//! What stays true: one ask of an agent waits at most, its newest; no part is made for an agent that is full; every part of an answer names the
//! point of the feed that was taken when it was asked, and has its number; of a partition that was let go
//! meanwhile it does not say how far that was ruled, since what is in force there is not listed any more.

use std::collections::{HashSet, VecDeque};

use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::{GROUPS_BYTES_MAX, Public};

use super::Core;
use super::announce::{Point, TOLD_MAX};
use super::event::{Now, Peer, Room};
use super::live::At;

/// Agents that may wait for a snapshot. Those beyond are not answered; they ask again.
const WAITING_MAX: usize = 16_384;

/// As many statements take the room of what else a part says of a resource.
const TOPIC_TOLD: usize = 15;

/// An ask that is being answered.
#[derive(Debug)]
struct Giving {
    peer: Peer,
    nonce: u64,
    resources: Vec<Box<str>>,
    point: Point,
    /// How many parts have been given.
    parts: u32,
    /// The resource that the next part begins with, and the scope in it that was given last.
    next: usize,
    after: Option<At>,
}

/// The asks that are being answered, the next one first.
#[derive(Debug, Default)]
pub(super) struct Desk {
    waiting: VecDeque<Giving>,
    /// The agents that do not take their parts: as many as are connected, at most.
    full: HashSet<Peer>,
}

impl Desk {
    /// Whether a part can be made for somebody.
    pub(super) fn has_work(&self) -> bool {
        self.waiting
            .iter()
            .any(|giving| !self.full.contains(&giving.peer))
    }

    /// The next ask of which a part can be made.
    fn next(&mut self) -> Option<Giving> {
        for _ in 0..self.waiting.len() {
            let giving = self.waiting.pop_front()?;
            if !self.full.contains(&giving.peer) {
                return Some(giving);
            }
            self.waiting.push_back(giving);
        }
        None
    }

    fn room(&mut self, peer: Peer, room: Room) {
        match room {
            Room::Full => drop(self.full.insert(peer)),
            Room::Free => drop(self.full.remove(&peer)),
            Room::Gone => {
                self.full.remove(&peer);
                self.waiting.retain(|giving| giving.peer != peer);
            }
        }
    }
}

impl Core {
    pub(super) fn snapshot_asked(
        &mut self,
        now: Now,
        peer: Peer,
        nonce: u64,
        resources: Vec<Box<str>>,
    ) {
        let ready = self.ready(now.clock);
        // What was ruled in this turn is told first, so that the sequences that the snapshot names
        // continue with frames of later turns.
        self.announcer
            .publish_pending(now.clock, &ready, &mut self.effects);
        let giving = Giving {
            point: self.announcer.point(&ready, &resources),
            peer,
            nonce,
            resources,
            parts: 0,
            next: 0,
            after: None,
        };
        let waiting = &mut self.givings.waiting;
        if let Some(before) = waiting.iter_mut().find(|one| one.peer == giving.peer) {
            *before = giving;
        } else if waiting.len() < WAITING_MAX {
            waiting.push_back(giving);
        } else {
            self.counters.asks_dropped += 1;
        }
    }

    /// Whether an agent's connection takes answers. Nothing follows from it at once.
    pub fn room(&mut self, peer: Peer, room: Room) {
        self.givings.room(peer, room);
    }

    pub(super) fn give_part(&mut self, now: Now) {
        let Some(mut giving) = self.givings.next() else {
            return;
        };
        let part = self.next_part(now, &mut giving);
        let is_last = !part.more;
        self.answer(giving.peer.clone(), &FromAggregator::Snapshot(part));
        if is_last {
            self.counters.snapshots += 1;
        } else {
            self.givings.waiting.push_back(giving);
        }
    }

    fn next_part(&self, now: Now, giving: &mut Giving) -> Snapshot {
        let ready = self.ready(now.clock);
        // Else an agent would take all that it knows of such a partition for open.
        giving.point.evidence.retain(|then| {
            let now = ready.get(&then.partition).map(|ready| ready.evidence);
            now.is_some_and(|now| now.log == then.log && then.ruled <= now.ruled)
        });
        let latest = self.limits.book.latest();
        let public = |resource: &str| match latest {
            Some(version) => version.limits.public(resource, version.number),
            None => Public::default(),
        };
        let mut topics = Vec::new();
        let mut room = TOLD_MAX;
        while TOPIC_TOLD < room {
            let Some(resource) = giving.resources.get(giving.next) else {
                break;
            };
            let public = public(resource);
            let weight = TOPIC_TOLD + groups_told(&public);
            if room <= weight && !topics.is_empty() {
                break;
            }
            let after = giving.after.take();
            let (told, more) = self.announcer.slice(
                resource,
                after.as_ref(),
                room.saturating_sub(weight).max(1),
                &ready,
            );
            room = room.saturating_sub(told.len() + weight);
            topics.push(TopicSnapshot {
                resource: resource.clone(),
                sequence: giving
                    .point
                    .sequences
                    .get(giving.next)
                    .copied()
                    .unwrap_or(0),
                public,
                told,
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
            evidence: giving.point.evidence.clone(),
            control_sequence: giving.point.control_sequence,
            topics,
        }
    }
}

/// As many statements take the room of the groups that public limits tell.
fn groups_told(public: &Public) -> usize {
    /// Below what a statement may take.
    const TOLD_BYTES: usize = 400;
    const HEADS: usize = 32;
    let groups = public.copies.iter().flat_map(|copies| &copies.groups);
    let bytes: usize = groups
        .map(|group| {
            let members = group.members.iter().flatten();
            let members: usize = members.map(|name| name.len() + 3).sum();
            group.name.len() + HEADS + members
        })
        .sum();
    bytes.div_ceil(TOLD_BYTES)
}

// However many groups a resource has, it fits a part.
const _: () = assert!(TOPIC_TOLD + GROUPS_BYTES_MAX.div_ceil(400) < TOLD_MAX);
