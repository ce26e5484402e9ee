//! Explains why a call was refused, or why it was not.
//!
//! ```text
//! code, or resource, domain and instant
//!   ├─> copies: whose copies filled what, where copies are limited
//!   └─> follow: the pair's partition through the engine, with this pair's hits alone
//!         └─> answer: the statement in force, its window, its tiers, what led to it
//!               └─> text: the same for people
//! ```
//!
//! The answer comes from the log alone, not from an aggregator. Knows nothing of command lines and
//! HTTP. What stays true: the rulings shown are the engine's, from the same records under the same
//! limits; nothing is guessed that the log does not contain.

mod answer;
mod constraints;
mod copies;
mod counting;
mod counts;
mod everybody;
mod follow;
mod history;
mod numbers;
mod older;
mod open;
mod refused;
mod sentences;
mod text;
pub mod view;

use std::sync::Arc;

use tollgate_limits::Limits;
use tollgate_limits::versions::{LimitsBook, Version};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::names::{EVERYBODY, partition_of_pair, partition_of_resource};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Scope, Statement};

use crate::range::{Point, Range};
use crate::replay::{Replay, ReplayError};
use crate::source::{ReadStep, Source, SourceError, limits_at};
use crate::start;
use crate::tags;
use crate::work::{Model, Progress, Task, Work};
use follow::{FollowUntil, PairFollow};
use history::denial_of;
use tollgate_log::{Delivered, Stream};
pub use view::Explanation;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What is behind the code that an agent returned?
    Code(Code),
    /// How was a call of a pair ruled at an instant? Without an instant: what denied the pair last?
    Pair {
        /// The resource.
        resource: String,
        /// The domain; `None`: everybody, under the global limit.
        domain: Option<String>,
        /// The instant.
        at: Option<Timestamp>,
    },
}

/// Why there is no explanation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The log cannot be read or ruled.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The log has no such record, or the record caused no statement.
    #[error("{0}")]
    NotThere(String),
}

impl From<SourceError> for ExplainError {
    fn from(error: SourceError) -> Self {
        Self::Replay(error.into())
    }
}

/// Explains a refusal, or that there was none.
///
/// # Errors
///
/// If the log cannot be read, or does not have what the question is about.
pub fn explain(
    source: &dyn Source,
    question: &Question,
    keys: &Keyring,
) -> Result<Explanation, ExplainError> {
    let at = match question {
        Question::Pair { at, .. } => at.unwrap_or(Timestamp::MAX),
        Question::Code(_) => Timestamp::MAX,
    };
    let (book, then) = limits_at(source, at)?;
    let book = Arc::new(book);
    let (asked, earlier) = match question {
        Question::Code(code) => (pair_of(source, *code, &book, keys)?, Vec::new()),
        Question::Pair {
            resource,
            domain,
            at,
        } => {
            // What was called before the first limits arrived under them.
            let version = then.as_ref().or(book.versions().next());
            pair_at((resource, domain.as_deref()), *at, version, &book)
        }
    };
    let explanation = explanation_of(source, asked, &earlier, keys)?;
    Ok(Explanation {
        unchecked_keys: tags::unchecked(keys, &book),
        ..explanation
    })
}

/// The question about a pair under the limits of a version; without an instant, with the other domains as which earlier
/// versions limited the pair.
fn pair_at(
    (resource, domain): (&str, Option<&str>),
    at: Option<Timestamp>,
    version: Option<&Arc<Version>>,
    book: &Arc<LimitsBook>,
) -> (AskedPair, Vec<String>) {
    let until = at.map_or(FollowUntil::End, FollowUntil::Instant);
    let limits = version.map(|version| &*version.limits);
    let limited = domain.map(|domain| limited_as(limits, resource, domain));
    let mut earlier: Vec<String> = Vec::new();
    if let (None, Some(domain), Some(limited)) = (at, domain, &limited) {
        for version in book.versions().rev() {
            let name = limited_as(Some(&version.limits), resource, domain);
            if name != *limited && !earlier.contains(&name) {
                earlier.push(name);
            }
        }
    }
    let asked = AskedPair {
        resource: resource.to_owned(),
        domain: limited,
        until,
        code: None,
        of_copies: limits.is_some_and(|limits| limits.copies(resource).is_some()),
        book: Arc::clone(book),
    };
    (asked, earlier)
}

