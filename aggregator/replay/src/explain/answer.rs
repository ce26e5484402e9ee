//! The answer about one pair: the statement in force, what filled its window, what led to it.
//!
//! Knows only what was followed. What stays true: every number is counted from entries of the log.

use tollgate_shared::escape::escaped;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Cause, Denial, StatementKind};

use super::follow::{FollowUntil, PairFollow};
use super::history::{EntryFate, ExplainedEntry, PairStatement, denial_of};
use super::view::{CallView, DenialView, Explanation, StatementView, VersionView};
use super::{AskedPair, ExplainError, counts, older, open, recorded_at, refused, sentences};
use crate::range::Utc;
use crate::source::Source;
use tollgate_limits::versions::{LimitsBook, Made, concerns, in_one_line};
use tollgate_limits::{Limits, Resource};
use tollgate_shared::hex::hex;

/// How near to the requested instant a call has to be.
const NEAR: Span = Span::from_secs(1);

/// Explains the pair that was followed.
pub(super) fn of(
    source: &dyn Source,
    asked: &AskedPair,
    partition: u32,
    follow: PairFollow,
) -> Result<Explanation, ExplainError> {
    let mut explanation = Explanation {
        schema: "tollgate.explain/1",
        log: source.name(),
        resource: asked.resource.clone(),
        domain: asked.domain.clone(),
        partition,
        at_us: match asked.until {
            FollowUntil::Instant(at) => Some(at.as_micros()),
            _ => None,
        },
        ..Explanation::default()
    };
    let index = wanted(asked, &follow)?;
    if let FollowUntil::Instant(at) = asked.until {
        explanation.call = nearest(&follow, at).map(call_view);
    }
    let found = index.and_then(|index| {
        let denial = denial_of(&follow.statements[index].statement)?;
        let over = matches!(asked.until, FollowUntil::Instant(at) if denial.end <= at);
        (!over).then_some((index, denial))
    });
    match found {
        Some((index, denial)) => {
            denied(&mut explanation, source, &follow, index, denial)?;
            if let FollowUntil::Instant(at) = asked.until {
                open::let_through(&mut explanation, &follow, at);
            }
        }
        None => {
            open::explain(&mut explanation, &follow, asked.until);
            if let FollowUntil::Instant(at) = asked.until {
                let from = at.saturating_sub(NEAR);
                let of = &follow.unremembered;
                let uncounted = sentences::uncounted(of, from, Timestamp::MAX);
                explanation.sentences.extend(uncounted);
            }
        }
    }
    Ok(explanation)
}

