//! The answer about one pair: which statement was in force, what filled its window, what led there.
//!
//! Knows only what was followed. What stays true: every number is counted from entries of the log.

use std::collections::BTreeMap;

use tollgate_engine::limits::{Limits, Mode, print_span};
use tollgate_engine::rules::Until as Closed;
use tollgate_engine::rules::tiers::Phase;
use tollgate_shared::place::{Code, Place};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial, Says};

use super::follow::{Entry, EntryFate, Follow, Said, Until, denial_of, key};
use super::view::{
    AgentView, CallView, DenialView, Explanation, StatementView, Tally, TierView, TimeView,
    VersionView, WindowView,
};
use super::{Asked, ExplainError, recorded};
use crate::audit::range::Utc;
use crate::audit::source::Source;
use crate::core::limits_book::LimitsBook;
use crate::core::view::hex;
use crate::picture::{Played, Step, draw_tiers};

/// How near a call has to be to the instant that was asked about.
const NEAR: Span = Span::from_secs(1);

/// How long a denial may take from its record to an agent, generously; a call that was let through
/// later than this was let through by an agent that had not heard it for another reason.
const DELAY: Span = Span::from_secs(1);

/// Into how many steps a window is cut.
const STEPS: u64 = 12;

/// An explanation of what was followed.
pub(super) fn of(
    source: &dyn Source,
    asked: &Asked,
    partition: u32,
    follow: Follow,
) -> Result<Explanation, ExplainError> {
    let mut explanation = Explanation {
        schema: "tollgate.explain/1",
        log: source.name(),
        resource: asked.resource.clone(),
        domain: asked.domain.clone(),
        partition,
        at_us: match asked.until {
            Until::Instant(at) => Some(at.as_micros()),
            _ => None,
        },
        ..Explanation::default()
    };
    let index = wanted(asked, &follow)?;
    if let Until::Instant(at) = asked.until {
        explanation.call = nearest(&follow, at).map(call_view);
    }
    let found = index.and_then(|index| {
        let denial = denial_of(&follow.said[index].statement)?;
        let over = matches!(asked.until, Until::Instant(at) if denial.end <= at);
        (!over).then_some((index, denial))
    });
    match found {
        Some((index, denial)) => {
            denied(&mut explanation, source, &follow, index, denial)?;
            if let Until::Instant(at) = asked.until {
                let_through(&mut explanation, &follow, at);
            }
        }
        None => open(&mut explanation, &follow, asked.until),
    }
    Ok(explanation)
}

/// The statement that is asked about.
fn wanted(asked: &Asked, follow: &Follow) -> Result<Option<usize>, ExplainError> {
    let mut said = follow.said.iter();
    match asked.until {
        Until::End => Ok(said.rposition(|said| denial_of(&said.statement).is_some())),
        Until::Instant(at) => Ok(said.rposition(|said| said.since <= at)),
        Until::Place(place) => {
            let none = |why: String| {
                let code = asked.code.map(|code| code.to_string()).unwrap_or_default();
                ExplainError::NotThere(format!("{code}: {why}"))
            };
            let index = said.position(|said| key(&said.statement) == place);
            let index = index.ok_or_else(|| none("nothing is stated there".to_owned()))?;
            let found = follow.said[index].statement.place.generation;
            match asked.code.map(|code| code.place.generation) {
                Some(wanted) if wanted != found => {
                    let text =
                        format!("generation {wanted}, the log there is of generation {found}");
                    Err(none(text))
                }
                _ => Ok(Some(index)),
            }
        }
    }
}

fn nearest(follow: &Follow, at: Timestamp) -> Option<&Entry> {
    let apart = |entry: &&Entry| entry.stamp.signed_micros_since(at).unsigned_abs();
    let nearest = follow.entries.iter().min_by_key(apart)?;
    (apart(&nearest) <= NEAR.as_micros()).then_some(nearest)
}

fn place_text(place: (u64, u32)) -> String {
    format!("offset {}, entry {}", place.0, place.1)
}

