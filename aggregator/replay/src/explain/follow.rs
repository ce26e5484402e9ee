//! Follows one pair through its partition's log: how each of its entries was ruled, tier by tier.
//!
//! The engine gets each batch with this pair's entries alone, so that its memory stays small and every
//! other rule (duplicates, clocks, limits) applies as it did. Beside the engine this keeps a state of the
//! same pair that can be examined; it has the engine's own type and gets the engine's own instants. Knows
//! nothing of the question. What stays true: at most [`ENTRIES_MAX`] entries are remembered, and it is known up
//! to when there were others; if the log is at the cap on pairs, the pair is ruled as if there were room, and no
//! pair is evicted to make room: that changes only what late hits find.

mod entries;

use std::collections::VecDeque;
use std::sync::Arc;

use tollgate_engine::engine::{Fate, TOO_OLD, instant};
use tollgate_engine::stream::Pair;
use tollgate_limits::{Limits, RateClass};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, HitBatch, Refused, write_hits};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Scope, Statement, StatementKind};

use super::Begun;
use super::constraints;
use super::counting::increase;
use super::counts;
use super::history::{
    Burst, ExplainedEntry, LATE, PairStatement, TakenBack, TierNow, Unremembered, push,
};
use super::numbers::{self, Unnumbered};
use super::older::begins_of;
use super::refused::RefusedCalls;
use crate::fill;
use crate::replay::{RecordResult, Replay, ReplayError};
use crate::source::{ReadStep, Source};
use tollgate_log::{Delivered, Stream};

/// How many of the pair's newest entries are remembered.
pub(super) const ENTRIES_MAX: usize = 200_000;

/// How many statements, bursts and reports of refused calls are remembered.
pub(super) const OTHERS_MAX: usize = 10_000;

/// Up to which point the pair is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUntil {
    /// Until the denial stated at this log position (offset and entry) is over.
    Position((u64, u32)),
    /// Until the denial in force at this instant is over.
    Instant(Timestamp),
    /// To the log's end.
    End,
}

impl FollowUntil {
    /// The instant of the question, or `end` without one.
    pub fn instant_or(self, end: Timestamp) -> Timestamp {
        match self {
            Self::Instant(at) => at,
            Self::Position(_) | Self::End => end,
        }
    }

    /// Whether the question is about an instant before this one.
    pub fn is_before(self, appended: Timestamp) -> bool {
        matches!(self, Self::Instant(at) if at < appended)
    }
}

/// The limits of a version, and what they are for the pair.
pub struct PairLimits {
    /// Number of the version; 0: none.
    pub number: u64,
    /// All of them.
    pub limits: Arc<Limits>,
    /// The pair's.
    pub class: RateClass,
}

/// One pair, followed.
pub struct PairFollow {
    /// The replay.
    pub replay: Replay,
    next: u64,
    partition: u32,
    resource: Box<str>,
    domain: Box<str>,
    /// Log time at the snapshot at which the replay began; `None`: it began with the log.
    pub begins: Option<Timestamp>,
    pair: Pair,
    class: RateClass,
    version: Option<u64>,
    /// The version in force at the instant up to which the pair is followed, or at the end; the first one, if the instant
    /// is before it. Agents stamp their calls before the log gets them.
    version_then: Option<u64>,
    /// The newest entries.
    pub entries: VecDeque<ExplainedEntry>,
    /// Tiers that were entered.
    pub bursts: VecDeque<Burst>,
    /// The statements about the pair.
    pub statements: VecDeque<PairStatement>,
    /// Hits that operators took back.
    pub taken_back: VecDeque<TakenBack>,
    /// Calls that agents refused.
    pub refused: VecDeque<RefusedCalls>,
    /// What of these was too much to be remembered.
    pub unremembered: Unremembered,
    /// The append time of the last record that was read.
    pub read_upto: Timestamp,
    writer: Writer,
}

impl PairFollow {
    /// The resource and the domain.
    pub fn names(&self) -> (&str, &str) {
        (&self.resource, &self.domain)
    }

    /// Follows a pair from the beginning of a replay.
    pub fn new(begun: Begun, resource: &str, domain: &str) -> Self {
        let begins = begins_of(&begun);
        let Begun {
            replay,
            next,
            partition,
            older,
        } = begun;
        let version = replay.engine().version();
        let class = class_of(replay.engine().limits(), resource, domain);
        let pair = match replay.engine().look(resource, domain) {
            Some(pair) => pair,
            None => Pair::of(&class),
        };
        let mut follow = Self {
            replay,
            next,
            partition,
            resource: resource.into(),
            domain: domain.into(),
            begins,
            pair,
            class,
            version,
            version_then: version,
            entries: VecDeque::new(),
            bursts: VecDeque::new(),
            statements: VecDeque::new(),
            taken_back: VecDeque::new(),
            refused: VecDeque::new(),
            unremembered: Unremembered::default(),
            read_upto: Timestamp::ZERO,
            writer: Writer::new(),
        };
        let begins = begins.unwrap_or_default();
        let of_pair = |of: &Statement| matches!(&of.scope, Scope::Pair(of) if **of == *domain);
        for statement in older.into_iter().filter(of_pair) {
            let older = PairStatement {
                statement,
                is_older: true,
                since: begins,
                appended: begins,
                ..follow.standing()
            };
            push(&mut follow.statements, OTHERS_MAX, older);
        }
        follow
    }

