//! The verdict on a demonstration: compares calls, log and model.
//!
//! The model replays the log and states what was denied and what was excess; an ideal in-line limiter, also of the
//! model, decides every offered call in order of time. Overshoot, excess and totals cover only the part before the
//! outage, since during it everything is meant to be let through; refusals are checked over the whole run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tollgate_limits::Limits;
use tollgate_model::log::EntryRuling;
use tollgate_model::{End, InlineLimiter};

use super::delays::{Delays, DenialPlace, EnteredDenials, MadeCalls, full_at_ns};
use super::effect::{self, Logged};
use super::figures::{Overshoot, Windows, overshoot, percentile};
use super::limited::window_us;
use super::player::{CallAnswer, PlayerLine};
use super::schedule::Schedule;
use tollgate_log::Delivered;
use tollgate_replay::model_check::{ModelCheck, RuledBatch, Versions, to_model};

/// How many unjustified refusals are kept for the report.
const SHOWN_MAX: usize = 10;

/// What each agent did, and the facts of the run.
pub struct Observations<'a> {
    /// Names of the agents, by index.
    pub names: &'a [String],
    /// The schedule of each, by the domains as which the limits count its calls.
    pub schedules: &'a [Schedule],
    /// What each saw.
    pub seen: &'a [Vec<PlayerLine>],
    /// The limits that were in force.
    pub limits: &'a Limits,
    /// When the schedule began, in microseconds since the Unix epoch.
    pub start_us: u64,
    /// When the aggregator was stopped; the greatest instant if it was not.
    pub outage_us: u64,
}

/// Calls of one part of the demonstration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartCalls {
    /// Calls made.
    pub offered: u64,
    /// Let through.
    pub let_through: u64,
    /// Refused under statements of aggregators.
    pub refused: u64,
    /// Refused by an agent's own policy.
    pub by_policy: u64,
}

/// The verdict.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Calls before the outage.
    pub calls: PartCalls,
    /// Calls from the outage on.
    pub later: PartCalls,
    /// What the ideal limiter would have let through of the calls before the outage.
    pub ideal_let_through: u64,
    /// Hits before the outage that were let through and that an ideal limiter over the log refuses.
    pub excess: u64,
    /// Overshoot by pair and window, of pairs whose calls ask for one copy each; `None` if no such pair reached a
    /// limit.
    pub overshoot: Option<Overshoot>,
    /// The same for pairs whose calls ask for several copies. A call is let through whole as long as one of its
    /// copies has room, so that one call per window may exceed the limit: law 8 allows it.
    pub overshoot_weighted: Option<Overshoot>,
    /// Refusals that the model does not justify, in the whole run.
    pub unjustified: u64,
    /// The first of them, for people.
    pub unjustified_shown: Vec<String>,
    /// From the call that filled a window until the slowest agent's deny list had the denial, in microseconds, for
    /// each denial before the outage.
    pub delays_us: Vec<u64>,
    /// The longest time during which an agent did not refuse although the pair was denied.
    pub longest_delay_us: u64,
    /// Denials of pairs before the outage, by the model.
    pub denials: u64,
    /// Of these, denials that some agent did not receive.
    pub unheard: u64,
    /// Pairs, and resources under a global limit, of which more was let through before the outage than
    /// their limits and one denial delay allow.
    pub effect_violations: u64,
    /// Copies that were let through before the outage and that this check covers.
    pub effect_judged: u64,
    /// Copies that it does not cover: by the marks in the log their agent had no current watermark, or they were
    /// stamped more than an eighth of a second late.
    pub effect_unjudged: u64,
    /// The first violations, for people.
    pub effect_shown: Vec<String>,
}

/// The copies of one agent and pair that were let through, in order, and what the log has about those that reached
/// it.
#[derive(Debug, Default)]
struct PairCalls {
    monotonic_ns: Vec<u64>,
    logged: Vec<Logged>,
}

/// A denial of a pair, as the log has it.
#[derive(Debug)]
struct StatedDenial {
    pair: (String, String),
    place: DenialPlace,
    /// When the call that filled the window was made.
    filled_ns: u64,
    /// How many calls of the pair the log had then, by agents that made some.
    in_log: Vec<usize>,
    end: End,
}

/// By resource and domain.
type LetThrough = HashMap<String, HashMap<String, PairCalls>>;

