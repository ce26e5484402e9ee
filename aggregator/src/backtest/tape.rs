//! The calls of a recording, kept so that they can be played again and again, in order.
//!
//! ```text
//! push, push, …      a run of a million calls in memory ──full──► a temporary file
//! wound              each run is sorted by stamp before it is written; equal stamps keep their order
//! play               the runs are merged
//! ```
//!
//! Memory is that of one run, however long the recording is. Knows nothing of limits. What stays true:
//! every player sees the same calls in the same order: by stamp, and calls of one stamp as they were
//! recorded; or all as they were recorded, where that was asked for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use tollgate_shared::time::{Span, Timestamp};

/// How many calls of a run are kept in memory: 24 MiB of them.
const RUN_CALLS_MAX: usize = 1 << 20;

/// How many calls of a written run are read at once.
const READ_CALLS: usize = 4096;

/// Bytes of a written call.
const CALL_BYTES: usize = 24;

/// One recorded call, or several of one hit each at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its stamp.
    pub at: Timestamp,
    /// Number of its pair.
    pub pair: u32,
    /// Hits that it asked for.
    pub copies: u32,
    /// The least number of them that was of use; 0: these are `copies` calls of one hit each.
    pub min: u32,
    /// It was refused when it was recorded.
    pub was_refused: bool,
}

/// In which order calls are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By their stamps.
    #[default]
    Stamps,
    /// As they were recorded.
    Recorded,
}

/// What is known of all calls together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Entries of the tape.
    pub entries: u64,
    /// The least stamp.
    pub first: Timestamp,
    /// The greatest stamp.
    pub last: Timestamp,
    /// Calls stamped before the one that was recorded just before them.
    pub stepped_back: u64,
    /// By how much at most.
    pub stepped_back_max: Span,
}

/// Writes a tape.
#[derive(Debug)]
pub struct Recorder {
    order: Order,
    run_calls_max: usize,
    run: Vec<Call>,
    written: Vec<Run>,
    file: Option<File>,
    extent: Extent,
    /// The stamp recorded last.
    before: Timestamp,
}

/// A wound tape.
#[derive(Debug)]
pub struct Tape {
    order: Order,
    /// The last run, or the only one.
    run: Vec<Call>,
    written: Vec<Run>,
    file: Option<File>,
    extent: Extent,
}

/// A run that was written.
#[derive(Clone, Copy, Debug)]
struct Run {
    at_byte: u64,
    calls: u64,
}

impl Recorder {
    /// An empty tape.
    pub fn new(order: Order) -> Self {
        Self::with_runs_of(order, RUN_CALLS_MAX)
    }

    fn with_runs_of(order: Order, run_calls_max: usize) -> Self {
        Self {
            order,
            run_calls_max,
            run: Vec::new(),
            written: Vec::new(),
            file: None,
            extent: Extent::default(),
            before: Timestamp::ZERO,
        }
    }

    /// Records a call.
    ///
    /// # Errors
    ///
    /// Where the temporary file cannot be made or written.
    pub fn push(&mut self, call: Call) -> io::Result<()> {
        if self.run.len() == self.run_calls_max {
            self.write()?;
        }
        let extent = &mut self.extent;
        if extent.entries == 0 {
            (extent.first, self.before) = (call.at, call.at);
        }
        if call.at < self.before {
            extent.stepped_back += 1;
            extent.stepped_back_max = extent.stepped_back_max.max(self.before.since(call.at));
        }
        self.before = call.at;
        extent.entries += 1;
        extent.first = extent.first.min(call.at);
        extent.last = extent.last.max(call.at);
        self.run.push(call);
        Ok(())
    }

    /// Ends the recording.
    pub fn wind(mut self) -> Tape {
        self.sort();
        Tape {
            order: self.order,
            run: self.run,
            written: self.written,
            file: self.file,
            extent: self.extent,
        }
    }

