//! The form of a line of an access log, in the words of nginx's `log_format` or of Apache's `LogFormat`.
//!
//! ```text
//! $remote_addr - $remote_user [$time_local] "$request" $status "$http_x_forwarded_for"
//! %v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"
//! ```
//!
//! A field ends where the text that follows it in the pattern is found; within quotes a quote behind a backslash
//! does not end it. What stands behind the last field that is wanted is not looked at. Knows nothing of which field is
//! the client. What stays true: a line either has all wanted fields or is refused, with what was expected.

use tollgate_shared::time::Timestamp;

use super::instant::{self, TimeUnit};

/// Fields that can be wanted of one line.
const WANTED_MAX: usize = 4;

/// A pattern, ready to read lines with.
#[derive(Clone, Debug)]
pub struct Pattern {
    pieces: Vec<Piece>,
    time: Time,
    /// The slot of the field with what proxies said, and of that with the peer's address.
    forwarded: Option<usize>,
    peer: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    /// A field, and the slot that it is wanted for.
    Field(String, Option<usize>),
}

/// Where the instant of a line stands.
#[derive(Clone, Debug)]
enum Time {
    /// In one slot, in whatever way it is written.
    Whole(usize, TimeUnit),
    /// In one slot, as a `strftime` pattern says.
    By(usize, String),
    /// A date and a time of day.
    Parts(usize, usize),
}

/// What a line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    slots: [&'a [u8]; WANTED_MAX],
}

