//! Where the replay of a partition begins: at its beginning, or at a snapshot.
//!
//! ```text
//! snapshot up to X    record X is the one it ends with, or is gone by age     replayed from X + 1
//!                     another record, or none yet                             an older snapshot, or the beginning
//! ```
//!
//! Knows nothing of what follows. What stays true: a partition whose beginning is gone is replayed
//! from a snapshot or not at all; a snapshot of another log of this name, which was recreated or lost its end, is
//! not replayed from.

use std::sync::Arc;

use tollgate_engine::engine::Engine;
use tollgate_shared::time::Timestamp;

use super::range::Point;
use super::replay::{Replay, ReplayError};
use super::source::{ReadStep, SourceError};
use super::work::Work;
use tollgate_log::{Delivered, Stream};

/// How much later than its newest tick a snapshot may have been taken, in microseconds: two slots.
const TICKS_LATE_US: u64 = 1_000_000;

/// The replay of a partition at its beginning, and the offset of the record that comes next.
pub(crate) fn begin(work: &Work<'_>, index: u32) -> Result<(Replay, u64), ReplayError> {
    let (first, appended) = first_record(work, index)?;
    if let Some(cut) = work.task.range.cut(index, first, appended) {
        return Err(ReplayError::Cut(cut));
    }
    let uptos = work.source.snapshots(index);
    if let Some(from) = work.task.range.from {
        for upto in uptos.iter().rev().filter(|upto| first <= **upto + 1) {
            if let Some(replay) = restore(work, index, *upto)
                && precedes(&replay, *upto, from)
                && is_of_log(work, index, replay.engine(), *upto)?
            {
                return Ok((replay, upto + 1));
            }
        }
    }
    let (keys, book) = (work.task.keys.clone(), Arc::clone(&work.book));
    if first == 0 {
        return Ok((Replay::new(index, work.source.partitions(), keys, book), 0));
    }
    for upto in uptos.into_iter().filter(|upto| first <= *upto + 1) {
        if let Some(replay) = restore(work, index, upto)
            && is_of_log(work, index, replay.engine(), upto)?
        {
            return Ok((replay, upto + 1));
        }
    }
    Err(ReplayError::Gone {
        partition: index,
        wanted: 0,
        first,
    })
}

fn precedes(replay: &Replay, upto: u64, from: Point) -> bool {
    match from {
        Point::Offset { offset, .. } => upto < offset,
        Point::At(instant) => replay.engine().log_time().is_some_and(|log| {
            log.as_micros().saturating_add(TICKS_LATE_US) <= instant.as_micros()
        }),
    }
}

/// The partition's first offset, and when the log appended that record.
fn first_record(work: &Work<'_>, index: u32) -> Result<(u64, Timestamp), ReplayError> {
    let mut cursor = work.source.open(Stream::Hits, index, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                let first = records.first();
                return Ok(first.map_or_else(Default::default, |r| (r.offset, r.appended)));
            }
            ReadStep::Gone { .. } => {}
            ReadStep::End => return Ok(Default::default()),
        }
    }
}

/// A replay from a snapshot; `None` if the snapshot is damaged, which the comparison will report.
fn restore(work: &Work<'_>, index: u32, upto: u64) -> Option<Replay> {
    let chunks = work.source.snapshot(index, upto).ok()?;
    let of = (index, work.source.partitions());
    let (keys, book) = (work.task.keys.clone(), Arc::clone(&work.book));
    Replay::restore(of, keys, book, &chunks).ok()
}

/// Whether a snapshot's engine was taken behind this record, which the log has at the snapshot's last offset.
pub(crate) fn ends_with(engine: &Engine, last: &Delivered) -> bool {
    engine.mark() == Some(last.mark())
}

/// Whether the log has the last record of a snapshot up to `upto`. A record that retention took, or that an export
/// leaves out, is not missed.
fn is_of_log(work: &Work<'_>, index: u32, engine: &Engine, upto: u64) -> Result<bool, SourceError> {
    let mut cursor = work.source.open(Stream::Hits, index, upto)?;
    let mut is_gone = false;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                let last = records.first().filter(|record| record.offset == upto);
                return Ok(last.is_none_or(|last| ends_with(engine, last)));
            }
            ReadStep::Gone { wanted, next } => is_gone |= wanted < next,
            // The log ends before the record, unless it begins behind it.
            ReadStep::End => return Ok(is_gone),
        }
    }
}
