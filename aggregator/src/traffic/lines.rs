//! Lines of a text, with their numbers, and those that could not be read.
//!
//! Knows nothing of what a line means. What stays true: however long a line is, memory stays bounded;
//! an unreadable line is counted and, for the first of them, kept to be shown; it never ends the reading.

use std::io::{self, BufRead, Read as _};

/// How many unreadable lines are kept to be shown.
const SHOWN_MAX: usize = 10;

/// How many bytes of an unreadable line are kept to be shown.
const SHOWN_BYTES_MAX: usize = 80;

/// The longest line that is read. Web servers refuse request lines above 8 KiB, so a longer one is a
/// file of another kind, and must not be taken into memory whole.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its number, counted from 1.
    pub line: u64,
    /// What was expected.
    pub expected: &'static str,
    /// How it begins.
    pub found: String,
}

/// The lines of a text, one at a time. Blank ones are passed over.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
    /// Lines that are not blank.
    rows: u64,
    skipped: u64,
    shown: Vec<Unreadable>,
}

impl<R: BufRead> Lines<R> {
    /// At the start.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            number: 0,
            rows: 0,
            skipped: 0,
            shown: Vec::new(),
        }
    }

    /// Goes to the next line that is not blank; false at the end.
    ///
    /// # Errors
    ///
    /// What reading says, faults of the compression included.
    pub fn advance(&mut self) -> io::Result<bool> {
        loop {
            self.buffer.clear();
            let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX);
            let read = bounded.read_until(b'\n', &mut self.buffer)?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            if read as u64 == LINE_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
                self.rows += 1;
                self.refuse("a line of at most 64 KiB");
                self.pass_rest()?;
                continue;
            }
            if !self.line().is_empty() {
                self.rows += 1;
                return Ok(true);
            }
        }
    }

    /// The line, without white space at its end.
    pub fn line(&self) -> &[u8] {
        self.buffer.trim_ascii_end()
    }

    /// Counts the line as unreadable.
    pub fn refuse(&mut self, expected: &'static str) {
        self.skipped += 1;
        if self.shown.len() < SHOWN_MAX {
            let line = self.line();
            let found = &line[..line.len().min(SHOWN_BYTES_MAX)];
            self.shown.push(Unreadable {
                line: self.number,
                expected,
                found: String::from_utf8_lossy(found).into_owned(),
            });
        }
    }

    /// Takes the line out of the count of rows: it was a heading.
    pub fn is_heading(&mut self) {
        self.rows -= 1;
    }

    /// The line's number, counted from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Lines read so far that are not blank, unreadable ones included.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Lines that could not be read.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The first of them.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.shown
    }

    fn pass_rest(&mut self) -> io::Result<()> {
        loop {
            let available = self.reader.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let passed = end.map_or(available.len(), |end| end + 1);
            self.reader.consume(passed);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_one_unreadable_row_and_takes_no_more_memory() {
        let text = [
            b"one\n".to_vec(),
            vec![b'x'; 1 << 20],
            b"\nthree\n".to_vec(),
        ]
        .concat();
        let mut lines = Lines::new(text.as_slice());
        let mut read = Vec::new();
        while lines.advance().expect("memory") {
            read.push((lines.number(), lines.line().to_vec()));
        }
        assert_eq!(read, [(1, b"one".to_vec()), (3, b"three".to_vec())]);
        assert_eq!((lines.rows(), lines.skipped()), (3, 1));
        assert_eq!(lines.unreadable()[0].line, 2);
        assert!(lines.buffer.capacity() <= 2 * LINE_BYTES_MAX as usize);
    }
}
