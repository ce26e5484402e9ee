//! A log in memory, of one partition, which a test writes record by record.
//!
//! An engine rules each record, so that the log has the decision records that an aggregator would write. Knows nothing
//! of questions. Every instant is stated in milliseconds after [`ORIGIN`].

use std::collections::BTreeMap;

use tollgate_engine::engine::{Engine, Rulings};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::{Chunks, Delivered, Stream};
use tollgate_replay::explain::{ExplainError, Explanation, Question, explain};
use tollgate_replay::source::{Cursor, ReadStep, Source, SourceError};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::{Code, LogId, LogPosition};
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::{Hit, HitKind, Refused, Sender, write_hits};
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick, Total};
use tollgate_shared::wire::statement::Cause;

/// The identity of a log, unless it is stated otherwise.
const LOG: LogId = LogId {
    generation: 1,
    random: 5,
};

/// 2026-11-26T12:00:00Z.
pub const ORIGIN: Timestamp = Timestamp::from_micros(1_795_694_400_000_000);

/// An instant.
pub fn at(ms: u64) -> Timestamp {
    ORIGIN.saturating_add(Span::from_millis(ms))
}

/// The log.
pub struct MemoryLog {
    id: LogId,
    engine: Engine,
    book: LimitsBook,
    limits: Vec<Delivered>,
    hits: Vec<Delivered>,
    denials: Vec<Delivered>,
    /// By the offset of the last record in each.
    snapshots: BTreeMap<u64, Chunks>,
    sequence: u64,
    /// The offset of the first record of hits that the log still has.
    begins: u64,
}

impl MemoryLog {
    /// A log with its identity, and with limits from the origin on.
    pub fn new(document: &str) -> Self {
        Self::of(LOG, document)
    }

    /// The log of the next generation, with the same limits, after the topic of hits was recreated.
    pub fn recreated(document: &str) -> Self {
        let id = LogId {
            generation: LOG.generation + 1,
            ..LOG
        };
        Self::of(id, document)
    }

    fn of(id: LogId, document: &str) -> Self {
        let mut log = Self {
            id,
            engine: Engine::new(0, 1),
            book: LimitsBook::default(),
            limits: Vec::new(),
            hits: Vec::new(),
            denials: Vec::new(),
            snapshots: BTreeMap::new(),
            sequence: 0,
            begins: 0,
        };
        let identity = RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(id);
        push(&mut log.limits, 0, identity.clone());
        log.apply(0, identity);
        log.document(0, document);
        log
    }

    /// New limits.
    pub fn document(&mut self, ms: u64, text: &str) {
        let mut writer = Writer::new();
        LimitsDocument {
            push: u128::from(ms),
            expected: self.book.latest_number(),
            who: "ann",
            why: "a test",
            at: at(ms),
            text,
        }
        .encode(&mut writer);
        self.version(ms, writer.as_slice().to_vec());
    }

    /// An operator's act.
    pub fn act(&mut self, ms: u64, act: Act) {
        let mut writer = Writer::new();
        Amendment {
            push: u128::from(ms),
            expected: self.book.latest_number(),
            who: "ann",
            why: "a test",
            act,
        }
        .encode(&mut writer);
        self.version(ms, writer.as_slice().to_vec());
    }

    fn version(&mut self, ms: u64, bytes: Vec<u8>) {
        push(&mut self.limits, ms, bytes);
        let added = self.limits.last().expect("a record");
        self.book
            .read(added.offset, added.appended, &added.bytes)
            .expect("a record of limits");
        let latest = self.book.latest().expect("a version");
        assert_eq!(latest.number, added.offset, "the version is void");
        let activation = LimitsActivation {
            version: latest.number,
            digest: latest.digest,
        };
        let pen = RecordPen::new(&MacKey::UNPROTECTED, 0);
        self.apply(ms, pen.limits_activation(&activation));
    }