impl Pattern {
    /// A pattern in nginx's or Apache's words, of which the field `client` is wanted, or else those that have
    /// addresses.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(text: &str, client: Option<&str>) -> Result<Self, String> {
        let text = unquoted(text);
        let pieces = if text.contains('$') {
            of_nginx(&text)
        } else {
            of_apache(&text)?
        };
        Self::of_pieces(pieces, client)
    }

    /// The columns of a file that names them, one behind another.
    pub(super) fn of_columns(
        names: &[&str],
        separator: u8,
        client: Option<&str>,
    ) -> Result<Self, String> {
        let mut pieces = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if 0 < index {
                pieces.push(Piece::Text(Box::new([separator])));
            }
            pieces.push(Piece::Field((*name).to_owned(), None));
        }
        Self::of_pieces(pieces, client)
    }

    fn of_pieces(mut pieces: Vec<Piece>, client: Option<&str>) -> Result<Self, String> {
        let fields = |pieces: &[Piece]| -> Vec<String> {
            let fields = pieces.iter().filter_map(|piece| match piece {
                Piece::Field(name, _) => Some(name.clone()),
                Piece::Text(_) => None,
            });
            fields.collect()
        };
        let names = fields(&pieces);
        let adjacent = pieces.windows(2).find_map(|two| match two {
            [Piece::Field(one, _), Piece::Field(other, _)] => Some((one, other)),
            _ => None,
        });
        if let Some((one, other)) = adjacent {
            return Err(format!(
                "{one} and {other} stand together: nobody can tell where one ends"
            ));
        }
        let known = |wanted: &[&str]| {
            let is = |name: &&String| wanted.iter().any(|one| same_field(one, name));
            names.iter().find(is).cloned()
        };
        let mut slots = 0;
        let mut want = |pieces: &mut Vec<Piece>, name: &str| {
            let slot = slots;
            slots += 1;
            let wanted = pieces.iter_mut().find_map(|piece| match piece {
                Piece::Field(field, at @ None) if field == name => Some(at),
                _ => None,
            });
            *wanted? = Some(slot);
            Some(slot)
        };
        let time = match known(TIMES) {
            Some(name) => {
                let slot = want(&mut pieces, &name).unwrap_or_default();
                time_of(&name, slot)
            }
            None => match (known(&["date"]), known(&["time"])) {
                (Some(date), Some(time)) => Time::Parts(
                    want(&mut pieces, &date).unwrap_or_default(),
                    want(&mut pieces, &time).unwrap_or_default(),
                ),
                _ => {
                    return Err(format!(
                        "no instant: expected $time_local, $time_iso8601, $msec or %t, found {}",
                        names.join(", ")
                    ));
                }
            },
        };
        let (forwarded, peer) = match client {
            Some(client) => {
                let name = known(&[client]).ok_or_else(|| {
                    format!("no field {client}: expected one of {}", names.join(", "))
                })?;
                (None, Some(name))
            }
            None => (known(FORWARDED), known(PEERS)),
        };
        if forwarded.is_none() && peer.is_none() {
            return Err(format!(
                "no client: expected $remote_addr, $http_x_forwarded_for, %h or a field that --client names, found {}",
                names.join(", ")
            ));
        }
        let mut slot = |name: Option<String>| name.and_then(|name| want(&mut pieces, &name));
        let (forwarded, peer) = (slot(forwarded), slot(peer));
        let last = pieces
            .iter()
            .rposition(|piece| matches!(piece, Piece::Field(_, Some(_))));
        // What follows the last wanted field says where it ends.
        pieces.truncate(last.map_or(0, |last| last + 2));
        Ok(Self {
            pieces,
            time,
            forwarded,
            peer,
        })
    }

    /// Which field is the client.
    pub fn client(&self) -> &str {
        let slot = self.forwarded.or(self.peer);
        let name = self.pieces.iter().find_map(|piece| match piece {
            Piece::Field(name, wanted) if *wanted == slot => Some(name.as_str()),
            _ => None,
        });
        name.unwrap_or_default()
    }

    /// The wanted fields of a line; or what was expected.
    pub fn find<'a>(&self, line: &'a [u8]) -> Result<Found<'a>, &'static str> {
        let mut found = Found::default();
        let mut at = 0;
        let mut pieces = self.pieces.iter().peekable();
        let mut before = 0;
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Text(text) => {
                    // A piece of text behind a field was found where the field ends.
                    if !line.get(at..).is_some_and(|rest| rest.starts_with(text)) {
                        return Err(EXPECTED);
                    }
                    at += text.len();
                    before = text.last().copied().unwrap_or(0);
                }
                Piece::Field(_, slot) => {
                    let rest = line.get(at..).unwrap_or_default();
                    let end = match pieces.peek() {
                        Some(Piece::Text(next)) => {
                            let quoted = before == b'"' && next.first() == Some(&b'"');
                            end_of(rest, next, quoted)
                        }
                        _ => Some(rest.len()),
                    };
                    // The last field may stand at the end of its line.
                    let end = match end {
                        Some(end) => end,
                        None if pieces.len() == 1 => rest.len(),
                        None => return Err(EXPECTED),
                    };
                    if let Some(slot) = slot {
                        found.slots[*slot] = &rest[..end];
                    }
                    at += end;
                    if pieces.len() == 1 {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// What proxies said, and the peer.
    pub fn clients<'a>(&self, found: &Found<'a>) -> (Option<&'a str>, Option<&'a str>) {
        let text = |slot: Option<usize>| str::from_utf8(found.slots[slot?]).ok();
        (text(self.forwarded), text(self.peer))
    }

    /// The instant of a line, of which `date` read the last.
    pub(super) fn at(
        &self,
        found: &Found<'_>,
        date: &mut super::dates::LastDate,
    ) -> Result<Timestamp, &'static str> {
        let text = |slot: usize| str::from_utf8(found.slots[slot]).ok();
        match &self.time {
            Time::Whole(slot, unit) => {
                let bytes = found.slots[*slot];
                let bytes = bytes.strip_prefix(b"[").unwrap_or(bytes);
                let bytes = bytes.strip_suffix(b"]").unwrap_or(bytes);
                date.parse(bytes)
                    .or_else(|| instant::parse(str::from_utf8(bytes).ok()?, *unit))
                    .ok_or("a date as in 20/Feb/2016:00:00:45 -0500")
            }
            Time::By(slot, pattern) => text(*slot)
                .and_then(|text| by_pattern(pattern, text))
                .ok_or("a date as the pattern's %{…}t says"),
            Time::Parts(date, time) => text(*date)
                .zip(text(*time))
                .and_then(|(date, time)| instant::of_parts(date, time))
                .ok_or("a date as in 2016-02-20 and a time as in 05:00:45"),
        }
    }
}

const EXPECTED: &str =
    "a line of the form that the file has: client, instant and what stands between";

const TIMES: &[&str] = &[
    "time_local",
    "time_iso8601",
    "msec",
    "start_time",
    "%t",
    "time_unix",
];

/// Fields in which proxies say whom they forward for.
const FORWARDED: &[&str] = &["http_x_forwarded_for", "x-forwarded-for"];

/// Fields with the address of the peer.
const PEERS: &[&str] = &["remote_addr", "%h", "%a", "c-ip", "realip_remote_addr"];

/// Whether two words are one field: `$http_x_forwarded_for` and `%{X-Forwarded-For}i` are.
fn same_field(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        let text = text.trim_start_matches('$');
        let header = text
            .strip_prefix("%{")
            .and_then(|text| text.strip_suffix("}i"));
        match header {
            Some(header) => format!("http_{}", header.to_ascii_lowercase().replace('-', "_")),
            None if text.starts_with("%{") && text.ends_with('t') => "%t".to_owned(),
            None if text == "%{c}a" => "%a".to_owned(),
            None => text.to_ascii_lowercase(),
        }
    };
    plain(one) == plain(other)
}

