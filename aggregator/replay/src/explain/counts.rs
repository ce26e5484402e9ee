//! The counts of an answer: the window, the tiers, excess, and the picture of them.
//!
//! Knows nothing of questions. What stays true: every number is counted from entries of the log.

use std::collections::BTreeMap;

use tollgate_engine::rules::Until as Closed;
use tollgate_engine::rules::calendar::period;
use tollgate_engine::rules::tiers::Phase;
use tollgate_engine::stream::{Closed as ClosedBy, Pair};
use tollgate_limits::RateClass;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Cause, Denial};

use super::answer::{end_us, position_text};
use super::counting::counting_at;
use super::follow::PairFollow;
use super::history::{EntryFate, ExplainedEntry, PairStatement, key};
use super::refused::by_agent;
use super::view::{Explanation, Tally, TierView, TimeView, WindowView};
use crate::fill;
use crate::picture::{Played, Step, draw_lanes};

/// The number of steps that a window is divided into.
const STEPS: u64 = 12;

/// The hits that filled the window of the limit that denied; for a quota or a bucket the newest hits that used it
/// up.
pub(super) fn window(
    follow: &PairFollow,
    stated: &PairStatement,
    denial: &Denial,
) -> Option<WindowView> {
    let tier = match denial.cause {
        Cause::Tier(tier) => Some(usize::from(tier).checked_sub(1)?),
        Cause::Hard | Cause::Window(_) => None,
        Cause::Quota(index) => {
            let quota = stated.class.quotas.get(usize::from(index))?;
            let begins = period(quota.unit, &quota.zone, stated.since).begins;
            return newest(follow, stated, denial.cause, begins);
        }
        Cause::Bucket => return newest(follow, stated, denial.cause, Timestamp::ZERO),
        _ => return None,
    };
    let runs = match tier {
        Some(tier) => &stated.tiers.get(tier)?.window,
        None => &stated.window,
    };
    let counted = runs.iter().map(|(_, hits)| hits).sum();
    Some(window_of(hits_in(follow, stated, runs, tier)).of(counted))
}

/// The hits in the sliding window that closes a pair, if one does: each instant with a number of hits.
pub(super) fn full_window(class: &RateClass, pair: &Pair) -> Vec<(Timestamp, u64)> {
    let now = pair.now();
    let index = match pair.closure(class, now).map(|closure| closure.by) {
        Some(ClosedBy::Hard) => 0,
        Some(ClosedBy::Window(index)) => usize::from(class.hard.is_some()) + usize::from(index),
        _ => return Vec::new(),
    };
    let window = class.sliding().nth(index);
    let Some((window, stamps)) = window.zip(pair.state.windows.get(index)) else {
        return Vec::new();
    };
    let inside = stamps.runs();
    let inside = inside.filter(|(at, _)| now <= at.saturating_add(window.window));
    inside.collect()
}

/// Whose hits a window contains: `runs` has the number of hits at each instant, without those that were taken back.
fn hits_in<'f>(
    follow: &'f PairFollow,
    stated: &PairStatement,
    runs: &[(Timestamp, u64)],
    tier: Option<usize>,
) -> Vec<(&'f str, Timestamp, u64)> {
    let position = key(&stated.statement);
    let before = follow.entries.iter();
    let mut before: Vec<_> = before.filter(|entry| entry.position <= position).collect();
    before.sort_by_key(|entry| entry.at);
    let mut left: Vec<u64> = runs.iter().map(|(_, hits)| *hits).collect();
    let counted = before.into_iter().filter_map(|entry| {
        let EntryFate::Ruled {
            granted,
            excess,
            by_tier,
            ..
        } = &entry.fate
        else {
            return None;
        };
        let hits = match tier {
            Some(tier) => by_tier.get(tier).copied().unwrap_or(0),
            None => granted + excess,
        };
        // A window of many hits rounds their instants down.
        let run = runs.partition_point(|(at, _)| *at <= entry.at);
        let left = left.get_mut(run.checked_sub(1)?)?;
        let hits = hits.min(*left);
        *left -= hits;
        (0 < hits).then_some((&*entry.agent, entry.at, hits))
    });
    counted.collect()
}

/// The newest hits since an instant that add up to what was used of a constraint, without those that were taken back
/// before.
fn newest(
    follow: &PairFollow,
    stated: &PairStatement,
    cause: Cause,
    since: Timestamp,
) -> Option<WindowView> {
    let lane = fill::lane_of(&stated.class, cause)?;
    let counted = stated.constraints.get(lane)?.counted;
    let mut missing = counted;
    let counting = counting_at(follow, key(&stated.statement));
    let of_period = counting.into_iter().filter(|(entry, _)| since <= entry.at);
    let newest = of_period.rev().map(|(entry, counted)| {
        let hits = counted.min(missing);
        missing -= hits;
        (&*entry.agent, entry.at, hits)
    });
    let newest = newest.filter(|(_, _, hits)| 0 < *hits);
    Some(window_of(newest.collect()).of(counted))
}

impl WindowView {
    /// The same, where so many hits count.
    fn of(self, counted: u64) -> Self {
        Self {
            unnamed: counted.saturating_sub(self.hits),
            ..self
        }
    }
}

