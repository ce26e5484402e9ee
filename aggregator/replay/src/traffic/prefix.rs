//! Text before each row in its line that does not belong to the row, written by a tool that collects lines.
//!
//! ```text
//! access.log:203.0.113.7 - - […]      access.log:17:203.0.113.7 - - […]      17:…      grep, findstr, Python's logging
//!     17<TAB>203.0.113.7 - - […]                                                       cat -n, nl
//! web-1  | 203.0.113.7 - - […]        10:00:00 web.1  | …                              docker compose, foreman, pm2
//! [pod/web-7d9/nginx] 203.0.113.7 - - […]                                              kubectl logs --prefix
//! Nov 20 10:00:00 web1 nginx: 203.0.113.7 - - […]                                      syslog, journalctl
//! ```
//!
//! Found from the first lines, if most of them begin like a row after the prefix and not before it. The head of
//! syslog is kept if the row after it has no instant of its own. Knows nothing of formats. What stays true: a line
//! without the prefix is left unchanged.

use std::net::IpAddr;

use super::clients::{Clients, is_address};
use super::forms::is_plausible;
use super::instant::{self, TimeUnit};
use super::lines::bare;

/// The kind of prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    /// A number of words with a colon after each; and the first words of the first lines, after which grep writes a
    /// dash instead if a line is only the context of another.
    Words(usize, Vec<Vec<u8>>),
    /// The line's number, with blanks before it and a tab after it.
    Number,
    /// A name and a bar.
    Bar,
    /// A pod in brackets.
    Pod,
    /// A head of syslog, or an instant.
    Syslog,
}

/// How many words may precede a row: a path with a drive, and a line number.
const WORDS_MAX: usize = 3;

/// How many first words are kept.
const NAMES_MAX: usize = 16;

impl Prefix {
    /// The prefix that most of these lines have.
    pub fn of_first<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let all = lines.clone().count();
        let most =
            |is: &dyn Fn(&'a [u8]) -> bool| all < 2 * lines.clone().filter(|line| is(line)).count();
        if most(&begins_as_row) {
            // As in 17:2001:db8::7, which could also be an address.
            let is_numbered = has_numbers(lines.clone(), 0, 3)
                && most(&|line| words(line, 1).is_some_and(begins_as_whole));
            let is_logged = most(&|line| Self::Syslog.rest(line).is_some());
            return match (is_numbered, is_logged) {
                (true, _) => Some(Self::Words(1, Vec::new())),
                (false, true) => Some(Self::Syslog),
                (false, false) => None,
            };
        }
        let mut simple = [Self::Number, Self::Bar, Self::Pod, Self::Syslog].into_iter();
        // A bar in all lines and the first one, which is not prefixed, belongs to a table with its heading.
        let bars = |line: &[u8]| line.iter().filter(|byte| **byte == b'|').count();
        let is_table = lines.clone().next().is_some_and(|first| {
            let is_as_wide = |line: &'a [u8]| bars(line) == bars(first);
            Self::Bar.rest(first).is_none() && 0 < bars(first) && most(&is_as_wide)
        });
        let simple = simple.find(|kind| {
            (*kind != Self::Bar || !is_table) && most(&|line| kind.rest(line).is_some())
        });
        simple.or_else(|| {
            let is_before = |count: usize| {
                most(&|line| words(line, count).is_some_and(begins_as_row) && !is_ltsv(line))
            };
            let mut counts = 1..=WORDS_MAX;
            let count = counts
                .find(|count| is_before(*count))
                .or_else(|| most(&is_behind_file).then_some(1))?;
            let numbered = count < WORDS_MAX && has_numbers(lines.clone(), count, 2);
            let mut names: Vec<Vec<u8>> = Vec::new();
            for line in lines.clone() {
                let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
                if names.len() < NAMES_MAX
                    && !name.is_empty()
                    && names.iter().all(|known| known != name)
                {
                    names.push(name.to_vec());
                }
            }
            Some(Self::Words(count + usize::from(numbered), names))
        })
    }

    /// The row of a line; `None` if the line lacks this prefix.
    pub fn rest<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Words(count, names) => {
                let rest = words(line, *count).or_else(|| context(line, *count, names));
                // A line without the prefix among others: 2001:db8::7 is an address, and 17:2001:db8::7 is not.
                rest.filter(|rest| !begins_as_row(line) || begins_as_whole(rest))
            }
            Self::Number => {
                let inside = line.trim_ascii_start();
                let (number, rest) = split_at(inside, b'\t')?;
                (is_number(number) && begins_as_row(rest)).then_some(rest)
            }
            Self::Bar => behind_bar(line),
            Self::Pod => {
                let inside = line.strip_prefix(b"[pod/")?;
                let (pod, rest) = split_at(inside, b']')?;
                (!pod.contains(&b' ')).then(|| rest.trim_ascii_start())
            }
            Self::Syslog => behind_head(line),
        }
    }
}

fn split_at(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == mark)?;
    Some((&text[..at], &text[at + 1..]))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// The text after `count` words with a colon each.
