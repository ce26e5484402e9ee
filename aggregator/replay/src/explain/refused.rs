//! Calls that agents refused, by the statement under which they refused them.
//!
//! ```text
//! denied until 10.0   code 3-51-0-1      report: 4 calls, the last one under 3-51-0-1     counted here
//! denied until 20.0   code 3-58-0-1      report: 9 calls, the last one under 3-58-0-1     counted here
//! ```
//!
//! An agent reports the calls of a pair about ten times a second, with the statement under which it refused the last
//! one. So each report belongs to one statement, and the sum over the statements of a pair is what was refused; a
//! report in which one denial ended and another began counts for the later one. Reports of calls that the global limit
//! refused are in the partitions of their pairs. Knows nothing of rulings.

use std::collections::{BTreeMap, VecDeque};

use tollgate_engine::engine::Clocks;
use tollgate_log::Stream;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::{HitBatch, Refused};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Statement};

use super::history::{LATE, PairStatement, denial_of};
use super::view::{AgentView, Tally};
use crate::source::{ReadStep, Source, SourceError};

/// Calls that an agent refused.
#[derive(Clone, Debug)]
pub(super) struct RefusedCalls {
    /// The agent.
    pub agent: Box<str>,
    /// Calls.
    pub calls: u64,
    /// Copies that they asked for.
    pub copies: u64,
    /// The first one.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// Why the last one was refused.
    pub cause: Cause,
    /// The statement under which the last one was refused.
    pub position: Option<LogPosition>,
}

impl RefusedCalls {
    /// A report of an agent.
    pub fn of(batch: &HitBatch<'_>, refused: &Refused<'_>) -> Self {
        Self {
            agent: batch.sender.agent.into(),
            calls: refused.calls,
            copies: refused.copies,
            first: refused.first,
            last: refused.last,
            cause: refused.cause,
            position: refused.position,
        }
    }

    fn add(&mut self, more: &Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.copies = self.copies.saturating_add(more.copies);
        self.first = self.first.min(more.first);
        self.last = self.last.max(more.last);
    }
}

/// The batches of a partition that were read: an agent sends one again if it does not know whether the log has it.
#[derive(Debug, Default)]
pub(super) struct ReadBatches(Clocks);

impl ReadBatches {
    /// Notes a record. Returns whether it is new; `false` for a batch that came before.
    pub fn is_new(&mut self, record: &Record<'_>, appended: Timestamp) -> bool {
        let sender = match record {
            Record::Hits(batch) => &batch.sender,
            Record::Holds(batch) => &batch.sender,
            Record::Heartbeat(heartbeat) => &heartbeat.sender,
            Record::Tick(_) => {
                self.0.tick(appended);
                return true;
            }
            _ => return true,
        };
        self.0.record(sender, appended).is_some()
    }
}

/// Reports of refused calls as one sum for each agent: however many reports there are, none is left out.
#[derive(Debug, Default)]
pub(super) struct RefusedByAgent(BTreeMap<Box<str>, RefusedCalls>);

impl RefusedByAgent {
    /// Adds a report.
    pub fn add(&mut self, report: RefusedCalls) {
        match self.0.get_mut(&report.agent) {
            Some(sum) => sum.add(&report),
            None => _ = self.0.insert(report.agent.clone(), report),
        }
    }

    /// The sums.
    pub fn sums(&self) -> impl Iterator<Item = &RefusedCalls> {
        self.0.values()
    }
}

/// Sums reports up.
pub(super) fn tally<'a>(reports: impl Iterator<Item = &'a RefusedCalls>) -> Tally {
    let reports: Vec<&RefusedCalls> = reports.collect();
    let sum = |of: fn(&RefusedCalls) -> u64| {
        let each = reports.iter().map(|report| of(report));
        each.fold(0, u64::saturating_add)
    };
    Tally {
        calls: sum(|report| report.calls),
        hits: sum(|report| report.copies),
        by_agent: by_agent(
            reports
                .iter()
                .map(|of| (&*of.agent, of.first, of.last, of.calls)),
        ),
    }
}

/// For each statement about a pair, the reports of calls that were refused under it.
pub(super) fn by_statement<'a>(
    statements: &VecDeque<PairStatement>,
    reports: impl Iterator<Item = &'a RefusedCalls>,
) -> Vec<Vec<&'a RefusedCalls>> {
    let numbered = statements
        .iter()
        .enumerate()
        .filter(|(_, of)| of.is_numbered);
    let by_position: BTreeMap<LogPosition, usize> = numbered
        .map(|(index, of)| (of.statement.position, index))
        .collect();
    let mut found = vec![Vec::new(); statements.len()];
    // The global limit's statements are about no pair, and have positions in another partition. A call that wants too
    // much at once is refused whether there is a denial or not.
    let by_none = |report: &&RefusedCalls| matches!(report.cause, Cause::Global | Cause::TooMany);
    for report in reports.filter(|report| !by_none(report)) {
        let named = report.position.and_then(|at| by_position.get(&at).copied());
        // The statement that it names is not known: the one in force at that time.
        let index = named.or_else(|| {
            let index = statements.iter().rposition(|of| of.since <= report.last)?;
            let denial = denial_of(&statements[index].statement)?;
            (report.first < denial.end).then_some(index)
        });
        if let Some(index) = index {
            found[index].push(report);
        }
    }
    found
}

