//! The answer about copies: which scope was full, by whose copies, and when it had room again.
//!
//! ```text
//! hold 4 of web-1      probation is full           stated, with this log position as its code
//! ...                  who holds which of its copies then
//! release              probation has room again    the end of the denial
//! ```
//!
//! One hold may fill several scopes, say its domain and all domains together. Their denials have the same code, and
//! the explanation of the code is about all of them: which of them refused a call, the code does not tell.
//!
//! Copies have no windows: a scope is full of the copies that are held at that moment. The engine
//! replays the whole partition, since holds of all domains may share a group. Knows nothing of
//! agents' own refusals. What stays true: the holders shown are those that the engine counts.

mod holders;
mod sentences;

use std::collections::{BTreeMap, VecDeque};

use tollgate_engine::copies::Copies;
use tollgate_shared::escape::escaped;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement};

use super::answer::{reason_of, version_view};
use super::follow::FollowUntil;
use super::history::{LATE, denial_of, key};
use super::open::{BANNED_NETWORK, IGNORED};
use super::refused::{self, ReadBatches, RefusedByAgent, RefusedCalls};
use super::sentences::refused as refused_sentence;
use super::view::{DenialView, Explanation, HolderView, ScopeDenialView, StatementView};
use super::{AskedPair, Begun, ExplainError, begin, older, partition_of_everybody, recorded_at};
use crate::range::Utc;
use crate::replay::ReplayError;
use crate::source::{Cursor, ReadStep, Source};
use holders::holders;
use sentences::{cause_of, held_by, words_of};
use tollgate_log::{Delivered, Stream};

/// A statement about a scope, and when the record that caused it was appended.
#[derive(Clone)]
struct ScopeStatement {
    statement: Statement,
    appended: Timestamp,
    /// Whether it was stated before what was read; `appended` is the time of the snapshot then.
    is_older: bool,
}

/// A denial that the question is about.
struct CopiesDenial {
    stated: ScopeStatement,
    denial: Denial,
    /// The agents that held copies of its scope at that moment.
    holders: Vec<HolderView>,
    /// The statement that ended it; `None`: none up to the end of the log.
    lifted: Option<ScopeStatement>,
}

impl CopiesDenial {
    /// From a statement; `None` if it is a lift.
    fn of(stated: &ScopeStatement) -> Option<Self> {
        Some(Self {
            denial: denial_of(&stated.statement)?,
            stated: stated.clone(),
            holders: Vec::new(),
            lifted: None,
        })
    }

    /// Takes a lift, which ends the denial if it is about the same scope and the first one since.
    fn lift(&mut self, lift: &ScopeStatement) {
        if self.stated.statement.scope == lift.statement.scope {
            self.lifted.get_or_insert_with(|| lift.clone());
        }
    }

    /// When it ended: by a lift, or by itself. A ban has an end of its own; a full scope has none.
    fn until(&self) -> Timestamp {
        let lifted = self.lifted.as_ref();
        let lifted = lifted.map_or(Timestamp::MAX, |lifted| lifted.appended);
        lifted.min(self.denial.end)
    }
}

struct CopiesReading<'a> {
    source: &'a dyn Source,
    asked: &'a AskedPair,
    begun: Begun,
    cursor: Box<dyn Cursor + 'a>,
    /// Records that were read, but not applied yet.
    waiting: VecDeque<Delivered>,
    /// The latest statement about each scope, by its name.
    last: BTreeMap<String, ScopeStatement>,
    /// Log time at the snapshot from which the log is read; `None`: it is read from its beginning.
    begins: Option<Timestamp>,
    /// The append time of the last record that was applied.
    now: Timestamp,
    /// The operation at the requested log position, in words.
    cause: Option<String>,
    /// The calls that agents refused under the code of the denials that the question is about.
    refused: RefusedByAgent,
    batches: ReadBatches,
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
    let then;
    let mut reading = CopiesReading::new(source, asked, begin(source, partition, keys, asked)?)?;
    let mut found = reading.upto_the_moment()?;
    if let (Some(first), None) = (found.first(), asked.code) {
        // The denial began before the requested instant. Who held copies then, only the state of then tells; and which
        // calls were refused under it, only a reading that knows it from its beginning.
        then = AskedPair {
            until: FollowUntil::Position(key(&first.stated.statement)),
            ..asked.clone()
        };
        let mut earlier =
            CopiesReading::new(source, &then, begin(source, partition, keys, asked)?)?;
        let mut same = earlier.upto_the_moment()?;
        same.retain(|of| of.stated.statement == first.stated.statement);
        if !same.is_empty() {
            (reading, found) = (earlier, same);
        }
    }
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
    if found.is_empty() {
        reading.not_denied(&mut explanation);
        return Ok(explanation);
    }
    reading.read_to_lifts(&mut found)?;
    reading.denied(&mut explanation, &found)?;
    Ok(explanation)
}

