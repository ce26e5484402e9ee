//! The lines of a table, one after the other: a file of limits of single domains.
//!
//! Knows nothing of columns. What stays true: no more of a line than [`LINE_BYTES_MAX`] is in memory, and a line that is
//! longer, or not text, is a fault with its number like any other.

use std::io::{self, BufRead, Read as _, Take};

use crate::exit::Failure;

/// The most bytes of a table, of which a fleet has up to four million rows.
const TABLE_MAX: u64 = 1 << 30;

/// The most bytes of a line: names and rates have at most 256 each.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A line with its number, or what is wrong with it.
type NumberedLine<'l> = (u64, Result<&'l str, String>);

/// A table that is being read.
pub struct TableLines<R> {
    name: String,
    rest: Take<R>,
    bytes_max: u64,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> TableLines<R> {
    /// Begins at the first line. The name is for messages.
    pub fn new(name: &str, table: R) -> Self {
        Self::of(name, table, TABLE_MAX)
    }

    fn of(name: &str, table: R, bytes_max: u64) -> Self {
        Self {
            name: name.to_owned(),
            rest: table.take(bytes_max + 1),
            bytes_max,
            line: Vec::new(),
            number: 0,
        }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if the table cannot be read, or is too long.
    pub fn next_line(&mut self) -> Result<Option<NumberedLine<'_>>, Failure> {
        let read = self.read_line().map_err(|source| Failure::Input {
            name: self.name.clone(),
            source,
        });
        if !read? {
            return Ok(None);
        }
        self.number += 1;
        let line = match str::from_utf8(&self.line) {
            _ if self.is_too_long() => {
                Err(format!("the line is longer than {LINE_BYTES_MAX} bytes"))
            }
            Ok(line) => Ok(line.trim_end_matches(['\r', '\n'])),
            Err(error) => Err(format!("not UTF-8 at byte {}", error.valid_up_to())),
        };
        Ok(Some((self.number, line)))
    }

    /// Reads a line, of which it passes over what is too long; returns false at the end.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut bounded = self.rest.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        bounded.read_until(b'\n', &mut self.line)?;
        if self.is_too_long() {
            self.rest.skip_until(b'\n')?;
        }
        if self.rest.limit() == 0 {
            let text = format!("longer than {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(!self.line.is_empty())
    }

    fn is_too_long(&self) -> bool {
        LINE_BYTES_MAX < self.line.len() && self.line.last() != Some(&b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_never_ends_is_passed_over_and_not_held() {
        let long = io::repeat(b'x').take(100 << 20);
        let table = b"one\n".chain(long).chain(&b"\nthree\r\n\xff\nfive"[..]);
        let mut lines = TableLines::new("f.csv", io::BufReader::new(table));
        let mut next = || {
            let next = lines.next_line().expect("it is read");
            next.map(|(number, line)| (number, line.map(str::to_owned)))
        };
        assert_eq!(next(), Some((1, Ok("one".to_owned()))));
        let too_long = "the line is longer than 65536 bytes".to_owned();
        assert_eq!(next(), Some((2, Err(too_long))));
        assert_eq!(next(), Some((3, Ok("three".to_owned()))));
        assert_eq!(next(), Some((4, Err("not UTF-8 at byte 0".to_owned()))));
        assert_eq!(next(), Some((5, Ok("five".to_owned()))));
        assert_eq!(next(), None);
        assert!(lines.line.capacity() <= 4 * LINE_BYTES_MAX);
    }

    #[test]
    fn a_table_without_an_end_is_refused_after_the_bound() {
        let endless = io::BufReader::new(io::repeat(b'x'));
        let mut lines = TableLines::of("f.csv", endless, 1 << 20);
        let fault = lines.next_line().expect_err("too long").to_string();
        assert_eq!(fault, "f.csv: longer than 1048576 bytes");
        let mut lines = TableLines::of("f.csv", &b"just\n"[..], 5);
        assert!(lines.next_line().expect("it fits").is_some());
        assert!(lines.next_line().expect("it fits").is_none());
    }
}
