//! The partitions of a log that is followed: which one is read next, and up to which instant all were read.
//!
//! ```text
//! partition 0   ─────────► 10:03
//! partition 1   ────► 10:01            read next, since it is furthest behind; all were read up to 10:01
//! partition 2   ──────────────► end
//! ```
//!
//! Knows nothing of what records mean. What stays true: all partitions advance together, so that however much of a log
//! is read, no more than a batch of each partition waits for records of others.

use tollgate_log::Delivered;
use tollgate_shared::time::Timestamp;

use crate::source::{Cursor, ReadStep, SourceError};

/// How far one partition was read.
struct Front {
    partition: u32,
    cursor: Box<dyn Cursor>,
    /// All records that the log took before this instant were read.
    upto: Timestamp,
    is_at_end: bool,
}

/// How far each partition was read.
#[derive(Default)]
pub(super) struct Fronts {
    fronts: Vec<Front>,
    gone: u64,
}

impl Fronts {
    /// Partitions of which nothing was read yet.
    pub(super) fn new(cursors: Vec<(u32, Box<dyn Cursor>)>) -> Self {
        let front = |(partition, cursor)| Front {
            partition,
            cursor,
            upto: Timestamp::ZERO,
            is_at_end: false,
        };
        Self {
            fronts: cursors.into_iter().map(front).collect(),
            gone: 0,
        }
    }

    /// Reads the next records, of the partition that is furthest behind. `None`: all were read to their ends, until
    /// [`Fronts::look_again`].
    ///
    /// # Errors
    ///
    /// If the log cannot be read any further.
    pub(super) fn read(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<(u32, Vec<Delivered>)>, SourceError> {
        while let Some(front) = { self.fronts.iter_mut() }
            .filter(|front| !front.is_at_end)
            .min_by_key(|front| front.upto)
        {
            match front.cursor.read()? {
                ReadStep::Records(records) => {
                    let last = records.last().map(|record| record.appended);
                    front.upto = last.unwrap_or(front.upto);
                    // A busy partition has more each time: what came after `now` is for the next look.
                    front.is_at_end = now <= front.upto;
                    return Ok(Some((front.partition, records)));
                }
                ReadStep::Gone { wanted, next } => {
                    // Records that were gone when following began were not asked for.
                    if Timestamp::ZERO < front.upto {
                        self.gone += next - wanted;
                    }
                }
                ReadStep::End => (front.is_at_end, front.upto) = (true, now),
            }
        }
        Ok(None)
    }

    /// Partitions may have new records.
    pub(super) fn look_again(&mut self) {
        for front in &mut self.fronts {
            front.is_at_end = false;
        }
    }

    /// Whether a partition may have more records than were read.
    pub(super) fn is_behind(&self) -> bool {
        self.fronts.iter().any(|front| !front.is_at_end)
    }

    /// The instant up to which all partitions were read.
    pub(super) fn upto(&self) -> Timestamp {
        let upto = self.fronts.iter().map(|front| front.upto);
        upto.min().unwrap_or(Timestamp::MAX)
    }

    /// Records that retention removed before they could be read.
    pub(super) const fn gone(&self) -> u64 {
        self.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition's batches: the second in which the log took each, or a gap.
    struct Batches(Vec<Option<u64>>);

    impl Cursor for Batches {
        fn read(&mut self) -> Result<ReadStep, SourceError> {
            Ok(match self.0.pop() {
                None => ReadStep::End,
                Some(None) => ReadStep::Gone { wanted: 2, next: 5 },
                Some(Some(second)) => ReadStep::Records(vec![Delivered {
                    offset: 0,
                    appended: at(second),
                    bytes: Vec::new().into(),
                }]),
            })
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    /// A partition that has a record of each second.
    struct Endless(u64);

    impl Cursor for Endless {
        fn read(&mut self) -> Result<ReadStep, SourceError> {
            self.0 += 1;
            Ok(ReadStep::Records(vec![Delivered {
                offset: self.0,
                appended: at(self.0),
                bytes: Vec::new().into(),
            }]))
        }
    }

    #[test]
    fn a_partition_without_an_end_is_read_up_to_now() {
        let mut fronts = Fronts::new(vec![(0, Box::new(Endless(0)) as Box<dyn Cursor>)]);
        for now in [5, 6] {
            assert!(fronts.is_behind());
            while fronts.read(at(now)).expect("memory").is_some() {}
            assert_eq!(fronts.upto(), at(now));
            assert!(!fronts.is_behind());
            fronts.look_again();
        }
    }

    #[test]
    fn the_partition_that_is_furthest_behind_is_read_next() {
        let partition = |number: u32, mut batches: Vec<Option<u64>>| {
            batches.reverse();
            (number, Box::new(Batches(batches)) as Box<dyn Cursor>)
        };
        let mut fronts = Fronts::new(vec![
            partition(0, vec![Some(10), Some(60), Some(70)]),
            partition(1, vec![None, Some(20), None, Some(30), Some(65)]),
            partition(2, vec![]),
        ]);
        let mut read = Vec::new();
        while let Some((partition, records)) = fronts.read(at(100)).expect("memory") {
            read.push((partition, records[0].appended, fronts.upto()));
        }
        let expected = [
            (0, 10, 0),
            (1, 20, 0),
            (0, 60, 20),
            (1, 30, 30),
            (1, 65, 60),
            (0, 70, 65),
        ];
        let expected = expected.map(|(partition, second, upto)| (partition, at(second), at(upto)));
        assert_eq!(read, expected);
        assert_eq!(fronts.upto(), at(100));
        assert!(!fronts.is_behind());
        // The first gap was there when following began.
        assert_eq!(fronts.gone(), 3);
    }
}
