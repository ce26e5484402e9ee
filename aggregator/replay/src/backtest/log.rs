//! Reads a log of Tollgate's own onto a tape: what agents let through, and what they refused.
//!
//! ```text
//! hits      at the instants by which aggregators rule them, see `senders`: one call each; with a min one call
//! refused   a number of calls from a first to a last instant: spread evenly between them
//! holds     left out, with all that is about copies
//! ```
//!
//! A log holds what agents could deliver. What stays true: everything that is known to be missing is
//! reported (batches that never arrived, unreadable records, a beginning that retention removed), because
//! limits looser than those in force are then judged by too few calls.

use std::io;

use tollgate_engine::engine::Clock;
use tollgate_shared::escape::escaped;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::HitBatch;

use super::calls::{Calls, calls_of};
use super::copies::CopiesLeftOut;
use super::pairs::Pairs;
use super::read::{ReadCounts, ReadFault, Recording, RowReading};
use super::senders::Senders;
use super::table::count;
use super::tape::{Call, CallKind, Recorder};
use crate::range::{Cut, Point, Range, RangePosition};
use crate::source::{ReadStep, Source, SourceError, nothing_in};
use crate::tags::{Tags, unchecked_line};
use tollgate_log::{Delivered, Stream};

/// What a log has of the attempts.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct SeenAttempts {
    /// Hits that were let through, and charges.
    pub hits: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Batches of agents, among them those of holds, which are numbered together with the others.
    pub batches: u64,
    /// Batches that came again, and were ignored.
    pub batches_repeated: u64,
    /// Batches whose numbers are missing between others of their agent.
    pub batches_missing: u64,
    /// The share of all numbered batches that the log has.
    pub share: f64,
    /// Records that this build cannot read.
    pub records_unreadable: u64,
    /// Records at the beginning that retention has removed.
    pub records_gone: u64,
    /// Statements of aggregators that denied or opened a scope.
    pub statements: u64,
    /// Resources that were left out, since they are limited by copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies_resources: Vec<String>,
    /// Refused reservations of copies that were left out.
    pub copies_refused: u64,
    /// Calls that were left out, since one entry states more than anybody makes.
    pub calls_left_out: u64,
    /// Whether refused calls are missing, so that under looser limits more calls would have been granted
    /// and refused than reported.
    pub lower_bound: bool,
    /// Ids of missing record keys: the tags of aggregators' records under them were not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked_keys: Vec<String>,
}

impl std::fmt::Display for SeenAttempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "saw {:.2}% of the attempts: {} hits and {} refused calls, in {} of the {} batches that agents numbered",
            100.0 * self.share,
            count(self.hits),
            count(self.refused_calls),
            count(self.batches),
            count(self.batches + self.batches_missing),
        )?;
        if 0 < self.records_gone {
            let gone = count(self.records_gone);
            write!(f, "; retention has taken {gone} records at the beginning")?;
        }
        if 0 < self.records_unreadable {
            let unreadable = count(self.records_unreadable);
            write!(f, "; {unreadable} records cannot be read")?;
        }
        if 0 < self.calls_left_out {
            let left_out = count(self.calls_left_out);
            write!(
                f,
                "; {left_out} calls of entries that state too many were left out"
            )?;
        }
        if self.lower_bound {
            f.write_str(
                "; refused calls are missing, so under limits looser than those in force all figures are a lower bound",
            )?;
        }
        if let Some(line) = unchecked_line(&self.unchecked_keys) {
            write!(f, "; {line}")?;
        }
        if !self.copies_resources.is_empty() {
            let names = self.copies_resources.iter();
            let names: Vec<String> = names.map(|name| escaped(name).to_string()).collect();
            write!(
                f,
                "; left out, since they are limited by copies: {} ({} refused reservations)",
                names.join(", "),
                count(self.copies_refused)
            )?;
        }
        Ok(())
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] SourceError),
    /// Its calls cannot be recorded on the tape.
    #[error(transparent)]
    Read(#[from] ReadFault),
    /// There are no calls to play.
    #[error("{0}")]
    Nothing(String),
    /// Retention has removed the beginning of the range.
    #[error("{0}")]
    Cut(Cut),
    /// A later build wrote a record that must not be skipped.
    #[error(
        "partition {partition}, offset {offset}: kind {kind} is not known to this build and may not be skipped"
    )]
    Newer {
        /// The partition.
        partition: u32,
        /// The record's offset.
        offset: u64,
        /// The record's kind.
        kind: u8,
    },
    /// A record cannot be read, and the caller asked for an error in that case.
    #[error("partition {partition}, offset {offset}: {why}")]
    Unreadable {
        /// The partition.
        partition: u32,
        /// The record's offset.
        offset: u64,
        /// What is wrong with the record.
        why: String,
    },
}

