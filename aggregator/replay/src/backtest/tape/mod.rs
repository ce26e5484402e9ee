//! The calls of a recording, kept so that they can be played again and again, in order.
//!
//! ```text
//! push, push, …      a run of a million calls in memory ──full──► a temporary file
//! wind               each run is sorted by stamp before it is written; equal stamps keep their order
//! play               the runs are merged
//! ```
//!
//! If all stamps of a file are whole seconds (or minutes), as many servers write them, a stamp only names the second
//! in which a call was made. If asked to, the tape spreads the calls of each second evenly over it when it plays
//! them, those of all such files together and each file's in its order: at the written stamps, every window shorter
//! than a second would be full at the second's start, and spread file by file, the first call of every file would
//! fall there.
//!
//! Memory is that of one run, and of the calls of one second that are spread. Knows nothing of limits. What stays
//! true: every player sees the same calls in the same order: by stamp, and calls of one stamp as they were recorded;
//! or all as they were recorded, if that was asked for.

mod call;
mod stream;

use std::fs::File;
use std::io::{self, Write as _};

use tollgate_shared::time::{Span, Timestamp};

pub use call::{Call, CallKind};

use call::CALL_BYTES;
use stream::{FileRuns, RunCursor, Stream};

/// How many calls of a run are kept in memory: 40 MiB of them.
const RUN_CALLS_MAX: usize = 1 << 20;

/// How many calls of a written run are read at once.
const READ_CALLS: usize = 4096;

/// The pair number of a skipped row, which takes its place among the rows of its second but is not played.
const PASSED_OVER: u32 = u32::MAX;

/// How a file's stamps look, if most are whole seconds and its calls are played at their stamps all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unspread {
    /// All are whole seconds or minutes, and calls are played as recorded.
    AsRecorded,
    /// A number of stamps are whole seconds, and the others are finer.
    Mixed {
        /// Whole seconds.
        whole: u64,
        /// All calls.
        calls: u64,
    },
}

/// The order in which calls are played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlayOrder {
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
    /// Calls stamped before the call that was recorded just before them.
    pub stepped_back: u64,
    /// By how much at most.
    pub stepped_back_max: Span,
}

/// Writes a tape.
#[derive(Debug)]
pub struct Recorder {
    order: PlayOrder,
    /// Whether calls of whole seconds are spread over them.
    spread: bool,
    /// Whether the caller asked for spreading.
    wanted: bool,
    run_calls_max: usize,
    run: Vec<Call>,
    parts: Vec<FileCalls>,
    file: Option<File>,
    /// The length of the written runs, in bytes.
    end_byte: u64,
    extent: Extent,
    /// The stamp of the last recorded call.
    before: Timestamp,
}

/// The calls of one file.
#[derive(Clone, Debug)]
struct FileCalls {
    written: Vec<WrittenRun>,
    /// The unit that all its stamps are multiples of: a minute, a second, or a microsecond.
    grain: Span,
    calls: u64,
    /// How many calls are stamped in whole seconds.
    whole: u64,
    first: Option<Timestamp>,
    /// Whether there are two different stamps.
    is_varied: bool,
}

impl FileCalls {
    fn count(&mut self, at: Timestamp) {
        self.calls += 1;
        self.whole += u64::from(is_whole(SECOND, at));
        self.grain = grain(self.grain, at);
        self.is_varied |= *self.first.get_or_insert(at) != at;
    }

    /// The unit that all stamps are multiples of. A single instant does not show that minutes are the unit.
    fn grain(&self) -> Span {
        match self.is_varied {
            true => self.grain,
            false => self.grain.min(SECOND),
        }
    }
}

impl Default for FileCalls {
    fn default() -> Self {
        Self {
            written: Vec::new(),
            grain: MINUTE,
            calls: 0,
            whole: 0,
            first: None,
            is_varied: false,
        }
    }
}

const MINUTE: Span = Span::from_secs(60);
const SECOND: Span = Span::from_secs(1);
const MICROSECOND: Span = Span::from_micros(1);

/// A finished tape.
#[derive(Debug)]
pub struct Tape {
    order: PlayOrder,
    spread: bool,
    wanted: bool,
    /// The last run of the last part, or the only one.
    run: Vec<Call>,
    parts: Vec<FileCalls>,
    file: Option<File>,
    extent: Extent,
}

/// A run in the temporary file.
#[derive(Clone, Copy, Debug)]
struct WrittenRun {
    at_byte: u64,
    calls: u64,
}

impl Recorder {
    /// An empty tape.
    pub fn new(order: PlayOrder) -> Self {
        Self::with_runs_of(order, RUN_CALLS_MAX)
    }

    fn with_runs_of(order: PlayOrder, run_calls_max: usize) -> Self {
        Self {
            order,
            spread: false,
            wanted: false,
            run_calls_max,
            run: Vec::new(),
            parts: vec![FileCalls::default()],
            file: None,
            end_byte: 0,
            extent: Extent::default(),
            before: Timestamp::ZERO,
        }
    }

    /// Spreads calls over their second or minute, in files whose stamps are all whole seconds or minutes. Has no
    /// effect on calls that are played as recorded.
    pub fn spread(mut self, spread: bool) -> Self {
        self.wanted = spread;
        self.spread = spread && self.order == PlayOrder::Stamps;
        self
    }

    /// Begins another file: calls recorded from now on belong to it.
    ///
    /// # Errors
    ///
    /// If the temporary file cannot be created or written.
    pub fn begin_file(&mut self) -> io::Result<()> {
        if self.parts.last().is_some_and(|part| 0 < part.calls) {
            if !self.run.is_empty() {
                self.write()?;
            }
            self.parts.push(FileCalls::default());
        }
        Ok(())
    }

