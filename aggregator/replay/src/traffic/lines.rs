//! Rows of a text, with their line numbers, and the unreadable ones. A row is a line; in JSON it may be an object
//! that spans several lines.
//!
//! Knows nothing of what a line means. What stays true: however long a line is, memory stays bounded; an unreadable
//! line is counted, and the first ones are kept to be shown; it never ends the reading.

use std::io::{self, BufRead, Read as _};

use super::objects::{JsonPosition, ObjectRead, next_object};
use super::quotes::{Quoted, Quotes};
use super::wrap::Wraps;

/// How many unreadable lines are kept to be shown.
const SHOWN_MAX: usize = 10;

/// How many bytes of an unreadable line are kept to be shown.
const SHOWN_BYTES_MAX: usize = 80;

/// The longest line that is read. Web servers refuse request lines above 8 KiB, so a file with a longer line is of
/// another kind, and must not be read into memory as a whole.
pub(super) const LINE_BYTES_MAX: u64 = 64 << 10;

/// How many times the text after an object that does not end is read again, 64 KiB at most each time. In a text in
/// which each line opens an object and none is closed, more would take hours.
const READ_AGAIN_MAX: u32 = 4_096;

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its line number, counted from 1.
    pub line: u64,
    /// What was expected.
    pub expected: &'static str,
    /// The beginning of the line.
    pub found: String,
}

/// How a text is divided into rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Split {
    /// Each line is a row.
    #[default]
    Lines,
    /// Each JSON object is a row: in an array, or one after another.
    Objects,
    /// Each JSON object in an array is a row, where the array is a member of an object.
    Wrapped,
    /// Each line is a row, and a quoted CSV field may contain line breaks.
    Quoted,
}

/// Bytes before a row that do not belong to it: a byte order mark, as in concatenated files; the record mark in a
/// sequence of JSON texts (RFC 7464).
const MARKS: [&[u8]; 2] = [b"\xef\xbb\xbf", b"\x1e"];

/// The rows of a text, one at a time. Blank lines are skipped.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    split: Split,
    /// Bytes that were read ahead and are read again, and from which position.
    again: (Vec<u8>, usize),
    /// How many times the text after an object that does not end was read again.
    read_again: u32,
    /// The text has ended within an object.
    is_cut: bool,
    /// The byte that ends a line.
    end: u8,
    /// What other programs put around each line.
    wraps: Wraps,
    /// How many lines end within the row.
    inside: u64,
    buffer: Vec<u8>,
    number: u64,
    /// Lines that are not blank.
    rows: u64,
    skipped: u64,
    shown: Vec<Unreadable>,
}

