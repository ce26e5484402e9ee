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

use super::lines::{Lines, Unreadable};

/// One request of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The client's address, as written.
    pub client: &'a str,
    /// When it was made, to the second.
    pub at: Timestamp,
}

/// A reader of one log. Ask it for the next request until there is none.
#[derive(Debug)]
pub struct AccessLog<R> {
    lines: Lines<R>,
    date: LastDate,
}

impl<R: BufRead> AccessLog<R> {
    /// A reader at the start.
    pub fn new(reader: R) -> Self {
        Self {
            lines: Lines::new(reader),
            date: LastDate::default(),
        }
    }

    /// The next request; none at the end. Unreadable lines are passed over and counted.
    ///
    /// # Errors
    ///
    /// What reading says, faults of the compression included.
    pub fn next_request(&mut self) -> io::Result<Option<Request<'_>>> {
        while self.lines.advance()? {
            match parse(self.lines.line(), &mut self.date) {
                // The borrow checker cannot see that a returned borrow ends the loop, so what was
                // found is kept as numbers and borrowed again.
                Ok(Request { client, at }) => {
                    let bytes = client.len();
                    let client = str::from_utf8(&self.lines.line()[..bytes]).unwrap_or_default();
                    return Ok(Some(Request { client, at }));
                }
                Err(expected) => self.lines.refuse(expected),
            }
        }
        Ok(None)
    }

    /// Lines read so far.
    pub const fn lines(&self) -> u64 {
        self.lines.number()
    }

    /// Lines that could not be read.
    pub const fn skipped(&self) -> u64 {
        self.lines.skipped()
    }

    /// The first of them.
    pub fn unreadable(&self) -> &[Unreadable] {
        self.lines.unreadable()
    }
}

/// The date read last: neighbouring lines mostly bear the same minute, and parsing a date costs more
/// than all the rest of a line.
#[derive(Debug, Default)]
pub(super) struct LastDate {
    text: Vec<u8>,
    at: Timestamp,
}

/// Where the seconds stand in `20/Feb/2016:00:00:45 -0500`.
const SECONDS: std::ops::Range<usize> = 18..20;

impl LastDate {
    fn parse(&mut self, text: &[u8]) -> Option<Timestamp> {
        if let Some(at) = self.same_minute(text) {
            return Some(at);
        }
        let at = parse_date(text)?;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.at = at;
        Some(at)
    }

    /// The instant, where the text differs from the last one in its seconds at most.
    fn same_minute(&self, text: &[u8]) -> Option<Timestamp> {
        let last = &self.text[..];
        let same = text.len() == last.len()
            && text.get(..SECONDS.start)? == last.get(..SECONDS.start)?
            && text.get(SECONDS.end..)? == last.get(SECONDS.end..)?;
        let (now, then) = (two_digits(text)?, two_digits(last)?);
        let seconds = i64::from(now) - i64::from(then);
        same.then(|| self.at.saturating_offset(seconds * 1_000_000))
    }
}

/// The seconds of a date; none from 60 on, where it takes a calendar to say what is meant.
fn two_digits(date: &[u8]) -> Option<u8> {
    let [tens @ b'0'..=b'5', ones @ b'0'..=b'9'] = *date.get(SECONDS)? else {
        return None;
    };
    Some((tens - b'0') * 10 + (ones - b'0'))
}

/// The request of a line; or what was expected.
pub(super) fn parse<'a>(line: &'a [u8], last: &mut LastDate) -> Result<Request<'a>, &'static str> {
    let space = line
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or("a client address and a space")?;
    let client = str::from_utf8(&line[..space])
        .ok()
        .filter(|client| !client.is_empty())
        .ok_or("a client address in UTF-8")?;
    let in_brackets = |rest: &'a [u8]| {
        let open = rest.iter().position(|byte| *byte == b'[')?;
        let rest = &rest[open + 1..];
        let close = rest.iter().position(|byte| *byte == b']')?;
        Some(&rest[..close])
    };
    let date = in_brackets(&line[space..]).ok_or("a date in brackets")?;
    let at = last
        .parse(date)
        .ok_or("a date as in 20/Feb/2016:00:00:45 -0500")?;
    Ok(Request { client, at })
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
    #[test]
    fn a_date_is_read_the_same_beside_any_other() {
        let dates = [
            "20/Feb/2016:00:00:45 -0500",
            "20/Feb/2016:00:00:03 -0500",
            "20/Feb/2016:00:00:59 -0500",
            "20/Feb/2016:00:01:00 -0500",
            "20/Feb/2016:00:01:00 -0400",
            "01/Jan/1970:00:00:10 +0000",
            "01/Jan/1970:00:00:10 +0100",
            "20/Feb/2016:00:00:x9 -0500",
            "20/Feb/2016:00:00:61 -0500",
            "31/Feb/2016:00:00:01 -0500",
        ];
        for first in dates {
            let mut last = LastDate::default();
            last.parse(first.as_bytes());
            for second in dates {
                let alone = LastDate::default().parse(second.as_bytes());
                assert_eq!(last.parse(second.as_bytes()), alone, "{first} {second}");
            }
        }
    }
}