fn words(line: &[u8], count: usize) -> Option<&[u8]> {
    let mut rest = line;
    for _ in 0..count {
        let (word, behind) = split_at(rest, b':')?;
        let is_of_row = |byte: &u8| b" \t\"'[](){},;|=".contains(byte);
        // Ten digits are an instant, not a line number.
        let is_instant = 10 <= word.len() && is_number(word);
        if word.is_empty() || is_instant || word.iter().any(is_of_row) {
            return None;
        }
        rest = behind;
    }
    (!rest.is_empty()).then(|| rest.trim_ascii_start())
}

/// The same with dashes, as grep writes context lines.
fn context<'a>(line: &'a [u8], count: usize, names: &[Vec<u8>]) -> Option<&'a [u8]> {
    let named = names.iter().filter(|name| !is_number(name));
    let mut named = named.filter_map(|name| line.strip_prefix(&**name)?.strip_prefix(b"-"));
    let behind_name = named.next();
    let (rest, left) = match behind_name {
        Some(rest) => (rest, count - 1),
        None => (line, count),
    };
    match left {
        0 => Some(rest),
        1 => {
            let (number, rest) = split_at(rest, b'-')?;
            (is_number(number) && begins_as_row(rest)).then_some(rest)
        }
        _ => None,
    }
}

/// Whether after `count` words most lines, and at least `least`, have a number that rises.
fn has_numbers<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    words_before: usize,
    least: usize,
) -> bool {
    let (mut all, mut rising, mut last) = (0, 0, None);
    for line in lines {
        let rest = match words_before {
            0 => Some(line),
            count => words(line, count),
        };
        let number = rest
            .and_then(|rest| split_at(rest, b':'))
            .map(|(number, _)| number);
        let number = number.filter(|number| is_number(number));
        let number: Option<u64> =
            number.and_then(|number| str::from_utf8(number).ok()?.parse().ok());
        all += 1;
        rising += usize::from(number.is_some() && last < number);
        last = number;
    }
    least <= rising && all * 9 <= (rising + 1) * 10
}

/// Whether a line is LTSV, whose keys have a colon after them, too.
fn is_ltsv(line: &[u8]) -> bool {
    let Some((first, second)) = split_at(line, b'\t') else {
        return false;
    };
    let key = |field: &[u8]| split_at(field, b':').map(|(key, _)| key.to_vec());
    let is_word = |key: &Vec<u8>| {
        let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-';
        key.first().is_some_and(u8::is_ascii_alphabetic) && key.iter().all(is_of_key)
    };
    key(first).is_some_and(|key| is_word(&key)) && key(second).is_some_and(|key| is_word(&key))
}

/// Whether a line begins with the name of a log or table file, and a colon without a port after it.
fn is_behind_file(line: &[u8]) -> bool {
    const PARTS: [&str; 9] = [
        "log", "logs", "txt", "csv", "tsv", "json", "jsonl", "gz", "xz",
    ];
    let Some(rest) = words(line, 1) else {
        return false;
    };
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let mut parts = name.split(|byte| !byte.is_ascii_alphanumeric());
    let is_file = parts.any(|part| {
        PARTS
            .iter()
            .any(|known| part.eq_ignore_ascii_case(known.as_bytes()))
    });
    let first = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_path = name.iter().any(|byte| b"./\\_-".contains(byte));
    is_path && is_file && !is_number(first)
}

/// The text after a name and a bar: `web-1  | `, `10:00:00 web.1   | `, `0|web  | `.
fn behind_bar(line: &[u8]) -> Option<&[u8]> {
    let is_of_time = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
    let line = match split_at(line, b' ') {
        Some((time, rest)) if time.len() == 8 && time.iter().all(is_of_time) => rest,
        _ => line,
    };
    let numbered = split_at(line, b'|').filter(|(number, _)| is_number(number));
    let (name, rest) = split_at(numbered.map_or(line, |(_, rest)| rest), b'|')?;
    let rest = bare(rest.strip_prefix(b" ")?);
    let rest = rest.trim_ascii_start();
    let name = name.trim_ascii();
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    let text = str::from_utf8(name).ok()?;
    if name.is_empty() || !name.iter().all(is_of_name) || is_address(text) {
        return None;
    }
    // Other texts may be a field of the row.
    let is_instance =
        text.ends_with(|c: char| c.is_ascii_digit()) && text.contains(['-', '_', '.']);
    let is_row = begins_with_address(rest)
        || has_stamp(rest)
        || rest.starts_with(b"{")
        || rest.starts_with(b"[");
    (is_instance || numbered.is_some() || is_row).then_some(rest)
}

