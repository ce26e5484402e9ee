//! The audit of one partition: its hits through the engine, its denials beside them.
//!
//! Both streams are read once, side by side by append time, since a statement is recorded after its
//! cause. What stays true: hits are read at least up to the cause of the last recorded statement, so
//! that a live log that grows meanwhile yields no difference.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use tollgate_engine::engine::Fate;
use tollgate_shared::escape::escaped;
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::HitBatch;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::StatementKind;

use super::amended::brought;
use super::denials::Denials;
use super::excess::ExcessLedger;
use super::ledger::{Ledger, Lookup, Recorded};
use super::report::{Difference, DifferenceKind, PartitionAudit};
use super::sample::Sample;
use super::sequences::Sequences;
use super::snapshots::AuditedSnapshots;
use super::state_digests::AuditedDigests;
use crate::range::RangePosition;
use crate::replay::{RecordResult, Replay, ReplayError};
use crate::source::{Cursor, ReadStep, Source};
use crate::work::Work;
use tollgate_log::{Delivered, Stream};

/// How many ticks of one ruling aggregator after a record prove that the record's statements are
/// recorded. An aggregator sends its next tick when it has received the last one; so the second tick was
/// written in a later turn of the log than the statements ruled before the first.
const TICKS_THAT_VERIFY: usize = 2;

/// Audits one partition. If retention took what the replay of it needs, the result says so.
pub fn audit(work: &Work<'_>, index: u32) -> Result<PartitionAudit, ReplayError> {
    let mut part = PartitionAudit::new(index);
    if !work.task.range.has(index) {
        return Ok(part);
    }
    match audit_into(work, &mut part) {
        Err(error @ (ReplayError::Gone { .. } | ReplayError::Cut(_))) => {
            part.not_audited = Some(error);
        }
        done => done?,
    }
    Ok(part)
}

fn audit_into(work: &Work<'_>, part: &mut PartitionAudit) -> Result<(), ReplayError> {
    let mut auditor = Auditor::begin(work, part.partition, part)?;
    auditor.run(part)
}

struct Auditor<'w, 'a> {
    work: &'w Work<'a>,
    index: u32,
    replay: Replay,
    hits: Box<dyn Cursor>,
    /// The offset of the next record of hits.
    next: u64,
    /// Hits beyond the range were read.
    behind: bool,
    /// The first record in the range.
    first: Option<u64>,
    denials: Denials,
    ledger: Ledger,
    logs: Vec<LogId>,
    aggregators: HashMap<u128, [u64; TICKS_THAT_VERIFY + 1]>,
    verified: u64,
    snapshots: AuditedSnapshots,
    sequences: Sequences,
    state_digests: AuditedDigests,
    excess: ExcessLedger,
    sample: Option<Sample>,
}

struct Past<'a> {
    source: &'a dyn Source,
    partition: u32,
}

impl Lookup for Past<'_> {
    fn at(&self, offset: u64) -> Option<(Timestamp, Announced)> {
        let mut cursor = self.source.open(Stream::Denials, self.partition, offset);
        let ReadStep::Records(records) = cursor.as_mut().ok()?.read().ok()? else {
            return None;
        };
        let record = records.first().filter(|record| record.offset == offset)?;
        let announced = Announced::decode(&record.bytes).ok()?;
        Some((record.appended, announced))
    }
}

