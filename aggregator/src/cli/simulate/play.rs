//! Plays requests of one domain through the in-line rules and notes what happens to each tier.
//!
//! Knows nothing of pictures. What stays true: the rules are the engine's own; this only looks on.

use serde::Serialize;
use tollgate_engine::limits::{Limits, RateClass};
use tollgate_engine::rules::open_again::{global_open_again, open_again};
use tollgate_engine::rules::request::{LimitedBy, Request, request};
use tollgate_engine::rules::second::SECOND;
use tollgate_engine::rules::{Stamps, State, Until};
use tollgate_shared::time::{Span, Timestamp};

/// What is asked for.
pub struct Requests {
    /// When, ascending.
    pub at: Vec<Span>,
    /// Hits of each.
    pub copies: u64,
    /// Below which it is refused.
    pub min: u64,
}

/// What became of one request.
pub struct Step {
    /// When it came.
    pub at: Timestamp,
    /// Hits granted.
    pub granted: u64,
    /// By tier, lowest first: hits it granted.
    pub by_tier: Vec<u64>,
    /// By tier: whether this request entered it.
    pub entered: Vec<bool>,
    /// What kept it from more.
    pub limited_by: Option<LimitedBy>,
    /// Until when it is closed afterwards, under whichever limit holds longest.
    pub until: Until,
}

/// What became of all.
pub struct Played {
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Its limits.
    pub class: RateClass,
    /// The global limit.
    pub global: Option<u64>,
    /// Hits of each request.
    pub copies: u64,
    /// What became of each.
    pub steps: Vec<Step>,
    /// By tier: when it was entered.
    pub entries: Vec<Vec<Timestamp>>,
}

/// Plays requests; none where the resource has no limits on rates.
pub fn play(limits: &Limits, resource: &str, domain: &str, asked: &Requests) -> Option<Played> {
    let rate = limits.rate(resource)?;
    let class = limits.class(rate.class_of(domain)).clone();
    let mut state = State::of(&class);
    let mut second = Stamps::default();
    let mut played = Played {
        resource: resource.to_owned(),
        domain: domain.to_owned(),
        global: rate.global(),
        copies: asked.copies,
        steps: Vec::with_capacity(asked.at.len()),
        entries: vec![Vec::new(); class.tiers.len()],
        class,
    };
    for at in &asked.at {
        // Whole days after the epoch, so that nothing saturates at its beginning.
        let now = ORIGIN.saturating_add(*at);
        let request = Request {
            copies: asked.copies,
            min: asked.min,
        };
        played.step(&mut state, &mut second, now, request);
    }
    Some(played)
}

/// Where simulated time begins.
const ORIGIN: Timestamp = Timestamp::from_micros(1_000 * 86_400_000_000);

/// An instant as a span from the beginning.
pub fn since_origin(at: Timestamp) -> Span {
    at.since(ORIGIN)
}

impl Played {
    fn step(&mut self, state: &mut State, second: &mut Stamps, now: Timestamp, asked: Request) {
        let class = &self.class;
        state.forget(class, now);
        second.forget(SECOND, now);
        let global_room = self.global.map_or(u64::MAX, |limit| {
            limit.saturating_sub(second.held(SECOND, now))
        });
        let held = |state: &State| -> Vec<u64> {
            let tiers = state.tiers().iter().zip(&class.tiers);
            tiers
                .map(|(of, tier)| of.window.held(tier.window, now))
                .collect()
        };
        let before: Vec<_> = state.tiers().iter().map(|tier| tier.entered).collect();
        let held_before = held(state);
        let grant = request(class, state, now, asked, global_room);
        second.take(now, grant.hits);
        let held_after = held(state);
        let entered: Vec<bool> = state
            .tiers()
            .iter()
            .zip(&before)
            .map(|(tier, before)| tier.entered != *before && tier.entered == Some(now))
            .collect();
        for (entries, entered) in self.entries.iter_mut().zip(&entered) {
            entries.extend(entered.then_some(now));
        }
        let domain_until = open_again(class, state, now);
        let global_until = self
            .global
            .map_or(Until::Now, |limit| global_open_again(limit, second, now));
        self.steps.push(Step {
            at: now,
            granted: grant.hits,
            by_tier: held_after
                .iter()
                .zip(&held_before)
                .map(|(after, before)| after - before)
                .collect(),
            entered,
            limited_by: grant.limited_by,
            until: later(domain_until, global_until),
        });
    }

    /// How long the picture is: to the last request, or until it is open again if that is near.
    pub fn end(&self) -> Timestamp {
        let last = self.steps.last().map_or(ORIGIN, |step| step.at);
        match self.steps.last().map(|step| step.until) {
            Some(Until::At(end))
                if end.since(last) <= since_origin(last).saturating_add(SECOND) =>
            {
                end
            }
            _ => last,
        }
    }

    /// The same for programs.
    pub fn report(&self) -> Report<'_> {
        let micros = |at: Timestamp| since_origin(at).as_micros();
        Report {
            schema: "tollgate.simulate/1",
            resource: &self.resource,
            domain: &self.domain,
            tiers: self
                .class
                .tiers
                .iter()
                .zip(&self.entries)
                .map(|(tier, entries)| TierReport {
                    limit: tier.limit,
                    window_us: tier.window.as_micros(),
                    active_us: tier.active.as_micros(),
                    cooldown_us: tier.cooldown.as_micros(),
                    skippable: tier.skippable,
                    entered_us: entries.iter().map(|at| micros(*at)).collect(),
                })
                .collect(),
            hard: self.class.hard,
            global: self.global,
            requests: self
                .steps
                .iter()
                .map(|step| RequestReport {
                    at_us: micros(step.at),
                    copies: self.copies,
                    granted: step.granted,
                    granted_by_tier: &step.by_tier,
                    limited_by: step.limited_by.map(name_of),
                    closed_until_us: match step.until {
                        Until::At(end) => Some(micros(end)),
                        Until::Now | Until::Never => None,
                    },
                    closed_for_ever: step.until == Until::Never,
                })
                .collect(),
            granted: self.steps.iter().map(|step| step.granted).sum(),
            asked: self.copies * self.steps.len() as u64,
        }
    }
}

fn later(a: Until, b: Until) -> Until {
    match (a, b) {
        (Until::Never, _) | (_, Until::Never) => Until::Never,
        (Until::Now, other) | (other, Until::Now) => other,
        (Until::At(a), Until::At(b)) => Until::At(a.max(b)),
    }
}

/// What limited a request, in a word.
pub fn name_of(limited_by: LimitedBy) -> &'static str {
    match limited_by {
        LimitedBy::Hard => "hard",
        LimitedBy::Global => "global",
        LimitedBy::Tier => "tier",
    }
}

/// What was played, for programs. Instants are counted from the first one.
#[derive(Serialize)]
pub struct Report<'a> {
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
    limited_by: Option<&'static str>,
    closed_until_us: Option<u64>,
    closed_for_ever: bool,
}