    /// Hits that were let through, one call. Returns the code of what it may have caused.
    pub fn hits(&mut self, ms: u64, agent: &str, (resource, domain): (&str, &str), n: u32) -> Code {
        self.hit(ms, agent, resource, Hit::one(0, domain, at(ms), n))
    }

    /// Some hits of an estimate, made at `made`, are given back: it cost `actual`.
    pub fn settle(
        &mut self,
        ms: u64,
        (resource, domain): (&str, &str),
        (made, estimated, actual): (u64, u32, u32),
    ) {
        let settled = Hit {
            kind: HitKind::Refund {
                made: at(made),
                estimated,
                actual,
            },
            ..Hit::one(0, domain, at(ms), estimated - actual)
        };
        self.hit(ms, "alpha", resource, settled);
    }

    /// One entry.
    pub fn hit(&mut self, ms: u64, agent: &str, resource: &str, hit: Hit<'_>) -> Code {
        self.sequence += 1;
        let mut writer = Writer::new();
        write_hits(
            &mut writer,
            &sender(agent, ms, self.sequence),
            &[resource],
            [hit].into_iter(),
            [].into_iter(),
        );
        self.apply(ms, writer.as_slice().to_vec())
    }

    /// Calls of one hit each that an agent refused under a code.
    pub fn refused(
        &mut self,
        ms: u64,
        agent: &str,
        (resource, domain): (&str, &str),
        (calls, cause, code): (u64, Cause, Code),
    ) {
        self.sequence += 1;
        let refused = Refused {
            resource: 0,
            domain,
            calls,
            copies: calls,
            first: at(ms),
            last: at(ms),
            cause,
            position: Some(code.position),
        };
        let mut writer = Writer::new();
        let sender = sender(agent, ms, self.sequence);
        let none = [].into_iter();
        write_hits(
            &mut writer,
            &sender,
            &[resource],
            none,
            [refused].into_iter(),
        );
        self.apply(ms, writer.as_slice().to_vec());
    }

    /// The latest record comes again, as a batch whose acknowledgement was lost.
    pub fn again(&mut self, ms: u64) {
        let again = self.hits.last().expect("a record").bytes.to_vec();
        self.apply(ms, again);
    }

    /// What the latest record counts against a global limit, as its partition's ruler states it.
    pub fn totals(&mut self, ms: u64, resource: &str, copies: u32) -> Code {
        let last = self.hits.last().expect("a record");
        let total = Total {
            ms: last.appended.as_millis(),
            copies,
            unguarded: false,
        };
        let pen = RecordPen::new(&MacKey::UNPROTECTED, 0);
        let totals = pen.totals(resource, (0, last.offset), &[total]);
        self.apply(ms, totals)
    }

    /// An agent takes copies.
    pub fn hold(&mut self, ms: u64, (resource, domain): (&str, &str), copies: u32) -> Code {
        self.sequence += 1;
        let op = HoldOp {
            resource: 0,
            number: self.sequence,
            at: at(ms),
            action: HoldAction::Hold { domain, copies },
        };
        let mut writer = Writer::new();
        let sender = sender("holder", ms, self.sequence);
        write_holds(&mut writer, &sender, &[resource], [op].into_iter());
        self.apply(ms, writer.as_slice().to_vec())
    }

    /// A tick, which log time follows. Its position is in the code.
    pub fn tick(&mut self, ms: u64) -> Code {
        self.sequence += 1;
        let tick = Tick {
            log: self.id,
            aggregator: "agg-1",
            instance: 1,
            number: self.sequence,
        };
        self.apply(ms, RecordPen::new(&MacKey::UNPROTECTED, 0).tick(&tick))
    }

    /// A snapshot of the state.
    pub fn snapshot(&mut self) {
        let last = self.hits.last().expect("a record");
        let upto = last.offset;
        self.engine.set_mark(last.mark());
        self.snapshots.insert(upto, self.engine.snapshot());
    }

    /// What was announced first is announced again, as by an aggregator that restarts.
    pub fn announce_again(&mut self, ms: u64) {
        let again = self.denials.first().expect("a statement").bytes.to_vec();
        push(&mut self.denials, ms, again);
    }

