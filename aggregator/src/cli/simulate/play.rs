//! Plays requests of one domain through the engine's rules and records what happens to each tier.
//!
//! Knows nothing of pictures. What stays true: the rules are the engine's own; this module only observes.

use serde::Serialize;
use tollgate_engine::rules::open_again::open_again;
use tollgate_engine::rules::request::{Request, request};
use tollgate_engine::rules::{Stamps, State, Until, whole};
use tollgate_limits::Limits;
use tollgate_limits::SECOND;
use tollgate_shared::time::{Span, Timestamp};

use tollgate_replay::fill;
use tollgate_replay::picture::{Played, Step};

/// The requests to play.
pub struct Requests {
    /// Their instants, ascending.
    pub at: Vec<Span>,
    /// Copies of each request.
    pub copies: u64,
    /// The fewest copies of use; with room for fewer a request is refused.
    pub min: u64,
}

/// Plays requests; `None` if the resource has no limits on rates.
pub fn play(limits: &Limits, resource: &str, domain: &str, asked: &Requests) -> Option<Played> {
    let rate = limits.rate(resource)?;
    let class = limits.class(rate.class_of(domain)).clone();
    let mut state = State::of(&class);
    let mut second = Stamps::default();
    let global = rate.global();
    let mut played = Played {
        resource: resource.to_owned(),
        domain: domain.to_owned(),
        origin: ORIGIN,
        beyond: "refused",
        steps: Vec::with_capacity(asked.at.len()),
        entries: vec![Vec::new(); class.tiers().len()],
        class,
    };
    for at in &asked.at {
        let now = ORIGIN.saturating_add(*at);
        let request = Request {
            copies: asked.copies,
            min: asked.min,
        };
        step(&mut played, (&mut state, &mut second), global, now, request);
    }
    Some(played)
}

/// The start of simulated time: 2024-01-01T00:00:00Z, a Monday, within the tables of time zones.
pub const ORIGIN: Timestamp = Timestamp::from_millis(1_704_067_200_000);

fn step(
    played: &mut Played,
    (state, second): (&mut State, &mut Stamps),
    global: Option<u64>,
    now: Timestamp,
    asked: Request,
) {
    let class = &played.class;
    state.forget(class, now);
    second.forget(SECOND, now);
    let global_room = global.map_or(u64::MAX, |limit| {
        limit.saturating_sub(second.held(SECOND, now))
    });
    let held = |state: &State| -> Vec<u64> {
        let tiers = state.tiers.iter().zip(class.tiers());
        tiers
            .map(|(of, tier)| of.window.held(tier.window, now))
            .collect()
    };
    let before: Vec<_> = state.tiers.iter().map(|tier| tier.entered).collect();
    let held_before = held(state);
    let grant = request(class, state, now, asked, global_room, false);
    second.take(now, grant.hits);
    let held_after = held(state);
    let entered: Vec<bool> = state
        .tiers
        .iter()
        .zip(&before)
        .map(|(tier, before)| tier.entered != *before && tier.entered == Some(now))
        .collect();
    for (entries, entered) in played.entries.iter_mut().zip(&entered) {
        entries.extend(entered.then_some(now));
    }
    let domain_until = open_again(class, state, now);
    let global_until = global.map_or(Until::Now, |limit| whole::open_again(limit, second, now));
    played.steps.push(Step {
        at: now,
        asked: asked.copies,
        granted: grant.hits,
        by_tier: held_after
            .iter()
            .zip(&held_before)
            .map(|(after, before)| after - before)
            .collect(),
        entered,
        used: fill::used(class, state, now),
        limited_by: grant.limited_by,
        until: later(domain_until, global_until),
    });
}

/// The result, for programs.
pub fn report<'a>(played: &'a Played, global: Option<u64>) -> PlayReport<'a> {
    let micros = |at: Timestamp| at.since(ORIGIN).as_micros();
    PlayReport {
        schema: "tollgate.simulate/1",
        resource: &played.resource,
        domain: &played.domain,
        tiers: played
            .class
            .tiers()
            .iter()
            .zip(&played.entries)
            .map(|(tier, entries)| TierReport {
                limit: tier.limit,
                window_us: tier.window.as_micros(),
                active_us: tier.active.as_micros(),
                cooldown_us: tier.cooldown.as_micros(),
                skippable: tier.skippable,
                entered_us: entries.iter().map(|at| micros(*at)).collect(),
            })
            .collect(),
        hard: played.class.hard,
        global,
        requests: played
            .steps
            .iter()
            .map(|step| RequestReport {
                at_us: micros(step.at),
                copies: step.asked,
                granted: step.granted,
                granted_by_tier: &step.by_tier,
                limited_by: step.limited_by.map(|by| by.name().into_owned()),
                closed_until_us: match step.until {
                    Until::At(end) => Some(micros(end)),
                    Until::Now | Until::Never => None,
                },
                closed_for_ever: step.until == Until::Never,
            })
            .collect(),
        granted: played.steps.iter().map(|step| step.granted).sum(),
        asked: played.steps.iter().map(|step| step.asked).sum(),
    }
}

fn later(a: Until, b: Until) -> Until {
    match (a, b) {
        (Until::Never, _) | (_, Until::Never) => Until::Never,
        (Until::Now, other) | (other, Until::Now) => other,
        (Until::At(a), Until::At(b)) => Until::At(a.max(b)),
    }
}

/// The result, for programs. Instants are relative to the start.
#[derive(Serialize)]
pub struct PlayReport<'a> {
    schema: &'static str,
    resource: &'a str,
    domain: &'a str,
    tiers: Vec<TierReport>,
    hard: Option<u64>,
    global: Option<u64>,
    requests: Vec<RequestReport<'a>>,
    granted: u64,
    asked: u64,
}

#[derive(Serialize)]
struct TierReport {
    limit: u64,
    window_us: u64,
    active_us: u64,
    cooldown_us: u64,
    skippable: bool,
    entered_us: Vec<u64>,
}

#[derive(Serialize)]
struct RequestReport<'a> {
    at_us: u64,
    copies: u64,
    granted: u64,
    granted_by_tier: &'a [u64],
    limited_by: Option<String>,
    closed_until_us: Option<u64>,
    closed_for_ever: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_replay::picture::{draw, draw_lanes};

    #[test]
    fn a_burst_its_cooldown_and_what_was_refused_are_seen() {
        let limits = Limits::parse(
            r#"
            version = 1
            rules = 2
            [rate.r]
            tiers = [
              { limit = 1, window = "1s", active = "20s" },
              { limit = 2, window = "1s", active = "2s", cooldown = "3s" },
            ]
            "#,
        )
        .unwrap();
        let requests = Requests {
            at: (0..16).map(|n| Span::from_millis(500 * n)).collect(),
            copies: 1,
            min: 1,
        };
        let played = play(&limits, "r", "d", &requests).unwrap();
        insta::assert_snapshot!(draw(&played, false));
    }

    #[test]
    fn constraints_other_than_tiers_show_how_full_they_are() {
        let limits = Limits::parse(
            r#"
            version = 1
            rules = 2
            [rate.r]
            windows = ["4/s", "10/5s"]
            quota = ["15/day"]
            bucket = { rate = "2/s", burst = 5 }
            "#,
        )
        .unwrap();
        let requests = Requests {
            at: (0..24).map(|n| Span::from_millis(250 * n)).collect(),
            copies: 1,
            min: 1,
        };
        let played = play(&limits, "r", "d", &requests).unwrap();
        insta::assert_snapshot!(draw_lanes(&played, false));
    }
}
