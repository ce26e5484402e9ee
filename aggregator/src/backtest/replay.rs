//! Plays a recording against one limits file: calls are requests of an ideal in-line limiter.
//!
//! ```text
//! call ──► the resource's limits, the domain's class ──► the engine's rules ──► tallies
//! ```
//!
//! A resource that is in shadow mode, or whose namespace ignores limits, is ruled like any other: the
//! question is what the limits would do. The rules are the engine's own; here is only who is asked
//! what. What stays true: instants never fall within a resource; an earlier one is read as the latest.

use std::io;

use tollgate_engine::inline::{ask, tier_counts};
use tollgate_engine::limits::{ClassId, Limits, RateClass, RateResource, Resource};
use tollgate_engine::rules::request::Request;
use tollgate_engine::rules::{Stamps, State, second, tiers};
use tollgate_shared::time::Timestamp;

use super::pairs::Pairs;
use super::states::States;
use super::tally::{Amount, Outcome, PairTally, ResourceTally, Timeline, USE_STEPS};
use super::tape::{Call, Tape};

/// What limits a resource of the recording.
#[derive(Clone, Copy, Debug)]
enum Ruled<'a> {
    /// These.
    Rate(&'a RateResource),
    /// Nothing: it is not limited in rate, or not configured where that is let through.
    Nothing,
    /// It is not configured where that is refused.
    Closed,
}

/// What one limits file made of a recording.
#[derive(Debug)]
pub struct Played {
    /// By number of pair.
    pub pairs: Vec<PairTally>,
    /// By number of resource.
    pub resources: Vec<ResourceTally>,
    /// Over time.
    pub timeline: Timeline,
    /// Calls on resources that have no limits on rates.
    pub unlimited: u64,
}

/// Plays a whole tape; `progress` hears of every so many calls.
///
/// # Errors
///
/// Where the tape cannot be read.
pub fn play(
    tape: &Tape,
    pairs: &Pairs,
    limits: &Limits,
    progress: &(dyn Fn(u64) + Sync),
) -> io::Result<Played> {
    let extent = tape.extent();
    let mut player = Player::new(pairs, limits);
    let mut timeline = Timeline::new(extent.first, extent.last);
    let mut calls = 0u64;
    tape.play(&mut |call| {
        let outcome = player.call(call);
        timeline.count(call.at, &outcome);
        calls += 1;
        if calls.is_multiple_of(PROGRESS_CALLS) {
            progress(PROGRESS_CALLS);
        }
    })?;
    Ok(Played {
        pairs: player.tallies,
        resources: player.resource_tallies,
        timeline,
        unlimited: player.unlimited,
    })
}

/// How often progress is told.
const PROGRESS_CALLS: u64 = 1 << 16;

/// One limits file under way.
pub struct Player<'a> {
    pairs: &'a Pairs,
    limits: &'a Limits,
    ruled: Vec<Ruled<'a>>,
    /// By number of resource: granted hits of all domains, where that is limited.
    seconds: Vec<Stamps>,
    /// By number of resource: the latest instant.
    latest: Vec<Timestamp>,
    /// By number of pair; meaningful where the resource is ruled.
    classes: Vec<ClassId>,
    states: States,
    tallies: Vec<PairTally>,
    resource_tallies: Vec<ResourceTally>,
    unlimited: u64,
}

impl<'a> Player<'a> {
    /// Before the first call.
    pub fn new(pairs: &'a Pairs, limits: &'a Limits) -> Self {
        let of_resource = |name: &str| match limits.resource(name) {
            Some(Resource::Rate(rate)) => Ruled::Rate(rate),
            Some(Resource::Copies(_)) => Ruled::Nothing,
            None if limits.namespace_of(name).allow_unconfigured => Ruled::Nothing,
            None => Ruled::Closed,
        };
        let ruled: Vec<Ruled<'a>> = pairs.resources().map(of_resource).collect();
        let class_of = |number: usize| {
            let pair = pairs.all()[number];
            match ruled[pair.resource as usize] {
                Ruled::Rate(rate) => rate.class_of(pairs.names(number as u32).1),
                Ruled::Nothing | Ruled::Closed => ClassId(0),
            }
        };
        let count = pairs.all().len();
        Self {
            pairs,
            limits,
            seconds: vec![Stamps::new(); ruled.len()],
            latest: vec![Timestamp::ZERO; ruled.len()],
            classes: (0..count).map(class_of).collect(),
            states: States::new(count),
            tallies: vec![PairTally::default(); count],
            resource_tallies: vec![ResourceTally::new(); ruled.len()],
            unlimited: 0,
            ruled,
        }
    }

    /// Judges the next call.
    pub fn call(&mut self, call: &Call) -> Outcome {
        let pair = self.pairs.pair(call.pair);
        let resource = pair.resource as usize;
        let now = self.latest[resource].max(call.at);
        self.latest[resource] = now;
        let (calls, hits) = match call.min {
            0 => (u64::from(call.copies), u64::from(call.copies)),
            _ => (1, u64::from(call.copies)),
        };
        let asked = Amount { calls, hits };
        let mut outcome = Outcome {
            at: now,
            asked,
            granted: asked,
            limited_by: None,
            was_refused: call.was_refused,
            used: None,
        };
        match self.ruled[resource] {
            Ruled::Nothing => self.unlimited += calls,
            Ruled::Closed => outcome.granted = Amount::default(),
            Ruled::Rate(rate) => self.rule(rate, call, &mut outcome),
        }
        self.tallies[call.pair as usize].count(&outcome);
        self.resource_tallies[resource].count(&outcome);
        outcome
    }

    fn rule(&mut self, rate: &RateResource, call: &Call, outcome: &mut Outcome) {
        let class = self.limits.class(self.classes[call.pair as usize]);
        let resource = self.pairs.pair(call.pair).resource as usize;
        let request = Request {
            copies: outcome.asked.hits,
            // Calls of one hit each at one instant are asked together: hit by hit is how a request is
            // granted as well.
            min: u64::from(call.min.max(1)),
        };
        let (now, second) = (outcome.at, &mut self.seconds[resource]);
        let (limits, latest) = (self.limits, &self.latest);
        let (pairs, classes) = (self.pairs, &self.classes);
        self.states.sweep(|pair| {
            let resource = pairs.pair(pair).resource as usize;
            (limits.class(classes[pair as usize]), latest[resource])
        });
        let state = self.states.of(call.pair, class);
        let grant = ask(class, state, rate.global(), second, now, request);
        outcome.granted = Amount {
            calls: match call.min {
                0 => grant.hits,
                _ => u64::from(0 < grant.hits),
            },
            hits: grant.hits,
        };
        outcome.limited_by = grant.limited_by;
        outcome.used = Some(match 0 < outcome.refused_calls() {
            true => USE_STEPS as u16,
            false => used(class, state, now),
        });
    }
}

/// How full a pair's limits are: the current tier's window, or the hard limit's second, whichever is
/// fuller.
fn used(class: &RateClass, state: &State, now: Timestamp) -> u16 {
    let (limit, hits) = tier_counts(class, state, tiers::current(class, state, now), now);
    let of_hard = class
        .hard
        .map_or(0, |hard| steps(second::held(state, now), hard));
    steps(hits, limit).max(of_hard)
}

fn steps(hits: u64, limit: u64) -> u16 {
    match limit {
        0 => USE_STEPS as u16,
        limit => (hits.saturating_mul(USE_STEPS as u64) / limit).min(USE_STEPS as u64) as u16,
    }
}
