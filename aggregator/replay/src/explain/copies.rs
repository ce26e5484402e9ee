//! The answer about copies: which scope was full, by whose copies, and when it had room again.
//!
//! ```text
//! hold 4 of web-1      probation is full           stated, with this log position as its code
//! ...                  who holds which of its copies then
//! release              probation has room again    the end of the denial
//! ```
//!
//! Copies have no windows: a scope is full of the copies that are held at that moment. The engine
//! replays the whole partition, since holds of all domains may share a group. Knows nothing of
//! agents' own refusals. What stays true: the holders shown are those that the engine counts.

use std::collections::BTreeMap;

use tollgate_engine::copies::{Copies, HoldState};
use tollgate_shared::escape::escaped;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::holds::{HoldAction, HoldBatch};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement};

use super::answer::{position_text, reason_of, version_view};
use super::follow::FollowUntil;
use super::history::{denial_of, key};
use super::sentences::banned;
use super::view::{DenialView, Explanation, HolderView, StatementView};
use super::{AskedPair, Begun, ExplainError, begin, partition_of_everybody, recorded};
use crate::range::Utc;
use crate::replay::ReplayError;
use crate::source::{Cursor, ReadStep, Source};
use tollgate_log::{Delivered, Stream};

/// How many agents a sentence names.
const NAMED_MAX: usize = 5;

/// A statement about a scope, and when the record that caused it was appended.
#[derive(Clone)]
struct ScopeStatement {
    statement: Statement,
    appended: Timestamp,
}

struct CopiesReading<'a> {
    source: &'a dyn Source,
    asked: &'a AskedPair,
    begun: Begun,
    cursor: Box<dyn Cursor + 'a>,
    /// Records that were read, but not applied yet.
    waiting: std::collections::VecDeque<Delivered>,
    /// The latest statement about each scope, by its name.
    last: BTreeMap<String, ScopeStatement>,
    /// The append time of the last record that was applied.
    now: Timestamp,
    /// The operation at the requested log position, in words.
    cause: Option<String>,
}

/// Explains what denied copies of a resource, or that nothing did.
pub(super) fn explain(
    source: &dyn Source,
    asked: &AskedPair,
    keys: &Keyring,
) -> Result<Explanation, ExplainError> {
    let partition = match asked.code {
        Some(code) => code.partition,
        None => partition_of_everybody(source, &asked.resource),
    };
    let begun = begin(source, partition, keys, asked)?;
    let cursor = source.open(Stream::Hits, partition, begun.next)?;
    let mut reading = CopiesReading {
        source,
        asked,
        begun,
        cursor,
        waiting: Default::default(),
        last: BTreeMap::new(),
        now: Timestamp::ZERO,
        cause: None,
    };
    let found = reading.upto_the_moment()?;
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
        reason: "room",
        ..Explanation::default()
    };
    let Some((stated, denial)) = found else {
        reading.not_denied(&mut explanation);
        return Ok(explanation);
    };
    let scope = stated.statement.scope.clone();
    explanation.holders = reading
        .copies()
        .map_or_else(Vec::new, |of| holders(of, &scope));
    let lifted = reading.lift_of(&scope)?;
    reading.denied(&mut explanation, &stated, &denial, lifted.as_ref())?;
    Ok(explanation)
}