    /// Takes over the snapshots of an earlier log of this name, which was recreated.
    pub fn keep_snapshots_of(&mut self, earlier: &Self) {
        self.snapshots.extend(earlier.snapshots.clone());
    }

    /// Removes all hits that are in a snapshot, as retention does.
    pub fn forget(&mut self) {
        let upto = self.snapshots.keys().next_back().expect("a snapshot");
        self.begins = upto + 1;
    }

    /// Appends a record and what is announced for it.
    pub fn apply(&mut self, ms: u64, record: Vec<u8>) -> Code {
        let offset = self.hits.len() as u64;
        let mut rulings = Rulings::new();
        let decoded = Record::decode(&record).expect("a record");
        self.engine
            .apply(offset, at(ms), &decoded, &self.book, &mut rulings);
        assert_eq!(rulings.stopped(), None);
        for stated in &rulings.statements {
            let mut writer = Writer::new();
            Announced {
                log: self.id,
                partition: 0,
                resource: (&*stated.resource).into(),
                statement: stated.statement.clone(),
            }
            .encode(&mut writer);
            push(&mut self.denials, ms, writer.as_slice().to_vec());
        }
        push(&mut self.hits, ms, record);
        let position = LogPosition {
            offset,
            entry: 0,
            generation: self.id.generation,
        };
        Code::new(0, position)
    }

    /// Explains what denied a pair: at an instant, or last.
    pub fn explained(&self, (resource, domain): (&str, &str), ms: Option<u64>) -> Explanation {
        let question = Question::Pair {
            resource: resource.to_owned(),
            domain: Some(domain.to_owned()),
            at: ms.map(at),
        };
        self.ask(&question).expect("an explanation")
    }

    /// Explains how all domains together stood at an instant.
    pub fn explained_everybody(&self, resource: &str, ms: u64) -> Explanation {
        let question = Question::Pair {
            resource: resource.to_owned(),
            domain: None,
            at: Some(at(ms)),
        };
        self.ask(&question).expect("an explanation")
    }

    /// Explains a code.
    pub fn explained_code(&self, code: Code) -> Result<Explanation, ExplainError> {
        self.ask(&Question::Code(code))
    }

    fn ask(&self, question: &Question) -> Result<Explanation, ExplainError> {
        explain(self, question, &Keyring::default())
    }
}

fn push(into: &mut Vec<Delivered>, ms: u64, bytes: Vec<u8>) {
    into.push(Delivered {
        offset: into.len() as u64,
        appended: at(ms),
        bytes: bytes.into(),
    });
}

fn sender(agent: &str, ms: u64, sequence: u64) -> Sender<'_> {
    Sender {
        agent,
        epoch: agent.len() as u128,
        sequence,
        sent: at(ms),
    }
}

/// What is read next, the last one first.
struct MemoryCursor(Vec<ReadStep>);

impl Cursor for MemoryCursor {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        Ok(self.0.pop().unwrap_or(ReadStep::End))
    }
}

impl Source for MemoryLog {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn partitions(&self) -> u32 {
        1
    }

    fn open(
        &self,
        stream: Stream,
        _partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let all = match stream {
            Stream::Hits => &self.hits,
            Stream::Denials => &self.denials,
            _ => &self.limits,
        };
        let first = match stream {
            Stream::Hits => self.begins,
            _ => 0,
        };
        let next = from.max(first);
        let gone = (from < first).then_some(ReadStep::Gone { wanted: from, next });
        let there: Vec<_> = all.iter().filter(|of| next <= of.offset).cloned().collect();
        let there = (!there.is_empty()).then_some(ReadStep::Records(there));
        Ok(Box::new(MemoryCursor(
            there.into_iter().chain(gone).collect(),
        )))
    }

    fn snapshots(&self, _partition: u32) -> Vec<u64> {
        self.snapshots.keys().copied().collect()
    }

    fn snapshot(&self, _partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        Ok(self.snapshots[&upto].clone())
    }
}