impl<'a> CopiesReading<'a> {
    fn new(
        source: &'a dyn Source,
        asked: &'a AskedPair,
        begun: Begun,
    ) -> Result<Self, ExplainError> {
        let now = begun.replay.engine().log_time().unwrap_or_default();
        let older = begun.older.iter().map(|statement| {
            let stated = ScopeStatement {
                statement: statement.clone(),
                appended: now,
                is_older: true,
            };
            (name_of(&statement.scope), stated)
        });
        let last = older.collect();
        Ok(Self {
            source,
            asked,
            cursor: source.open(Stream::Hits, begun.partition, begun.next)?,
            begins: older::begins_of(&begun),
            begun,
            waiting: VecDeque::new(),
            last,
            now,
            cause: None,
            refused: RefusedByAgent::default(),
            batches: ReadBatches::default(),
        })
    }

    /// Applies records up to the requested instant or log position. Returns the denial in force then, or all denials
    /// that the log position caused, the narrowest first; none if there was no denial.
    fn upto_the_moment(&mut self) -> Result<Vec<CopiesDenial>, ExplainError> {
        let older = self
            .last
            .values()
            .filter(|of| self.is_asked(key(&of.statement)));
        let mut found: Vec<_> = older.filter_map(CopiesDenial::of).collect();
        while found.is_empty()
            && let Some(delivered) = self.next()?
        {
            if self.asked.until.is_before(delivered.appended) {
                self.waiting.push_front(delivered);
                break;
            }
            self.apply(&delivered, &mut found)?;
            let is_past = matches!(self.asked.until, FollowUntil::Position((offset, _)) if offset <= delivered.offset);
            if is_past {
                break;
            }
        }
        if let (FollowUntil::Position(_), true) = (self.asked.until, found.is_empty()) {
            return Err(self.nothing_there());
        }
        if found.is_empty() {
            found.extend(self.in_force());
        }
        for of in &mut found {
            of.holders = self.holders_of(&of.stated.statement.scope);
        }
        Ok(found)
    }