impl CopiesReading<'_> {
    /// Applies records up to the requested instant or log position. Returns the denial in force then,
    /// if there was one.
    fn upto_the_moment(&mut self) -> Result<Option<(ScopeStatement, Denial)>, ExplainError> {
        loop {
            let Some(delivered) = self.next()? else {
                break;
            };
            if matches!(self.asked.until, FollowUntil::Instant(at) if at < delivered.appended) {
                self.waiting.push_front(delivered);
                break;
            }
            let found = self.apply(&delivered)?;
            if let Some(stated) = found {
                let denial = denial_of(&stated.statement);
                let none = || self.nothing_there();
                return denial.map(|denial| Some((stated, denial))).ok_or_else(none);
            }
        }
        if let FollowUntil::Position(_) = self.asked.until {
            return Err(self.nothing_there());
        }
        let in_force = self.scopes().into_iter().find_map(|scope| {
            let stated = self.last.get(&name_of(&scope))?;
            let denial = denial_of(&stated.statement)?;
            let now = match self.asked.until {
                FollowUntil::Instant(at) => at,
                FollowUntil::Position(_) | FollowUntil::End => self.now,
            };
            (now < denial.end).then(|| (stated.clone(), denial))
        });
        Ok(in_force)
    }

    fn nothing_there(&self) -> ExplainError {
        let code = self.asked.code.map(|code| code.to_string());
        let text = format!("{}: no denial is stated there", code.unwrap_or_default());
        ExplainError::NotThere(text)
    }

    /// The scopes that the domain belongs to, the narrowest first.
    fn scopes(&self) -> Vec<Scope> {
        let mut scopes = Vec::new();
        if let Some(domain) = &self.asked.domain {
            scopes.push(Scope::Pair(domain.as_str().into()));
            if let Some(copies) = self.copies() {
                let groups = copies.groups_of(domain);
                scopes.extend(groups.map(|group| Scope::Group(group.name.into())));
            }
        }
        scopes.push(Scope::Resource);
        scopes
    }

    fn copies(&self) -> Option<&Copies> {
        let mut all = self.begun.replay.engine().copies();
        all.find(|(name, _)| ***name == *self.asked.resource)
            .map(|(_, copies)| copies)
    }

    /// Goes on until the scope has room again; `None` if the log ends before that.
    fn lift_of(&mut self, scope: &Scope) -> Result<Option<ScopeStatement>, ExplainError> {
        let name = name_of(scope);
        loop {
            let open = self.last.get(&name);
            if let Some(stated) = open.filter(|stated| denial_of(&stated.statement).is_none()) {
                return Ok(Some(stated.clone()));
            }
            let Some(delivered) = self.next()? else {
                return Ok(None);
            };
            self.apply(&delivered)?;
        }
    }

    fn next(&mut self) -> Result<Option<Delivered>, ExplainError> {
        loop {
            if let Some(delivered) = self.waiting.pop_front() {
                // A cursor may begin before the requested offset.
                if self.begun.next <= delivered.offset {
                    return Ok(Some(delivered));
                }
                continue;
            }
            match self.cursor.read()? {
                ReadStep::Records(records) => self.waiting.extend(records),
                ReadStep::End => return Ok(None),
                ReadStep::Gone { wanted, next } => {
                    return Err(ReplayError::Gone {
                        partition: self.begun.partition,
                        wanted,
                        first: next,
                    }
                    .into());
                }
            }
        }
    }

    /// Applies a record. Returns the statement at the requested log position if this record causes
    /// it.
    fn apply(&mut self, delivered: &Delivered) -> Result<Option<ScopeStatement>, ExplainError> {
        self.begun.next = delivered.offset + 1;
        self.now = delivered.appended;
        // Hits do not affect copies.
        if matches!(Record::decode(&delivered.bytes), Ok(Record::Hits(_))) {
            return Ok(None);
        }
        self.begun.replay.apply(delivered, self.source)?;
        let mut found = None;
        for ruled in &self.begun.replay.rulings().statements {
            if *ruled.resource != *self.asked.resource {
                continue;
            }
            let stated = ScopeStatement {
                statement: ruled.statement.clone(),
                appended: delivered.appended,
            };
            let is_asked = |position| key(&stated.statement) == position;
            if matches!(self.asked.until, FollowUntil::Position(position) if is_asked(position)) {
                // One operation may fill several scopes: report the narrowest.
                found.get_or_insert_with(|| stated.clone());
            }
            self.last.insert(name_of(&stated.statement.scope), stated);
        }
        if let Some(stated) = &found
            && let Ok(Record::Holds(batch)) = Record::decode(&delivered.bytes)
        {
            self.cause = cause_of(&batch, stated.statement.position.entry);
        }
        Ok(found)
    }

    fn denied(
        &self,
        explanation: &mut Explanation,
        stated: &ScopeStatement,
        denial: &Denial,
        lifted: Option<&ScopeStatement>,
    ) -> Result<(), ExplainError> {
        let partition = explanation.partition;
        let position = stated.statement.position;
        let recorded = recorded(self.source, partition, |a| a.statement.position == position)?;
        // A ban has an end of its own; a full scope has none.
        let until = lifted.map_or(Timestamp::MAX, |lifted| lifted.appended);
        let until = until.min(denial.end);
        let until_us = (until < Timestamp::MAX).then(|| until.as_micros());
        if let Scope::Pair(domain) = &stated.statement.scope {
            explanation.domain = Some(domain.to_string());
        }
        explanation.denied = true;
        explanation.reason = reason_of(denial.cause);
        explanation.code = Some(Code::new(partition, position).to_string());
        explanation.denial = Some(DenialView {
            cause: denial.cause.to_string(),
            tier: None,
            limit: denial.limit,
            window_us: 0,
            since_us: stated.appended.as_micros(),
            appended_us: stated.appended.as_micros(),
            recorded_us: recorded.map(|(at, _)| at.as_micros()),
            until_us,
        });
        let view = |of: &ScopeStatement, says| StatementView {
            code: Code {
                partition,
                position: of.statement.position,
            }
            .to_string(),
            at_us: of.appended.as_micros(),
            until_us: None,
            says,
            cause: denial_of(&of.statement).map(|denial| denial.cause.to_string()),
        };
        explanation.statements = vec![view(stated, "denied")];
        explanation
            .statements
            .extend(lifted.map(|of| view(of, "open")));
        let book = self.begun.replay.book();
        explanation.version = version_view(book, denial.version, explanation);
        explanation.sentences = self.sentences_of(explanation, (stated, denial), lifted, until);
        Ok(())
    }

    /// The denial in words: its state, since when, until when, and by what.
    fn sentences_of(
        &self,
        explanation: &Explanation,
        (stated, denial): (&ScopeStatement, &Denial),
        lifted: Option<&ScopeStatement>,
        until: Timestamp,
    ) -> Vec<String> {
        let words = words_of(&stated.statement.scope, &self.asked.resource);
        let since = Utc(stated.appended);
        let how = match denial.cause {
            Cause::Banned => {
                let by = banned(explanation.version.as_ref());
                format!("denied from {since} until {}: {by}", Utc(until))
            }
            _ => {
                let until = match lifted {
                    Some(lifted) => format!("until {}", Utc(lifted.appended)),
                    None => "and had no room again to the end of the log".to_owned(),
                };
                let limit = denial.limit;
                format!("full from {since} {until}: its limit is {limit} copies at a time")
            }
        };
        let version = denial.version;
        let mut sentences = vec![format!("{words} was {how}, by limits version {version}")];
        let cause = self.cause.as_ref();
        sentences.extend(cause.map(|cause| {
            format!(
                "it became so by {cause} ({})",
                position_text(key(&stated.statement))
            )
        }));
        sentences.push(held_by(&explanation.holders, "then"));
        sentences
    }

    fn not_denied(&self, explanation: &mut Explanation) {
        let scope = match &self.asked.domain {
            Some(domain) => Scope::Pair(domain.as_str().into()),
            None => Scope::Resource,
        };
        let words = words_of(&scope, &self.asked.resource);
        let limits = self.begun.replay.engine().limits();
        if limits.copies(&self.asked.resource).is_none() {
            explanation.reason = "no_limit";
        } else if limits.namespace_of(&self.asked.resource).ignore_configured {
            explanation.reason = "ignored";
        }
        explanation.holders = self
            .copies()
            .map_or_else(Vec::new, |of| holders(of, &scope));
        explanation.sentences = vec![
            format!("{words} had room at {}", Utc(self.now)),
            held_by(&explanation.holders, "then"),
        ];
    }
}