    /// Records a call.
    ///
    /// # Errors
    ///
    /// If the temporary file cannot be created or written.
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
        if let Some(part) = self.parts.last_mut() {
            part.count(call.at);
        }
        self.run.push(call);
        Ok(())
    }

    /// Records a row of the file that is not played. It only takes its place among the rows of its second, so that a
    /// backtest of one client plays that client's calls at the same instants as a backtest of all.
    ///
    /// # Errors
    ///
    /// If the temporary file cannot be created or written.
    pub fn pass_over(&mut self, at: Timestamp) -> io::Result<()> {
        if !self.spread {
            return Ok(());
        }
        if self.run.len() == self.run_calls_max {
            self.write()?;
        }
        if let Some(part) = self.parts.last_mut() {
            part.count(at);
        }
        self.run.push(Call {
            at,
            pair: PASSED_OVER,
            copies: 1,
            min: 1,
            kind: CallKind::LetThrough,
        });
        Ok(())
    }

    /// Ends the recording.
    pub fn wind(mut self) -> Tape {
        self.sort();
        Tape {
            order: self.order,
            spread: self.spread,
            wanted: self.wanted,
            run: self.run,
            parts: self.parts,
            file: self.file,
            extent: self.extent,
        }
    }

    fn sort(&mut self) {
        if self.order == PlayOrder::Stamps {
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
        let at_byte = self.end_byte;
        let mut writer = io::BufWriter::with_capacity(1 << 18, file);
        for call in &self.run {
            writer.write_all(&call.to_bytes())?;
        }
        writer.flush()?;
        let calls = self.run.len() as u64;
        self.end_byte = at_byte + calls * CALL_BYTES as u64;
        if let Some(part) = self.parts.last_mut() {
            part.written.push(WrittenRun { at_byte, calls });
        }
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
    pub fn order(&self) -> PlayOrder {
        self.order
    }

    /// The last instant at which calls are played: calls of the greatest stamp may be spread beyond it.
    pub fn played_until(&self) -> Timestamp {
        let spread = self.spread_over().into_iter().flatten().max();
        let last = self.extent.last;
        spread.map_or(last, |grain| last.saturating_add(grain))
    }

    /// By file, the unit over which calls are spread; `None` if they are played at their written stamps.
    pub fn spread_over(&self) -> Vec<Option<Span>> {
        let parts = self.parts.iter().filter(|part| 0 < part.calls);
        parts.map(|part| self.spread_of(part)).collect()
    }

    fn spread_of(&self, part: &FileCalls) -> Option<Span> {
        (self.spread && MICROSECOND < part.grain()).then_some(part.grain())
    }

    /// How stamps look in files of whole seconds, or nearly, that should have been spread but were not.
    pub fn unspread(&self) -> Vec<Unspread> {
        const CALLS_MIN: u64 = 20;
        let of = |part: &FileCalls| match part.grain() {
            MICROSECOND if 9 * part.calls <= 10 * part.whole => Some(Unspread::Mixed {
                whole: part.whole,
                calls: part.calls,
            }),
            MICROSECOND => None,
            _ => (!self.spread).then_some(Unspread::AsRecorded),
        };
        let parts = self.parts.iter().filter(|part| CALLS_MIN <= part.calls);
        match self.wanted {
            true => parts.filter_map(of).collect(),
            false => Vec::new(),
        }
    }

    /// Plays all calls in order.
    ///
    /// # Errors
    ///
    /// If the temporary file cannot be read.
    pub fn play(&self, each: &mut dyn FnMut(&Call)) -> io::Result<()> {
        if self.order == PlayOrder::Recorded {
            for number in 0..self.parts.len() {
                for mut cursor in self.cursors(number)? {
                    while let Some(call) = cursor.next()? {
                        each(&call);
                    }
                }
            }
            return Ok(());
        }
        let mut streams = Vec::with_capacity(self.parts.len());
        let mut spread: Vec<(usize, Span, Vec<FileRuns<'_>>)> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let runs = FileRuns::new(self.cursors(number)?);
            match self.spread_of(part) {
                None => streams.push((number, Stream::written(runs)?)),
                Some(over) => match spread.iter_mut().find(|(_, of, _)| *of == over) {
                    Some((_, _, files)) => files.push(runs),
                    None => spread.push((number, over, vec![runs])),
                },
            }
        }
        for (first, over, files) in spread {
            streams.push((first, Stream::spread(files, over)?));
        }
        streams.sort_by_key(|(first, _)| *first);
        let streams = streams.into_iter().map(|(_, stream)| stream);
        let mut streams: Vec<Stream<'_>> = streams.collect();
        stream::merge(&mut streams, &mut |call| {
            if call.pair != PASSED_OVER {
                each(call);
            }
        })
    }

    /// The runs of a file.
    fn cursors(&self, number: usize) -> io::Result<Vec<RunCursor<'_>>> {
        let written = &self.parts[number].written;
        let mut cursors = Vec::with_capacity(written.len() + 1);
        if let Some(file) = &self.file {
            for run in written {
                cursors.push(RunCursor::over_file(file, *run)?);
            }
        }
        if number + 1 == self.parts.len() {
            cursors.push(RunCursor::over_memory(&self.run));
        }
        Ok(cursors)
    }
}

/// The unit that stamps are multiples of, after one more stamp.
fn grain(grain: Span, at: Timestamp) -> Span {
    [MINUTE, SECOND]
        .into_iter()
        .find(|coarse| *coarse <= grain && is_whole(*coarse, at))
        .unwrap_or(MICROSECOND)
}

fn is_whole(grain: Span, at: Timestamp) -> bool {
    at.as_micros().is_multiple_of(grain.as_micros())
}

#[cfg(test)]
mod tests;