/// Computes the verdict while the log is read.
pub struct Bench<'a> {
    observations: &'a Observations<'a>,
    model_check: ModelCheck,
    let_through: Vec<LetThrough>,
    /// The denials that each agent entered, by agent.
    entered: Vec<EnteredDenials>,
    stated: Vec<StatedDenial>,
    delays: Delays,
    reached: BTreeSet<(String, Option<String>)>,
    verdict: Verdict,
}

impl<'a> Bench<'a> {
    /// A bench that is ready for the log's first record.
    pub fn new(observations: &'a Observations<'a>, model_check: ModelCheck) -> Self {
        let mut bench = Self {
            observations,
            model_check,
            let_through: Vec::new(),
            entered: Vec::new(),
            stated: Vec::new(),
            delays: Delays::default(),
            reached: BTreeSet::new(),
            verdict: Verdict::default(),
        };
        for (schedule, seen) in observations.schedules.iter().zip(observations.seen) {
            let (mut through, mut entered) = (LetThrough::new(), EnteredDenials::new());
            for one in seen {
                match one {
                    PlayerLine::Call {
                        index,
                        monotonic_ns,
                        answer: CallAnswer::LetThrough,
                        ..
                    } => {
                        let (resource, domain) = names_of(schedule, *index);
                        let domains = through.entry(resource.to_owned()).or_default();
                        let calls = domains.entry(domain.to_owned()).or_default();
                        let copies = copies_of(schedule, *index) as usize;
                        let each = std::iter::repeat_n(*monotonic_ns, copies);
                        calls.monotonic_ns.extend(each);
                    }
                    PlayerLine::Call { .. } => {}
                    PlayerLine::Heard { monotonic_ns, code } => {
                        let place = (code.partition, code.position.offset, code.position.entry);
                        entered.entry(place).or_insert(*monotonic_ns);
                    }
                }
            }
            bench.let_through.push(through);
            bench.entered.push(entered);
        }
        bench
    }

    /// Takes the next record of a partition.
    pub fn record(&mut self, partition: u32, delivered: &Delivered, versions: &Versions) {
        let Some(ruled) = self.model_check.apply(partition, delivered, versions) else {
            return;
        };
        let Some(agent) = self
            .observations
            .names
            .iter()
            .position(|name| name == ruled.agent)
        else {
            return;
        };
        let mut filled_at = BTreeMap::new();
        for (number, (entry, ruling)) in ruled.entries.iter().enumerate() {
            let domains = self.let_through[agent].get_mut(entry.resource);
            let Some(calls) = domains.and_then(|domains| domains.get_mut(entry.domain)) else {
                continue;
            };
            if matches!(
                ruling,
                EntryRuling::NotRuled(tollgate_model::log::NotRuled::Duplicate)
            ) {
                continue;
            }
            let granted = match ruling {
                EntryRuling::Ruled { at_us, outcome } => {
                    if *at_us < self.observations.outage_us {
                        self.verdict.excess += outcome.excess;
                    }
                    outcome.granted
                }
                EntryRuling::NotRuled(_) => 0,
            };
            let filling =
                calls.logged.len() + usize::try_from(granted.max(1)).unwrap_or(usize::MAX);
            if let Some(at) = calls.monotonic_ns.get(filling - 1) {
                filled_at.insert(number as u32, *at);
            }
            let logged = Logged {
                stamp_us: entry.at_us,
                is_unguarded: entry.unguarded,
            };
            let copies = usize::try_from(entry.n).unwrap_or(usize::MAX);
            let more = copies.min(calls.monotonic_ns.len().saturating_sub(calls.logged.len()));
            calls.logged.extend(std::iter::repeat_n(logged, more));
        }
        self.statements(&ruled, &filled_at);
    }

    fn statements(&mut self, ruled: &RuledBatch<'_>, filled_at: &BTreeMap<u32, u64>) {
        for (scope, statement) in &ruled.statements {
            let Some(denial) = &statement.denied else {
                continue;
            };
            self.reached
                .insert((scope.resource.clone(), scope.domain.clone()));
            let (Some(domain), Some(filled_ns)) =
                (&scope.domain, filled_at.get(&statement.position.entry))
            else {
                continue;
            };
            let pair = (scope.resource.clone(), domain.clone());
            self.stated.push(StatedDenial {
                place: (
                    ruled.partition,
                    statement.position.offset,
                    statement.position.entry,
                ),
                filled_ns: *filled_ns,
                in_log: self.of_pair(&pair).map(|of| of.logged.len()).collect(),
                end: denial.end,
                pair,
            });
        }
    }