fn call_view(entry: &Entry) -> CallView {
    let (granted, excess, late) = match entry.fate {
        EntryFate::Ruled {
            granted,
            excess,
            late,
            ..
        } => (granted, excess, late),
        _ => (0, 0, 0),
    };
    CallView {
        place: place_text(entry.place),
        agent: entry.agent.to_string(),
        stamp_us: entry.stamp.as_micros(),
        at_us: entry.at.as_micros(),
        appended_us: entry.appended.as_micros(),
        copies: entry.copies,
        granted,
        excess,
        late,
    }
}

/// The statements of one closure: from the first denial to the one that ends it.
fn closure(follow: &Follow, index: usize) -> std::ops::Range<usize> {
    let ends_after = |said: &Said, at: Timestamp| {
        denial_of(&said.statement).is_some_and(|denial| at < denial.end)
    };
    let mut first = index;
    while let Some(before) = first.checked_sub(1)
        && ends_after(&follow.said[before], follow.said[first].since)
    {
        first = before;
    }
    let mut last = index;
    while let Some(next) = follow.said.get(last + 1)
        && ends_after(&follow.said[last], next.since)
    {
        last += 1;
    }
    first..last + 1
}

fn denied(
    explanation: &mut Explanation,
    source: &dyn Source,
    follow: &Follow,
    index: usize,
    denial: Denial,
) -> Result<(), ExplainError> {
    let partition = explanation.partition;
    let said = &follow.said[index];
    let place = said.statement.place;
    let recorded = recorded(source, partition, |a| a.statement.place == place)?;
    let span = closure(follow, index);
    let since = follow.said[span.start].since;
    let until = ended(&follow.said[span.end - 1]);
    explanation.denied = true;
    explanation.reason = reason_of(denial.cause);
    explanation.code = Some(Code { partition, place }.to_string());
    explanation.denial = Some(denial_view(said, &denial, recorded.map(|(at, _)| at)));
    explanation.statements = follow
        .said
        .range(span)
        .map(|said| statement_view(partition, said))
        .collect();
    explanation.version = version_view(follow.replay.book(), denial.version, &explanation.resource);
    explanation.window = window(follow, said, &denial);
    explanation.tiers = tiers(follow, said);
    explanation.excess = excess(follow, since, until);
    explanation.refused = refused(follow, since, until);
    explanation.picture = picture(follow, said, explanation, until);
    sentences(explanation, said, &denial, until);
    Ok(())
}

/// When the last statement of a closure ended it.
fn ended(last: &Said) -> Timestamp {
    match denial_of(&last.statement) {
        Some(denial) => denial.end,
        None => last.since,
    }
}

pub(super) fn reason_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Tier(_) => "tier",
        Cause::Hard => "hard",
        Cause::Global => "global",
        Cause::Inaccessible => "inaccessible",
        Cause::Unconfigured => "unconfigured",
        Cause::Blind => "blind",
        Cause::Full => "full",
        Cause::Banned => "banned",
        _ => "other",
    }
}

pub(super) fn end_us(end: Timestamp) -> Option<u64> {
    (end < Timestamp::MAX).then_some(end.as_micros())
}

fn denial_view(said: &Said, denial: &Denial, recorded: Option<Timestamp>) -> DenialView {
    DenialView {
        cause: denial.cause.to_string(),
        tier: match denial.cause {
            Cause::Tier(tier) => Some(tier),
            _ => None,
        },
        limit: denial.limit,
        window_us: denial.window.as_micros(),
        since_us: said.since.as_micros(),
        appended_us: said.appended.as_micros(),
        recorded_us: recorded.map(Timestamp::as_micros),
        until_us: end_us(denial.end),
    }
}

