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

use std::borrow::Cow;
use std::sync::Arc;

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::names::{EVERYBODY, partition_of_pair, partition_of_resource};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Scope, Statement};

use crate::range::{Point, Range};
use crate::replay::{Replay, ReplayError};
use crate::source::{ReadStep, Source, SourceError, limits_of};
use crate::start;
use crate::tags;
use crate::work::{Model, Progress, Task, Work};
use follow::{FollowUntil, PairFollow};
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
    let asked = match question {
        Question::Code(code) => pair_of(source, *code)?,
        Question::Pair {
            resource,
            domain,
            at,
        } => AskedPair {
            resource: resource.clone(),
            domain: domain.clone(),
            until: match at {
                Some(at) => FollowUntil::Instant(*at),
                None => FollowUntil::End,
            },
            code: None,
        },
    };
    let book = limits_of(source)?;
    let explanation = explanation_of(source, asked, keys, &book)?;
    Ok(Explanation {
        unchecked_keys: tags::unchecked(keys, &book),
        ..explanation
    })
}

fn explanation_of(
    source: &dyn Source,
    mut asked: AskedPair,
    keys: &Keyring,
    book: &LimitsBook,
) -> Result<Explanation, ExplainError> {
    if let Some(version) = book.latest()
        && version.limits.copies(&asked.resource).is_some()
    {
        return copies::explain(source, &asked, keys);
    }
    // The pair of an address is that of the network as which the address is limited.
    let rate = book
        .latest()
        .and_then(|version| version.limits.rate(&asked.resource));
    if let (Some(rate), Some(domain)) = (rate, &asked.domain)
        && let Ok(Cow::Owned(network)) = rate.limited_as(domain)
    {
        asked.domain = Some(network);
    }
    let Some(domain) = asked.domain.clone().filter(|domain| domain != EVERYBODY) else {
        return everybody::explain(source, &asked, keys);
    };
    let partition = match asked.code {
        Some(code) => code.partition,
        None => partition_of_pair(&asked.resource, &domain, source.partitions()),
    };
    let mut follow = PairFollow::new(
        begin(source, partition, keys, &asked)?,
        &asked.resource,
        &domain,
    );
    follow.run(source, asked.until)?;
    let mut explanation = answer::of(source, &asked, partition, follow)?;
    if explanation.denied || asked.code.is_some() {
        return Ok(explanation);
    }
    // The pair was open; perhaps everybody was denied.
    let everybody = AskedPair {
        domain: None,
        ..asked
    };
    match everybody::explain(source, &everybody, keys) {
        Ok(of_all) if of_all.denied => Ok(of_all),
        Ok(_) => Ok(explanation),
        Err(ExplainError::NotThere(why)) => {
            let text = format!("whether all domains together were denied is not known: {why}");
            explanation.sentences.push(text);
            Ok(explanation)
        }
        Err(error) => Err(error),
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
    // Begin at the nearest snapshot that is a quarter of an hour or more before the instant, so
    // that the windows are complete; without one, at the beginning.
    let from = match asked.until {
        FollowUntil::Instant(at) => Some(Point::At(at.saturating_sub(LOOK_BACK))),
        FollowUntil::Position(_) | FollowUntil::End => None,
    };
    let book = Arc::new(limits_of(source)?);
    let begin = |from| {
        let task = Task {
            range: Range { from, to: None },
            keys: keys.clone(),
            threads: 1,
            model: Model::None,
        };
        let work = Work {
            source,
            task: &task,
            book: Arc::clone(&book),
            progress: &Progress::default(),
        };
        start::begin(&work, partition)
    };
    let (mut replay, mut next) = begin(from)?;
    let mut older = older::denials(replay.engine(), asked);
    if from.is_some() && !older.is_empty() {
        // What led to it is before the snapshot.
        (replay, next) = begin(None)?;
        older = older::denials(replay.engine(), asked);
    }
    older::check_begin(asked, (partition, next), replay.engine(), &older)?;
    Ok(Begun {
        replay,
        next,
        partition,
        older,
    })
}

/// How far before the instant a replay from a snapshot must begin, to see what led to a denial.
const LOOK_BACK: tollgate_shared::time::Span = tollgate_shared::time::Span::from_secs(900);

/// The pair that a code is about.
fn pair_of(source: &dyn Source, code: Code) -> Result<AskedPair, ExplainError> {
    let none = |why: &str| ExplainError::NotThere(format!("{code}: {why}"));
    if source.partitions() <= code.partition {
        return Err(none("the log has no such partition"));
    }
    let offset = code.position.offset;
    let record = record_at(source, Stream::Hits, code.partition, offset)?
        .ok_or_else(|| none("the log has no record there, or does not have it any more"))?;
    let asked = |resource: &str, domain: Option<&str>| AskedPair {
        resource: resource.to_owned(),
        domain: domain.map(str::to_owned),
        until: FollowUntil::Position((offset, code.position.entry)),
        code: Some(code),
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
                return Ok(asked(batch.resource(op.resource), None));
            }
            // An aggregator states bans behind the last operation of the batch whose sender they
            // deny.
            let stated = announced_at(source, code)?;
            let stated = stated.ok_or_else(|| none("the batch there has no such operation"))?;
            Ok(asked(&stated.resource, None))
        }
        // New limits and generations state denials again; only the statement names the pair.
        _ => {
            let stated = announced_at(source, code)?;
            let stated = stated.ok_or_else(|| none("nothing was announced for it"))?;
            let domain = match &stated.statement.scope {
                Scope::Pair(domain) => Some(&**domain),
                Scope::Resource | Scope::Group(_) => None,
            };
            Ok(asked(&stated.resource, domain))
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
