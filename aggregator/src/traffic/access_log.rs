//! Access logs in the Apache combined (or common) format: who asked, and when.
//!
//! ```text
//! 203.0.113.7 - - [20/Feb/2016:00:00:45 -0500] "GET / HTTP/1.1" 200 512 "-" "curl"
//! ^ domain         ^ instant, to the second, with its zone
//! ```
//!
//! Nothing behind the bracket is looked at. Servers write a line when a request ends, so stamps step
//! back; this reader gives them as they stand.

use std::io::{self, BufRead};

use tollgate_shared::time::Timestamp;

/// How many unreadable lines are kept to be shown.
const SHOWN_MAX: usize = 10;

/// How many bytes of an unreadable line are kept to be shown.
const SHOWN_BYTES_MAX: usize = 80;

/// One request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The client's address, as written.
    pub client: &'a str,
    /// When it was made, to the second.
    pub at: Timestamp,
}

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

/// A reader of one log. Ask it for the next request until there is none.
#[derive(Debug)]
pub struct AccessLog<R> {
    reader: R,
    buffer: Vec<u8>,
    date: LastDate,
    lines: u64,
    skipped: u64,
    shown: Vec<Unreadable>,
}

/// The stamp read last: neighbouring lines mostly bear the same one, and parsing a date costs more
/// than all the rest of a line.
#[derive(Debug, Default)]
struct LastDate {
    text: Vec<u8>,
    at: Timestamp,
}

impl<R: BufRead> AccessLog<R> {
    /// A reader at the start.
    pub fn new(reader: R) -> Self {
        let (date, buffer, shown) = (LastDate::default(), Vec::new(), Vec::new());
        Self {
            reader,
            buffer,
            date,
            lines: 0,
            skipped: 0,
            shown,
        }
    }

    /// The next request; none at the end. Unreadable lines are passed over and counted.
    ///
    /// # Errors
    ///
    /// What reading says, faults of the compression included.
    pub fn next_request(&mut self) -> io::Result<Option<Request<'_>>> {
        loop {
            self.buffer.clear();
            if self.reader.read_until(b'\n', &mut self.buffer)? == 0 {
                return Ok(None);
            }
            self.lines += 1;
            let line = self.buffer.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            match parse(line, &mut self.date) {
                // The borrow checker cannot see that a returned borrow ends the loop, so what was
                // found is kept as numbers and borrowed again below.
                Ok((client, at)) => {
                    let client = std::str::from_utf8(&self.buffer[..client]).unwrap_or_default();
                    return Ok(Some(Request { client, at }));
                }
                Err(expected) => {
                    self.skipped += 1;
                    if self.shown.len() < SHOWN_MAX {
                        let found = &line[..line.len().min(SHOWN_BYTES_MAX)];
                        let found = String::from_utf8_lossy(found).into_owned();
                        self.shown.push(Unreadable {
                            line: self.lines,
                            expected,
                            found,
                        });
                    }
                }
            }
        }
    }

    /// Lines read so far.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Lines that could not be read.
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The first of them.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.shown
    }
}

/// The length of the client's address, and the instant; or what was expected.
fn parse(line: &[u8], last: &mut LastDate) -> Result<(usize, Timestamp), &'static str> {
    let client = line
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or("a client address and a space")?;
    if client == 0 || std::str::from_utf8(&line[..client]).is_err() {
        return Err("a client address in UTF-8");
    }
    let open = line
        .iter()
        .position(|byte| *byte == b'[')
        .ok_or("a date in brackets")?;
    let rest = &line[open + 1..];
    let close = rest
        .iter()
        .position(|byte| *byte == b']')
        .ok_or("a date in brackets")?;
    let text = &rest[..close];
    if text != last.text {
        last.at = parse_date(text).ok_or("a date as in 20/Feb/2016:00:00:45 -0500")?;
        last.text.clear();
        last.text.extend_from_slice(text);
    }
    Ok((client, last.at))
}

fn parse_date(text: &[u8]) -> Option<Timestamp> {
    let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    let micros = parsed.to_timestamp().ok()?.as_microsecond();
    u64::try_from(micros).ok().map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(String, u64)>, Vec<Unreadable>) {
        let mut log = AccessLog::new(text.as_bytes());
        let mut requests = Vec::new();
        while let Some(request) = log.next_request().expect("memory") {
            requests.push((
                request.client.to_owned(),
                request.at.as_micros() / 1_000_000,
            ));
        }
        (requests, log.unreadable().to_vec())
    }

    #[test]
    fn a_line_gives_its_client_and_its_instant_whatever_the_zone() {
        let (requests, _) = read(
            "10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n\
             ::1 - bob [20/Feb/2016:05:00:45 +0000] \"GET /[a] HTTP/1.1\" 200 5\n",
        );
        assert_eq!(
            requests,
            [
                ("10.0.0.1".to_owned(), 1_455_944_445),
                ("::1".to_owned(), 1_455_944_445)
            ]
        );
    }

    #[test]
    fn an_unreadable_line_is_counted_shown_and_passed_over() {
        let (requests, unreadable) = read(
            "nonsense\n\n10.0.0.1 - - [yesterday] \"GET /\"\n10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET /\"\n \n",
        );
        assert_eq!(requests.len(), 1);
        let lines: Vec<u64> = unreadable
            .iter()
            .map(|unreadable| unreadable.line)
            .collect();
        assert_eq!(lines, [1, 3]);
        assert_eq!(
            unreadable[1].expected,
            "a date as in 20/Feb/2016:00:00:45 -0500"
        );
    }
}
