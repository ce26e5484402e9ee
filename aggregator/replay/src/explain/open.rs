//! Why a call was not refused.
//!
//! Knows only what was followed. What stays true: if the log cannot distinguish two reasons, both
//! are named.

use tollgate_limits::{Limits, Mode, print_span};
use tollgate_shared::escape::escaped;
use tollgate_shared::time::{Span, Timestamp};

use super::answer::{nearest, version_view};
use super::constraints;
use super::follow::{FollowUntil, PairFollow};
use super::history::{EntryFate, key};
use super::view::Explanation;
use crate::range::Utc;

/// A generous bound on the time from a denial's record to an agent. If a call is let through later
/// than this, its agent had not received the denial for another reason.
const DELAY: Span = Span::from_secs(1);

/// Why nobody is denied in a namespace that ignores its limits.
pub(super) const IGNORED: &str =
    "its namespace ignores limits: they are ruled and counted, never denied";

/// A denial was in force: was a call let through all the same?
pub(super) fn let_through(explanation: &mut Explanation, follow: &PairFollow, at: Timestamp) {
    let refused = follow
        .refused
        .iter()
        .any(|refused| refused.first <= at && at <= refused.last);
    let Some(call) = nearest(follow, at).filter(|call| call.stamp == at && !refused) else {
        return;
    };
    let stated = follow
        .statements
        .iter()
        .rev()
        .find(|stated| stated.since <= call.at);
    if stated.is_some_and(|stated| key(&stated.statement) == call.position) {
        // This hit filled the limit, and is let through correctly.
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
        let text = format!("{when}: within the delay until agents receive it");
        ("within_delay", text)
    } else {
        let text = format!(
            "{late_us} us after the denial was recorded: the agent had not received it (blind), or a switch let everything through"
        );
        ("blind", text)
    };
    explanation.reason = reason;
    explanation.sentences.push(format!(
        "the call at that instant was let through by {}, {text}",
        call.agent
    ));
}

/// No denial was in force: why not?
pub(super) fn explain(explanation: &mut Explanation, follow: &PairFollow, until: FollowUntil) {
    let limits = follow.replay.engine().limits();
    let who = format!(
        "{} of {}",
        escaped(&explanation.resource),
        escaped(explanation.domain.as_deref().unwrap_or_default())
    );
    explanation.version = version_view(follow.replay.book(), follow.version(), explanation);
    let by_limits = unruled(limits, &explanation.resource);
    if by_limits.is_none()
        && let Some((reason, text)) = refused_by_agents(limits, &explanation.resource)
    {
        explanation.reason = reason;
        let text = format!("{who} is refused by agents, without a denial: {text}");
        explanation.sentences.push(text);
        return;
    }
    let (reason, text) = by_limits.unwrap_or_else(|| match until {
        FollowUntil::Instant(at) => room(follow, at),
        _ => ("room", "the log contains no denial of it".to_owned()),
    });
    explanation.reason = reason;
    explanation
        .sentences
        .push(format!("{who} was not denied: {text}"));
    if matches!(reason, "shadow" | "ignored")
        && let FollowUntil::Instant(at) = until
        && let Some(end) = would_have(follow, at)
    {
        let text = format!("its limits would have denied it until {}", Utc(end));
        explanation.sentences.push(text);
    }
}

/// Why agents refuse all calls on a resource by themselves: they know these limits, so that the log has no denial.
fn refused_by_agents(limits: &Limits, resource: &str) -> Option<(&'static str, &'static str)> {
    let is_configured = limits.rate(resource).is_some();
    let why = match is_configured {
        true => ("inaccessible", "its resource lets nobody in"),
        false => (
            "unconfigured",
            "no limits are configured for its resource, and its namespace refuses such resources",
        ),
    };
    limits.public(resource, 0).refused.then_some(why)
}

/// Why a resource's limits deny nobody.
fn unruled(limits: &Limits, resource: &str) -> Option<(&'static str, String)> {
    let namespace = limits.namespace_of(resource);
    match limits.rate(resource) {
        None if namespace.allow_unconfigured => {
            Some(("no_limit", "nothing limits its resource".to_owned()))
        }
        _ if namespace.ignore_configured => Some(("ignored", IGNORED.to_owned())),
        Some(rate) if rate.mode() != Mode::Enforced => {
            let text = "its limits are in shadow: ruled and counted, never announced";
            Some(("shadow", text.to_owned()))
        }
        _ => None,
    }
}

fn would_have(follow: &PairFollow, at: Timestamp) -> Option<Timestamp> {
    let before = follow.entries.iter().rev().find(|entry| entry.at <= at)?;
    before.until.filter(|end| at < *end)
}

/// How the call at an instant was ruled, if no denial was in force.
fn room(follow: &PairFollow, at: Timestamp) -> (&'static str, String) {
    let Some(call) = nearest(follow, at) else {
        let text = "the log has no call of it within a second of that instant";
        return ("no_call", text.to_owned());
    };
    let by = format!(
        "the call of {} at {}",
        escaped(&call.agent),
        Utc(call.stamp)
    );
    match &call.fate {
        EntryFate::Duplicate => (
            "duplicate",
            format!("{by} is in a batch that had arrived before"),
        ),
        EntryFate::TooOld => (
            "too_old",
            format!("{by} arrived in the log more than 10 minutes later: only counted"),
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
                "{by} arrived too late to rule: the pair's time was ahead of it, by {} us",
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

/// How full the constraints were at an instant.
fn used(follow: &PairFollow, at: Timestamp) -> String {
    let class = follow.class();
    let tiers = class.tiers().iter().enumerate().map(|(index, tier)| {
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
    // For other constraints only their state at the end of what was read is known.
    let others = follow.constraints();
    let all: Vec<String> = others
        .iter()
        .map(constraints::constraint_text)
        .chain(tiers)
        .collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" ({})", all.join("; ")),
    }
}
