//! A partition of the journal with its follower: new records from memory, others from disk.
//!
//! Knows nothing of commands and other partitions. What stays true: a follower gets each record once and in order, or
//! an event that says why not; a follower that is behind takes a bounded part of each turn.

use bytes::Bytes;
use tollgate_shared::time::Timestamp;

use super::super::{Delivered, LogEvent, Ticket};
use super::partition::{Appended, Partition};
use super::segment::JournalCursor;

/// A partition, its records of the present turn, and its follower.
pub(super) struct JournalSlot {
    pub partition: Partition,
    pub staged: Vec<(Ticket, Bytes)>,
    pub follower: Option<Follower>,
}

/// Who receives a partition's records.
pub(super) struct Follower {
    pub cursor: JournalCursor,
    /// The partition's end when following began; `None` once `CaughtUp` was sent.
    pub target: Option<u64>,
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
    /// true if the follower is still behind.
    pub fn feed(&mut self, bytes: usize, emit: &mut dyn FnMut(LogEvent)) -> bool {
        let Some(follower) = &mut self.follower else {
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
            if let Err(error) = read {
                emit(LogEvent::Broken {
                    stream,
                    partition,
                    next: follower.cursor.next,
                    why: error.to_string(),
                });
                self.follower = None;
                return false;
            }
        }
        let reached = follower.cursor.next;
        follower.report_caught_up(&self.partition, reached, emit);
        reached < self.partition.next
    }
}

impl Follower {
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