/// The operation of a batch that caused something, in words.
fn cause_of(batch: &HoldBatch<'_>, entry: u32) -> Option<String> {
    let op = batch.ops().nth(entry as usize)?;
    let agent = batch.sender.agent;
    let (copies, domain) = match op.action {
        HoldAction::Hold { domain, copies } | HoldAction::Reserve { domain, copies, .. } => {
            (copies, domain)
        }
        _ => return None,
    };
    Some(format!(
        "a hold of {}: {copies} copies for {}",
        escaped(agent),
        escaped(domain)
    ))
}

/// The agents that hold copies of a scope, most first; staged copies have no agent.
fn holders(copies: &Copies, scope: &Scope) -> Vec<HolderView> {
    let within = |domain: &str, groups: &[&str]| match scope {
        Scope::Pair(of) => domain == &**of,
        Scope::Group(of) => groups.contains(&&**of),
        Scope::Resource => true,
    };
    let mut by_agent: BTreeMap<Option<&str>, HolderView> = BTreeMap::new();
    let live = copies
        .oldest_first()
        .filter(|hold| hold.state == HoldState::Live);
    for hold in live.filter(|hold| within(hold.domain, &hold.groups)) {
        let of = by_agent
            .entry(Some(hold.agent))
            .or_insert_with(|| HolderView {
                agent: Some(hold.agent.to_owned()),
                oldest_us: hold.start.as_micros(),
                ..HolderView::default()
            });
        of.add(hold.copies);
    }
    for staged in copies.staged().filter(|of| within(of.domain, &of.groups)) {
        let of = by_agent.entry(None).or_insert_with(|| HolderView {
            oldest_us: staged.start.as_micros(),
            ..HolderView::default()
        });
        of.add(staged.copies);
    }
    let mut holders: Vec<HolderView> = by_agent.into_values().collect();
    holders.sort_by(|a, b| b.copies.cmp(&a.copies).then(a.agent.cmp(&b.agent)));
    holders
}

fn held_by(holders: &[HolderView], when: &str) -> String {
    let copies: u64 = holders.iter().map(|of| of.copies).sum();
    let named = holders.iter().take(NAMED_MAX).map(|of| {
        let agent = escaped(of.agent.as_deref().unwrap_or("no agent (staged)"));
        format!("{} by {agent}", of.copies)
    });
    match copies {
        0 => format!("no copies of it were held {when}"),
        _ => format!(
            "{copies} copies of it were held {when}: {}",
            named.collect::<Vec<_>>().join(", ")
        ),
    }
}

fn name_of(scope: &Scope) -> String {
    match scope {
        Scope::Pair(domain) => format!("domain {}", escaped(domain)),
        Scope::Group(group) => format!("group {}", escaped(group)),
        Scope::Resource => "resource".to_owned(),
    }
}

fn words_of(scope: &Scope, resource: &str) -> String {
    match scope {
        Scope::Pair(domain) => format!("{} of {}", escaped(resource), escaped(domain)),
        Scope::Group(group) => format!("group {} of {}", escaped(group), escaped(resource)),
        Scope::Resource => format!("{}, of all domains together,", escaped(resource)),
    }
}
