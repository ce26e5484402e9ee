//! The answer about everybody: a resource's global limit, which is ruled from totals.
//!
//! A totals record names the records of other partitions and what they granted; those records have
//! the agents. Knows nothing of tiers: global limits have none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollgate_engine::engine::TOO_OLD;
use tollgate_limits::versions::{LimitsBook, Version};
use tollgate_limits::{Limits, RateResource, print_span};
use tollgate_shared::escape::escaped;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::record::{Record, Totals};
use tollgate_shared::wire::statement::{Denial, Scope, Statement};

use super::answer::{end_us, reason_of, version_view};
use super::counts::window_of;
use super::follow::FollowUntil;
use super::history::{LATE, NumberedStatement, denial_of, push};
use super::numbers::{self, Unnumbered};
use super::older::{begins_of, unread_of};
use super::open::unruled;
use super::view::{DenialView, Explanation, StatementView};
use super::{
    AskedPair, Begun, ExplainError, begin, partition_of_everybody, record_at, recorded_at, refused,
    sentences,
};
use crate::range::{UntilUtc, Utc};
use crate::replay::{RecordResult, Replay, ReplayError};
use crate::source::{ReadStep, Source};
use tollgate_log::Stream;

/// How many of the newest totals are remembered.
const TOTALS_MAX: usize = 100_000;

/// How many source records are looked up for their agents.
const SOURCES_MAX: usize = 500;

struct CountedTotal {
    position: u64,
    source: (u32, u64),
    granted: Vec<(Timestamp, u32)>,
}

struct SourceStatement {
    statement: Statement,
    /// Whether the entry of its log position is known, as of [`PairStatement`](super::history::PairStatement).
    is_numbered: bool,
    since: Timestamp,
    appended: Timestamp,
}

impl SourceStatement {
    fn numbered(&self) -> NumberedStatement<'_> {
        NumberedStatement(&self.statement, self.is_numbered)
    }

    fn denial_view(&self, denial: &Denial, recorded: Option<Timestamp>) -> DenialView {
        DenialView {
            cause: denial.cause.to_string(),
            tier: None,
            limit: denial.limit,
            window_us: denial.window.as_micros(),
            since_us: self.since.as_micros(),
            appended_us: self.appended.as_micros(),
            recorded_us: recorded.map(Timestamp::as_micros),
            until_us: end_us(denial.end),
        }
    }

    fn view(&self, of: &Explanation, denial: &Denial) -> StatementView {
        StatementView {
            code: of.code.clone(),
            at_us: self.since.as_micros(),
            until_us: end_us(denial.end),
            says: "denied",
            cause: Some(denial.cause.to_string()),
            refused_calls: 0,
        }
    }
}

/// What was read about everybody.
struct FollowedTotals {
    totals: VecDeque<CountedTotal>,
    stated: Vec<SourceStatement>,
    /// The newest instant of the totals.
    now: Timestamp,
    /// Log time at the snapshot from which the log is read; `None`: it is read from its beginning.
    begins: Option<Timestamp>,
    /// The limits in force at the instant that the question is about, or at the end; the first ones, if the instant is
    /// before them.
    version: Option<Arc<Version>>,
}

impl FollowedTotals {
    /// Remembers a totals record.
    fn count(&mut self, position: u64, record: &Totals<'_>) {
        let granted = record.counted().map(|total| (total.at(), total.copies));
        let granted: Vec<_> = granted.collect();
        let newest = granted.iter().map(|(at, _)| *at).max();
        self.now = self.now.max(newest.unwrap_or_default());
        let total = CountedTotal {
            position,
            source: (record.source_partition, record.source_offset),
            granted,
        };
        push(&mut self.totals, TOTALS_MAX, total);
    }
}

/// The version that an engine has activated last.
fn in_force(replay: &Replay) -> Option<Arc<Version>> {
    replay.book().get(replay.engine().version()?).cloned()
}

/// Explains what denied everybody.
pub(super) fn explain(
    source: &dyn Source,
    asked: &AskedPair,
    keys: &Keyring,
) -> Result<Explanation, ExplainError> {
    let partition = partition_of_everybody(source, &asked.resource);
    let mut begun = begin(source, partition, keys, asked)?;
    let mut followed = follow(source, asked, &mut begun)?;
    let unnumbered = followed.stated.iter_mut().filter(|of| !of.is_numbered);
    let unnumbered = unnumbered.map(|of| Unnumbered {
        statement: &mut of.statement,
        is_numbered: &mut of.is_numbered,
    });
    numbers::find(source, (partition, &asked.resource), unnumbered)?;
    answer(source, asked, partition, &followed, &begun.replay)
}