/// The pair of an address is that of the network as which the address is limited.
fn limited_as(limits: Option<&Limits>, resource: &str, domain: &str) -> String {
    limits.map_or_else(
        || domain.to_owned(),
        |limits| limits.domain_of_call(resource, domain).into_owned(),
    )
}

/// Explains a question: about its domain, the domains in `earlier`, and everybody. Of an instant, everybody counts only
/// if nothing denied the domain; without one, what denied last.
fn explanation_of(
    source: &dyn Source,
    asked: AskedPair,
    earlier: &[String],
    keys: &Keyring,
) -> Result<Explanation, ExplainError> {
    if asked.of_copies {
        return copies::explain(source, &asked, keys);
    }
    let Some(domain) = asked.domain.clone().filter(|domain| domain != EVERYBODY) else {
        return everybody::explain(source, &asked, keys);
    };
    let mut explanation = of_domain(source, &asked, &domain, keys)?;
    for domain in earlier {
        let asked = AskedPair {
            domain: Some(domain.clone()),
            ..asked.clone()
        };
        let found = of_domain(source, &asked, domain, keys)?;
        explanation = later(explanation, found);
    }
    let is_answered = explanation.denied && asked.until != FollowUntil::End;
    if is_answered || asked.code.is_some() {
        return Ok(explanation);
    }
    let everybody = AskedPair {
        domain: None,
        ..asked
    };
    match everybody::explain(source, &everybody, keys) {
        Ok(of_all) => Ok(later(explanation, of_all)),
        Err(ExplainError::NotThere(why)) => {
            let text = format!("whether all domains together were denied is not known: {why}");
            explanation.sentences.push(text);
            Ok(explanation)
        }
        Err(error) => Err(error),
    }
}

/// Of two answers, the one whose denial was in force last; the first, if neither has one, or both to the same end.
fn later(one: Explanation, other: Explanation) -> Explanation {
    let end = |of: &Explanation| {
        let denial = of.denial.as_ref()?;
        let last = of.statements.last();
        let lifted = last.filter(|last| last.says == "open");
        let until = last.map_or(denial.until_us, |last| last.until_us);
        Some(lifted.map_or(until.unwrap_or(u64::MAX), |lifted| lifted.at_us))
    };
    match end(&one) < end(&other) {
        true => other,
        false => one,
    }
}

/// Explains what denied a domain by its own limits, or that nothing did.
fn of_domain(
    source: &dyn Source,
    asked: &AskedPair,
    domain: &str,
    keys: &Keyring,
) -> Result<Explanation, ExplainError> {
    let partition = match asked.code {
        Some(code) => code.partition,
        None => partition_of_pair(&asked.resource, domain, source.partitions()),
    };
    let answer = |begun: Begun| {
        let mut follow = PairFollow::new(begun, &asked.resource, domain);
        follow.run(source, asked.until)?;
        answer::of(source, asked, partition, follow)
    };
    let begun = begin(source, partition, keys, asked)?;
    let next = begun.next;
    let explanation = answer(begun)?;
    let window = explanation.window.as_ref();
    let unnamed = window.map_or(0, |window| window.unnamed);
    if asked.from().is_none() || unnamed == 0 {
        return Ok(explanation);
    }
    // Its limit reaches further back than the snapshot.
    let earlier = begin_from((source, partition), keys, asked, None)?;
    match earlier.next < next {
        true => answer(earlier),
        false => Ok(explanation),
    }
}

/// A question with the pair's names known.
#[derive(Clone, Debug)]
pub(crate) struct AskedPair {
    pub resource: String,
    /// `None`: everybody.
    pub domain: Option<String>,
    pub until: FollowUntil,
    pub code: Option<Code>,
    /// Whether copies of the resource are limited, and not its rate: by the limits under which the denial was stated,
    /// or that were in force at the instant.
    pub of_copies: bool,
    /// All limits versions of the log, which are read once for a question.
    pub book: Arc<LimitsBook>,
}

