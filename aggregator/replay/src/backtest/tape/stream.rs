//! The calls of a tape on their way to a player: runs of a file merged, spread, and merged with other files.
//!
//! What stays true: of calls at one instant, those of an earlier file and an earlier run come
//! first.

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
        heads.add(stream.head.map(|call| call.at), number);
    }
    while let Some((number, next)) = heads.pop() {
        // Recordings are nearly in order, so one stream goes on for long.
        let stream = &mut streams[number];
        while let Some(call) = stream.head {
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

    /// The stream with the least stamp, and the stamp up to which it may go on.
    fn pop(&mut self) -> Option<(usize, Option<(Timestamp, usize)>)> {
        let Reverse((_, number)) = self.0.pop()?;
        Some((number, self.0.peek().map(|Reverse(head)| *head)))
    }
}

/// The calls of one file, in order.
pub(super) struct Stream<'a> {
    cursors: Vec<RunCursor<'a>>,
    heads: Heads,
    /// The run to read from, and the stamp up to which it may go on.
    current: Option<(usize, Option<(Timestamp, usize)>)>,
    spread: Option<Span>,
    /// If calls are spread: the remaining calls of the current second, and the time between them.
    waiting: VecDeque<Call>,
    /// The next call.
    head: Option<Call>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(cursors: Vec<RunCursor<'a>>, spread: Option<Span>) -> io::Result<Self> {
        let mut heads = Heads::default();
        for (number, cursor) in cursors.iter().enumerate() {
            heads.add(cursor.peek().map(|call| call.at), number);
        }
        let mut stream = Self {
            cursors,
            current: heads.pop(),
            heads,
            spread,
            waiting: VecDeque::new(),
            head: None,
        };
        stream.advance()?;
        Ok(stream)
    }

    fn advance(&mut self) -> io::Result<()> {
        self.head = match self.spread {
            None => self.next_written()?,
            Some(grain) => {
                if self.waiting.is_empty() {
                    self.gather(grain)?;
                }
                self.waiting.pop_front()
            }
        };
        Ok(())
    }

    /// Takes the calls of the next second, or of another unit, and spreads them over it.
    fn gather(&mut self, grain: Span) -> io::Result<()> {
        while let Some(call) = self.peek_written() {
            if self
                .waiting
                .front()
                .is_some_and(|first| first.at != call.at)
            {
                break;
            }
            self.waiting.push_back(call);
            self.next_written()?;
        }
        let calls = self.waiting.len() as u64;
        for (number, call) in (0u64..).zip(&mut self.waiting) {
            let after = u128::from(grain.as_micros()) * u128::from(number) / u128::from(calls);
            let after = Span::from_micros(u64::try_from(after).unwrap_or(0));
            call.at = call.at.saturating_add(after);
        }
        Ok(())
    }

    fn peek_written(&self) -> Option<Call> {
        self.cursors[self.current?.0].peek().copied()
    }

    /// The next call at its written stamp.
    fn next_written(&mut self) -> io::Result<Option<Call>> {
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