/// Reads the totals of the resource and the statements about everybody, until the answer is complete.
fn follow(
    source: &dyn Source,
    asked: &AskedPair,
    begun: &mut Begun,
) -> Result<FollowedTotals, ExplainError> {
    let partition = begun.partition;
    let mut cursor = source.open(Stream::Hits, partition, begun.next)?;
    let mut followed = FollowedTotals {
        totals: VecDeque::new(),
        stated: Vec::new(),
        now: Timestamp::ZERO,
        begins: begins_of(begun),
        version: in_force(&begun.replay),
    };
    loop {
        let records = match cursor.read()? {
            ReadStep::Records(records) => records,
            ReadStep::Gone { wanted, next } => {
                return Err(ReplayError::Gone {
                    partition,
                    wanted,
                    first: next,
                }
                .into());
            }
            ReadStep::End => return Ok(followed),
        };
        for delivered in &records {
            if is_over(asked.until, &followed.stated, delivered.appended) {
                return Ok(followed);
            }
            // Hits of domains do not affect the global limit directly.
            if matches!(Record::decode(&delivered.bytes), Ok(Record::Hits(_))) {
                continue;
            }
            let met = begun.replay.apply(delivered, source)?;
            if let RecordResult::Ruled(Record::Totals(record)) = &met
                && record.resource == asked.resource
            {
                followed.count(delivered.offset, record);
            }
            let is_numbered = matches!(met, RecordResult::Ruled(Record::Totals(_)));
            let since = match is_numbered {
                true => followed.now,
                // An operator's act, or other limits.
                false => followed.now.max(delivered.appended),
            };
            if !asked.until.is_before(delivered.appended) || followed.version.is_none() {
                followed.version = in_force(&begun.replay);
            }
            for ruled in &begun.replay.rulings().statements {
                if *ruled.resource == *asked.resource && ruled.statement.scope == Scope::Resource {
                    followed.stated.push(SourceStatement {
                        statement: ruled.statement.clone(),
                        is_numbered,
                        since,
                        appended: delivered.appended,
                    });
                }
            }
        }
    }
}

fn is_over(until: FollowUntil, stated: &[SourceStatement], appended: Timestamp) -> bool {
    match until {
        FollowUntil::End => false,
        FollowUntil::Instant(at) => at.saturating_add(TOO_OLD) < appended,
        FollowUntil::Position(position) => stated
            .iter()
            .find(|stated| stated.numbered().may_be_at(position))
            .is_some_and(|stated| stated.appended.saturating_add(LATE) < appended),
    }
}

fn answer(
    source: &dyn Source,
    asked: &AskedPair,
    partition: u32,
    followed: &FollowedTotals,
    replay: &Replay,
) -> Result<Explanation, ExplainError> {
    let FollowedTotals { totals, stated, .. } = followed;
    let found = match asked.until {
        FollowUntil::End => stated
            .iter()
            .rposition(|s| denial_of(&s.statement).is_some()),
        FollowUntil::Instant(at) => stated.iter().rposition(|s| s.since <= at),
        FollowUntil::Position(position) => stated.iter().position(|s| s.numbered().is_at(position)),
    };
    let mut explanation = Explanation {
        schema: "tollgate.explain/1",
        log: source.name(),
        resource: asked.resource.clone(),
        partition,
        at_us: match asked.until {
            FollowUntil::Instant(at) => Some(at.as_micros()),
            _ => None,
        },
        reason: "room",
        ..Explanation::default()
    };
    let denial = found.and_then(|index| denial_of(&stated[index].statement).map(|d| (index, d)));
    let over = |end| matches!(asked.until, FollowUntil::Instant(at) if end <= at);
    let Some((index, denial)) = denial.filter(|(_, denial)| !over(denial.end)) else {
        if let (FollowUntil::Position(_), Some(code)) = (asked.until, asked.code) {
            let text = format!("{code}: the log has no statement there");
            return Err(ExplainError::NotThere(text));
        }
        let version = followed.version.as_ref();
        let limits = version.map_or_else(Arc::default, |version| Arc::clone(&version.limits));
        let (reason, why) = why_open(replay.book(), &limits, &asked.resource);
        explanation.reason = reason;
        let name = escaped(&asked.resource);
        let text = format!("the use of {name} by all domains was not denied{why}");
        explanation.sentences.push(text);
        let begins = followed.begins.filter(|_| asked.until == FollowUntil::End);
        explanation.sentences.extend(begins.map(unread_of));
        return Ok(explanation);
    };
    let stated = &stated[index];
    let recorded = recorded_at(source, (partition, &asked.resource), &stated.statement)?;
    explanation.denied = true;
    explanation.reason = reason_of(denial.cause);
    explanation.code = stated.numbered().code(partition);
    explanation.denial = Some(stated.denial_view(&denial, recorded));
    explanation.statements = vec![stated.view(&explanation, &denial)];
    explanation.version = version_view(replay.book(), denial.version, &explanation);
    let hits = hits_of(source, totals, stated, denial.window)?;
    write_window(&mut explanation, stated, &denial, &hits);
    write_refused(&mut explanation, source, totals, stated, &denial)?;
    Ok(explanation)
}