impl AskedPair {
    /// From where on the log is read at first: from the nearest snapshot before this; `None`: from its beginning.
    fn from(&self) -> Option<Point> {
        match self.until {
            FollowUntil::Instant(at) => Some(Point::At(at.saturating_sub(LOOK_BACK))),
            FollowUntil::Position(_) | FollowUntil::End => None,
        }
    }

    /// The question about a code of a pair whose rate is limited.
    fn by_code(code: Code, book: &Arc<LimitsBook>, resource: &str, domain: Option<&str>) -> Self {
        Self {
            resource: resource.to_owned(),
            domain: domain.map(str::to_owned),
            until: FollowUntil::Position((code.position.offset, code.position.entry)),
            code: Some(code),
            of_copies: false,
            book: Arc::clone(book),
        }
    }

    /// The question about a code, with the statement that has it.
    fn stated(code: Code, book: &Arc<LimitsBook>, resource: &str, statement: &Statement) -> Self {
        let domain = match &statement.scope {
            Scope::Pair(domain) => Some(&**domain),
            Scope::Resource | Scope::Group(_) => None,
        };
        let stated_by = denial_of(statement).and_then(|of| book.get(of.version));
        let version = stated_by.or_else(|| book.latest());
        Self {
            of_copies: version.is_some_and(|of| of.limits.copies(resource).is_some()),
            ..Self::by_code(code, book, resource, domain)
        }
    }
}

/// The beginning of a replay, with the next offset.
pub(crate) struct Begun {
    pub replay: Replay,
    pub next: u64,
    pub partition: u32,
    /// Denials that the question may be about, and that were in force at the snapshot at which the replay begins.
    pub older: Vec<Statement>,
}

fn begin(
    source: &dyn Source,
    partition: u32,
    keys: &Keyring,
    asked: &AskedPair,
) -> Result<Begun, ExplainError> {
    if source.partitions() <= partition {
        let count = source.partitions();
        let text = format!("partition {partition}: the log has {count} partitions");
        return Err(ExplainError::NotThere(text));
    }
    let begin = |from| begin_from((source, partition), keys, asked, from);
    let begun = match begin(asked.from()) {
        // What led to it is before the snapshot.
        Ok(begun) if asked.from().is_some() && !begun.older.is_empty() => begin(None)?,
        // The log lacks a part of what is looked back at; the oldest snapshot may lie behind that.
        Err(ReplayError::Cut(_)) => begin(None)?,
        begun => begun?,
    };
    let Begun {
        replay,
        next,
        older,
        ..
    } = &begun;
    older::check_begin(asked, (partition, *next), replay.engine(), older)?;
    Ok(begun)
}

fn begin_from(
    (source, partition): (&dyn Source, u32),
    keys: &Keyring,
    asked: &AskedPair,
    from: Option<Point>,
) -> Result<Begun, ReplayError> {
    let (replay, next) = replay_from((source, partition), keys, &asked.book, from)?;
    let older = older::denials(replay.engine(), asked);
    Ok(Begun {
        replay,
        next,
        partition,
        older,
    })
}

/// A replay of a partition, with the next offset: from the nearest snapshot before a point; without one, from as early
/// as possible.
fn replay_from(
    (source, partition): (&dyn Source, u32),
    keys: &Keyring,
    book: &Arc<LimitsBook>,
    from: Option<Point>,
) -> Result<(Replay, u64), ReplayError> {
    let task = Task {
        range: Range { from, to: None },
        keys: keys.clone(),
        threads: 1,
        model: Model::None,
    };
    let work = Work {
        source,
        task: &task,
        book: Arc::clone(book),
        progress: &Progress::default(),
    };
    start::begin(&work, partition)
}

/// How far before the instant a replay from a snapshot begins, to see what led to a denial. Most limits reach less far
/// back; if the one that denied reaches further, the replay begins again, with the log.
const LOOK_BACK: tollgate_shared::time::Span = tollgate_shared::time::Span::from_secs(900);

