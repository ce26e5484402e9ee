//! Calls of a tape on their way to who plays it: runs of a file merged, spread, and merged with other files.
//!
//! What stays true: of calls at one instant, those of an earlier file and an earlier run come first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use tollgate_shared::time::{Span, Timestamp};

use super::{CALL_BYTES, Call, READ_CALLS, WrittenRun};

/// Takes from whichever file has the least stamp; of equal ones from the first.
pub(super) fn merge(streams: &mut [Stream<'_>], each: &mut dyn FnMut(&Call)) -> io::Result<()> {
    let mut heads = Heads::default();
    for (number, stream) in streams.iter().enumerate() {
        heads.add(stream.head.map(|call| call.at), number);
    }
    while let Some((number, next)) = heads.pop() {
        // Recordings are nearly in order, so that one goes on for long.
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

/// Which of several has the least stamp.
#[derive(Debug, Default)]
struct Heads(BinaryHeap<Reverse<(Timestamp, usize)>>);

impl Heads {
    fn add(&mut self, at: Option<Timestamp>, number: usize) {
        self.0.extend(at.map(|at| Reverse((at, number))));
    }

    /// The one with the least, and up to where it may go on.
    fn pop(&mut self) -> Option<(usize, Option<(Timestamp, usize)>)> {
        let Reverse((_, number)) = self.0.pop()?;
        Some((number, self.0.peek().map(|Reverse(head)| *head)))
    }
}

/// The calls of one file, in order.
pub(super) struct Stream<'a> {
    cursors: Vec<RunCursor<'a>>,
    heads: Heads,
    /// The run that is read from, and up to where it may go on.
    current: Option<(usize, Option<(Timestamp, usize)>)>,
    spread: Option<Span>,
    /// Of what is spread: the calls of one second that are left, and by how much they are apart.
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

    /// Takes the calls of the next second, or whatever the grain is, and spreads them over it.
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

    /// The next call at its stamp as written.
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

/// Where one run is being read.
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