/// Why all domains together were not denied, as far as the limits are the reason.
fn why_open(book: &LimitsBook, limits: &Limits, resource: &str) -> (&'static str, String) {
    let is_known = |limits: &Limits| limits.resource(resource).is_some();
    let mut versions = book.latest().into_iter();
    if !is_known(limits) && !versions.any(|latest| is_known(&latest.limits)) {
        let text = ": no limits of a resource of that name are known, so this says nothing of its calls (a denial's code, as in \
                    3-18250-0-1, or a resource's name may be mistyped)";
        return ("no_limit", text.to_owned());
    }
    if let Some((reason, why)) = unruled(limits, resource) {
        return (reason, format!(": {why}"));
    }
    match limits.rate(resource).and_then(RateResource::global) {
        Some(_) => ("room", String::new()),
        None => ("no_limit", ": it has no global limit".to_owned()),
    }
}

/// Reports how many calls agents refused under the statement.
fn write_refused(
    explanation: &mut Explanation,
    source: &dyn Source,
    totals: &VecDeque<CountedTotal>,
    stated: &SourceStatement,
    denial: &Denial,
) -> Result<(), ExplainError> {
    // The totals that caused the statement name records that were in the log before it.
    let before = stated.statement.position.offset;
    let mut from: BTreeMap<u32, u64> = BTreeMap::new();
    for total in totals.iter().filter(|total| total.position <= before) {
        let (partition, offset) = total.source;
        let known = from.entry(partition).or_default();
        *known = offset.max(*known);
    }
    let until = denial.end.max(stated.appended);
    let statement = (&stated.statement, stated.appended, until);
    let reports = refused::under_global(source, &explanation.resource, statement, &from)?;
    explanation.refused = refused::tally(reports.sums());
    for stated in &mut explanation.statements {
        stated.refused_calls = explanation.refused.calls;
    }
    explanation
        .sentences
        .push(sentences::refused(explanation, "hits"));
    Ok(())
}

/// Reports which hits filled the window, granted or excess, and the denial in words.
fn write_window(
    explanation: &mut Explanation,
    stated: &SourceStatement,
    denial: &Denial,
    hits: &[(String, Timestamp, u64)],
) {
    let hits = hits.iter().map(|(agent, at, n)| (&**agent, *at, *n));
    let window = window_of(hits.collect());
    let agents = window.by_agent.iter().take(5);
    let agents: Vec<_> = agents
        .map(|of| format!("{} by {}", of.hits, escaped(&of.agent)))
        .collect();
    explanation.sentences = vec![
        format!(
            "the use of {} by all domains was denied from {} {}: the global limit was reached ({} in {}), by limits version {}",
            escaped(&explanation.resource),
            Utc(stated.since),
            UntilUtc(denial.end),
            denial.limit,
            print_span(denial.window),
            denial.version
        ),
        format!(
            "{} hits of all domains filled it: {}",
            window.hits,
            agents.join(", ")
        ),
    ];
    explanation.window = Some(window);
}

/// The hits in the window, with their agents if the source records are still there.
fn hits_of(
    source: &dyn Source,
    totals: &VecDeque<CountedTotal>,
    stated: &SourceStatement,
    window: Span,
) -> Result<Vec<(String, Timestamp, u64)>, ExplainError> {
    let (mut hits, mut looked_up) = (Vec::new(), 0);
    for total in totals
        .iter()
        .filter(|t| t.position <= stated.statement.position.offset)
    {
        let inside = total
            .granted
            .iter()
            .filter(|(at, _)| stated.since <= at.saturating_add(window));
        let inside: Vec<_> = inside.collect();
        if inside.is_empty() {
            continue;
        }
        let (partition, offset) = total.source;
        let mut agent = format!("partition {partition}");
        if looked_up < SOURCES_MAX {
            looked_up += 1;
            if let Some(record) = record_at(source, Stream::Hits, partition, offset)?
                && let Ok(Record::Hits(batch)) = Record::decode(&record.bytes)
            {
                agent = batch.sender.agent.to_owned();
            }
        }
        let of = inside
            .iter()
            .map(|(at, n)| (agent.clone(), *at, u64::from(*n)));
        hits.extend(of);
    }
    Ok(hits)
}