/// The text after a head of syslog, or after an instant, if it has an instant of its own as web servers write it.
fn behind_head(line: &[u8]) -> Option<&[u8]> {
    let line = match line.strip_prefix(b"<") {
        // The priority, and in RFC 5424 a version.
        Some(inside) => {
            let rest = split_at(inside, b'>')
                .filter(|(number, _)| is_number(number))?
                .1;
            rest.strip_prefix(b"1 ").unwrap_or(rest)
        }
        None => line,
    };
    let behind = match is_syslog_date(line) {
        true => &line[15..],
        false => {
            let (first, rest) = split_at(line, b' ')?;
            let is_iso = first.get(10) == Some(&b'T') && is_instant(first);
            is_iso.then_some(rest)?
        }
    };
    let is_row = |row: &[u8]| {
        let mut words = row.split(|byte| *byte == b' ');
        let address_alone = words.nth(1).is_some_and(|second| second.starts_with(b"["));
        has_stamp(row) && !address_alone
    };
    let behind = behind.trim_ascii_start();
    // A tag in the first words, with a colon after it, and blanks around that.
    let mut rest = behind;
    for _ in 0..3 {
        let Some((word, more)) = split_at(rest, b' ') else {
            break;
        };
        rest = more.trim_ascii_start();
        if word.ends_with(b":") && is_row(rest) {
            return Some(rest);
        }
    }
    // RFC 5424: host, program, process, message, and no data.
    let mut words = behind.splitn(6, |byte| *byte == b' ');
    let of_5424 = words.nth(4).filter(|data| *data == b"-").and(words.next());
    let of_5424 = of_5424.filter(|row| begins_with_address(row) && is_row(row));
    of_5424.or_else(|| (begins_with_address(behind) && is_row(behind)).then_some(behind))
}

/// Whether a line begins like `Nov 20 10:00:00 `.
fn is_syslog_date(line: &[u8]) -> bool {
    let Some(head) = line.get(..16) else {
        return false;
    };
    let is_at = |at: usize, is: fn(&u8) -> bool| is(&head[at]);
    let letters = head[..3].iter().all(u8::is_ascii_alphabetic);
    let digits = [5, 7, 8, 10, 11, 13, 14]
        .iter()
        .all(|at| is_at(*at, u8::is_ascii_digit));
    letters
        && digits
        && head[3] == b' '
        && head[6] == b' '
        && head[9] == b':'
        && head[12] == b':'
        && head[15] == b' '
}

/// Whether the row has a date in brackets as web servers write it: `[20/Nov/2025:10:00:00`.
pub(super) fn has_stamp(row: &[u8]) -> bool {
    let mut brackets = row.iter().enumerate().filter(|(_, byte)| **byte == b'[');
    brackets.any(|(at, _)| {
        let date = row.get(at + 1..at + 12).unwrap_or_default();
        date.len() == 11
            && date[2] == b'/'
            && date[6] == b'/'
            && date[..2].iter().all(u8::is_ascii_digit)
    })
}

/// Whether a text begins like a row: with an address, an instant, an object, or a head of syslog.
fn begins_as_row(line: &[u8]) -> bool {
    let instant_in_brackets = || {
        let inside = line.strip_prefix(b"[");
        inside
            .and_then(|inside| split_at(inside, b']'))
            .is_some_and(|(inside, _)| {
                is_instant(inside)
                    || split_at(inside, b' ').is_some_and(|(first, _)| is_instant(first))
            })
    };
    line.starts_with(b"{")
        || begins_with_address(line)
        || begins_with_instant(line)
        || is_syslog_date(line)
        || instant_in_brackets()
}

/// Whether a text begins like a row, and not with an address of IPv6 that lacks its first part: such as db8::7.
fn begins_as_whole(line: &[u8]) -> bool {
    let (first, _) = first_words(line);
    let named = str::from_utf8(first).ok();
    let named = named.and_then(|first| Clients::default().named(first)?.parse().ok());
    let is_whole = match named {
        // Public and private addresses, and those of IPv4.
        Some(IpAddr::V6(address)) => {
            matches!(address.segments()[0], 0 | 0x2000..=0x3fff | 0xfc00..=0xfebf)
        }
        Some(IpAddr::V4(_)) | None => true,
    };
    is_whole && begins_as_row(line)
}

/// The first word of a line, and the first two words.
fn first_words(line: &[u8]) -> (&[u8], &[u8]) {
    let is_end = |byte: &u8| b" \t,;|\"".contains(byte);
    let ends = |from: usize| {
        line.iter()
            .skip(from)
            .position(is_end)
            .map_or(line.len(), |end| from + end)
    };
    let first = ends(0);
    let second = if line.get(first) == Some(&b' ') {
        ends(first + 1)
    } else {
        first
    };
    (&line[..first], &line[..second])
}

fn begins_with_address(line: &[u8]) -> bool {
    let (first, _) = first_words(line);
    let named = str::from_utf8(first).ok().and_then(|first| {
        let clients = Clients::default();
        clients.named(first).map(|named| is_address(&named))
    });
    named == Some(true)
}

fn begins_with_instant(line: &[u8]) -> bool {
    let (first, both) = first_words(line);
    is_instant(first) || is_instant(both)
}

/// Whether a text is an instant of a request: ten digits, or a date with its time.
fn is_instant(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_long = 10 <= digits || 16 <= text.len() && text.contains(&b':');
    let text = str::from_utf8(text).ok().filter(|_| is_long);
    let at = text.and_then(|text| instant::parse(text, TimeUnit::Auto));
    at.is_some_and(is_plausible)
}

#[cfg(test)]
mod tests;