    fn sort(&mut self) {
        if self.order == Order::Stamps {
            // Stable, so that calls of one stamp keep their order.
            self.run.sort_by_key(|call| call.at);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.sort();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let at_byte = self.written.last().map_or(0, |run| run.end_byte());
        let mut writer = io::BufWriter::with_capacity(1 << 18, file);
        for call in &self.run {
            writer.write_all(&call.to_bytes())?;
        }
        writer.flush()?;
        self.written.push(Run {
            at_byte,
            calls: self.run.len() as u64,
        });
        self.run.clear();
        Ok(())
    }
}

impl Tape {
    /// What is known of all calls together.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The order in which calls are played.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Plays all calls in order.
    ///
    /// # Errors
    ///
    /// Where the temporary file cannot be read.
    pub fn play(&self, each: &mut dyn FnMut(&Call)) -> io::Result<()> {
        let mut cursors: Vec<Cursor<'_>> = Vec::with_capacity(self.written.len() + 1);
        if let Some(file) = &self.file {
            for run in &self.written {
                cursors.push(Cursor::over_file(file, *run)?);
            }
        }
        cursors.push(Cursor::over_memory(&self.run));
        match self.order {
            Order::Recorded => {
                for mut cursor in cursors {
                    while let Some(call) = cursor.next()? {
                        each(&call);
                    }
                }
                Ok(())
            }
            Order::Stamps => merge(&mut cursors, each),
        }
    }
}

/// Takes from whichever run has the least stamp; of equal ones from the first.
fn merge(cursors: &mut [Cursor<'_>], each: &mut dyn FnMut(&Call)) -> io::Result<()> {
    let mut heads: BinaryHeap<Reverse<(Timestamp, usize)>> = cursors
        .iter()
        .enumerate()
        .filter_map(|(number, cursor)| Some(Reverse((cursor.peek()?.at, number))))
        .collect();
    while let Some(Reverse((_, number))) = heads.pop() {
        // Recordings are nearly in order, so that one run mostly goes on for long.
        let next = heads.peek().map(|Reverse(head)| *head);
        let cursor = &mut cursors[number];
        while let Some(call) = cursor.peek().copied() {
            if next.is_some_and(|next| next < (call.at, number)) {
                heads.push(Reverse((call.at, number)));
                break;
            }
            each(&call);
            cursor.next()?;
        }
    }
    Ok(())
}

/// Where one run is being read.
struct Cursor<'a> {
    file: Option<(&'a File, Run)>,
    buffer: std::borrow::Cow<'a, [Call]>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn over_memory(run: &'a [Call]) -> Self {
        Self {
            file: None,
            buffer: run.into(),
            at: 0,
        }
    }

    fn over_file(file: &'a File, run: Run) -> io::Result<Self> {
        let mut cursor = Self {
            file: Some((file, run)),
            buffer: Vec::with_capacity(READ_CALLS).into(),
            at: 0,
        };
        cursor.fill()?;
        Ok(cursor)
    }

    fn peek(&self) -> Option<&Call> {
        self.buffer.get(self.at)
    }

    fn next(&mut self) -> io::Result<Option<Call>> {
        let call = self.peek().copied();
        self.at += 1;
        if self.at == self.buffer.len() {
            self.fill()?;
        }
        Ok(call)
    }

    fn fill(&mut self) -> io::Result<()> {
        let Some((file, left)) = &mut self.file else {
            return Ok(());
        };
        let calls = left.calls.min(READ_CALLS as u64);
        let mut bytes = vec![0; calls as usize * CALL_BYTES];
        file.read_exact_at(&mut bytes, left.at_byte)?;
        left.at_byte += bytes.len() as u64;
        left.calls -= calls;
        let buffer = self.buffer.to_mut();
        buffer.clear();
        let (calls, _) = bytes.as_chunks::<CALL_BYTES>();
        buffer.extend(calls.iter().map(Call::from_bytes));
        self.at = 0;
        Ok(())
    }
}

impl Run {
    fn end_byte(self) -> u64 {
        self.at_byte + self.calls * CALL_BYTES as u64
    }
}

impl Call {
    /// How many calls it is.
    pub fn calls(&self) -> u64 {
        match self.min {
            0 => u64::from(self.copies),
            _ => 1,
        }
    }

    /// How many of them were granted, where so many hits were.
    pub fn granted_calls(&self, hits: u64) -> u64 {
        match self.min {
            0 => hits,
            _ => u64::from(0 < hits),
        }
    }

    fn to_bytes(self) -> [u8; CALL_BYTES] {
        let mut bytes = [0; CALL_BYTES];
        bytes[..8].copy_from_slice(&self.at.as_micros().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pair.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.copies.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.min.to_le_bytes());
        bytes[20] = u8::from(self.was_refused);
        bytes
    }

    fn from_bytes(bytes: &[u8; CALL_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let at = u64::from(word(0)) | (u64::from(word(4)) << 32);
        Self {
            at: Timestamp::from_micros(at),
            pair: word(8),
            copies: word(12),
            min: word(16),
            was_refused: bytes[20] != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls whose stamps wander, from a generator without a library.
    fn calls(count: u64, spread: u64) -> Vec<Call> {
        let mut seed = 3u64;
        let next = |n| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            Call {
                at: Timestamp::from_micros(n * 7 + (seed >> 40) % spread),
                pair: n as u32,
                copies: 1 + (seed >> 60) as u32,
                min: (seed >> 62) as u32,
                was_refused: seed >> 63 == 1,
            }
        };
        (0..count).map(next).collect()
    }

    fn played(calls: &[Call], order: Order, run: usize) -> Vec<Call> {
        let mut recorder = Recorder::with_runs_of(order, run);
        for call in calls {
            recorder.push(*call).expect("written");
        }
        let mut played = Vec::new();
        recorder
            .wind()
            .play(&mut |call| played.push(*call))
            .expect("read");
        played
    }

    #[test]
    fn whatever_the_runs_calls_come_by_stamp_and_then_as_recorded() {
        for spread in [1, 20, 5_000, 200_000] {
            let calls = calls(10_000, spread);
            let mut sorted = calls.clone();
            sorted.sort_by_key(|call| call.at);
            for run in [10, 1_000, 4_097, 10_000, 1 << 20] {
                assert!(
                    played(&calls, Order::Stamps, run) == sorted,
                    "{spread} {run}"
                );
                assert!(
                    played(&calls, Order::Recorded, run) == calls,
                    "{spread} {run}"
                );
            }
        }
        assert_eq!(played(&[], Order::Stamps, 10), []);
    }

    #[test]
    fn the_extent_says_how_far_stamps_step_back() {
        let mut recorder = Recorder::new(Order::Stamps);
        for at in [5, 9, 4, 9, 7, 12] {
            let at = Timestamp::from_micros(at);
            let (pair, copies, min) = (0, 1, 1);
            let was_refused = false;
            let call = Call {
                at,
                pair,
                copies,
                min,
                was_refused,
            };
            recorder.push(call).expect("memory");
        }
        let extent = recorder.wind().extent();
        assert_eq!((extent.first.as_micros(), extent.last.as_micros()), (4, 12));
        assert_eq!(
            (extent.stepped_back, extent.stepped_back_max.as_micros()),
            (2, 5)
        );
    }
}