/// Hits with their agents and instants, summed up.
pub(super) fn window_of(hits: Vec<(&str, Timestamp, u64)>) -> WindowView {
    let from_us = hits
        .iter()
        .map(|(_, at, _)| at.as_micros())
        .min()
        .unwrap_or(0);
    let to_us = hits
        .iter()
        .map(|(_, at, _)| at.as_micros())
        .max()
        .unwrap_or(0);
    let step = ((to_us - from_us) / STEPS + 1).max(1);
    let mut by_time: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, at, hits) in &hits {
        *by_time
            .entry((at.as_micros() - from_us) / step)
            .or_default() += hits;
    }
    let by_time = by_time.into_iter().map(|(index, hits)| TimeView {
        from_us: from_us + index * step,
        hits,
    });
    WindowView {
        from_us,
        to_us,
        hits: hits.iter().map(|(_, _, hits)| hits).sum(),
        unnamed: 0,
        by_time: by_time.collect(),
        by_agent: by_agent(
            hits.into_iter()
                .map(|(agent, at, hits)| (agent, at, at, hits)),
        ),
    }
}

pub(super) fn tiers(follow: &PairFollow, stated: &PairStatement) -> Vec<TierView> {
    let position = key(&stated.statement);
    let tiers = stated.class.tiers().iter().zip(&stated.tiers).enumerate();
    tiers
        .map(|(index, (tier, now))| {
            let burst = follow.bursts.iter().rev().find(|burst| {
                burst.tier == index + 1
                    && Some(burst.at) == now.entered
                    && burst.position <= position
            });
            let active_until = now.entered.map(|at| at.saturating_add(tier.active));
            let cooling_until = active_until.map(|at| at.saturating_add(tier.cooldown));
            TierView {
                tier: index + 1,
                limit: tier.limit,
                window_us: tier.window.as_micros(),
                active_us: tier.active.as_micros(),
                cooldown_us: tier.cooldown.as_micros(),
                skippable: tier.skippable,
                phase: match now.phase {
                    Phase::Inactive => "inactive",
                    Phase::Active => "active",
                    Phase::Cooling => "cooling",
                },
                hits: now.window.iter().map(|(_, hits)| hits).sum(),
                entered_us: now.entered.map(Timestamp::as_micros),
                entered_by: burst.map(|burst| burst.agent.to_string()),
                entered_at: burst.map(|burst| position_text(burst.position)),
                active_until_us: active_until.and_then(end_us),
                cooling_until_us: cooling_until.and_then(end_us),
            }
        })
        .collect()
}

pub(super) fn excess(follow: &PairFollow, since: Timestamp, until: Timestamp) -> Tally {
    let entries = follow.entries.iter().filter_map(|entry| match entry.fate {
        EntryFate::Ruled { excess, .. } if 0 < excess && since <= entry.at && entry.at < until => {
            Some((&*entry.agent, entry.at, entry.at, excess))
        }
        _ => None,
    });
    let entries: Vec<_> = entries.collect();
    Tally {
        calls: entries.len() as u64,
        hits: entries.iter().map(|(.., hits)| hits).sum(),
        by_agent: by_agent(entries.into_iter()),
    }
}

/// Draws tiers and other constraints from what led to the denial to its end, or to the end of what was read.
pub(super) fn picture(
    follow: &PairFollow,
    stated: &PairStatement,
    explanation: &Explanation,
    until: Timestamp,
) -> Option<String> {
    let led = stated.tiers.iter().filter_map(|tier| tier.entered);
    let window = explanation.window.as_ref().map(|window| window.from_us);
    let from = led
        .chain(window.filter(|from| 0 < *from).map(Timestamp::from_micros))
        .min()
        .unwrap_or(stated.since);
    let of = stated.class.tiers().len();
    let seen = follow.entries.iter();
    let seen = seen.filter(|entry| from <= entry.at && entry.at <= until);
    let mut steps: Vec<Step> = seen.filter_map(|entry| step_of(entry, of)).collect();
    steps.sort_by_key(|step| step.at);
    if steps.is_empty() {
        return None;
    }
    let entries = (1..=of).map(|tier| {
        let lasts = stated.class.tiers()[tier - 1];
        let of_tier = follow.bursts.iter().filter(|burst| burst.tier == tier);
        let over = |at: Timestamp| {
            at.saturating_add(lasts.active)
                .saturating_add(lasts.cooldown)
        };
        of_tier
            .map(|burst| burst.at)
            .filter(|at| from < over(*at) && *at <= until)
            .collect()
    });
    let played = Played {
        resource: explanation.resource.clone(),
        domain: explanation.domain.clone().unwrap_or_default(),
        class: stated.class.clone(),
        origin: steps.first().map_or(from, |step| step.at),
        beyond: "excess",
        steps,
        entries: entries.collect(),
    };
    Some(draw_lanes(&played, false))
}

/// What a picture shows of a ruled entry, for a pair with `tiers` tiers.
fn step_of(entry: &ExplainedEntry, tiers: usize) -> Option<Step> {
    let EntryFate::Ruled {
        granted,
        excess,
        by_tier,
        entered,
        used,
        ..
    } = &entry.fate
    else {
        return None;
    };
    Some(Step {
        at: entry.at,
        asked: granted + excess,
        granted: *granted,
        by_tier: (0..tiers)
            .map(|n| by_tier.get(n).copied().unwrap_or(0))
            .collect(),
        entered: (0..tiers).map(|n| entered.contains(&n)).collect(),
        used: used.clone(),
        limited_by: None,
        until: match entry.until {
            None => Closed::Now,
            Some(Timestamp::MAX) => Closed::Never,
            Some(end) => Closed::At(end),
        },
    })
}