    /// The denial in force: of the scopes that the domain belongs to, of the narrowest one that is denied.
    fn in_force(&self) -> Option<CopiesDenial> {
        let now = self.asked.until.instant_or(self.now);
        self.scopes().into_iter().find_map(|scope| {
            let found = CopiesDenial::of(self.last.get(&name_of(&scope))?)?;
            (now < found.denial.end).then_some(found)
        })
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

    fn holders_of(&self, scope: &Scope) -> Vec<HolderView> {
        self.copies().map_or_else(Vec::new, |of| holders(of, scope))
    }

    /// Goes on until each of the denials has been lifted and reports of refused calls have arrived, or to the end of
    /// the log.
    fn read_to_lifts(&mut self, found: &mut Vec<CopiesDenial>) -> Result<(), ExplainError> {
        let is_over = |of: &CopiesDenial, now: Timestamp| {
            let until = of.lifted.as_ref().map(|lifted| lifted.appended);
            until.is_some_and(|until| until.saturating_add(LATE) < now)
        };
        while !found.iter().all(|of| is_over(of, self.now))
            && let Some(delivered) = self.next()?
        {
            self.apply(&delivered, found)?;
        }
        Ok(())
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

    /// Applies a record. Adds the denials that the requested log position causes, and notes which denials are lifted.
    fn apply(
        &mut self,
        delivered: &Delivered,
        found: &mut Vec<CopiesDenial>,
    ) -> Result<(), ExplainError> {
        self.begun.next = delivered.offset + 1;
        self.now = delivered.appended;
        let record = Record::decode(&delivered.bytes);
        let is_new = |of| self.batches.is_new(of, delivered.appended);
        let is_new = record.as_ref().is_ok_and(is_new);
        // Hits do not affect copies. Agents report in such a batch which calls they refused.
        if let Ok(Record::Hits(batch)) = &record {
            // An agent knows a denial only after the record that caused it.
            let Some(first) = found.first().filter(|_| is_new) else {
                return Ok(());
            };
            let position = Some(first.stated.statement.position);
            let ours = batch.refused().filter(|refused| {
                refused.position == position
                    && batch.resource(refused.resource) == self.asked.resource
            });
            for refused in ours {
                self.refused.add(RefusedCalls::of(batch, &refused));
            }
            return Ok(());
        }
        self.begun.replay.apply(delivered, self.source)?;
        for ruled in &self.begun.replay.rulings().statements {
            if *ruled.resource != *self.asked.resource {
                continue;
            }
            let stated = ScopeStatement {
                statement: ruled.statement.clone(),
                appended: delivered.appended,
                is_older: false,
            };
            match CopiesDenial::of(&stated) {
                // One log position may cause several denials.
                Some(denial) if self.is_asked(key(&stated.statement)) => found.push(denial),
                Some(_) => {}
                None => found.iter_mut().for_each(|of| of.lift(&stated)),
            }
            self.last.insert(name_of(&stated.statement.scope), stated);
        }
        if let (Ok(Record::Holds(batch)), FollowUntil::Position((offset, entry))) =
            (record, self.asked.until)
            && offset == delivered.offset
        {
            self.cause = cause_of(&batch, entry);
        }
        Ok(())
    }

    fn is_asked(&self, position: (u64, u32)) -> bool {
        self.asked.until == FollowUntil::Position(position)
    }

    /// Explains the first of these denials, and the others beside it.
    fn denied(
        &self,
        explanation: &mut Explanation,
        found: &[CopiesDenial],
    ) -> Result<(), ExplainError> {
        let Some((first, others)) = found.split_first() else {
            return Ok(());
        };
        let partition = explanation.partition;
        let position = first.stated.statement.position;
        explanation.refused = refused::tally(self.refused.sums());
        let calls = explanation.refused.calls;
        let view = |of: &ScopeStatement, says, refused_calls| StatementView {
            code: Some(Code::new(partition, of.statement.position).to_string()),
            at_us: of.appended.as_micros(),
            until_us: None,
            says,
            cause: denial_of(&of.statement).map(|denial| denial.cause.to_string()),
            refused_calls,
        };
        explanation.domain = match &first.stated.statement.scope {
            Scope::Pair(domain) => Some(domain.to_string()),
            Scope::Group(_) | Scope::Resource if self.asked.code.is_some() => None,
            Scope::Group(_) | Scope::Resource => explanation.domain.take(),
        };
        explanation.denied = true;
        explanation.reason = reason_of(first.denial.cause);
        explanation.code = Some(Code::new(partition, position).to_string());
        explanation.denial = Some(self.denial_view(partition, first)?);
        explanation.statements = vec![view(&first.stated, "denied", calls)];
        explanation
            .statements
            .extend(first.lifted.as_ref().map(|of| view(of, "open", 0)));
        explanation.holders = first.holders.clone();
        let others = others.iter().map(|of| self.same_code(partition, of));
        explanation.same_code = others.collect::<Result<_, _>>()?;
        let book = self.begun.replay.book();
        explanation.version = version_view(book, first.denial.version, explanation);
        explanation.sentences = sentences::write(explanation, self.cause.as_deref(), found);
        explanation
            .sentences
            .push(refused_sentence(explanation, "copies"));
        let unknown = first.stated.is_older;
        let unknown = unknown.then(|| older::unknown_of(first.stated.appended));
        explanation.sentences.extend(unknown);
        Ok(())
    }

    fn denial_view(&self, partition: u32, of: &CopiesDenial) -> Result<DenialView, ExplainError> {
        let resource = (partition, &*self.asked.resource);
        let recorded = recorded_at(self.source, resource, &of.stated.statement)?;
        let until = of.until();
        Ok(DenialView {
            cause: of.denial.cause.to_string(),
            tier: None,
            limit: of.denial.limit,
            window_us: 0,
            since_us: of.stated.appended.as_micros(),
            appended_us: of.stated.appended.as_micros(),
            recorded_us: recorded.map(Timestamp::as_micros),
            until_us: (until < Timestamp::MAX).then(|| until.as_micros()),
        })
    }

    /// Another denial under the same code.
    fn same_code(
        &self,
        partition: u32,
        of: &CopiesDenial,
    ) -> Result<ScopeDenialView, ExplainError> {
        let (scope, domain, group) = match &of.stated.statement.scope {
            Scope::Pair(domain) => ("pair", Some((**domain).into()), None),
            Scope::Group(group) => ("group", None, Some((**group).into())),
            Scope::Resource => ("resource", None, None),
        };
        Ok(ScopeDenialView {
            scope,
            domain,
            group,
            denial: self.denial_view(partition, of)?,
            holders: of.holders.clone(),
        })
    }

    /// Whether a ban is in force, which no denial states.
    fn is_in_banned_network(&self) -> bool {
        let at = self.asked.until.instant_or(self.now);
        let engine = self.begun.replay.engine();
        let domain = self.asked.domain.as_deref();
        domain.is_some_and(|domain| engine.is_banned(&self.asked.resource, domain, at))
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
        } else if self.is_in_banned_network() {
            explanation.reason = reason_of(Cause::Banned);
        }
        explanation.holders = self.holders_of(&scope);
        let at = Utc(self.asked.until.instant_or(self.now));
        let of_scope = match explanation.reason {
            "ignored" => format!("{words} was not denied at {at}: {IGNORED}"),
            "no_limit" => format!("{words} was not denied at {at}: nothing limits it"),
            "banned" => {
                format!("{words} is refused by agents, without a denial: {BANNED_NETWORK}")
            }
            _ => format!("{words} had room at {at}"),
        };
        explanation.sentences = vec![of_scope, held_by(&explanation.holders, "then")];
        let begins = self.begins.filter(|_| self.asked.until == FollowUntil::End);
        explanation.sentences.extend(begins.map(older::unread_of));
    }
}

fn name_of(scope: &Scope) -> String {
    match scope {
        Scope::Pair(domain) => format!("domain {}", escaped(domain)),
        Scope::Group(group) => format!("group {}", escaped(group)),
        Scope::Resource => "resource".to_owned(),
    }
}