impl<'w, 'a> Auditor<'w, 'a> {
    fn begin(
        work: &'w Work<'a>,
        index: u32,
        part: &mut PartitionAudit,
    ) -> Result<Self, ReplayError> {
        let (replay, next) = crate::start::begin(work, index)?;
        let source = work.source;
        let share = work.task.model.share(source.hits_bytes());
        let sample = Sample::new(index, source.partitions(), share);
        if 0 < next && sample.is_some() {
            let text = "the model checked nothing: the replay begins at a snapshot";
            part.remark("model_not_asked", 1, next, text);
        }
        Ok(Self {
            // The sample knows only what it has read itself, so it needs the log from its beginning.
            sample: sample.filter(|_| next == 0),
            logs: replay.engine().log().into_iter().collect(),
            hits: source.open(Stream::Hits, index, next)?,
            denials: Denials {
                cursor: source.open(Stream::Denials, index, 0)?,
                batch: Default::default(),
                next: None,
                ahead: Vec::new(),
            },
            work,
            index,
            replay,
            next,
            behind: false,
            first: None,
            ledger: Ledger::default(),
            aggregators: HashMap::new(),
            verified: 0,
            snapshots: AuditedSnapshots::new(source, index, next),
            sequences: Sequences::default(),
            state_digests: AuditedDigests::default(),
            excess: ExcessLedger::default(),
        })
    }

    fn run(&mut self, part: &mut PartitionAudit) -> Result<(), ReplayError> {
        self.read(part)?;
        for (recorded, announced) in std::mem::take(&mut self.denials.ahead) {
            self.compare_announced(&announced, recorded, part);
        }
        std::mem::take(&mut self.ledger).end(self.verified, part);
        std::mem::take(&mut self.sequences).end(part);
        std::mem::take(&mut self.excess).end(part);
        if let Some(sample) = self.sample.take() {
            sample.end(part);
        }
        Ok(())
    }

    /// Reads both streams to their ends.
    fn read(&mut self, part: &mut PartitionAudit) -> Result<(), ReplayError> {
        while let Some(appended) = self.read_hits(part)? {
            self.read_denials(Some(appended), part)?;
        }
        self.check_end(part);
        // First read the statements recorded meanwhile, then hits up to the cause of the last one.
        self.read_denials(None, part)?;
        while self.denials.reaches(self.next) && self.read_hits(part)?.is_some() {}
        Ok(())
    }

    /// Checks the end of an export, which states where its hits end: records after that are left out,
    /// records before it must be there.
    fn check_end(&mut self, part: &mut PartitionAudit) {
        let Some(end) = self.work.source.hits_end(self.index) else {
            return;
        };
        if self.next < end && !self.behind {
            let text = format!("the last records are missing, up to offset {}", end - 1);
            let place = (self.index, "hits", self.next);
            part.differs(Difference::of_record(DifferenceKind::Gap, place, text));
        } else {
            self.behind = true;
        }
    }

    /// Reads some hits. Returns the append time of the last one; `None` at the end.
    fn read_hits(&mut self, part: &mut PartitionAudit) -> Result<Option<Timestamp>, ReplayError> {
        if self.behind {
            return Ok(None);
        }
        let records = match self.hits.read()? {
            ReadStep::Records(records) => records,
            ReadStep::Gone { wanted, next } => {
                return Err(ReplayError::Gone {
                    partition: self.index,
                    wanted,
                    first: next,
                });
            }
            ReadStep::End => return Ok(None),
        };
        let bytes: usize = records.iter().map(|record| record.bytes.len() + 20).sum();
        let entries = part.entries;
        for delivered in &records {
            let lies = self
                .work
                .task
                .range
                .lies(delivered.offset, delivered.appended);
            if lies == RangePosition::Behind {
                self.behind = true;
                break;
            }
            self.hit(delivered, lies == RangePosition::In, part)?;
        }
        part.report_progress(self.work.progress, entries);
        let progress = &self.work.progress.bytes;
        progress.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(records.last().map(|record| record.appended))
    }

