//! Plays a recording against one limits file: calls are requests of an ideal in-line limiter.
//!
//! ```text
//! call ──► the resource's limits, the domain's class ──► the engine's rules ──► tallies
//! ```
//!
//! A resource in shadow mode, or whose namespace ignores limits, is ruled like any other: the question is
//! what the limits would do. The rules are the engine's own; this module only applies them to the calls.
//! What stays true: instants never fall within a resource; an earlier one is raised to the latest.

use std::io;

use tollgate_engine::engine::Count;
use tollgate_engine::inline::tier_counts;
use tollgate_engine::rules::open_again::{open_again, open_again_from};
use tollgate_engine::rules::request::LimitedBy;
use tollgate_engine::rules::{Stamps, State, Until, tiers, whole};
use tollgate_limits::{ClassId, Limits, RateClass, RateResource, Resource};
use tollgate_shared::time::Timestamp;

use super::answer::answer;
use super::moved::MovedEstimates;
use super::networks::{Networks, limited_as};
use super::pairs::Pairs;
use super::shared_limits::SharedLimits;
use super::states::States;
use super::tally::{Amount, PairTally, ResourceTally, TallyOutcome, Timeline, USE_STEPS};
use super::tape::{Call, CallKind, PlayOrder, Tape};

/// What limits a resource of the recording.
#[derive(Clone, Copy, Debug)]
enum RuledResource<'a> {
    /// These limits.
    Rate(&'a RateResource),
    /// No limit: it has no limits on rates, or is not configured in a namespace that lets such resources
    /// through.
    Nothing,
    /// It is not configured in a namespace that refuses such resources.
    Closed,
}

/// The result of one limits file for a recording.
#[derive(Debug)]
pub struct PlayedFile {
    /// By pair number.
    pub pairs: Vec<PairTally>,
    /// By resource number.
    pub resources: Vec<ResourceTally>,
    /// Hits over time.
    pub timeline: Timeline,
    /// Calls on resources that have no limits on rates.
    pub unlimited: u64,
}