/// Reads a range of a log, up to its current end, without what is about copies; `progress` receives the number of
/// records.
///
/// # Errors
///
/// [`LogFault`].
pub fn read(
    source: &dyn Source,
    reading: &RowReading,
    (range, keys, copies): (&Range, &Keyring, CopiesLeftOut),
    progress: &dyn Fn(u64),
) -> Result<(Recording, SeenAttempts), LogFault> {
    let tags = Tags::of(source, keys)?;
    let mut reader = LogReader {
        reading,
        pairs: Pairs::default(),
        recorder: Recorder::new(reading.order),
        counts: ReadCounts::default(),
        seen: SeenAttempts::default(),
        tags,
        senders: Senders::default(),
        copies,
    };
    let mut records = 0;
    let partitions = || (0..source.partitions()).filter(|partition| range.has(*partition));
    for partition in partitions() {
        let hits = each(
            (source, range),
            Stream::Hits,
            partition,
            &mut |record, lies| {
                if lies == RangePosition::Before {
                    reader.senders.before(partition, record, &reader.tags);
                    return Ok(());
                }
                progress(1);
                reader.record(partition, record)
            },
        )?;
        reader.seen.records_gone += hits.gone;
        records += hits.records;
    }
    for partition in partitions() {
        each(
            (source, range),
            Stream::Denials,
            partition,
            &mut |record, lies| {
                if lies == RangePosition::In {
                    reader.statement(record);
                }
                Ok(())
            },
        )?;
    }
    if reader.counts.rows == 0 {
        return Err(LogFault::Nothing(match records {
            0 => nothing_in(source, range),
            _ => format!(
                "{}: no calls on rates in what was read, expected hits or refused calls{}",
                source.name(),
                match reader.copies.names() {
                    none if none.is_empty() => String::new(),
                    of => format!("; limited by copies: {}", of.join(", ")),
                }
            ),
        }));
    }
    let seen = reader.seen();
    let recording = Recording {
        pairs: reader.pairs,
        tape: reader.recorder.wind(),
        counts: reader.counts,
    };
    Ok((recording, seen))
}

/// What was read of one partition.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    records: u64,
    /// Records that retention has removed, before the first and between others.
    gone: u64,
}

/// Passes the records up to the end of the range to `each`, with where they lie.
fn each(
    (source, range): (&dyn Source, &Range),
    stream: Stream,
    partition: u32,
    each: &mut dyn FnMut(&Delivered, RangePosition) -> Result<(), LogFault>,
) -> Result<Passed, LogFault> {
    let mut cursor = source.open(stream, partition, 0)?;
    let mut passed = Passed::default();
    let mut first = None;
    loop {
        let records = match cursor.read()? {
            ReadStep::Records(records) => records,
            // Before the first record, that record's own offset says how many are gone.
            ReadStep::Gone { wanted, next } if first.is_some() => {
                passed.gone += next - wanted;
                continue;
            }
            ReadStep::Gone { next, .. } => {
                // Without any record, all of them are gone.
                passed.gone = range.from.map_or(next, |_| 0);
                continue;
            }
            ReadStep::End => return Ok(passed),
        };
        if let (None, Some(record)) = (first, records.first()) {
            first = Some(record.offset);
            if stream == Stream::Hits
                && let Some(cut) = range.cut(partition, record.offset, record.appended)
            {
                return Err(LogFault::Cut(cut));
            }
            // Records before a range are not missing in it.
            passed.gone = match range.from {
                None => record.offset,
                Some(_) => 0,
            };
        }
        for record in &records {
            let lies = lies(range, stream, record);
            if lies == RangePosition::Behind {
                return Ok(passed);
            }
            passed.records += u64::from(lies == RangePosition::In);
            each(record, lies)?;
        }
    }
}

/// Offsets in a range are those of hits; statements are compared by instant alone.
fn lies(range: &Range, stream: Stream, record: &Delivered) -> RangePosition {
    let instant = |point: &Point| matches!(point, Point::At(_));
    let range = match stream {
        Stream::Hits => *range,
        _ => Range {
            from: range.from.filter(instant),
            to: range.to.filter(instant),
        },
    };
    range.lies(record.offset, record.appended)
}