/// The pair that a code is about.
fn pair_of(
    source: &dyn Source,
    code: Code,
    book: &Arc<LimitsBook>,
    keys: &Keyring,
) -> Result<AskedPair, ExplainError> {
    let none = |why: &str| ExplainError::NotThere(format!("{code}: {why}"));
    if source.partitions() <= code.partition {
        return Err(none("the log has no such partition"));
    }
    let offset = code.position.offset;
    let Some(record) = record_at(source, Stream::Hits, code.partition, offset)? else {
        let older = older::stated_by(source, code, book, keys)?;
        let (resource, statement) = older.ok_or_else(|| none(older::NOT_THERE))?;
        return Ok(AskedPair::stated(code, book, &resource, &statement));
    };
    let asked = |resource: &str, domain| AskedPair::by_code(code, book, resource, domain);
    let of_copies = |resource: &str| AskedPair {
        of_copies: true,
        ..asked(resource, None)
    };
    match Record::decode(&record.bytes) {
        Ok(Record::Hits(batch)) => {
            let hit = batch.hits().get(code.position.entry as usize);
            let hit = hit.ok_or_else(|| none("the batch there has no such entry"))?;
            Ok(asked(batch.resource(hit.resource), Some(hit.domain)))
        }
        Ok(Record::Totals(totals)) => Ok(asked(totals.resource, None)),
        Ok(Record::Holds(batch)) => {
            if let Some(op) = batch.ops().nth(code.position.entry as usize) {
                return Ok(of_copies(batch.resource(op.resource)));
            }
            // An aggregator states bans behind the last operation of the batch whose sender they
            // deny.
            let stated = announced_at(source, code)?;
            let stated = stated.ok_or_else(|| none("the batch there has no such operation"))?;
            Ok(of_copies(&stated.resource))
        }
        // New limits and generations state denials again; only the statement names the pair.
        _ => {
            let stated = announced_at(source, code)?;
            let stated = stated.ok_or_else(|| none("nothing was announced for it"))?;
            Ok(AskedPair::stated(
                code,
                book,
                &stated.resource,
                &stated.statement,
            ))
        }
    }
}

/// The record at an offset, if the log has it.
pub(crate) fn record_at(
    source: &dyn Source,
    stream: Stream,
    partition: u32,
    offset: u64,
) -> Result<Option<Delivered>, SourceError> {
    let step = source.open(stream, partition, offset)?.read()?;
    Ok(match step {
        ReadStep::Records(records) => records.into_iter().find(|record| record.offset == offset),
        ReadStep::Gone { .. } | ReadStep::End => None,
    })
}

fn announced_at(source: &dyn Source, code: Code) -> Result<Option<Announced>, SourceError> {
    let found = recorded(source, code.partition, |announced| {
        announced.statement.position == code.position
    })?;
    Ok(found.map(|(_, announced)| announced))
}

/// When a statement about a resource was first recorded; `None`: it is not recorded.
fn recorded_at(
    source: &dyn Source,
    (partition, resource): (u32, &str),
    statement: &Statement,
) -> Result<Option<Timestamp>, SourceError> {
    // Statements about other scopes may have the same log position.
    let found = recorded(source, partition, |announced| {
        *announced.resource == *resource
            && announced.statement.scope == statement.scope
            && announced.statement.position == statement.position
    })?;
    Ok(found.map(|(at, _)| at))
}

/// The first recorded statement that `wanted` accepts, and when it was recorded.
fn recorded(
    source: &dyn Source,
    partition: u32,
    wanted: impl Fn(&Announced) -> bool,
) -> Result<Option<(Timestamp, Announced)>, SourceError> {
    let mut cursor = source.open(Stream::Denials, partition, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                for record in &records {
                    if let Ok(announced) = Announced::decode(&record.bytes)
                        && wanted(&announced)
                    {
                        return Ok(Some((record.appended, announced)));
                    }
                }
            }
            ReadStep::Gone { .. } => {}
            ReadStep::End => return Ok(None),
        }
    }
}

/// The partition that rules a resource's global limit.
pub(crate) fn partition_of_everybody(source: &dyn Source, resource: &str) -> u32 {
    partition_of_resource(resource, source.partitions())
}