    fn hit(
        &mut self,
        delivered: &Delivered,
        in_range: bool,
        part: &mut PartitionAudit,
    ) -> Result<(), ReplayError> {
        let offset = delivered.offset;
        if offset < self.next {
            if in_range {
                let text = "records that are in the log twice at one offset";
                part.remark("redelivered", 1, offset, text);
            }
            return Ok(());
        }
        let missing = offset - self.next;
        if 0 < missing {
            let text = format!("{missing} records are missing, up to offset {}", offset - 1);
            let place = (self.index, "hits", self.next);
            part.differs(Difference::of_record(DifferenceKind::Gap, place, text));
        }
        self.next = offset + 1;
        let known = self.replay.engine().version();
        let log_time = self.replay.engine().log_time();
        let met = self.replay.apply(delivered, self.work.source)?;
        let of = (&met, &self.replay);
        self.state_digests
            .take((offset, in_range), log_time, of, part);
        if let Some(log) = self.replay.engine().log()
            && !self.logs.contains(&log)
        {
            self.logs.push(log);
        }
        if let (Some(sample), RecordResult::Ruled(record)) = (&mut self.sample, &met) {
            sample.apply(delivered, record, &self.replay, in_range, part);
        }
        if let RecordResult::Ruled(record) = &met {
            let (excess, rulings) = (&mut self.excess, self.replay.rulings());
            excess.ruled(record, delivered.appended, rulings, in_range, part);
        }
        if in_range {
            self.first.get_or_insert(offset);
            part.records += 1;
            let upto = self.replay.engine().version();
            if known != upto {
                let place = (self.index, offset);
                let new = brought(self.replay.book(), (known, upto), place);
                part.amendments.extend(new);
            }
            self.weigh(delivered, &met, part);
            self.expect(delivered, part);
        }
        let replay = (self.work.source, &self.replay);
        self.snapshots.compare(delivered, replay, part);
        Ok(())
    }

    /// Counts a record, and reports remarks and differences about it.
    fn weigh(&mut self, delivered: &Delivered, met: &RecordResult<'_>, part: &mut PartitionAudit) {
        let offset = delivered.offset;
        let record = match met {
            RecordResult::Ruled(record) => record,
            RecordResult::Forged(why) => {
                let place = (self.index, "hits", offset);
                part.differs(Difference::of_record(
                    DifferenceKind::Forged,
                    place,
                    why.as_str(),
                ));
                return;
            }
            RecordResult::Undecodable(why) => {
                let text = format!("records that cannot be read ({why})");
                return part.remark("undecodable", 1, offset, &text);
            }
            RecordResult::Skipped => {
                let text = "records of a kind that this build may skip";
                return part.remark("skipped", 1, offset, text);
            }
        };
        match record {
            Record::Hits(batch) => self.batch(offset, batch, part),
            // All records of an agent share one count of sequence numbers.
            Record::Holds(batch) => self.sequences.saw(&batch.sender, offset, part),
            Record::Heartbeat(heartbeat) => self.sequences.saw(&heartbeat.sender, offset, part),
            Record::Tick(tick) => {
                let seen = self.aggregators.entry(tick.instance).or_default();
                seen.rotate_left(1);
                seen[TICKS_THAT_VERIFY] = offset;
                self.verified = self.verified.max(seen[0]);
            }
            _ => {}
        }
        for fate in &self.replay.rulings().fates {
            let (kind, text) = match fate {
                Fate::Duplicate { .. } => {
                    ("duplicates", "batches that came again: not ruled twice")
                }
                Fate::OlderThanWindow { .. } => ("older", "batches too old to be ruled"),
                Fate::Overtaken { .. } => (
                    "overtaken",
                    "hold operations or heartbeats that came out of turn: not applied",
                ),
                Fate::EpochOver { .. } => (
                    "epochs",
                    "hold operations or heartbeats of an epoch that was over: not applied",
                ),
                Fate::TooManyAgents { .. } => ("agents", "batches of agents beyond the bound"),
                Fate::OfAnotherLog => ("foreign", "ticks of another log: ignored"),
                Fate::TotalOutOfOrder => ("totals", "totals that came again: not counted twice"),
                _ => continue,
            };
            part.remark(kind, 1, offset, text);
        }
        for correction in &self.replay.rulings().corrections {
            let text = format!(
                "batches whose timestamps were corrected, because the agent's clock is wrong, or its batches arrived late (first: {}, by {} us)",
                escaped(&correction.agent),
                correction.moved_us
            );
            part.remark("clocks", 1, offset, &text);
        }
    }