struct LogReader<'a> {
    reading: &'a RowReading,
    pairs: Pairs,
    recorder: Recorder,
    counts: ReadCounts,
    seen: SeenAttempts,
    tags: Tags,
    senders: Senders,
    copies: CopiesLeftOut,
}

impl LogReader<'_> {
    fn record(&mut self, partition: u32, delivered: &Delivered) -> Result<(), LogFault> {
        let batch = match Calls::of(partition, delivered, &self.tags)? {
            Calls::Batch(batch) => batch,
            Calls::Holds { sender, resources } => {
                self.copies.met(&resources);
                let clock = self.senders.record(partition, &sender, delivered.appended);
                self.count(clock.is_some());
                return Ok(());
            }
            Calls::Tick => {
                self.senders.tick(partition, delivered.appended);
                return Ok(());
            }
            Calls::None => return Ok(()),
            Calls::Unreadable(error) if self.reading.strict => {
                return Err(LogFault::Unreadable {
                    partition,
                    offset: delivered.offset,
                    why: error.to_string(),
                });
            }
            Calls::Unreadable(_) => {
                self.seen.records_unreadable += 1;
                return Ok(());
            }
        };
        let appended = delivered.appended;
        let clock = self.senders.record(partition, &batch.sender, appended);
        self.count(clock.is_some());
        let Some(clock) = clock else {
            return Ok(());
        };
        self.batch(&batch, clock)
            .map_err(|error| ReadFault::Temporary(error).into())
    }

    /// Counts a batch.
    fn count(&mut self, is_new: bool) {
        self.seen.batches += u64::from(is_new);
        self.seen.batches_repeated += u64::from(!is_new);
    }

    fn statement(&mut self, delivered: &Delivered) {
        let announced = Announced::decode(&delivered.bytes);
        let is_of_copies = announced.is_ok_and(|of| self.copies.has(&of.resource));
        self.seen.statements += u64::from(!is_of_copies);
    }

    fn batch(&mut self, batch: &HitBatch<'_>, clock: Clock) -> io::Result<()> {
        let copies = &mut self.copies;
        let left_out = calls_of(batch, clock, copies, &mut |resource, domain, call| {
            self.counts.rows += call.calls();
            match call.kind {
                CallKind::Refused => self.seen.refused_calls += call.calls(),
                CallKind::LetThrough | CallKind::Estimate { .. } | CallKind::Charge => {
                    self.seen.hits += u64::from(call.copies);
                }
                CallKind::Refund { .. } => {}
            }
            if !self.reading.takes(resource, domain) {
                self.counts.passed_over += call.calls();
                return Ok(());
            }
            let pair = self.pairs.number_of(resource, domain);
            self.recorder.push(Call { pair, ..call })
        })?;
        self.seen.calls_left_out = self.seen.calls_left_out.saturating_add(left_out);
        Ok(())
    }

    fn seen(&self) -> SeenAttempts {
        let missing = self.senders.missing();
        let seen = SeenAttempts {
            batches_missing: missing,
            share: self.seen.batches as f64 / (self.seen.batches + missing) as f64,
            unchecked_keys: self.tags.unchecked(),
            copies_resources: self.copies.names(),
            copies_refused: self.copies.refused(),
            ..self.seen.clone()
        };
        let unheard = 0 < seen.statements && seen.refused_calls == 0;
        let lost = missing + seen.records_unreadable + seen.records_gone;
        let cut = 0 < lost || 0 < seen.calls_left_out;
        SeenAttempts {
            lower_bound: unheard || cut,
            ..seen
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Cursor;

    /// A log whose records retention has removed, all but the offsets.
    struct EmptiedSource;

    struct EmptiedCursor(Option<ReadStep>);

    impl Cursor for EmptiedCursor {
        fn read(&mut self) -> Result<ReadStep, SourceError> {
            Ok(self.0.take().unwrap_or(ReadStep::End))
        }
    }

    impl Source for EmptiedSource {
        fn name(&self) -> String {
            "emptied".to_owned()
        }

        fn partitions(&self) -> u32 {
            1
        }

        fn open(
            &self,
            _stream: Stream,
            _partition: u32,
            from: u64,
        ) -> Result<Box<dyn Cursor>, SourceError> {
            let gone = ReadStep::Gone {
                wanted: from,
                next: 9,
            };
            Ok(Box::new(EmptiedCursor(Some(gone))))
        }
    }

    #[test]
    fn records_of_an_emptied_partition_are_gone() {
        let all = Range::default();
        let passed = each((&EmptiedSource, &all), Stream::Hits, 0, &mut |_, _| Ok(()));
        assert_eq!(passed.expect("read").gone, 9);
    }
}
