//! Holds in memory: found by id, and listed by agent and by start.
//!
//! ```text
//! 52 bytes   id, domain, set of groups, copies, start, and five links:
//!            the chain of its bucket; before and behind it among its agent's holds;
//!            before and behind it among the holds of the same half second
//! ```
//!
//! A hold of a gone agent is *lost*: it stays here but is counted nowhere, so that an agent that
//! was only cut off gets it back under the groups that it was taken under. Knows nothing of counts.
//! What stays true: a hold is in exactly one bucket, one agent's list and one half second's list.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;

use super::agents::Agents;
use super::effects::{AgentIx, HoldId};
use super::table::{Chained, NIL, Table};

/// Holds that started within the same 2^19 µs (524 ms) share a list. That is about one tick, so a
/// tick looks at hardly any hold that is not old enough yet, and an hour of holds needs 7,000
/// lists.
const AGE_SHIFT: u32 = 19;

/// Numbers of sets have 29 bits; the other bits are flags of the hold.
const SET_BITS: u32 = 29;
const STRICT: u32 = 1 << 31;
const SEIZED: u32 = 1 << 30;
const LISTED: u32 = 1 << 29;
/// A domain's slot has 31 bits; this is the remaining one.
const LOST: u32 = 1 << 31;

/// The facts about a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldFacts {
    pub(super) id: HoldId,
    pub(super) domain: u32,
    pub(super) set: u32,
    pub(super) copies: u32,
    pub(super) start: Timestamp,
    pub(super) flags: Flags,
}

/// Flags of a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Granted before use, by `reserve`.
    pub(super) strict: bool,
    /// Claimed from a transfer.
    pub(super) seized: bool,
    /// Its agent is gone.
    pub(super) lost: bool,
}