    fn batch(&mut self, offset: u64, batch: &HitBatch<'_>, part: &mut PartitionAudit) {
        self.sequences.saw(&batch.sender, offset, part);
        let rulings = self.replay.rulings();
        for of in &rulings.counts {
            let counts = &of.counts;
            part.entries += counts.entries;
            part.hits[0] += counts.granted;
            part.hits[1] += counts.excess;
            part.hits[2] += counts.late;
            part.refused_calls += counts.refused_calls;
            let not_ruled = counts.at_cap + counts.misrouted + counts.too_old;
            if 0 < not_ruled {
                let text =
                    "hits that were only counted: too old, at the cap, or of another partition";
                part.remark("not_ruled", not_ruled, offset, text);
            }
        }
    }

    fn expect(&mut self, delivered: &Delivered, part: &mut PartitionAudit) {
        let log = self.replay.engine().log().unwrap_or_default();
        for stated in &self.replay.rulings().statements {
            match stated.statement.kind {
                StatementKind::Denied(_) => part.stated[0] += 1,
                StatementKind::Lifted => part.stated[1] += 1,
            }
            let announced = Announced {
                log,
                partition: self.index,
                resource: (*stated.resource).into(),
                statement: stated.statement.clone(),
            };
            self.ledger.expect(announced, delivered.appended, part);
        }
    }

    /// Reads recorded statements: those appended by `until`, or all.
    fn read_denials(
        &mut self,
        until: Option<Timestamp>,
        part: &mut PartitionAudit,
    ) -> Result<(), ReplayError> {
        loop {
            let Some(record) = self.denials.batch.pop_front() else {
                if self.denials.refill(self.index, part)? {
                    continue;
                }
                return Ok(());
            };
            if until.is_some_and(|until| until < record.appended) {
                self.denials.batch.push_front(record);
                return Ok(());
            }
            self.recorded(&record, part);
        }
    }

    fn recorded(&mut self, record: &Delivered, part: &mut PartitionAudit) {
        let announced = match Announced::decode(&record.bytes) {
            Ok(announced) => announced,
            Err(error) => {
                // Only aggregators write here, so an unreadable record is not a damaged statement: it
                // never was one. The log's identity stands at the beginning of the stream, and where a
                // later generation begins.
                if !matches!(Record::decode(&record.bytes), Ok(Record::Genesis(_))) {
                    let text = format!("is no statement: {error}");
                    let place = (self.index, "denials", record.offset);
                    part.differs(Difference::of_record(
                        DifferenceKind::Unexpected,
                        place,
                        text,
                    ));
                }
                return;
            }
        };
        let recorded = Recorded {
            offset: record.offset,
            appended: record.appended,
        };
        if self.next <= announced.statement.position.offset {
            // Behind the range nothing more is replayed, so such a statement is not compared.
            if !self.behind {
                self.denials.ahead.push((recorded, announced));
            }
            return;
        }
        // In the order in which they were recorded.
        let next = self.next;
        let reached = |(_, a): &(Recorded, Announced)| a.statement.position.offset < next;
        let count = self.denials.ahead.iter().take_while(|a| reached(a)).count();
        let waited: Vec<_> = self.denials.ahead.drain(..count).collect();
        for (recorded, announced) in waited {
            self.compare_announced(&announced, recorded, part);
        }
        self.compare_announced(&announced, recorded, part);
    }

    fn compare_announced(
        &mut self,
        announced: &Announced,
        recorded: Recorded,
        part: &mut PartitionAudit,
    ) {
        let caused = announced.statement.position.offset;
        // The replay states nothing for causes outside the range, so nothing is compared there.
        let in_range = self.first.is_some_and(|first| first <= caused);
        if !in_range || (self.behind && self.next <= caused) {
            return;
        }
        if announced.partition == self.index && !self.logs.contains(&announced.log) {
            let text = "statements about another log of this name";
            return part.remark("another_log", 1, recorded.offset, text);
        }
        let past = Past {
            source: self.work.source,
            partition: self.index,
        };
        self.ledger.found(announced, recorded, &past, part);
    }
}

#[cfg(test)]
mod tests;