/// Plays a whole tape; `progress` is called every `PROGRESS_CALLS` calls. Pairs are distributed over
/// `threads` threads, since only a global limit or a common network connects them.
///
/// # Errors
///
/// If the tape cannot be read.
pub fn play(
    tape: &Tape,
    pairs: &Pairs,
    limits: &Limits,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<PlayedFile> {
    // As recorded, a call's instant depends on earlier calls of other pairs.
    let of = match tape.order() {
        PlayOrder::Stamps => threads.max(1),
        PlayOrder::Recorded => 1,
    };
    let shards: Vec<Shard> = (0..of).map(|number| Shard { number, of }).collect();
    let played = std::thread::scope(|scope| {
        let threads: Vec<_> = shards
            .iter()
            .map(|shard| scope.spawn(|| play_shard(tape, pairs, limits, *shard, progress)))
            .collect();
        // A panic of one thread is passed on.
        let joined = threads.into_iter().map(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<io::Result<Vec<PlayedFile>>>()
    })?;
    let mut played = played.into_iter();
    let first = played.next();
    let first = first.ok_or_else(|| io::Error::other("no thread played"))?;
    Ok(played.fold(first, PlayedFile::and))
}

/// One of several parts of all pairs.
#[derive(Clone, Copy, Debug)]
struct Shard {
    number: usize,
    of: usize,
}

fn play_shard(
    tape: &Tape,
    pairs: &Pairs,
    limits: &Limits,
    shard: Shard,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<PlayedFile> {
    let mut player = Player::new(pairs, limits);
    let mut timeline = Timeline::new(tape.extent().first, tape.played_until());
    let mut calls = 0u64;
    tape.play(&mut |call| {
        calls += 1;
        if shard.number == 0 && calls.is_multiple_of(PROGRESS_CALLS) {
            progress(PROGRESS_CALLS);
        }
        if player.is_of(shard, call.pair) {
            let outcome = player.call(call);
            timeline.count(call.at, &outcome);
        }
    })?;
    Ok(PlayedFile {
        pairs: player.slots.into_iter().map(|slot| slot.tally).collect(),
        resources: player.resource_tallies,
        timeline,
        unlimited: player.unlimited,
    })
}

impl PlayedFile {
    /// Merges the result of another part of the pairs.
    fn and(mut self, other: Self) -> Self {
        for (here, there) in self.pairs.iter_mut().zip(other.pairs) {
            // Each pair is played in one part only.
            if 0 < there.asked.hits {
                *here = there;
            }
        }
        for (here, there) in self.resources.iter_mut().zip(&other.resources) {
            here.add(there);
        }
        self.timeline.add(&other.timeline);
        self.unlimited += other.unlimited;
        self
    }
}

/// How many calls lie between two calls of `progress`.
const PROGRESS_CALLS: u64 = 1 << 16;

/// One limits file that is being played.
pub struct Player<'a> {
    limits: &'a Limits,
    ruled: Vec<RuledResource<'a>>,
    /// By resource number: granted hits of all domains, where that is limited.
    seconds: Vec<Stamps>,
    /// By resource number: the latest instant.
    latest: Vec<Timestamp>,
    /// By pair number.
    slots: Vec<PairSlot>,
    networks: Networks,
    shared: SharedLimits,
    states: States,
    resource_tallies: Vec<ResourceTally>,
    moved: MovedEstimates,
    unlimited: u64,
    /// Whether a resource has a global limit.
    has_global: bool,
}

/// What a call needs to know of its pair, in one place: with a million pairs each place costs a cache miss.
struct PairSlot {
    resource: u32,
    /// The pair whose state it uses: see [`Networks`].
    lead: u32,
    /// Meaningful only if the resource is ruled.
    class: ClassId,
    tally: PairTally,
}

impl<'a> Player<'a> {
    /// A player before its first call.
    pub fn new(pairs: &Pairs, limits: &'a Limits) -> Self {
        let mut player = Self {
            limits,
            ruled: Vec::new(),
            seconds: Vec::new(),
            latest: Vec::new(),
            slots: Vec::new(),
            networks: Networks::default(),
            shared: SharedLimits::default(),
            states: States::new(0),
            resource_tallies: Vec::new(),
            moved: MovedEstimates::default(),
            unlimited: 0,
            has_global: false,
        };
        player.grow(pairs);
        player
    }

    /// Adds new pairs; known pairs keep their state.
    pub fn grow(&mut self, pairs: &Pairs) {
        let limits = self.limits;
        let of_resource = |name: &str| match limits.resource(name) {
            Some(Resource::Rate(rate)) => RuledResource::Rate(rate),
            Some(Resource::Copies(_)) => RuledResource::Nothing,
            None if limits.namespace_of(name).allow_unconfigured => RuledResource::Nothing,
            None => RuledResource::Closed,
        };
        let known = self.ruled.len();
        self.ruled
            .extend(pairs.resources().skip(known).map(of_resource));
        let resources = self.ruled.len();
        self.seconds.resize_with(resources, Stamps::new);
        self.latest.resize(resources, Timestamp::ZERO);
        self.resource_tallies
            .resize_with(resources, ResourceTally::new);
        self.has_global = self
            .ruled
            .iter()
            .any(|ruled| matches!(ruled, RuledResource::Rate(rate) if rate.global().is_some()));
        for number in self.slots.len()..pairs.all().len() {
            let number = number as u32;
            let resource = pairs.pair(number).resource;
            let class = match self.ruled[resource as usize] {
                RuledResource::Rate(rate) => {
                    rate.class_of(&limited_as(rate, pairs.names(number).1))
                }
                RuledResource::Nothing | RuledResource::Closed => ClassId(0),
            };
            self.slots.push(PairSlot {
                resource,
                lead: self.networks.lead(pairs, number, limits),
                class,
                tally: PairTally::default(),
            });
        }
        self.states.grow(self.slots.len());
    }

    /// How many pairs it knows.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A pair's results so far.
    pub fn tally(&self, pair: u32) -> &PairTally {
        &self.slots[pair as usize].tally
    }

    /// Whether a part has this pair: pairs under one global limit, and those of one network, stay together.
    fn is_of(&self, shard: Shard, pair: u32) -> bool {
        if shard.of == 1 {
            return true;
        }
        let slot = &self.slots[pair as usize];
        let number = match self.has_global {
            false => slot.lead,
            true => match self.ruled[slot.resource as usize] {
                RuledResource::Rate(rate) if rate.global().is_some() => slot.resource,
                _ => slot.lead,
            },
        };
        number as usize % shard.of == shard.number
    }

    /// The state of a pair; `None` if the pair has none that matters.
    pub fn state(&self, pair: u32) -> Option<&State> {
        self.states.get(self.slots[pair as usize].lead)
    }

    /// Rules the next call.
    pub fn call(&mut self, call: &Call) -> TallyOutcome {
        let resource = self.slots[call.pair as usize].resource as usize;
        let now = self.latest[resource].max(call.at);
        self.latest[resource] = now;
        let asked = Amount {
            calls: call.calls(),
            hits: match call.kind {
                CallKind::Refund { .. } => 0,
                _ => u64::from(call.copies),
            },
        };
        let mut outcome = TallyOutcome {
            at: now,
            asked,
            granted: asked,
            limited_by: None,
            was_refused: call.kind == CallKind::Refused,
            used: None,
            opens: Timestamp::MAX,
            full_since: now,
        };
        match self.ruled[resource] {
            RuledResource::Nothing => self.unlimited += asked.calls,
            RuledResource::Closed if call.kind == CallKind::Charge => {}
            RuledResource::Closed => outcome.granted = Amount::default(),
            RuledResource::Rate(rate) => self.rule(rate, call, &mut outcome),
        }
        self.slots[call.pair as usize].tally.count(&outcome);
        self.resource_tallies[resource].count(&outcome);
        outcome
    }

    fn rule(&mut self, rate: &RateResource, call: &Call, outcome: &mut TallyOutcome) {
        let slot = &self.slots[call.pair as usize];
        let (class, resource) = (self.limits.class(slot.class), slot.resource as usize);
        let (now, second) = (outcome.at, &mut self.seconds[resource]);
        let (limits, latest) = (self.limits, &self.latest);
        let slots = &self.slots;
        self.states.sweep(|pair| {
            let slot = &slots[pair as usize];
            (limits.class(slot.class), latest[slot.resource as usize])
        });
        let state = self.states.of(slot.lead, class);
        let moved = (call, &mut self.moved);
        let answer = answer(class, state, (rate.global(), &mut *second), now, moved);
        outcome.granted = Amount {
            calls: call.granted_calls(answer.hits),
            hits: answer.hits,
        };
        outcome.limited_by = answer.limited_by;
        let is_refused = 0 < outcome.refused_calls();
        if is_refused {
            outcome.opens = opens(class, state, (rate.global(), second), now);
        }
        // A call that the global limit refuses uses up no limit of its domain.
        let steps = match is_refused && answer.limited_by != Some(LimitedBy::Global) {
            true => USE_STEPS as u16,
            false => used(class, state, now),
        };
        outcome.used = Some(steps);
        if let Some(limit) = rate.global() {
            let opens = whole::open_again(limit, second, now);
            outcome.full_since = self.shared.global(slot.resource, now, opens);
        }
        let is_full = is_refused || steps == USE_STEPS as u16;
        if rate.addresses().is_some() && is_full {
            let opens = open_again(class, state, now);
            let full_since = self.shared.network(slot.lead, now, opens);
            outcome.full_since = outcome.full_since.min(full_since);
        }
    }
}

/// When one hit would be granted after a refused call. A call for more than there was room may be refused although one
/// hit has room: when it would be granted is not known.
fn opens(
    class: &RateClass,
    state: &State,
    (global, second): (Option<u64>, &Stamps),
    now: Timestamp,
) -> Timestamp {
    let instant = |until| match until {
        Until::Now => now,
        Until::At(opens) => opens,
        Until::Never => Timestamp::MAX,
    };
    let others = global.map_or(now, |limit| instant(whole::open_again(limit, second, now)));
    match open_again_from(class, state, now, others) {
        Until::Now => Timestamp::MAX,
        until => instant(until),
    }
}

/// How full a pair's limits are: the current tier's window, or any other constraint that is fuller.
fn used(class: &RateClass, state: &State, now: Timestamp) -> u16 {
    let (limit, hits) = tier_counts(class, state, tiers::current(class, state, now), now);
    let of_tier = match class.tiers {
        Some(_) => steps(hits, limit),
        None => 0,
    };
    let counts = Count::of(class, state, now);
    let counts = counts.iter().map(|count| steps(count.counted, count.limit));
    let bucket = class.bucket.iter().zip(state.bucket.iter());
    let bucket = bucket.map(|(bucket, level)| {
        let left = level.room(bucket, now);
        steps(bucket.burst.saturating_sub(left), bucket.burst)
    });
    counts.chain(bucket).fold(of_tier, u16::max)
}

fn steps(hits: u64, limit: u64) -> u16 {
    match limit {
        0 => USE_STEPS as u16,
        limit => (hits.saturating_mul(USE_STEPS as u64) / limit).min(USE_STEPS as u64) as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays entries of one pair, each at its second, and returns the hits that were granted, and the pair's tally.
    fn played(limits: &str, entries: &[(u64, u32, CallKind)]) -> (Vec<u64>, PairTally) {
        let limits = Limits::parse(limits).expect("good");
        let mut pairs = Pairs::default();
        let pair = pairs.number_of("r", "d");
        let mut player = Player::new(&pairs, &limits);
        let play = |(at, copies, kind): &(u64, u32, CallKind)| {
            let outcome = player.call(&Call {
                at: Timestamp::from_millis(at * 1_000),
                pair,
                copies: *copies,
                min: *copies,
                kind: *kind,
            });
            outcome.granted.hits
        };
        let granted = entries.iter().map(play).collect();
        (granted, *player.tally(pair))
    }

    fn granted(limits: &str, entries: &[(u64, u32, CallKind)]) -> Vec<u64> {
        played(limits, entries).0
    }

    const fn estimate(at: u64) -> CallKind {
        CallKind::Estimate {
            stamp: Timestamp::from_millis(at * 1_000),
        }
    }

    /// Of the estimate of that second.
    const fn refund(made: u64, actual: u32) -> CallKind {
        CallKind::Refund {
            stamp: Timestamp::from_millis(made * 1_000),
            actual,
        }
    }

    #[test]
    fn an_estimate_counts_by_its_actual_cost_once_it_is_settled() {
        use CallKind::{Charge, LetThrough};
        let ten = "[rate.r]\nrate = \"10/m\"\n";
        // Eight were estimated, one was used: nine more have room, and a tenth has not.
        let settled = [
            (0, 8, estimate(0)),
            (1, 3, LetThrough),
            (2, 7, refund(0, 1)),
            (3, 9, LetThrough),
            (4, 1, LetThrough),
        ];
        assert_eq!(granted(ten, &settled), [8, 0, 0, 9, 0]);
        // One was estimated, twenty were used: that has been spent, so nothing is let through before a minute is over.
        let charged = [
            (0, 1, estimate(0)),
            (1, 19, Charge),
            (2, 1, LetThrough),
            (62, 10, LetThrough),
        ];
        assert_eq!(granted(ten, &charged), [1, 19, 0, 10]);
        // An estimate that is refused here was never charged, so nothing is given back.
        let refused = [
            (0, 6, LetThrough),
            (1, 8, estimate(1)),
            (2, 7, refund(1, 1)),
            (3, 5, LetThrough),
            (4, 4, LetThrough),
        ];
        assert_eq!(granted(ten, &refused), [6, 0, 0, 0, 4]);
        // The agent's clock is fast, so that its estimate was counted before its stamp.
        let fast = [
            (0, 8, estimate(1_000)),
            (2, 7, refund(1_000, 1)),
            (3, 9, LetThrough),
        ];
        assert_eq!(granted(ten, &fast), [8, 0, 9]);
        // Such limits give nothing back.
        let kept = "[rate.r]\nrate = \"10/m\"\nrefunds = false\n";
        assert_eq!(granted(kept, &settled), [8, 0, 0, 0, 1]);
    }

    #[test]
    fn settlements_are_no_calls() {
        let entries = [estimate(1), CallKind::Charge, refund(1, 1)].map(|kind| (1, 4, kind));
        let (_, tally) = played("[rate.r]\nrate = \"10/m\"\n", &entries);
        assert_eq!((tally.asked.calls, tally.granted.calls), (1, 1));
        assert_eq!((tally.asked.hits, tally.granted.hits), (8, 8));
        assert_eq!(tally.refused(), 0);
    }

    #[test]
    fn a_global_limit_uses_up_no_limit_of_a_domain() {
        let limits = "[rate.r]\nrate = \"100/s\"\nglobal = \"1/s\"\n";
        let calls = [(0, 1, CallKind::LetThrough); 2];
        let (granted, tally) = played(limits, &calls);
        assert_eq!((granted, tally.refused()), (vec![1, 0], 1));
        assert_eq!(tally.used_max, steps(1, 100));
    }
}