fn statement_view(partition: u32, said: &Said) -> StatementView {
    let place: Place = said.statement.place;
    let (says, until, cause) = match said.statement.says {
        Says::Denied(denial) => ("denied", end_us(denial.end), Some(denial.cause.to_string())),
        Says::Open => ("open", None, None),
        Says::Near(near) => ("near", end_us(near.end), None),
    };
    StatementView {
        code: Code { partition, place }.to_string(),
        at_us: said.since.as_micros(),
        until_us: until,
        says,
        cause,
    }
}

pub(super) fn version_view(book: &LimitsBook, number: u64, resource: &str) -> Option<VersionView> {
    let version = book.get(number)?;
    Some(VersionView {
        number,
        digest: hex(&version.digest),
        excerpt: excerpt(&version.text, resource),
        text: version.text.to_string(),
    })
}

/// The tables of a document that name a resource, as they were written.
fn excerpt(text: &str, resource: &str) -> String {
    let named = |line: &str| {
        let inner = line.trim_start_matches('[').trim_start();
        let rest = inner
            .strip_prefix("rate.")
            .or_else(|| inner.strip_prefix("copies."));
        let rest = rest.map(|rest| rest.trim_start_matches('"'));
        let rest = rest.and_then(|rest| rest.strip_prefix(resource));
        rest.is_some_and(|rest| rest.starts_with([']', '.', '"', ' ']))
    };
    let (mut kept, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            inside = named(line.trim_start());
        }
        if inside && !line.trim().is_empty() {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// The hits that filled the window of the limit that closed.
fn window(follow: &Follow, said: &Said, denial: &Denial) -> Option<WindowView> {
    let tier = match denial.cause {
        Cause::Tier(tier) => Some(usize::from(tier).checked_sub(1)?),
        Cause::Hard => None,
        _ => return None,
    };
    let place = key(&said.statement);
    let counted = follow.entries.iter().filter_map(|entry| {
        let EntryFate::Ruled {
            granted, by_tier, ..
        } = &entry.fate
        else {
            return None;
        };
        let hits = match tier {
            Some(tier) => by_tier.get(tier).copied().unwrap_or(0),
            None => *granted,
        };
        let inside = said.since <= entry.at.saturating_add(denial.window);
        (0 < hits && inside && entry.place <= place).then_some((&*entry.agent, entry.at, hits))
    });
    Some(window_of(counted.collect()))
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
        by_time: by_time.collect(),
        by_agent: by_agent(
            hits.into_iter()
                .map(|(agent, at, hits)| (agent, at, at, hits)),
        ),
    }
}

fn by_agent<'a>(
    hits: impl Iterator<Item = (&'a str, Timestamp, Timestamp, u64)>,
) -> Vec<AgentView> {
    let mut agents: BTreeMap<&str, AgentView> = BTreeMap::new();
    for (agent, first, last, hits) in hits {
        let of = agents.entry(agent).or_insert_with(|| AgentView {
            agent: agent.to_owned(),
            hits: 0,
            first_us: u64::MAX,
            last_us: 0,
        });
        of.hits = of.hits.saturating_add(hits);
        of.first_us = of.first_us.min(first.as_micros());
        of.last_us = of.last_us.max(last.as_micros());
    }
    let mut agents: Vec<AgentView> = agents.into_values().collect();
    agents.sort_by_key(|of| std::cmp::Reverse(of.hits));
    agents
}

fn tiers(follow: &Follow, said: &Said) -> Vec<TierView> {
    let place = key(&said.statement);
    let tiers = said.class.tiers.iter().zip(&said.tiers).enumerate();
    tiers
        .map(|(index, (tier, now))| {
            let burst = follow.bursts.iter().rev().find(|burst| {
                burst.tier == index + 1 && Some(burst.at) == now.entered && burst.place <= place
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
                entered_at: burst.map(|burst| place_text(burst.place)),
                active_until_us: active_until.and_then(end_us),
                cooling_until_us: cooling_until.and_then(end_us),
            }
        })
        .collect()
}

fn excess(follow: &Follow, since: Timestamp, until: Timestamp) -> Tally {
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

fn refused(follow: &Follow, since: Timestamp, until: Timestamp) -> Tally {
    let within = follow
        .refused
        .iter()
        .filter(|refused| since <= refused.last && refused.first < until);
    let within: Vec<_> = within.collect();
    Tally {
        calls: within.iter().map(|refused| refused.calls).sum(),
        hits: within.iter().map(|refused| refused.copies).sum(),
        by_agent: by_agent(
            within
                .iter()
                .map(|refused| (&*refused.agent, refused.first, refused.last, refused.calls)),
        ),
    }
}

/// The tiers from what led there to the end of the denial, or to the end of what was read.
fn picture(
    follow: &Follow,
    said: &Said,
    explanation: &Explanation,
    until: Timestamp,
) -> Option<String> {
    let led = said.tiers.iter().filter_map(|tier| tier.entered);
    let window = explanation.window.as_ref().map(|window| window.from_us);
    let from = led
        .chain(window.filter(|from| 0 < *from).map(Timestamp::from_micros))
        .min()
        .unwrap_or(said.since);
    let of = said.class.tiers.len();
    let steps = follow.entries.iter().filter_map(|entry| {
        let EntryFate::Ruled {
            granted,
            excess,
            by_tier,
            entered,
            ..
        } = &entry.fate
        else {
            return None;
        };
        let inside = from <= entry.at && entry.at <= until;
        inside.then(|| Step {
            at: entry.at,
            asked: granted + excess,
            granted: *granted,
            by_tier: (0..of)
                .map(|n| by_tier.get(n).copied().unwrap_or(0))
                .collect(),
            entered: (0..of).map(|n| entered.contains(&n)).collect(),
            limited_by: None,
            until: match entry.until {
                None => Closed::Now,
                Some(Timestamp::MAX) => Closed::Never,
                Some(end) => Closed::At(end),
            },
        })
    });
    let mut steps: Vec<Step> = steps.collect();
    steps.sort_by_key(|step| step.at);
    if steps.is_empty() {
        return None;
    }
    let entries = (1..=of).map(|tier| {
        let of_tier = follow.bursts.iter().filter(|burst| burst.tier == tier);
        of_tier
            .map(|burst| burst.at)
            .filter(|at| from <= *at && *at <= until)
            .collect()
    });
    let played = Played {
        resource: explanation.resource.clone(),
        domain: explanation.domain.clone().unwrap_or_default(),
        class: said.class.clone(),
        origin: steps.first().map_or(from, |step| step.at),
        beyond: "excess",
        steps,
        entries: entries.collect(),
    };
    Some(draw_tiers(&played, false))
}

fn sentences(explanation: &mut Explanation, said: &Said, denial: &Denial, until: Timestamp) {
    let mut all = Vec::new();
    let limit = format!("{} in {}", denial.limit, print_span(denial.window));
    let who = match &explanation.domain {
        Some(domain) => format!("{} of {domain}", explanation.resource),
        None => explanation.resource.clone(),
    };
    let closed = match denial.cause {
        Cause::Tier(0) => "no tier was active, and none could be entered".to_owned(),
        Cause::Tier(tier) => format!("tier {tier} was full ({limit})"),
        Cause::Hard => format!("the hard limit was reached ({limit})"),
        Cause::Inaccessible => "the resource is configured without tiers: inaccessible".to_owned(),
        Cause::Unconfigured => {
            "the resource is not configured, and its namespace does not allow that".to_owned()
        }
        other => other.to_string(),
    };
    all.push(format!(
        "{who} was denied from {} until {}: {closed}, by limits version {}",
        Utc(said.since),
        Utc(denial.end),
        denial.version
    ));
    if let Some(window) = explanation.window.as_ref().filter(|window| 0 < window.hits) {
        let agents: Vec<String> = window
            .by_agent
            .iter()
            .take(5)
            .map(|of| format!("{} by {}", of.hits, of.agent))
            .collect();
        all.push(format!(
            "{} hits filled it between {} and {}: {}",
            window.hits,
            Utc(Timestamp::from_micros(window.from_us)),
            Utc(Timestamp::from_micros(window.to_us)),
            agents.join(", ")
        ));
    }
    for tier in explanation
        .tiers
        .iter()
        .filter(|tier| tier.phase == "cooling")
    {
        all.push(cooling(tier));
    }
    if until != denial.end {
        all.push(format!(
            "as it was said later, it was open again from {} on",
            Utc(until)
        ));
    }
    let Tally { calls, hits, .. } = &explanation.refused;
    all.push(match calls {
        0 => "the log has no calls that agents refused meanwhile".to_owned(),
        _ => format!("agents refused {calls} calls meanwhile, which asked for {hits} hits"),
    });
    if 0 < explanation.excess.hits {
        all.push(format!(
            "{} hits more were let through meanwhile (excess: counted, never punished)",
            explanation.excess.hits
        ));
    }
    explanation.sentences = all;
}

fn cooling(tier: &TierView) -> String {
    let instant = |us: Option<u64>| Utc(us.map_or(Timestamp::MAX, Timestamp::from_micros));
    let by = match (&tier.entered_by, &tier.entered_at) {
        (Some(agent), Some(place)) => format!("by a hit of {agent} ({place})"),
        _ => "before what was read".to_owned(),
    };
    let skipped = if tier.skippable {
        " (it is skippable)"
    } else {
        ""
    };
    format!(
        "tier {} was cooling down until {}{skipped}: a burst had entered it at {}, {by}",
        tier.tier,
        instant(tier.cooling_until_us),
        instant(tier.entered_us)
    )
}

/// A denial was in force; was a call let through all the same?
fn let_through(explanation: &mut Explanation, follow: &Follow, at: Timestamp) {
    let refused = follow
        .refused
        .iter()
        .any(|refused| refused.first <= at && at <= refused.last);
    let Some(call) = nearest(follow, at).filter(|call| call.stamp == at && !refused) else {
        return;
    };
    let said = follow.said.iter().rev().find(|said| said.since <= call.at);
    if said.is_some_and(|said| key(&said.statement) == call.place) {
        // It is the hit that closed it, which is let through by right.
        let text =
            "the call at that instant is the one that filled the window: the next is stopped";
        explanation.sentences.push(text.to_owned());
        explanation.reason = "room";
        return;
    }
    let known = explanation
        .denial
        .as_ref()
        .and_then(|denial| denial.recorded_us);
    let recorded = known.map_or(call.appended, Timestamp::from_micros);
    let late_us = call.stamp.signed_micros_since(recorded);
    let (reason, text) = if late_us <= DELAY.as_micros() as i64 {
        let when = match late_us {
            ..=0 => format!("{} us before the denial was recorded", -late_us),
            _ => format!("{late_us} us after the denial was recorded"),
        };
        let text = format!("{when}: within the delay in which agents hear of it");
        ("within_delay", text)
    } else {
        let text = format!(
            "{late_us} us after the denial was recorded: the agent had not heard it (blind), or a switch let everything through"
        );
        ("blind", text)
    };
    explanation.reason = reason;
    explanation.sentences.push(format!(
        "the call at that instant was let through by {}, {text}",
        call.agent
    ));
}

/// Nothing was in force: why not?
fn open(explanation: &mut Explanation, follow: &Follow, until: Until) {
    let limits = follow.replay.engine().limits();
    let who = format!(
        "{} of {}",
        explanation.resource,
        explanation.domain.clone().unwrap_or_default()
    );
    explanation.version = version_view(
        follow.replay.book(),
        follow.version(),
        &explanation.resource,
    );
    let (reason, text) = unruled(limits, &explanation.resource).unwrap_or_else(|| match until {
        Until::Instant(at) => room(follow, at),
        _ => ("room", "the log denies it nowhere".to_owned()),
    });
    explanation.reason = reason;
    explanation
        .sentences
        .push(format!("{who} was not denied: {text}"));
    if matches!(reason, "shadow" | "ignored")
        && let Until::Instant(at) = until
        && let Some(end) = would_have(follow, at)
    {
        let text = format!("its limits would have denied it until {}", Utc(end));
        explanation.sentences.push(text);
    }
}

/// Why a resource's limits deny nobody.
fn unruled(limits: &Limits, resource: &str) -> Option<(&'static str, String)> {
    let namespace = limits.namespace_of(resource);
    match limits.rate(resource) {
        None if namespace.allow_unconfigured => {
            Some(("no_limit", "nothing limits its resource".to_owned()))
        }
        _ if namespace.ignore_configured => {
            let text = "its namespace ignores limits: they are ruled and counted, nobody is denied";
            Some(("ignored", text.to_owned()))
        }
        Some(rate) if rate.mode() != Mode::Enforced => {
            let text = "its limits are in shadow: ruled and counted, never announced";
            Some(("shadow", text.to_owned()))
        }
        _ => None,
    }
}

fn would_have(follow: &Follow, at: Timestamp) -> Option<Timestamp> {
    let before = follow.entries.iter().rev().find(|entry| entry.at <= at)?;
    before.until.filter(|end| at < *end)
}

/// What became of the call at an instant, where nothing was in force.
fn room(follow: &Follow, at: Timestamp) -> (&'static str, String) {
    let Some(call) = nearest(follow, at) else {
        let text = "the log has no call of it within a second of that instant";
        return ("no_call", text.to_owned());
    };
    let by = format!("the call of {} at {}", call.agent, Utc(call.stamp));
    match &call.fate {
        EntryFate::Duplicate => (
            "duplicate",
            format!("{by} stands in a batch that had come before"),
        ),
        EntryFate::TooOld => (
            "too_old",
            format!("{by} came to the log more than 10 minutes later: only counted"),
        ),
        EntryFate::Free => ("no_limit", format!("{by} is of a resource without limits")),
        EntryFate::Ruled {
            granted: 0,
            excess: 0,
            late,
            ..
        } if 0 < *late => (
            "late",
            format!(
                "{by} came too late to say: the pair's time had passed it, by {} us",
                call.appended.since(call.at).as_micros()
            ),
        ),
        EntryFate::Ruled { granted, .. } => (
            "room",
            format!(
                "{by} had room: {} of its {} hits were granted{}",
                granted,
                call.copies,
                used(follow, call.at)
            ),
        ),
    }
}

/// How full the tiers were at an instant.
fn used(follow: &Follow, at: Timestamp) -> String {
    let class = follow.class();
    let tiers = class.tiers.iter().enumerate().map(|(index, tier)| {
        let inside = follow
            .entries
            .iter()
            .filter(|entry| entry.at <= at && at <= entry.at.saturating_add(tier.window));
        let hits: u64 = inside
            .map(|entry| match &entry.fate {
                EntryFate::Ruled { by_tier, .. } => by_tier.get(index).copied().unwrap_or(0),
                _ => 0,
            })
            .sum();
        format!(
            "tier {}: {hits} of {} in {}",
            index + 1,
            tier.limit,
            print_span(tier.window)
        )
    });
    let tiers: Vec<String> = tiers.collect();
    match tiers.is_empty() {
        true => String::new(),
        false => format!(" ({})", tiers.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_a_resources_tables_and_no_others() {
        let text = "version = 1\n[rate.\"api.search\"]\nrate = \"1/s\"\n\n[rate.\"api.search\".domains.x]\nrate = \"2/s\"\n[rate.\"api.search2\"]\nrate = \"3/s\"\n[rate.plain]\nhard = 1\n";
        let found = excerpt(text, "api.search");
        assert_eq!(found.lines().count(), 4, "{found}");
        assert!(!found.contains("3/s") && found.contains("2/s"));
        assert_eq!(excerpt(text, "plain"), "[rate.plain]\nhard = 1");
    }
}