/// The calls that a resource's global limit refused under a statement, from the partitions of all pairs.
/// Each partition is read from about when the statement's record was appended, or from the offset that `from` has for
/// it, before which no such report can be.
///
/// # Errors
///
/// If the log cannot be read.
pub(super) fn under_global(
    source: &dyn Source,
    resource: &str,
    (statement, appended, until): (&Statement, Timestamp, Timestamp),
    from: &BTreeMap<u32, u64>,
) -> Result<RefusedByAgent, SourceError> {
    let mut found = RefusedByAgent::default();
    for partition in 0..source.partitions() {
        // The clocks of brokers differ.
        let begins = appended.saturating_sub(LATE);
        let begins = source.offset_before(Stream::Hits, partition, begins)?;
        let from = from
            .get(&partition)
            .map_or(begins, |from| begins.max(*from));
        let mut cursor = source.open(Stream::Hits, partition, from)?;
        let mut batches = ReadBatches::default();
        'reading: loop {
            let records = match cursor.read()? {
                ReadStep::Records(records) => records,
                ReadStep::Gone { .. } => continue,
                ReadStep::End => break,
            };
            for record in &records {
                if until.saturating_add(LATE) < record.appended {
                    break 'reading;
                }
                let Ok(decoded) = Record::decode(&record.bytes) else {
                    continue;
                };
                let is_new = batches.is_new(&decoded, record.appended);
                let Record::Hits(batch) = decoded else {
                    continue;
                };
                if !is_new {
                    continue;
                }
                let of_statement = batch.refused().filter(|refused| {
                    refused.cause == Cause::Global
                        && refused.position == Some(statement.position)
                        && batch.resource(refused.resource) == resource
                });
                for refused in of_statement {
                    found.add(RefusedCalls::of(&batch, &refused));
                }
            }
        }
    }
    Ok(found)
}

/// Sums of hits or calls by agent, most first.
pub(super) fn by_agent<'a>(
    hits: impl Iterator<Item = (&'a str, Timestamp, Timestamp, u64)>,
) -> Vec<AgentView> {
    let mut agents: BTreeMap<&str, AgentView> = BTreeMap::new();
    for (agent, first, last, hits) in hits {
        let of = agents.entry(agent).or_insert_with(|| AgentView {
            agent: agent.to_owned(),
            hits: 0,
            first_us: u64::MAX,
            last_us: 0,
        });
        of.hits = of.hits.saturating_add(hits);
        of.first_us = of.first_us.min(first.as_micros());
        of.last_us = of.last_us.max(last.as_micros());
    }
    let mut agents: Vec<AgentView> = agents.into_values().collect();
    agents.sort_by_key(|of| std::cmp::Reverse(of.hits));
    agents
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tollgate_shared::wire::statement::{Scope, StatementKind};

    use super::*;
    use crate::source::Cursor;

    /// A log without records, whose offsets are milliseconds; it notes from where it is read.
    #[derive(Default)]
    struct EmptySource(Mutex<Vec<(u32, u64)>>);

    struct EmptyCursor;

    impl Cursor for EmptyCursor {
        fn read(&mut self) -> Result<ReadStep, SourceError> {
            Ok(ReadStep::End)
        }
    }

    impl Source for EmptySource {
        fn name(&self) -> String {
            "empty".to_owned()
        }

        fn partitions(&self) -> u32 {
            3
        }

        fn open(
            &self,
            _stream: Stream,
            partition: u32,
            from: u64,
        ) -> Result<Box<dyn Cursor>, SourceError> {
            self.0.lock().unwrap().push((partition, from));
            Ok(Box::new(EmptyCursor))
        }

        fn offset_before(
            &self,
            _stream: Stream,
            _partition: u32,
            instant: Timestamp,
        ) -> Result<u64, SourceError> {
            Ok(instant.as_millis())
        }
    }

    #[test]
    fn no_partition_is_read_from_long_before_the_statement() {
        let statement = Statement {
            scope: Scope::Resource,
            position: LogPosition::default(),
            kind: StatementKind::Lifted,
        };
        let appended = Timestamp::from_millis(LATE.as_millis() + 700);
        let source = EmptySource::default();
        let from = BTreeMap::from([(1, 900), (2, 3)]);
        let of = (&statement, appended, appended);
        let found = under_global(&source, "r", of, &from).expect("it is read");
        assert_eq!(found.sums().count(), 0);
        let opened = source.0.into_inner().unwrap();
        assert_eq!(opened, [(0, 700), (1, 900), (2, 700)]);
    }
}
