//! A partition of the journal with its follower: new records from memory, others from disk.
//!
//! Knows nothing of commands and other partitions. What stays true: a follower gets each record once and in order, or
//! an event that says why not; a follower that is behind takes a bounded part of each turn. Damage ends delivery; a
//! read that the system refuses only delays it.

use bytes::Bytes;
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::{Span, Timestamp};

use super::super::{Delivered, LogEvent, Ticket};
use super::error::ReadError;
use super::partition::{Appended, Partition};
use super::segment::JournalCursor;

/// How long a follower waits after a read that the system refused. Some refusals pass, for example those of a network
/// file system that is away, or for want of memory or open files.
const READ_AGAIN_MS: u64 = 1_000;

/// A partition, its records of the present turn, and its follower.
pub(super) struct JournalSlot {
    pub partition: Partition,
    pub staged: Vec<(Ticket, Bytes)>,
    pub follower: Option<Follower>,
    /// Lines about reads that the system refused.
    pub read_lines: LineInterval,
}

/// Who receives a partition's records.
pub(super) struct Follower {
    pub cursor: JournalCursor,
    /// The partition's end when following began; `None` once `CaughtUp` was sent.
    pub target: Option<u64>,
    /// When the system refused the last read, in milliseconds of the clock; `None`: it did not.
    pub refused_ms: Option<u64>,
}

impl JournalSlot {
    /// Delivers new records from memory to a follower that already has every earlier one.
    pub fn deliver_new(
        &mut self,
        Appended { base, append_ms }: Appended,
        staged: Vec<(Ticket, Bytes)>,
        emit: &mut dyn FnMut(LogEvent),
    ) {
        let Some(follower) = &mut self.follower else {
            return;
        };
        if follower.cursor.next == base {
            follower.cursor.move_to(self.partition.next);
            let record = |(offset, (_, bytes))| Delivered {
                offset,
                appended: Timestamp::from_millis(append_ms),
                bytes,
            };
            emit(LogEvent::Delivered {
                stream: self.partition.stream,
                partition: self.partition.index,
                records: (base..).zip(staged).map(record).collect(),
            });
        }
    }

    /// Reads at least this many bytes for a follower that is behind, if there are so many, and little more. Returns
    /// true if the follower is still behind, and need not wait.
    pub fn feed(&mut self, bytes: usize, now_ms: u64, emit: &mut dyn FnMut(LogEvent)) -> bool {
        let follower = self.follower.as_mut();
        let Some(follower) = follower.filter(|follower| !follower.waits(now_ms)) else {
            return false;
        };
        let (stream, partition) = (self.partition.stream, self.partition.index);
        let first = self.partition.first();
        if follower.cursor.next < first {
            emit(LogEvent::Gap {
                stream,
                partition,
                wanted: follower.cursor.next,
                next: first,
            });
            follower.cursor.move_to(first);
        }
        let mut read_bytes = 0;
        while follower.cursor.next < self.partition.next && read_bytes < bytes {
            let mut records = Vec::new();
            let read = self.partition.read(&mut follower.cursor, &mut records);
            read_bytes += records.iter().map(|r| r.bytes.len()).sum::<usize>();
            if !records.is_empty() {
                emit(LogEvent::Delivered {
                    stream,
                    partition,
                    records,
                });
            }
            match read {
                Ok(()) => follower.refused_ms = None,
                Err(error @ ReadError::Io { .. }) => {
                    follower.refused(now_ms);
                    if let Some(unsaid) = self.read_lines.may(Span::from_millis(now_ms)) {
                        tracing::error!(%error, unsaid, "the journal cannot be read at the moment; trying again");
                    }
                    return false;
                }
                Err(ReadError::Corrupt(damage)) => {
                    emit(LogEvent::Broken {
                        stream,
                        partition,
                        next: follower.cursor.next,
                        why: damage.to_string(),
                    });
                    self.follower = None;
                    return false;
                }
            }
        }
        let reached = follower.cursor.next;
        follower.report_caught_up(&self.partition, reached, emit);
        reached < self.partition.next
    }
}

impl Follower {
    /// The system refused a read: reads on from the same record later, in a file that is opened again.
    fn refused(&mut self, now_ms: u64) {
        self.cursor.move_to(self.cursor.next);
        self.refused_ms = Some(now_ms);
    }

    fn waits(&self, now_ms: u64) -> bool {
        // `abs_diff`, so that a clock that was set back does not stop this.
        let is_recent = |refused_ms: u64| now_ms.abs_diff(refused_ms) < READ_AGAIN_MS;
        self.refused_ms.is_some_and(is_recent)
    }

    fn report_caught_up(
        &mut self,
        partition: &Partition,
        reached: u64,
        emit: &mut dyn FnMut(LogEvent),
    ) {
        if self.target.is_some_and(|target| target <= reached) {
            self.target = None;
            emit(LogEvent::CaughtUp {
                stream: partition.stream,
                partition: partition.index,
                next: reached,
            });
        }
    }
}