    /// The calls of a pair by each agent that made some.
    fn of_pair(&self, (resource, domain): &(String, String)) -> impl Iterator<Item = &PairCalls> {
        let through = self.let_through.iter();
        through.filter_map(move |through| through.get(resource)?.get(domain))
    }

    /// The wall time of a monotonic instant, derived from the first call that was made.
    fn wall_of(&self, monotonic: u64) -> u64 {
        let first = self
            .observations
            .seen
            .iter()
            .flatten()
            .find_map(|one| match one {
                PlayerLine::Call {
                    wall_us,
                    monotonic_ns,
                    ..
                } => Some((*wall_us, *monotonic_ns)),
                PlayerLine::Heard { .. } => None,
            });
        first.map_or(0, |(wall, then)| {
            (wall + monotonic / 1_000).saturating_sub(then / 1_000)
        })
    }

    /// The verdict, once the whole log has been read, and the number of records that could not be decoded.
    pub fn verdict(mut self) -> (Verdict, u64) {
        for (agent, seen) in self.observations.seen.iter().enumerate() {
            for one in seen {
                if let PlayerLine::Call {
                    index,
                    wall_us,
                    answer,
                    ..
                } = one
                {
                    self.count(agent, *index, *wall_us, answer);
                }
            }
        }
        self.compare_with_ideal();
        self.measure_delays();
        self.look_for_effect();
        self.verdict.excess += self.model_check.global_excess(self.observations.outage_us);
        let unseen = self.model_check.unseen();
        (self.verdict, unseen.undecodable + unseen.forged)
    }

    fn count(&mut self, agent: usize, index: usize, wall_us: u64, answer: &CallAnswer) {
        let before = wall_us < self.observations.outage_us;
        let calls = if before {
            &mut self.verdict.calls
        } else {
            &mut self.verdict.later
        };
        calls.offered += 1;
        match answer {
            CallAnswer::LetThrough => calls.let_through += 1,
            CallAnswer::ByPolicy(_) => calls.by_policy += 1,
            CallAnswer::Refused(code) => {
                calls.refused += 1;
                let (resource, domain) = names_of(&self.observations.schedules[agent], index);
                self.reached
                    .insert((resource.to_owned(), Some(domain.to_owned())));
                if !self.model_check.justifies(*code, resource, domain, wall_us) {
                    self.verdict.unjustified += 1;
                    if self.verdict.unjustified_shown.len() < SHOWN_MAX {
                        let name = &self.observations.names[agent];
                        let ends = self.model_check.ends(*code, resource, domain);
                        self.verdict.unjustified_shown.push(format!(
                            "{name} refused {resource} {domain} at {wall_us} under {code}, {ends}"
                        ));
                    }
                }
            }
        }
    }

    fn compare_with_ideal(&mut self) {
        let observations = self.observations;
        let model = to_model(observations.limits);
        let mut limiters: HashMap<&str, InlineLimiter> = model
            .resources
            .iter()
            .map(|(name, limits)| (name.as_str(), InlineLimiter::new(limits.clone())))
            .collect();
        let mut windows = Windows::default();
        let mut lengths: HashMap<(u32, u32), u64> = HashMap::new();
        let mut weighted: HashSet<(u32, u32)> = HashSet::new();
        for (at_us, agent, index, let_through) in calls_before_the_outage(observations) {
            let schedule = &observations.schedules[agent];
            let Some(call) = schedule.calls.get(index) else {
                continue;
            };
            let (resource, domain) = names_of(schedule, index);
            let copies = u64::from(call.copies);
            let granted = limiters.get_mut(resource).map_or(copies, |limiter| {
                limiter.grant(at_us, domain, copies, copies)
            });
            self.verdict.ideal_let_through += u64::from(0 < granted);
            // If a global limit was reached, it is chance which domain came first: the resource is compared as a
            // whole.
            let whole = self.reached.contains(&(resource.to_owned(), None));
            let unit = (call.resource, if whole { u32::MAX } else { call.domain });
            let length = *lengths.entry(unit).or_insert_with(|| {
                if whole {
                    SECOND_US
                } else {
                    window_us(observations.limits, resource, domain)
                }
            });
            if 1 < copies {
                weighted.insert(unit);
            }
            let window = at_us.saturating_sub(observations.start_us) / length;
            let count = windows.of(unit.0, unit.1, window);
            count.let_through += if let_through { copies } else { 0 };
            count.ideal += granted;
        }
        let names = &observations.schedules[0];
        let reached = &self.reached;
        let whole_us = observations.outage_us.saturating_sub(observations.start_us);
        let select = |of_weighted: bool| {
            let (lengths, weighted) = (&lengths, &weighted);
            windows.select(move |resource, domain, window| {
                let unit = (resource, domain);
                let resource_name = names.resources[resource as usize].clone();
                let domain_name = names.domains.get(domain as usize).cloned();
                let length = lengths.get(&unit).copied().unwrap_or(SECOND_US);
                weighted.contains(&unit) == of_weighted
                    && reached.contains(&(resource_name, domain_name))
                    && (window + 1).saturating_mul(length) <= whole_us
            })
        };
        self.verdict.overshoot = overshoot(select(false));
        self.verdict.overshoot_weighted = overshoot(select(true));
    }
}