fn time_of(name: &str, slot: usize) -> Time {
    let inside = name
        .strip_prefix("%{")
        .and_then(|name| name.strip_suffix("}t"));
    let inside = inside.map(|inside| {
        inside
            .trim_start_matches("begin:")
            .trim_start_matches("end:")
    });
    match inside {
        Some("sec") => Time::Whole(slot, TimeUnit::Seconds),
        Some("msec") => Time::Whole(slot, TimeUnit::Millis),
        Some("usec") => Time::Whole(slot, TimeUnit::Micros),
        Some(pattern) => Time::By(slot, pattern.to_owned()),
        None => Time::Whole(slot, TimeUnit::Auto),
    }
}

fn by_pattern(pattern: &str, text: &str) -> Option<Timestamp> {
    let parsed = jiff::fmt::strtime::parse(pattern, text).ok()?;
    let timestamp = parsed.to_timestamp().ok().or_else(|| {
        let zoned = parsed.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
        Some(zoned.ok()?.timestamp())
    })?;
    u64::try_from(timestamp.as_microsecond())
        .ok()
        .map(Timestamp::from_micros)
}

/// Where a field ends: at the text that follows it.
fn end_of(rest: &[u8], next: &[u8], quoted: bool) -> Option<usize> {
    let first = *next.first()?;
    let mut from = 0;
    loop {
        let at = from + rest.get(from..)?.iter().position(|byte| *byte == first)?;
        let escaped = quoted
            && rest[..at]
                .iter()
                .rev()
                .take_while(|byte| **byte == b'\\')
                .count()
                % 2
                == 1;
        if !escaped && rest[at..].starts_with(next) {
            return Some(at);
        }
        // At the end of a line there may be less behind the field than the pattern has.
        if !escaped && quoted && next.starts_with(&rest[at..]) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// A pattern as it stands in a configuration: `'…' '…'`, over several lines.
fn unquoted(text: &str) -> String {
    let text = text.trim_end_matches(['\n', '\r', ';']);
    if !text.trim_start().starts_with('\'') {
        return text.to_owned();
    }
    let inside = text.split('\'').skip(1).step_by(2);
    inside.collect()
}

fn of_nginx(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        push_text(&mut pieces, &rest[..at]);
        let behind = &rest[at + 1..];
        let (name, behind) = match behind
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
        {
            Some((name, behind)) => (name, behind),
            None => {
                let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = behind.find(|c| !is_of_name(c)).unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        pieces.push(Piece::Field(name.to_owned(), None));
        rest = behind;
    }
    push_text(&mut pieces, rest);
    pieces
}

fn of_apache(text: &str) -> Result<Vec<Piece>, String> {
    let text = text.replace("\\\"", "\"");
    let mut pieces = Vec::new();
    let mut rest = &*text;
    while let Some(at) = rest.find('%') {
        push_text(&mut pieces, &rest[..at]);
        let behind = &rest[at + 1..];
        if let Some(behind) = behind.strip_prefix('%') {
            push_text(&mut pieces, "%");
            rest = behind;
            continue;
        }
        // Conditions and modifiers: %>s, %!200,304{Referer}i.
        let is_modifier = |c: char| matches!(c, '<' | '>' | '!' | ',' | '0'..='9');
        let behind = behind.trim_start_matches(is_modifier);
        let end = match behind.starts_with('{') {
            true => behind.find('}').map(|close| close + 2),
            false if behind.starts_with('^') => Some(3),
            false => Some(1),
        };
        let end = end.filter(|end| behind.is_char_boundary(*end) && *end <= behind.len());
        let Some(end) = end else {
            return Err(format!(
                "%{behind:?}: expected a letter, or {{name}} and a letter"
            ));
        };
        let name = format!("%{}", &behind[..end]);
        match name.as_str() {
            "%t" => {
                push_text(&mut pieces, "[");
                pieces.push(Piece::Field(name, None));
                push_text(&mut pieces, "]");
            }
            _ => pieces.push(Piece::Field(name, None)),
        }
        rest = &behind[end..];
    }
    push_text(&mut pieces, rest);
    if !pieces.iter().any(|piece| matches!(piece, Piece::Field(..))) {
        return Err(
            "no field: expected words of nginx ($remote_addr) or of Apache (%h)".to_owned(),
        );
    }
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(Piece::Text(before)) = pieces.last_mut() {
        *before = [before, text.as_bytes()].concat().into();
    } else {
        pieces.push(Piece::Text(text.as_bytes().into()));
    }
}
