//! Why a call was not refused.
//!
//! Knows only what was followed. What stays true: if the log cannot distinguish two reasons, both
//! are named.

use tollgate_limits::{Limits, Mode, RateClass, Resource, print_span};
use tollgate_shared::escape::escaped;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Cause;

use super::answer::{nearest, reason_of, version_view};
use super::follow::{FollowUntil, PairFollow};
use super::history::{EntryFate, key};
use super::older::unread_of;
use super::refused::{RefusedCalls, tally};
use super::view::Explanation;
use crate::fill;
use crate::range::{UntilUtc, Utc};

/// A generous bound on the time from a denial's record to an agent. If a call is let through later
/// than this, its agent had not received the denial for another reason.
const DELAY: Span = Span::from_secs(1);

/// Why nobody is denied in a namespace that ignores its limits.
pub(super) const IGNORED: &str =
    "its namespace ignores limits: they are ruled and counted, never denied";

/// Why agents refuse an address of a banned network.
pub(super) const BANNED_NETWORK: &str = "an operator has banned a network that it is in";

/// A denial was in force: was a call let through all the same?
pub(super) fn let_through(explanation: &mut Explanation, follow: &PairFollow, at: Timestamp) {
    let refused = follow
        .refused
        .iter()
        .any(|refused| refused.first <= at && at <= refused.last);
    let Some(call) = nearest(follow, at).filter(|call| call.at == at && !refused) else {
        return;
    };
    let stated = follow
        .statements
        .iter()
        .rev()
        .find(|stated| stated.since <= call.at);
    let is_its = stated.is_some_and(|stated| key(&stated.statement) == call.position);
    if is_its && explanation.reason != reason_of(Cause::Banned) {
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
    let late_us = call.at.signed_micros_since(recorded);
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
        escaped(&call.agent)
    ));
}

/// No denial was in force: why not?
pub(super) fn explain(explanation: &mut Explanation, follow: &PairFollow, until: FollowUntil) {
    // What holds at an instant is what its call was ruled by, whatever changed afterwards.
    let call = match until {
        FollowUntil::Instant(at) => nearest(follow, at).filter(|call| call.at <= at),
        FollowUntil::Position(_) | FollowUntil::End => None,
    };
    let in_force = follow.limits_of(call);
    let limits = &*in_force.limits;
    let who = format!(
        "{} of {}",
        escaped(&explanation.resource),
        escaped(explanation.domain.as_deref().unwrap_or_default())
    );
    explanation.version = version_view(follow.replay.book(), in_force.number, explanation);
    let by_limits = unruled(limits, &explanation.resource);
    let is_heeded = !matches!(by_limits, Some(("shadow" | "ignored", _)));
    let banned = Some((reason_of(Cause::Banned), BANNED_NETWORK));
    let banned = banned.filter(|_| is_heeded && is_banned(follow, until));
    let refused = || {
        let was_let_through =
            matches!(until, FollowUntil::Instant(at) if nearest(follow, at).is_some());
        let by_agents = refused_by_agents(limits, explanation, was_let_through);
        by_agents.filter(|_| by_limits.is_none())
    };
    if let Some((reason, text)) = banned.or_else(refused) {
        explanation.reason = reason;
        let text = format!("{who} is refused by agents, without a denial: {text}");
        explanation.sentences.push(text);
        return;
    }
    if by_limits.is_none()
        && let Some(text) = asked_too_much(follow, &in_force.class, until)
    {
        explanation.reason = reason_of(Cause::TooMany);
        let text = format!("{who} was not denied, but {text}");
        explanation.sentences.push(text);
        return;
    }
    let begins = follow.begins.filter(|_| until == FollowUntil::End);
    let unread = begins.map(unread_of);
    let (reason, text) = by_limits.unwrap_or_else(|| match until {
        FollowUntil::Instant(at) => room(follow, at),
        _ if unread.is_some() => (
            "room",
            "what is left of the log contains no denial of it".to_owned(),
        ),
        _ => ("room", "the log contains no denial of it".to_owned()),
    });
    explanation.reason = reason;
    explanation
        .sentences
        .push(format!("{who} was not denied: {text}"));
    explanation.sentences.extend(unread);
    if matches!(reason, "shadow" | "ignored")
        && let FollowUntil::Instant(at) = until
        && let Some(end) = would_have(follow, at)
    {
        let text = format!("its limits would have denied it {}", UntilUtc(end));
        explanation.sentences.push(text);
    }
}

/// Whether a ban is in force. Where no denial states it, it is one of a network, whose addresses agents refuse.
fn is_banned(follow: &PairFollow, until: FollowUntil) -> bool {
    let at = until.instant_or(follow.read_upto);
    let (resource, domain) = follow.names();
    follow.replay.engine().is_banned(resource, domain, at)
}