impl<R: BufRead> Lines<R> {
    /// Begins at the start of the text.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            split: Split::Lines,
            again: (Vec::new(), 0),
            read_again: 0,
            is_cut: false,
            end: b'\n',
            wraps: Wraps::default(),
            inside: 0,
            buffer: Vec::new(),
            number: 0,
            rows: 0,
            skipped: 0,
            shown: Vec::new(),
        }
    }

    /// Divides the rest of the text in another way.
    pub(super) fn split_by(&mut self, split: Split) {
        self.split = split;
        if matches!(split, Split::Objects | Split::Wrapped) {
            self.number = 1;
        }
    }

    /// Sets what is around each line.
    pub(super) fn wrapped_by(&mut self, wraps: Wraps) {
        self.wraps = wraps;
    }

    /// Lines end with this byte from now on.
    pub(super) const fn end_by(&mut self, end: u8) {
        self.end = end;
    }

    /// Moves to the next row; returns false at the end.
    ///
    /// # Errors
    ///
    /// Errors of reading, including faults of the compression.
    pub fn advance(&mut self) -> io::Result<bool> {
        match self.split {
            Split::Lines => self.advance_line(),
            Split::Objects => self.advance_object(),
            Split::Quoted => self.advance_quoted(),
            Split::Wrapped => {
                self.pass_brace()?;
                self.split = Split::Objects;
                self.advance_object()
            }
        }
    }

    /// Moves to the next object: from its first brace to the closing one, wherever lines end.
    fn advance_object(&mut self) -> io::Result<bool> {
        self.number += std::mem::take(&mut self.inside);
        self.buffer.clear();
        let mut object = JsonPosition::default();
        loop {
            let read = self.read_object(&mut object)?;
            let expected = match read {
                ObjectRead::Whole => {
                    self.rows += 1;
                    return Ok(true);
                }
                ObjectRead::TooLong => "an object of at most 64 KiB",
                ObjectRead::Ends if self.buffer.is_empty() => return Ok(false),
                ObjectRead::Ends => "an object that ends",
            };
            self.rows += 1;
            self.refuse(expected);
            let next = next_object(&self.buffer).filter(|_| self.read_again < READ_AGAIN_MAX);
            match (next, read) {
                // A quote too many, or a brace, must not hide the objects in the lines after it.
                (Some(next), _) => {
                    let passed = &self.buffer[..next];
                    self.number += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
                    self.inside = 0;
                    self.read_again += 1;
                    self.read_again_from(next);
                    self.buffer.clear();
                }
                (None, ObjectRead::TooLong) => {
                    self.number += std::mem::take(&mut self.inside);
                    self.buffer.clear();
                    self.pass_object(&mut object)?;
                }
                (None, _) => {
                    self.buffer.clear();
                    return Ok(false);
                }
            }
            self.is_cut |= matches!(read, ObjectRead::Ends);
            object = JsonPosition::default();
        }
    }

    /// Reads an object, or as much of it as is read of one.
    fn read_object(&mut self, object: &mut JsonPosition) -> io::Result<ObjectRead> {
        loop {
            let bytes = ahead(&self.again, &mut self.reader)?;
            if bytes.is_empty() {
                return Ok(ObjectRead::Ends);
            }
            let mut consumed = 0;
            let mut read = None;
            for byte in bytes {
                consumed += 1;
                let within = object.takes(*byte);
                if *byte == b'\n' {
                    match self.buffer.is_empty() {
                        true => self.number += 1,
                        false => self.inside += 1,
                    }
                }
                if within {
                    self.buffer.push(*byte);
                    read = match object.depth {
                        0 => Some(ObjectRead::Whole),
                        _ if LINE_BYTES_MAX as usize <= self.buffer.len() => {
                            Some(ObjectRead::TooLong)
                        }
                        _ => continue,
                    };
                    break;
                }
            }
            self.pass(consumed);
            if let Some(read) = read {
                return Ok(read);
            }
        }
    }

    /// Moves past bytes of those that come next.
    fn pass(&mut self, bytes: usize) {
        let (again, at) = &mut self.again;
        match *at < again.len() {
            true => *at += bytes,
            false => self.reader.consume(bytes),
        }
    }

    /// Moves past the end of an object, or past its line if that ends first: an object that is never closed must not
    /// hide the rest of the text.
    fn pass_object(&mut self, object: &mut JsonPosition) -> io::Result<()> {
        loop {
            let bytes = ahead(&self.again, &mut self.reader)?;
            let end = bytes.iter().position(|byte| {
                object.takes(*byte);
                object.depth == 0 || *byte == b'\n'
            });
            let (upto, ended) = match end {
                Some(at) => {
                    self.number += u64::from(bytes[at] == b'\n');
                    (at + 1, true)
                }
                None => (bytes.len(), bytes.is_empty()),
            };
            self.pass(upto);
            if ended {
                return Ok(());
            }
        }
    }

    /// Whether the text has ended within an object, so that what is read after that may be a part of it.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Moves past the first brace: the objects are inside it.
    fn pass_brace(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let brace = bytes.iter().position(|byte| *byte == b'{');
            let upto = brace.map_or(bytes.len(), |at| at + 1);
            let lines = bytes[..upto].iter().filter(|byte| **byte == b'\n').count();
            let ended = brace.is_some() || bytes.is_empty();
            self.number += lines as u64;
            self.reader.consume(upto);
            if ended {
                return Ok(());
            }
        }
    }

    fn advance_line(&mut self) -> io::Result<bool> {
        loop {
            self.buffer.clear();
            if self.read_line()? == 0 {
                return Ok(false);
            }
            self.number += 1;
            if self.is_too_long() {
                self.rows += 1;
                self.refuse("a line of at most 64 KiB");
                self.pass_rest()?;
                continue;
            }
            if !self.wraps.is_empty()
                && let Some(inside) = self.wraps.inside(self.line())
            {
                self.buffer = inside;
            }
            if !self.line().is_empty() {
                self.rows += 1;
                return Ok(true);
            }
        }
    }

    /// Moves to the next row of a CSV. If a quote is not closed, or something follows the closing quote, that line
    /// alone is the row: the text after it is read as if the line were missing.
    fn advance_quoted(&mut self) -> io::Result<bool> {
        self.number += std::mem::take(&mut self.inside);
        if !self.advance_line()? {
            return Ok(false);
        }
        if !self.buffer.contains(&b'"') {
            return Ok(true);
        }
        let first = self.buffer.len();
        let mut quotes = Quotes::default();
        let mut from = 0;
        let mut inside = 0;
        loop {
            let state = quotes.pass(&self.buffer[from..]);
            if state != Quoted::Open {
                break;
            }
            from = self.buffer.len();
            if LINE_BYTES_MAX as usize <= from || self.read_line()? == 0 {
                break;
            }
            inside += 1;
        }
        if first < self.buffer.len() {
            match quotes.at {
                Quoted::Closed => self.inside = inside,
                Quoted::Open | Quoted::Broken => self.read_again_from(first),
            }
        }
        Ok(true)
    }

    /// Makes the buffer's content from `from` on be read again.
    fn read_again_from(&mut self, from: usize) {
        let mut again = self.buffer.split_off(from);
        let (behind, at) = &self.again;
        again.extend_from_slice(&behind[*at..]);
        self.again = (again, 0);
    }

    /// Reads to the end of a line, or to the greatest length, appending to the buffer. Returns how many bytes it
    /// read. Skips any number of zeros before a line: a log that was truncated while it was written has them.
    fn read_line(&mut self) -> io::Result<usize> {
        let (again, at) = &mut self.again;
        if *at < again.len() {
            let rest = &again[*at..];
            let end = rest.iter().position(|byte| *byte == self.end);
            let upto = end.map_or(rest.len(), |end| end + 1);
            self.buffer.extend_from_slice(&rest[..upto]);
            *at += upto;
            if end.is_some() {
                return Ok(upto);
            }
            // The last line of what was read ahead may be incomplete.
            let room = LINE_BYTES_MAX.saturating_sub(self.buffer.len() as u64);
            let mut bounded = self.reader.by_ref().take(room);
            return Ok(upto + bounded.read_until(self.end, &mut self.buffer)?);
        }
        if self.buffer.is_empty() {
            pass_zeros(&mut self.reader)?;
        }
        let room = LINE_BYTES_MAX.saturating_sub(self.buffer.len() as u64);
        let mut bounded = self.reader.by_ref().take(room);
        bounded.read_until(self.end, &mut self.buffer)
    }

    fn is_too_long(&self) -> bool {
        LINE_BYTES_MAX as usize <= self.buffer.len() && self.buffer.last() != Some(&self.end)
    }

    /// The row, without trailing white space, and without leading bytes that do not belong to it.
    pub fn line(&self) -> &[u8] {
        bare(&self.buffer)
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

    /// Does not count the line as a row: it was a heading.
    pub fn is_heading(&mut self) {
        self.rows -= 1;
    }

    /// The line number, counted from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// How many lines that are not blank were read so far, including unreadable ones.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// How many lines were unreadable.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The first unreadable lines.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.shown
    }

    fn pass_rest(&mut self) -> io::Result<()> {
        loop {
            let available = self.reader.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            let end = available.iter().position(|byte| *byte == self.end);
            let passed = end.map_or(available.len(), |end| end + 1);
            self.reader.consume(passed);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

/// The bytes that come next.
fn ahead<'a>(again: &'a (Vec<u8>, usize), reader: &'a mut impl BufRead) -> io::Result<&'a [u8]> {
    let (again, at) = again;
    match again.get(*at..) {
        Some(rest) if !rest.is_empty() => Ok(rest),
        _ => reader.fill_buf(),
    }
}

/// Skips zeros.
fn pass_zeros(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = reader.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let more = 0 < zeros && zeros == bytes.len();
        if 0 < zeros {
            reader.consume(zeros);
        }
        if !more {
            return Ok(());
        }
    }
}

/// A line without trailing white space, and without leading zeros, marks and terminal colours.
pub(super) fn bare(line: &[u8]) -> &[u8] {
    let mut line = line.trim_ascii_end();
    while let Some(first) = line.first() {
        let rest = match first {
            0 => Some(&line[1..]),
            0x1b => without_colour(line),
            0xef | 0x1e => MARKS.iter().find_map(|mark| line.strip_prefix(*mark)),
            _ => return line,
        };
        match rest {
            Some(rest) => line = rest,
            None => return line,
        }
    }
    line
}

/// The text after an escape sequence for a colour, such as `ESC [32m`.
fn without_colour(line: &[u8]) -> Option<&[u8]> {
    let inside = line.strip_prefix(b"\x1b[")?;
    let is_of_it = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
    let codes = inside.iter().take_while(is_of_it).count();
    inside[codes..].strip_prefix(b"m")
}

#[cfg(test)]
mod tests;