impl Flags {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.strict) | u8::from(self.seized) << 1 | u8::from(self.lost) << 2
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        (bits < 8).then_some(Self {
            strict: bits & 1 != 0,
            seized: bits & 2 != 0,
            lost: bits & 4 != 0,
        })
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Hold {
    // The fields that a walk along a chain reads are adjacent: mostly one cache line.
    number: [u32; 2],
    agent: u32,
    chain: u32,
    domain_and_lost: u32,
    set_and_flags: u32,
    copies: u32,
    start: [u32; 2],
    of_agent: Links,
    of_age: Links,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    behind: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Holds {
    table: Table<Hold>,
    /// The first hold of each half second.
    ages: BTreeMap<u64, u32>,
}

impl Hold {
    fn number(&self) -> u64 {
        join(self.number)
    }

    fn start(&self) -> Timestamp {
        Timestamp::from_micros(join(self.start))
    }

    fn age_bucket(&self) -> u64 {
        join(self.start) >> AGE_SHIFT
    }
}

impl Chained for Hold {
    fn chain(&self) -> u32 {
        self.chain
    }
    fn set_chain(&mut self, next: u32) {
        self.chain = next;
    }
    fn hash(&self) -> u32 {
        hash(self.agent, self.number())
    }
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            ages: BTreeMap::new(),
        }
    }

    /// A copy of the present state; it shares the memory of holds.
    pub(super) fn freeze(&mut self) -> Self {
        Self {
            table: self.table.freeze(),
            ages: self.ages.clone(),
        }
    }

    /// Number of live and lost holds.
    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }

    #[inline]
    pub(super) fn find(&self, id: HoldId) -> Option<u32> {
        let number = split(id.number);
        self.table.find(hash(id.agent.0, id.number), |hold| {
            hold.number == number && hold.agent == id.agent.0
        })
    }

    #[inline]
    pub(super) fn facts(&self, slot: u32) -> HoldFacts {
        let hold = self.table.at(slot);
        HoldFacts {
            id: HoldId {
                agent: AgentIx(hold.agent),
                number: hold.number(),
            },
            domain: hold.domain_and_lost & !LOST,
            set: hold.set_and_flags & ((1 << SET_BITS) - 1),
            copies: hold.copies,
            start: hold.start(),
            flags: Flags {
                strict: hold.set_and_flags & STRICT != 0,
                seized: hold.set_and_flags & SEIZED != 0,
                lost: hold.domain_and_lost & LOST != 0,
            },
        }
    }

    /// The hash by which a hold is found.
    #[inline]
    pub(super) fn hash_of(&self, id: HoldId) -> u32 {
        hash(id.agent.0, id.number)
    }

    /// The first slot of the chain for this hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> u32 {
        self.table.first(hash)
    }

    /// Reads a hold into the cache.
    #[inline]
    pub(super) fn touch(&self, slot: u32) -> u32 {
        let hold = self.table.at(slot);
        hold.chain ^ hold.of_age.behind
    }

    /// Reads the neighbours that removing this hold will change.
    pub(super) fn read_neighbours(&self, slot: u32) -> u32 {
        let hold = self.table.at(slot);
        let neighbours = [hold.of_agent, hold.of_age];
        let slots = neighbours.into_iter().flat_map(|of| [of.before, of.behind]);
        let near = slots.filter(|slot| *slot != NIL);
        near.fold(0, |sum, slot| sum ^ self.table.at(slot).of_age.before)
    }

    /// Adds a hold whose id is not here yet.
    pub(super) fn insert(&mut self, facts: &HoldFacts, agents: &mut Agents) -> u32 {
        let head = agents.get(facts.id.agent).map_or(NIL, |agent| agent.head);
        let bucket = facts.start.as_micros() >> AGE_SHIFT;
        let first_of_age = self.ages.entry(bucket).or_insert(NIL);
        let same_age = *first_of_age;
        let slot = self.table.insert(Hold {
            number: split(facts.id.number),
            start: split(facts.start.as_micros()),
            agent: facts.id.agent.0,
            domain_and_lost: facts.domain | if facts.flags.lost { LOST } else { 0 },
            set_and_flags: facts.set
                | if facts.flags.strict { STRICT } else { 0 }
                | if facts.flags.seized { SEIZED } else { 0 },
            copies: facts.copies,
            chain: NIL,
            of_agent: Links::first(head),
            of_age: Links::first(same_age),
        });
        *first_of_age = slot;
        if head != NIL {
            self.table.at_mut(head).of_agent.before = slot;
        }
        if same_age != NIL {
            self.table.at_mut(same_age).of_age.before = slot;
        }
        if let Some(agent) = agents.get_mut(facts.id.agent) {
            agent.head = slot;
        }
        slot
    }

    /// Removes a hold.
    pub(super) fn remove(&mut self, slot: u32, agents: &mut Agents) {
        let hold = self.table.at(slot);
        let (agent, bucket) = (AgentIx(hold.agent), hold.age_bucket());
        let (of_agent, of_age) = (hold.of_agent, hold.of_age);
        if of_agent.before != NIL {
            self.table.at_mut(of_agent.before).of_agent.behind = of_agent.behind;
        } else if let Some(agent) = agents.get_mut(agent) {
            agent.head = of_agent.behind;
        }
        if of_agent.behind != NIL {
            self.table.at_mut(of_agent.behind).of_agent.before = of_agent.before;
        }
        if of_age.before != NIL {
            self.table.at_mut(of_age.before).of_age.behind = of_age.behind;
        } else if of_age.behind != NIL {
            self.ages.insert(bucket, of_age.behind);
        } else {
            self.ages.remove(&bucket);
        }
        if of_age.behind != NIL {
            self.table.at_mut(of_age.behind).of_age.before = of_age.before;
        }
        self.table.remove(slot);
    }

    #[inline]
    pub(super) fn set_copies(&mut self, slot: u32, copies: u32) {
        self.table.at_mut(slot).copies = copies;
    }

    pub(super) fn set_lost(&mut self, slot: u32, lost: bool) {
        let hold = self.table.at_mut(slot);
        hold.domain_and_lost = hold.domain_and_lost & !LOST | if lost { LOST } else { 0 };
    }

    /// Whether the heartbeat that is being applied listed the hold.
    pub(super) fn listed(&self, slot: u32) -> bool {
        self.table.at(slot).set_and_flags & LISTED != 0
    }

    pub(super) fn set_listed(&mut self, slot: u32, listed: bool) {
        let hold = self.table.at_mut(slot);
        hold.set_and_flags = hold.set_and_flags & !LISTED | if listed { LISTED } else { 0 };
    }

    /// An agent's holds from its first one on, in arbitrary order.
    pub(super) fn of_agent(&self, head: u32) -> impl Iterator<Item = u32> {
        self.walk(head, |hold| hold.of_agent.behind)
    }

    /// Holds that started at or before `last`, by half second; in arbitrary order within one.
    pub(super) fn up_to(&self, last: Timestamp) -> impl Iterator<Item = u32> {
        let buckets = self.ages.range(..=last.as_micros() >> AGE_SHIFT);
        buckets
            .flat_map(|(_, &head)| self.walk(head, |hold| hold.of_age.behind))
            .filter(move |&slot| self.table.at(slot).start() <= last)
    }

    /// Lists of holds of the same half second, the oldest first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = impl Iterator<Item = u32>> {
        self.by_age_from(Timestamp::ZERO)
    }

    /// The same, from the half second of an instant on.
    pub(super) fn by_age_from(
        &self,
        from: Timestamp,
    ) -> impl Iterator<Item = impl Iterator<Item = u32>> {
        let lists = self.ages.range(from.as_micros() >> AGE_SHIFT..);
        lists.map(|(_, &head)| self.walk(head, |hold| hold.of_age.behind))
    }

    /// When a hold was taken.
    pub(super) fn start(&self, slot: u32) -> Timestamp {
        self.table.at(slot).start()
    }

    fn walk(&self, head: u32, behind: fn(&Hold) -> u32) -> impl Iterator<Item = u32> {
        let mut slot = head;
        std::iter::from_fn(move || {
            let found = slot;
            if found == NIL {
                return None;
            }
            slot = behind(self.table.at(found));
            Some(found)
        })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        // A map's node has room for 11 entries and is at least half full.
        self.table.heap_bytes() + self.ages.len() * 2 * size_of::<(u64, u32)>()
    }
}

impl Links {
    fn first(behind: u32) -> Self {
        Self {
            before: NIL,
            behind,
        }
    }
}

/// Numbers rise by one and agents are numbered from zero, so both are spread over all bits.
#[inline]
fn hash(agent: u32, number: u64) -> u32 {
    let mixed = (number ^ u64::from(agent) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32 ^ u64::from(agent)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u32
}

fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn join(halves: [u32; 2]) -> u64 {
    u64::from(halves[0]) | u64::from(halves[1]) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_takes_fifty_two_bytes() {
        assert_eq!(size_of::<Hold>(), 52);
    }

    #[test]
    fn numbers_of_many_agents_spread_evenly() {
        let mut buckets = vec![0u32; 1 << 12];
        for agent in 0..64 {
            for number in 0..64 {
                buckets[hash(agent, number) as usize & 0xfff] += 1;
            }
        }
        let longest = buckets.iter().max().copied().unwrap_or_default();
        // With 4,096 keys thrown into 4,096 buckets at random, more than 10 in one bucket occurs
        // once in 4,000 tries.
        assert!(longest <= 10, "{longest}");
    }
}