/// The statement that the question is about.
fn wanted(asked: &AskedPair, follow: &PairFollow) -> Result<Option<usize>, ExplainError> {
    let mut stated = follow.statements.iter();
    match asked.until {
        FollowUntil::End => Ok(stated.rposition(|stated| denial_of(&stated.statement).is_some())),
        FollowUntil::Instant(at) => Ok(stated.rposition(|stated| stated.since <= at)),
        FollowUntil::Position(position) => {
            let none = |why: String| {
                let code = asked.code.map(|code| code.to_string()).unwrap_or_default();
                ExplainError::NotThere(format!("{code}: {why}"))
            };
            let index = stated.position(|stated| stated.numbered().is_at(position));
            let index = index.ok_or_else(|| none("the log has no statement there".to_owned()))?;
            let found = follow.statements[index].statement.position.generation;
            match asked.code.map(|code| code.position.generation) {
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

/// The call nearest to an instant of log time: a stamp of an agent whose clock is wrong may be far from it.
pub(super) fn nearest(follow: &PairFollow, at: Timestamp) -> Option<&ExplainedEntry> {
    let apart = |entry: &&ExplainedEntry| entry.at.signed_micros_since(at).unsigned_abs();
    let calls = follow.entries.iter().filter(|entry| 0 < entry.copies);
    let nearest = calls.min_by_key(apart)?;
    (apart(&nearest) <= NEAR.as_micros()).then_some(nearest)
}

pub(super) fn position_text(position: (u64, u32)) -> String {
    format!("offset {}, entry {}", position.0, position.1)
}

fn call_view(entry: &ExplainedEntry) -> CallView {
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
        position: position_text(entry.position),
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

/// The statements of one denial: from the first to the one that ends it.
fn closure(follow: &PairFollow, index: usize) -> std::ops::Range<usize> {
    let ends_after = |stated: &PairStatement, at: Timestamp| {
        denial_of(&stated.statement).is_some_and(|denial| at < denial.end)
    };
    let mut first = index;
    while let Some(before) = first.checked_sub(1)
        && ends_after(&follow.statements[before], follow.statements[first].since)
    {
        first = before;
    }
    let mut last = index;
    while let Some(next) = follow.statements.get(last + 1)
        && ends_after(&follow.statements[last], next.since)
    {
        last += 1;
    }
    first..last + 1
}

fn denied(
    explanation: &mut Explanation,
    source: &dyn Source,
    follow: &PairFollow,
    index: usize,
    denial: Denial,
) -> Result<(), ExplainError> {
    let partition = explanation.partition;
    let stated = &follow.statements[index];
    let of = (partition, &*explanation.resource);
    let recorded = recorded_at(source, of, &stated.statement)?;
    let span = closure(follow, index);
    let (since, is_older) = {
        let first = &follow.statements[span.start];
        (first.since, first.is_older)
    };
    let until = ended(&follow.statements[span.end - 1]);
    explanation.denied = true;
    explanation.reason = reason_of(denial.cause);
    explanation.code = stated.numbered().code(partition);
    explanation.denial = Some(denial_view(stated, &denial, recorded));
    let reports = refused::by_statement(&follow.statements, follow.refused.iter());
    let stated_in = follow.statements.range(span.clone()).zip(&reports[span]);
    explanation.statements = stated_in
        .map(|(stated, reports)| {
            let calls = refused::tally(reports.iter().copied()).calls;
            statement_view(partition, stated, calls)
        })
        .collect();
    explanation.version = version_view(follow.replay.book(), denial.version, explanation);
    explanation.window = counts::window(follow, stated, &denial);
    explanation.tiers = counts::tiers(follow, stated);
    explanation.constraints = stated.constraints.clone();
    explanation.excess = counts::excess(follow, since, until);
    explanation.refused = refused::tally(reports[index].iter().copied());
    explanation.picture = counts::picture(follow, stated, explanation, until);
    sentences::write(explanation, stated, &denial, until);
    let unknown = is_older.then(|| older::unknown_of(since));
    let window = explanation.window.as_ref();
    let unnamed = window.zip(follow.begins.filter(|_| !is_older));
    let unnamed = unnamed.and_then(|(window, begins)| older::unnamed_of(window, begins));
    explanation
        .sentences
        .extend(unknown.into_iter().chain(unnamed));
    // A bucket may have been used up at any time before.
    let from = match denial.cause {
        Cause::Bucket => Timestamp::ZERO,
        _ => since.saturating_sub(denial.window),
    };
    let uncounted = sentences::uncounted(&follow.unremembered, from, since);
    explanation.sentences.extend(uncounted);
    Ok(())
}

/// When the last statement of a denial ended it.
fn ended(last: &PairStatement) -> Timestamp {
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
        Cause::Window(_) => "window",
        Cause::Quota(_) => "quota",
        Cause::Bucket => "bucket",
        Cause::TooMany => "too-many",
        _ => "other",
    }
}

pub(super) fn end_us(end: Timestamp) -> Option<u64> {
    (end < Timestamp::MAX).then_some(end.as_micros())
}

fn denial_view(stated: &PairStatement, denial: &Denial, recorded: Option<Timestamp>) -> DenialView {
    DenialView {
        cause: denial.cause.to_string(),
        tier: match denial.cause {
            Cause::Tier(tier) => Some(tier),
            _ => None,
        },
        limit: denial.limit,
        window_us: denial.window.as_micros(),
        since_us: stated.since.as_micros(),
        appended_us: stated.appended.as_micros(),
        recorded_us: recorded.map(Timestamp::as_micros),
        until_us: end_us(denial.end),
    }
}

fn statement_view(partition: u32, stated: &PairStatement, refused_calls: u64) -> StatementView {
    let (says, until, cause) = match stated.statement.kind {
        StatementKind::Denied(denial) => {
            ("denied", end_us(denial.end), Some(denial.cause.to_string()))
        }
        StatementKind::Lifted => ("open", None, None),
    };
    StatementView {
        code: stated.numbered().code(partition),
        at_us: stated.since.as_micros(),
        until_us: until,
        says,
        cause,
        refused_calls,
    }
}

/// A version, as far as it concerns a pair.
pub(super) fn version_view(
    book: &LimitsBook,
    number: u64,
    of: &Explanation,
) -> Option<VersionView> {
    let version = book.get(number)?;
    let mut excerpt = excerpt(&version.text, &version.limits, &of.resource);
    let row = of
        .domain
        .as_deref()
        .and_then(|domain| row_text(&version.limits, &of.resource, domain));
    if let Some(row) = row {
        excerpt.push_str(&row);
    }
    let configured = version.limits.resource(&of.resource).map(Resource::name);
    let names = (&*of.resource, configured.unwrap_or(&of.resource));
    let made = version.made.as_deref();
    let made = made.filter(|made| concerns(&made.act, names, of.domain.as_deref()));
    Some(VersionView {
        number,
        digest: hex(&version.text.digest()),
        amendment: made.map(amendment),
        excerpt,
    })
}

fn amendment(made: &Made) -> String {
    let Made { who, why, at, act } = made;
    format!(
        "{}, by {} at {}: {}",
        in_one_line(act),
        escaped(who),
        Utc(*at),
        escaped(why)
    )
}

/// The row beside the document that limits the domain, if there is one.
fn row_text(limits: &Limits, resource: &str, domain: &str) -> Option<String> {
    let (name, ruling) = match limits.resource(resource)? {
        Resource::Rate(rate) => (rate.name(), rate.ruling_domain(domain)?),
        Resource::Copies(copies) => (copies.name(), copies.ruling_domain(domain)?),
    };
    let row = limits.row_of(name, &ruling)?;
    let stated = [
        row.rate.map(|rate| format!("rate {}", escaped(&rate))),
        row.hard.map(|hard| format!("hard {}", escaped(&hard))),
        row.limit.map(|limit| format!("limit {limit}")),
    ];
    let stated: Vec<String> = stated.into_iter().flatten().collect();
    Some(format!(
        "\n# set beside the document: {} {}: {}",
        escaped(name),
        escaped(&ruling),
        stated.join(", ")
    ))
}

/// The tables of a document that name a resource, or the pattern that limits it, as they were written.
fn excerpt(text: &str, limits: &Limits, resource: &str) -> String {
    let resource = limits.resource(resource).map_or(resource, Resource::name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_limits_a_domain_is_named() {
        let own = tollgate_limits::Own {
            rate: Some("9/s".into()),
            ..tollgate_limits::Own::default()
        };
        let document = "[rate.a]\nrate = \"1/s\"\ndomains.named.rate = \"2/s\"\n";
        let limits = Limits::parse(document).expect("it is good");
        let limits = limits.with_own("a", "10.0.0.0/8", Some(&own));
        let limits = limits.expect("it can be set");
        let expected = "\n# set beside the document: a 10.0.0.0/8: rate 9/s";
        let row = |domain| row_text(&limits, "a", domain);
        assert_eq!(row("10.1.2.3").as_deref(), Some(expected));
        assert_eq!((row("named"), row("other")), (None, None));
    }

    #[test]
    fn an_excerpt_has_a_resources_tables_and_no_others() {
        let text = "version = 1\n[rate.\"api.search\"]\nrate = \"1/s\"\n\n[rate.\"api.search\".domains.x]\nrate = \"2/s\"\n[rate.\"api.search2\"]\nrate = \"3/s\"\n[rate.plain]\nhard = \"1/s\"\n[rate.\"web.*\"]\nrate = \"4/s\"\n";
        let limits = Limits::parse(text).expect("it is good");
        let found = excerpt(text, &limits, "api.search");
        assert_eq!(found.lines().count(), 4, "{found}");
        assert!(!found.contains("3/s") && found.contains("2/s"));
        let of = |resource| excerpt(text, &limits, resource);
        assert_eq!(of("plain"), "[rate.plain]\nhard = \"1/s\"");
        assert_eq!(of("web.search"), "[rate.\"web.*\"]\nrate = \"4/s\"");
    }
}