    /// Reads on until the answer is complete.
    ///
    /// # Errors
    ///
    /// If the log cannot be read or ruled.
    pub fn run(&mut self, source: &dyn Source, until: FollowUntil) -> Result<(), ReplayError> {
        let mut cursor = source.open(Stream::Hits, self.partition, self.next)?;
        loop {
            let records = match cursor.read()? {
                ReadStep::Records(records) => records,
                ReadStep::Gone { wanted, next } => {
                    return Err(ReplayError::Gone {
                        partition: self.partition,
                        wanted,
                        first: next,
                    });
                }
                ReadStep::End => break,
            };
            for delivered in &records {
                if self.next <= delivered.offset {
                    self.next = delivered.offset + 1;
                    self.read_upto = delivered.appended;
                    self.record(delivered, source)?;
                    if !until.is_before(delivered.appended) || self.version_then.is_none() {
                        self.version_then = self.version;
                    }
                }
            }
            if self.is_over(until) {
                break;
            }
        }
        self.number(source)
    }

    /// Finds the entries of the statements that no call of the pair caused.
    fn number(&mut self, source: &dyn Source) -> Result<(), ReplayError> {
        let unnumbered = self.statements.iter_mut().filter(|of| !of.is_numbered);
        let unnumbered = unnumbered.map(|of| Unnumbered {
            statement: &mut of.statement,
            is_numbered: &mut of.is_numbered,
        });
        let of = (self.partition, &*self.resource);
        Ok(numbers::find(source, of, unnumbered)?)
    }

    fn is_over(&self, until: FollowUntil) -> bool {
        let (begun, from) = match until {
            FollowUntil::End => return false,
            FollowUntil::Position(position) => {
                let stated = self
                    .statements
                    .iter()
                    .find(|stated| stated.numbered().may_be_at(position));
                let reached = position.0 < self.next;
                let since = stated.map_or(self.read_upto, |stated| stated.appended);
                (reached, since)
            }
            FollowUntil::Instant(at) => (at < self.read_upto, at),
        };
        let end = match self.in_force_after(from) {
            Some(Timestamp::MAX) => from,
            Some(end) => end.max(from),
            None => from,
        };
        let late = match until {
            // However late a call comes, one older than this is only counted.
            FollowUntil::Instant(_) => TOO_OLD,
            FollowUntil::Position(_) | FollowUntil::End => LATE,
        };
        begun && end.saturating_add(late) < self.read_upto
    }

    /// The end of the denial in force at an instant or stated since, as stated last.
    fn in_force_after(&self, at: Timestamp) -> Option<Timestamp> {
        let last = self.statements.back()?;
        match last.statement.kind {
            StatementKind::Denied(denial) if at < denial.end => Some(denial.end),
            _ => None,
        }
    }

    fn record(&mut self, delivered: &Delivered, source: &dyn Source) -> Result<(), ReplayError> {
        if let Ok(Record::Hits(batch)) = Record::decode(&delivered.bytes) {
            return self.batch(delivered, &batch);
        }
        if let RecordResult::Ruled(Record::LimitsActivation(_)) =
            self.replay.apply(delivered, source)?
        {
            self.new_limits(delivered.offset);
        }
        self.listen(delivered, &[]);
        Ok(())
    }

    fn is_ours(&self, batch: &HitBatch<'_>, resource: u32, domain: &str) -> bool {
        domain == &*self.domain && batch.resource(resource) == &*self.resource
    }

    fn batch(&mut self, delivered: &Delivered, batch: &HitBatch<'_>) -> Result<(), ReplayError> {
        let mut numbers = Vec::new();
        let mut hits: Vec<Hit<'_>> = Vec::new();
        for (number, hit) in (0u32..).zip(batch.hits()) {
            if self.is_ours(batch, hit.resource, hit.domain) {
                numbers.push(number);
                hits.push(Hit {
                    resource: 0,
                    ..*hit
                });
            }
        }
        let ours = |refused: &Refused<'_>| self.is_ours(batch, refused.resource, refused.domain);
        let refused: Vec<_> = batch.refused().filter(ours).collect();
        write_hits(
            &mut self.writer,
            &batch.sender,
            &[&self.resource],
            hits.iter().copied(),
            [].into_iter(),
        );
        let bytes = self.writer.as_slice().to_vec();
        if let Ok(record) = Record::decode(&bytes) {
            self.replay.feed(delivered, &record)?;
        }
        // What came again was noted when it came first.
        let is_applied = self.replay.rulings().fates.contains(&Fate::Applied);
        for refused in refused.into_iter().filter(|_| is_applied) {
            let refused = Refused {
                first: self.corrected(refused.first, delivered.appended),
                last: self.corrected(refused.last, delivered.appended),
                ..refused
            };
            self.refused(batch, &refused);
        }
        if !hits.is_empty() {
            self.entries(delivered, batch, &numbers, &hits);
        }
        Ok(())
    }

