//! Tests of an export's memory: how many records of a log are in memory at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::audit::audit;
use tollgate_replay::export::{ExportSource, export};
use tollgate_replay::range::{Point, Range};
use tollgate_replay::source::{Cursor, ReadStep, Source, SourceError};
use tollgate_replay::work::{Model, Progress, Task};
use tollgate_shared::keyring::Keyring;

use super::log::{MemoryLog, at};
use super::{THREE, V1};

/// How many records a cursor returns at once.
const BATCH: usize = 8;

/// How many records are in memory, and how many were at most.
#[derive(Default)]
struct Lent {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// The bytes of a record, which are counted until they are dropped.
struct LentBytes {
    bytes: Bytes,
    lent: Arc<Lent>,
}

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.lent.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lent {
    fn lend(self: &Arc<Self>, record: &Delivered) -> Delivered {
        let now = 1 + self.now.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(now, Ordering::Relaxed);
        let counted = LentBytes {
            bytes: record.bytes.clone(),
            lent: Arc::clone(self),
        };
        Delivered {
            bytes: Bytes::from_owner(counted),
            ..record.clone()
        }
    }
}

/// A log whose records are counted while they are in memory.
struct LendingLog {
    log: MemoryLog,
    lent: Arc<Lent>,
}

struct LendingCursor {
    records: Vec<Delivered>,
    lent: Arc<Lent>,
}

impl Cursor for LendingCursor {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        let next = self.records.len().min(BATCH);
        let lent = self.records.drain(..next).map(|of| self.lent.lend(&of));
        Ok(match lent.collect::<Vec<_>>() {
            records if records.is_empty() => ReadStep::End,
            records => ReadStep::Records(records),
        })
    }
}

impl Source for LendingLog {
    fn name(&self) -> String {
        self.log.name()
    }

    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let mut records = Vec::new();
        let mut cursor = self.log.open(stream, partition, from)?;
        while let ReadStep::Records(more) = cursor.read()? {
            records.extend(more);
        }
        let lent = Arc::clone(&self.lent);
        Ok(Box::new(LendingCursor { records, lent }))
    }
}

pub fn task(to: Option<u64>) -> Task {
    Task {
        range: Range {
            from: None,
            to: to.map(|ms| Point::At(at(ms))),
        },
        keys: Keyring::default(),
        threads: 1,
        model: Model::None,
    }
}

#[test]
fn an_export_keeps_no_denials_from_after_its_range() {
    const DENIALS: u64 = 200;
    let mut log = MemoryLog::new(THREE);
    for n in 0..DENIALS {
        log.hits(1_000 + n, "alpha", (V1.0, &format!("v{n}")), 4);
    }
    // By an aggregator that had no snapshot for long: it is in the export, with all that was announced in between.
    log.announce_again(9_000);
    let lent = Arc::default();
    let log = LendingLog { log, lent };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let exported = export(
        &log,
        &task(Some(1_005)),
        &Progress::default(),
        file.as_file(),
    );
    let exported = exported.expect("exported");
    assert_eq!(exported.denials, DENIALS + 1);
    let most = log.lent.most.load(Ordering::Relaxed);
    assert!(most <= 2 * BATCH, "{most} records were in memory at once");
    let source = ExportSource::open(file.path()).expect("an export");
    let report = audit(&source, &task(None), &Progress::default()).expect("a report");
    assert!(report.equal, "{report}");
    assert_eq!((report.announced_equal, report.announced_again), (5, 1));
}

/// A log whose limits begin with a gap.
struct GapLog(MemoryLog);

struct GapCursor {
    gap: Option<ReadStep>,
    cursor: Box<dyn Cursor>,
}

impl Cursor for GapCursor {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        match self.gap.take() {
            Some(gap) => Ok(gap),
            None => self.cursor.read(),
        }
    }
}

impl Source for GapLog {
    fn name(&self) -> String {
        self.0.name()
    }

    fn partitions(&self) -> u32 {
        self.0.partitions()
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let gap = ReadStep::Gone { wanted: 0, next: 0 };
        Ok(Box::new(GapCursor {
            gap: (stream == Stream::Limits).then_some(gap),
            cursor: self.0.open(stream, partition, from)?,
        }))
    }
}

#[test]
fn an_export_has_the_limits_behind_a_gap() {
    let mut log = MemoryLog::new(THREE);
    log.hits(1_000, "alpha", V1, 1);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let exported = export(
        &GapLog(log),
        &task(None),
        &Progress::default(),
        file.as_file(),
    );
    exported.expect("exported");
    let source = ExportSource::open(file.path()).expect("an export");
    let mut limits = source.open(Stream::Limits, 0, 0).expect("a cursor");
    let read = limits.read().expect("read");
    assert!(matches!(read, ReadStep::Records(of) if !of.is_empty()));
}