/// Why agents refuse all calls of a pair by themselves: they know these limits, so that the log has no denial. A call that
/// was let through is of an agent that did not know a network or an allow list yet.
fn refused_by_agents(
    limits: &Limits,
    explanation: &Explanation,
    was_let_through: bool,
) -> Option<(&'static str, &'static str)> {
    let resource = &*explanation.resource;
    let public = limits.public(resource, 0);
    let domain = explanation.domain.as_deref();
    let is_closed = domain.is_some_and(|domain| {
        let found = public.closed.binary_search_by(|one| (**one).cmp(domain));
        found.is_ok()
    });
    let is_in_closed = |domain: &str| public.networks.of_domain(domain).is_some();
    let is_in_closed = domain.is_some_and(is_in_closed);
    let allowed = public.allowed.as_ref();
    let is_unlisted = domain.is_some_and(|domain| allowed.is_some_and(|all| !all.allows(domain)));
    match (limits.rate(resource).is_some(), public.refused) {
        (true, true) => Some(("inaccessible", "its resource lets nobody in")),
        (false, true) => Some((
            "unconfigured",
            "no limits are configured for its resource, and its namespace refuses such resources",
        )),
        _ if is_closed => Some(("inaccessible", "its own limits grant it nothing")),
        _ if was_let_through => None,
        _ if is_in_closed => Some((
            "inaccessible",
            "the limits of a network that it is in grant it nothing",
        )),
        _ if is_unlisted => Some((
            "inaccessible",
            "its resource lets in only domains that have limits of their own",
        )),
        _ => None,
    }
}

/// The calls that agents refused because of their size, without a denial: at an instant, or all.
fn asked_too_much(follow: &PairFollow, class: &RateClass, until: FollowUntil) -> Option<String> {
    let is_meant = |of: &&RefusedCalls| match until {
        FollowUntil::Instant(at) => of.first <= at && at <= of.last,
        FollowUntil::Position(_) | FollowUntil::End => true,
    };
    let reports = follow
        .refused
        .iter()
        .filter(|of| of.cause == Cause::TooMany);
    let calls = tally(reports.filter(is_meant)).calls;
    let most = class.most_at_once();
    let most = most.map_or(String::new(), |most| format!(" ({most})"));
    (0 < calls).then(|| {
        format!(
            "agents refused {calls} calls that wanted more hits at once than its limits can ever grant{most}"
        )
    })
}

/// Why a resource's limits deny nobody.
pub(super) fn unruled(limits: &Limits, resource: &str) -> Option<(&'static str, String)> {
    let namespace = limits.namespace_of(resource);
    match limits.resource(resource) {
        None if namespace.allow_unconfigured => {
            Some(("no_limit", "nothing limits its resource".to_owned()))
        }
        Some(Resource::Copies(_)) => Some((
            "no_limit",
            "its resource is limited by copies, not by hits".to_owned(),
        )),
        _ if namespace.ignore_configured => Some(("ignored", IGNORED.to_owned())),
        Some(Resource::Rate(rate)) if rate.mode() != Mode::Enforced => {
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
    let by = format!("the call of {} at {}", escaped(&call.agent), Utc(call.at));
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
                "{by} arrived too late to rule: it was in the log {} us after its stamp, and the pair's time was ahead of it",
                call.appended.since(call.at).as_micros()
            ),
        ),
        EntryFate::Ruled {
            granted, excess, ..
        } => {
            let class = follow.limits_of(Some(call)).class;
            let (used, copies) = (used(&class, &call.fate), call.copies);
            match (granted, excess) {
                (0, _) if class.is_inaccessible() => (
                    "excess",
                    format!("{by} was let through before its denial: its limits let nobody in"),
                ),
                (0, _) => (
                    "excess",
                    format!("{by} was let through without room: it is excess{used}"),
                ),
                (_, 0) => (
                    "room",
                    format!("{by} had room: {granted} of its {copies} hits were granted{used}"),
                ),
                (_, excess) => (
                    "room",
                    format!(
                        "{by} had room: {granted} of its {copies} hits were granted, {excess} are excess{used}"
                    ),
                ),
            }
        }
    }
}

/// How full the constraints were after a call.
fn used(class: &RateClass, fate: &EntryFate) -> String {
    let EntryFate::Ruled { in_tiers, used, .. } = fate else {
        return String::new();
    };
    let lanes = fill::lanes(class).into_iter().zip(used);
    let lanes = lanes.map(|(lane, hits)| {
        let fill::Lane { name, limit, over } = lane;
        format!("{name}: {hits} of {limit} {over}")
    });
    let tiers = class.tiers().iter().zip(in_tiers).enumerate();
    let tiers = tiers.map(|(index, (tier, hits))| {
        let (limit, window) = (tier.limit, print_span(tier.window));
        format!("tier {}: {hits} of {limit} in {window}", index + 1)
    });
    let all: Vec<String> = lanes.chain(tiers).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" ({})", all.join("; ")),
    }
}