    /// The instant of a stamp in the batch that was ruled last.
    fn corrected(&self, stamp: Timestamp, appended: Timestamp) -> Timestamp {
        let corrections = &self.replay.rulings().corrections;
        let moved_us = corrections.first().map_or(0, |moved| moved.moved_us);
        instant(stamp, moved_us, appended)
    }

    fn refused(&mut self, batch: &HitBatch<'_>, refused: &Refused<'_>) {
        let report = RefusedCalls::of(batch, refused);
        let oldest = push(&mut self.refused, OTHERS_MAX, report).map(|report| report.last);
        let upto = &mut self.unremembered.reports_upto;
        *upto = oldest.max(*upto);
    }

    /// Records the engine's statements about the pair. `stood` has the pair's state after each entry.
    fn listen(&mut self, delivered: &Delivered, stood: &[(u32, Option<PairStatement>)]) {
        let statements: Vec<Statement> = self
            .replay
            .rulings()
            .statements
            .iter()
            .filter(|stated| {
                *stated.resource == *self.resource
                    && matches!(&stated.statement.scope, Scope::Pair(domain) if **domain == *self.domain)
            })
            .map(|stated| stated.statement.clone())
            .collect();
        for mut statement in statements {
            let mut stated = self.standing();
            match stood.get(statement.position.entry as usize) {
                Some((number, then)) => {
                    statement.position.entry = *number;
                    stated = then.clone().unwrap_or(stated);
                }
                // No call of the pair causes it, but an operator's act or other limits: the pair's time is that of its
                // last call, or 1970.
                None => {
                    stated.since = stated.since.max(delivered.appended);
                    stated.is_numbered = false;
                }
            }
            stated.statement = statement;
            stated.appended = delivered.appended;
            push(&mut self.statements, OTHERS_MAX, stated);
        }
    }

    fn closed_until(&self) -> Option<Timestamp> {
        let closure = self.pair.closure(&self.class, self.pair.now());
        closure.map(|closure| closure.end)
    }

    /// The pair's current state, without a statement.
    fn standing(&self) -> PairStatement {
        let now = self.pair.now();
        let tiers = self.pair.state.tiers.iter().zip(self.class.tiers());
        let tiers = tiers.map(|(state, tier)| TierNow {
            phase: state.phase(tier, now),
            entered: state.entered,
            window: state
                .window
                .runs()
                .filter(|(at, _)| now <= at.saturating_add(tier.window))
                .collect(),
        });
        PairStatement {
            statement: Statement {
                scope: Scope::Pair((*self.domain).into()),
                position: Default::default(),
                kind: StatementKind::Lifted,
            },
            is_numbered: true,
            is_older: false,
            since: now,
            appended: Timestamp::ZERO,
            class: self.class.clone(),
            tiers: tiers.collect(),
            window: counts::full_window(&self.class, &self.pair),
            constraints: constraints::of(&self.class, &self.pair.state, now),
        }
    }

    /// Applies new versions, one after the other, which the record at an offset activates.
    fn new_limits(&mut self, offset: u64) {
        let newest = self.replay.engine().version();
        while self.version != newest {
            let book = self.replay.book();
            let Some(version) = book.after(self.version.unwrap_or(0)).cloned() else {
                return;
            };
            let class = class_of(&version.limits, &self.resource, &self.domain);
            if class != self.class {
                self.pair.new_limits(&self.class, &class);
                self.class = class;
            }
            self.version = Some(version.number);
        }
        // A version may also be an operator's act that resets, refunds or lifts. The engine has applied it.
        if let Some(pair) = self.replay.engine().look(&self.resource, &self.domain) {
            let used = |of: &Pair| fill::used(&self.class, &of.state, pair.now());
            let hits = increase(&used(&pair), &used(&self.pair));
            self.pair = pair;
            if 0 < hits {
                let position = (offset, 0);
                let taken = TakenBack { position, hits };
                push(&mut self.taken_back, OTHERS_MAX, taken);
            }
        }
    }

    /// The limits under which a call was ruled; without one, those in force at the instant up to which the pair is
    /// followed, or at the end.
    pub fn limits_of(&self, call: Option<&ExplainedEntry>) -> PairLimits {
        let then = self.version_then.unwrap_or(0);
        let number = call.map_or(then, |call| call.version);
        let version = self.replay.book().get(number);
        let limits = version.map_or_else(Arc::default, |version| Arc::clone(&version.limits));
        PairLimits {
            class: class_of(&limits, &self.resource, &self.domain),
            number,
            limits,
        }
    }

    /// Whether the state beside the engine agrees with the engine's.
    fn agrees(&self) -> bool {
        let Some(engines) = self.replay.engine().look(&self.resource, &self.domain) else {
            return true;
        };
        let now = self.pair.now();
        engines.now() == now
            && engines.closure(&self.class, now) == self.pair.closure(&self.class, now)
    }
}

fn class_of(limits: &Limits, resource: &str, domain: &str) -> RateClass {
    limits
        .class_of(resource, domain)
        .cloned()
        .unwrap_or_default()
}
