//! The calls of a tape on their way to a player: runs of a file merged, spread, and merged with other files.
//!
//! ```text
//! stamped 10:00:01     a file's a b c d, another file's x y      a x b c y d, a sixth of a second apart
//! ```
//!
//! Files whose stamps have one unit are spread together: each server of a fleet writes a file of its own, and a
//! rotation divides a second between two. Each file keeps its order, and its calls are distributed over the whole
//! second.
//!
//! What stays true: of calls at one instant, those of an earlier file and an earlier run come first; files that are
//! spread together count as the first of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use tollgate_shared::time::{Span, Timestamp};

use super::call::{CALL_BYTES, Call};
use super::{READ_CALLS, WrittenRun};

/// Takes calls from the stream with the least stamp; of equal stamps from the first stream.
pub(super) fn merge(streams: &mut [Stream<'_>], each: &mut dyn FnMut(&Call)) -> io::Result<()> {
    let mut heads = Heads::default();
    for (number, stream) in streams.iter().enumerate() {
        heads.add(stream.head().map(|call| call.at), number);
    }
    while let Some((number, next)) = heads.pop() {
        // Recordings are nearly in order, so one stream goes on for long.
        let stream = &mut streams[number];
        while let Some(call) = stream.head() {
            if next.is_some_and(|next| next < (call.at, number)) {
                heads.add(Some(call.at), number);
                break;
            }
            each(&call);
            stream.advance()?;
        }
    }
    Ok(())
}

/// The streams by their least stamps.
#[derive(Debug, Default)]
struct Heads(BinaryHeap<Reverse<(Timestamp, usize)>>);

impl Heads {
    fn add(&mut self, at: Option<Timestamp>, number: usize) {
        self.0.extend(at.map(|at| Reverse((at, number))));
    }

    fn least(&self) -> Option<(Timestamp, usize)> {
        self.0.peek().map(|Reverse(head)| *head)
    }

    /// The stream with the least stamp, and the stamp up to which it may go on.
    fn pop(&mut self) -> Option<(usize, Option<(Timestamp, usize)>)> {
        let Reverse((_, number)) = self.0.pop()?;
        Some((number, self.least()))
    }
}

/// The calls of one file, or of several that are spread together, in order.
pub(super) enum Stream<'a> {
    Written(FileRuns<'a>, Option<Call>),
    Spread(SpreadFiles<'a>, Option<Call>),
}

impl<'a> Stream<'a> {
    pub(super) fn written(mut runs: FileRuns<'a>) -> io::Result<Self> {
        let head = runs.next()?;
        Ok(Self::Written(runs, head))
    }

    pub(super) fn spread(files: Vec<FileRuns<'a>>, over: Span) -> io::Result<Self> {
        let mut files = SpreadFiles::new(files, over);
        let head = files.next()?;
        Ok(Self::Spread(files, head))
    }

    fn head(&self) -> Option<Call> {
        match self {
            Self::Written(_, head) | Self::Spread(_, head) => *head,
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        match self {
            Self::Written(runs, head) => *head = runs.next()?,
            Self::Spread(files, head) => *head = files.next()?,
        }
        Ok(())
    }
}

/// Files whose stamps have one unit, a second or a minute, over which their calls are spread.
pub(super) struct SpreadFiles<'a> {
    files: Vec<FileRuns<'a>>,
    heads: Heads,
    over: Span,
    /// The remaining calls of the current second.
    waiting: VecDeque<Call>,
}

impl<'a> SpreadFiles<'a> {
    fn new(files: Vec<FileRuns<'a>>, over: Span) -> Self {
        let mut heads = Heads::default();
        for (number, file) in files.iter().enumerate() {
            heads.add(file.peek().map(|call| call.at), number);
        }
        Self {
            files,
            heads,
            over,
            waiting: VecDeque::new(),
        }
    }

    fn next(&mut self) -> io::Result<Option<Call>> {
        if self.waiting.is_empty() {
            self.gather()?;
        }
        Ok(self.waiting.pop_front())
    }

    /// Takes the calls of the next second from all files, and spreads them over it.
    fn gather(&mut self) -> io::Result<()> {
        let Some((at, _)) = self.heads.least() else {
            return Ok(());
        };
        // Beside each call, which part of its file's calls in this second come before it.
        let mut calls: Vec<(u64, Call)> = Vec::new();
        while let Some((_, number)) = self.heads.least().filter(|(head, _)| *head == at) {
            self.heads.pop();
            let (file, first) = (&mut self.files[number], calls.len());
            while let Some(call) = file.peek().filter(|call| call.at == at) {
                calls.push((0, call));
                file.next()?;
            }
            let of_file = (calls.len() - first) as u64;
            for (before, (part, _)) in (0u64..).zip(&mut calls[first..]) {
                *part = share_of(u64::MAX, before, of_file);
            }
            self.heads.add(file.peek().map(|call| call.at), number);
        }
        // Stable: of equal parts, that of an earlier file comes first.
        calls.sort_by_key(|(part, _)| *part);
        let count = calls.len() as u64;
        let calls = (0u64..).zip(calls);
        self.waiting.extend(calls.map(|(number, (_, call))| {
            let after = Span::from_micros(share_of(self.over.as_micros(), number, count));
            let at = at.saturating_add(after);
            Call { at, ..call }
        }));
        Ok(())
    }
}

/// `part` of `count` equal parts of a whole.
fn share_of(whole: u64, part: u64, count: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(count.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The calls of one file at their written stamps: its runs, merged.
pub(super) struct FileRuns<'a> {
    cursors: Vec<RunCursor<'a>>,
    heads: Heads,
    /// The run to read from, and the stamp up to which it may go on.
    current: Option<(usize, Option<(Timestamp, usize)>)>,
}

impl<'a> FileRuns<'a> {
    pub(super) fn new(cursors: Vec<RunCursor<'a>>) -> Self {
        let mut heads = Heads::default();
        for (number, cursor) in cursors.iter().enumerate() {
            heads.add(cursor.peek().map(|call| call.at), number);
        }
        Self {
            cursors,
            current: heads.pop(),
            heads,
        }
    }

    fn peek(&self) -> Option<Call> {
        self.cursors[self.current?.0].peek().copied()
    }

    fn next(&mut self) -> io::Result<Option<Call>> {
        let Some((number, next)) = self.current else {
            return Ok(None);
        };
        let cursor = &mut self.cursors[number];
        let call = cursor.next()?;
        match cursor.peek() {
            Some(call) if next.is_none_or(|next| (call.at, number) <= next) => {}
            head => {
                self.heads.add(head.map(|call| call.at), number);
                self.current = self.heads.pop();
            }
        }
        Ok(call)
    }
}

/// The position in one run.
pub(super) struct RunCursor<'a> {
    file: Option<(&'a File, WrittenRun)>,
    buffer: std::borrow::Cow<'a, [Call]>,
    at: usize,
}

impl<'a> RunCursor<'a> {
    pub(super) fn over_memory(run: &'a [Call]) -> Self {
        Self {
            file: None,
            buffer: run.into(),
            at: 0,
        }
    }

    pub(super) fn over_file(file: &'a File, run: WrittenRun) -> io::Result<Self> {
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

    pub(super) fn next(&mut self) -> io::Result<Option<Call>> {
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