/// The calls before the outage, in the order of their instants: the instant, the agent, the call's number there, and
/// whether it was let through.
fn calls_before_the_outage(observations: &Observations<'_>) -> Vec<(u64, usize, usize, bool)> {
    let mut calls = Vec::new();
    for (agent, seen) in observations.seen.iter().enumerate() {
        calls.extend(seen.iter().filter_map(|one| match one {
            PlayerLine::Call {
                index,
                wall_us,
                answer,
                ..
            } if *wall_us < observations.outage_us => {
                Some((*wall_us, agent, *index, *answer == CallAnswer::LetThrough))
            }
            _ => None,
        }));
    }
    calls.sort_unstable();
    calls
}

impl Bench<'_> {
    /// Measures the delays, once it is known which calls reached the log.
    fn measure_delays(&mut self) {
        for stated in std::mem::take(&mut self.stated) {
            let calls = self.of_pair(&stated.pair).zip(&stated.in_log);
            let made = calls.map(|(calls, in_log)| MadeCalls {
                at_ns: &calls.monotonic_ns,
                in_log: *in_log,
                in_log_at_end: calls.logged.len(),
            });
            let full_ns = full_at_ns(stated.filled_ns, made);
            let wall_us = self.wall_of(full_ns);
            if wall_us < self.observations.outage_us {
                let full = (full_ns, wall_us);
                self.delays.add(stated.pair, stated.place, full, stated.end);
            }
        }
        let measured = self.delays.measure(&self.entered);
        self.verdict.denials = self.delays.count();
        self.verdict.delays_us = measured.each_us;
        self.verdict.unheard = measured.unheard;
        self.verdict.longest_delay_us = measured.longest_us;
    }

    /// Checks that limits had their effect, with the check of the model's crate, over the calls before the outage
    /// and with the longest denial delay of the run.
    fn look_for_effect(&mut self) {
        let observations = self.observations;
        let agents = observations.schedules.iter().zip(observations.seen);
        let calls = agents
            .zip(&self.let_through)
            .flat_map(|((schedule, seen), let_through)| {
                let logged = |resource: &str, domain: &str, copy: usize| {
                    let calls = let_through.get(resource)?.get(domain)?;
                    calls.logged.get(copy).copied()
                };
                effect::calls(schedule, seen, observations.outage_us, logged)
            });
        let delay_us = self.verdict.longest_delay_us;
        let agents = observations.seen.len() as u64;
        let found = effect::violations(&to_model(observations.limits), calls, delay_us, agents);
        self.verdict.effect_violations = found.violations.len() as u64;
        self.verdict.effect_shown = found.violations.into_iter().take(SHOWN_MAX).collect();
        self.verdict.effect_judged = found.judged;
        self.verdict.effect_unjudged = found.unjudged;
    }
}

const SECOND_US: u64 = 1_000_000;

pub(super) fn names_of(schedule: &Schedule, index: usize) -> (&str, &str) {
    let call = schedule.calls.get(index);
    let resource = call.and_then(|call| schedule.resources.get(call.resource as usize));
    let domain = call.and_then(|call| schedule.domains.get(call.domain as usize));
    (
        resource.map_or("", String::as_str),
        domain.map_or("", String::as_str),
    )
}

fn copies_of(schedule: &Schedule, index: usize) -> u32 {
    schedule.calls.get(index).map_or(1, |call| call.copies)
}

impl Verdict {
    /// p50 and p99 of the denial delay; `None` if no denial was received.
    pub fn delay_us(&self) -> Option<(u64, u64)> {
        let mut delays = self.delays_us.clone();
        Some((
            percentile(&mut delays, 0.5)?,
            percentile(&mut delays, 0.99)?,
        ))
    }
}
