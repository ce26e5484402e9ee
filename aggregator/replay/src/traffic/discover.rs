//! The format of lines that no named format fits: fields are found by the separators between them; their content
//! shows which of them is the instant and which the client's address.
//!
//! ```text
//! 1763632800.250     87 203.0.113.7 TCP_MISS/200 1182 GET …            field 1, field 3 (Squid)
//! Nov 20 10:00:00 web1 nginx: 203.0.113.7 - - [20/Nov/2025:10:00:00 +0000] "GET …      behind syslog's head
//! time:20/Nov/2025:10:00:00 +0000<TAB>host:203.0.113.7<TAB>req:GET …    time, host (LTSV)
//! time=2025-11-20T10:00:00Z level=info remote_addr=203.0.113.7:51034    time, remote_addr (logfmt)
//! Started GET "/" for 203.0.113.7 at 2025-11-20 10:00:00 +0200          fields 7 to 9, field 5 (Rails)
//! ```
//!
//! Knows nothing of files. What stays true: the same lines give the same format, and a line is read only if it has
//! the pieces of the line that was taken for the format.

use tollgate_shared::time::Timestamp;

use super::clients::Clients;
use super::forms::{Fit, Hints, LineReading, is_plausible};
use super::instant::{self, Instants, TimeUnit};
use super::names::{CLIENTS, FORWARDED, plain};
use super::pattern::{Pattern, Piece, TIME_FIELDS_MAX};

/// How many lines are tried as the format of all: the first ones may be messages of a program that starts.
const TEMPLATES_MAX: usize = 8;

/// How many fields of a line are examined.
const FIELDS_MAX: usize = 64;

/// How many pieces of a line are examined, and in how many steps: a step adds a field, blanks or a mark. Marks without
/// anything between them are one piece, and the other end of each may be searched for in all of the line.
const PIECES_MAX: usize = 3 * FIELDS_MAX;

/// How many fields with an address are tried.
const CANDIDATES_MAX: usize = 6;

/// Names of zones as `date` and servers write them. A list, because words such as INFO and GET stand behind instants, too.
const ZONES: [&str; 42] = [
    "WET", "WEST", "CET", "CEST", "MET", "MEST", "EET", "EEST", "MSK", "BST", "IST", "EST", "EDT",
    "CST", "CDT", "MST", "MDT", "PST", "PDT", "AKST", "AKDT", "HST", "AST", "ADT", "NST", "NDT",
    "BRT", "JST", "KST", "HKT", "SGT", "PKT", "SAST", "EAT", "WAT", "CAT", "AEST", "AEDT", "ACST",
    "AWST", "NZST", "NZDT",
];

/// The format in which most lines have an instant and a client, or in which the client is this named field.
pub(super) fn discover<'a>(
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    hints: Hints<'_>,
) -> Option<Fit> {
    let all = lines.clone().count();
    let mut best: Option<Fit> = None;
    for line in lines.clone().take(TEMPLATES_MAX) {
        let Some(fit) = of_line(line, lines.clone(), hints) else {
            continue;
        };
        let lines = fit.lines;
        if best.as_ref().is_none_or(|best| best.lines < lines) {
            best = Some(fit);
        }
        if all <= lines.saturating_mul(10) / 9 {
            break;
        }
    }
    best
}

/// The ways to read lines if one line shows the format of all.
fn of_line<'a>(
    line: &[u8],
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    hints: Hints<'_>,
) -> Option<Fit> {
    let fields = Fields::of(line)?;
    let time = fields.time(hints.instants)?;
    let mut fits: Vec<Fit> = Vec::new();
    for (piece, name) in fields.candidates(hints.client, hints.clients) {
        if time.fields.contains(&piece) {
            continue;
        }
        let pieces = fields.pieces.clone();
        let pattern = Pattern::with(
            pieces,
            &time.fields,
            time.is_yearless,
            piece,
            hints.instants,
        );
        let mut fit = Fit::new(LineReading {
            name: "fields".to_owned(),
            pattern,
            guessed: true,
        });
        for line in lines.clone() {
            fit.take(line, hints.client.is_some(), hints);
        }
        fit.is_named = CLIENTS.contains(&&*plain(name)) || FORWARDED.contains(&&*plain(name));
        fits.push(fit);
    }
    let most = fits
        .iter()
        .map(|fit| fit.lines)
        .max()
        .filter(|most| 0 < *most)?;
    fits.retain(|fit| most <= fit.lines.saturating_mul(10) / 9);
    let varied = fits.iter().map(|fit| fit.clients.len()).max().unwrap_or(0);
    // Prefer a field with a client's name; then one without proxies; then one that varies as much as any; then the
    // first.
    let rank = |fit: &Fit| {
        let varies = varied <= fit.clients.len().saturating_mul(2);
        (fit.is_named, 2 * fit.foreign >= fit.lines, varies)
    };
    let best = fits.iter().map(rank).max()?;
    fits.into_iter().find(|fit| rank(fit) == best)
}

/// What is missing in first lines that no format fits: all have addresses but no instant, or instants but no
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// An instant.
    Instant,
    /// The day, or the year, of an instant.
    Year,
    /// An address.
    Address,
}

/// What most of the first lines lack; `None` if that is not one thing.
pub(super) fn lacking<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    hints: Hints<'_>,
) -> Option<Lacking> {
    let (mut all, mut instants_found, mut yearless, mut addresses) = (0, 0, 0, 0);
    for line in lines {
        let Some(fields) = Fields::of(line) else {
            continue;
        };
        let time = fields.time(hints.instants);
        all += 1;
        yearless += usize::from(time.as_ref().is_some_and(|time| time.is_yearless));
        instants_found += usize::from(time.is_some());
        addresses += usize::from(!fields.candidates(None, hints.clients).is_empty());
    }
    let has = |count: usize| all < 2 * count;
    match (has(addresses), has(instants_found)) {
        (true, true) if has(yearless) => Some(Lacking::Year),
        (true, false) if instants_found == 0 => Some(Lacking::Instant),
        (false, true) if addresses == 0 => Some(Lacking::Address),
        _ => None,
    }
}

/// The names of a line's fields, each with its text.
pub(super) fn shown(line: &[u8]) -> Vec<String> {
    const SHOWN_MAX: usize = 24;
    const SHOWN_CHARS: usize = 24;
    let fields = Fields::of(line);
    let named = fields.iter().flat_map(|fields| {
        let pieces = fields.pieces.iter().zip(&fields.texts);
        pieces.filter_map(|(piece, text)| match piece {
            Piece::Field(name, _) => {
                let text: String = text.chars().take(SHOWN_CHARS).collect();
                Some(format!("{name} ({text:?})"))
            }
            Piece::Text(_) | Piece::Gap => None,
        })
    });
    named.take(SHOWN_MAX).collect()
}

/// The fields of a line that form its instant.
struct TimeFields {
    fields: Vec<usize>,
    /// It has no year.
    is_yearless: bool,
}

/// The pieces of a line, and the text of each piece that is a field.
struct Fields<'l> {
    pieces: Vec<Piece>,
    texts: Vec<&'l str>,
}

impl<'l> Fields<'l> {
    fn of(line: &'l [u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok()?;
        let mut fields = Self {
            pieces: Vec::new(),
            texts: Vec::new(),
        };
        let is_ltsv = line.contains('\t') && keyed(line, ':').is_some();
        let mut rest = line;
        let mut steps = 0..PIECES_MAX;
        while fields.pieces.len() < PIECES_MAX
            && steps.next().is_some()
            && let Some(first) = rest.chars().next()
        {
            rest = match first {
                ' ' | '\t' => {
                    fields.push(Piece::Gap, "");
                    rest.trim_start_matches([' ', '\t'])
                }
                '"' => fields.enclosed(rest, '"', '"'),
                '[' => fields.enclosed(rest, '[', ']'),
                '(' => fields.enclosed(rest, '(', ')'),
                '|' | ',' | ';' => {
                    fields.text(&rest[..1]);
                    &rest[1..]
                }
                _ if is_ltsv => fields.of_ltsv(rest),
                _ => fields.word(rest),
            };
        }
        Some(fields)
    }

    fn push(&mut self, piece: Piece, text: &'l str) {
        self.pieces.push(piece);
        self.texts.push(text);
    }

    fn text(&mut self, text: &'l str) {
        if let Some(Piece::Text(before)) = self.pieces.last_mut() {
            *before = [before, text.as_bytes()].concat().into();
        } else {
            self.push(Piece::Text(text.as_bytes().into()), "");
        }
    }

    fn field(&mut self, key: Option<&str>, text: &'l str) {
        let number = self
            .pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Field(..)));
        let name = match key {
            Some(key) => key.to_owned(),
            None => format!("field {}", number.count() + 1),
        };
        self.push(Piece::Field(name, None), text);
    }

    /// A field between two marks, or a mark without a closing one.
    fn enclosed(&mut self, rest: &'l str, open: char, close: char) -> &'l str {
        let inside = &rest[1..];
        let mut ends = inside.match_indices(close);
        let end = ends.find(|(at, _)| open != '"' || !inside[..*at].ends_with('\\'));
        self.text(&rest[..1]);
        let Some((end, _)) = end else {
            return inside;
        };
        if open == '[' && begins_with_instant(&inside[..end]) {
            return inside;
        }
        self.field(None, &inside[..end]);
        self.text(&inside[end..=end]);
        &inside[end + 1..]
    }

    /// Up to the next blank or mark; of `key=value` the key is literal text.
    fn word(&mut self, rest: &'l str) -> &'l str {
        let mut key = None;
        let mut value = rest;
        if let Some((name, behind)) = keyed(rest, '=') {
            self.text(&rest[..=name.len()]);
            key = Some(name);
            value = behind;
            if value.starts_with('"') {
                let behind = self.enclosed(value, '"', '"');
                self.name_last(name);
                return behind;
            }
        }
        let mut ends = value.match_indices([' ', '\t', '"', '|', ',', ';']);
        // 10:00:00,250 is one word, as Java and Python log it.
        let is_point = |at: usize, mark: &str| {
            let behind = value[at + 1..].bytes();
            let digits = behind.take_while(u8::is_ascii_digit).count();
            mark == "," && value[..at].contains(':') && digits == 3
        };
        let end = ends.find(|(at, mark)| !is_point(*at, mark));
        let end = end.map_or(value.len(), |(at, _)| at);
        self.field(key, &value[..end]);
        &value[end..]
    }

    /// Up to the next tab: `key:value`.
    fn of_ltsv(&mut self, rest: &'l str) -> &'l str {
        let end = rest.find('\t').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        match keyed(word, ':') {
            Some((name, value)) => {
                self.text(&word[..=name.len()]);
                self.field(Some(name), value);
            }
            None => self.field(None, word),
        }
        if !behind.is_empty() {
            self.text(&behind[..1]);
        }
        behind.get(1..).unwrap_or_default()
    }

    fn name_last(&mut self, key: &str) {
        let mut fields = self.pieces.iter_mut().rev();
        let last = fields.find_map(|piece| match piece {
            Piece::Field(name, _) => Some(name),
            Piece::Text(_) | Piece::Gap => None,
        });
        if let Some(name) = last {
            key.clone_into(name);
        }
    }

    /// The first field, or the first adjacent fields, that form an instant; or else a date without a year.
    fn time(&self, instants: &Instants) -> Option<TimeFields> {
        let is_field = |at: &usize| matches!(self.pieces.get(*at), Some(Piece::Field(..)));
        let places = || (0..self.pieces.len()).filter(is_field);
        let words = match &instants.pattern {
            Some(pattern) => pattern
                .split_ascii_whitespace()
                .count()
                .min(TIME_FIELDS_MAX),
            None => 3,
        };
        let find = |is: &dyn Fn(&str) -> bool| {
            places().find_map(|at| {
                let mut counts = (1..=words).rev();
                counts.find_map(|count| {
                    self.joined(at, count)
                        .filter(|of| is(&self.text_of(of)) && self.has_instant(of, instants))
                        .filter(|of| instants.pattern.is_some() || !self.has_zone_behind(of))
                })
            })
        };
        // Ten digits may be a number of another kind, such as a telephone's; where a unit is stated, they are not.
        let is_surely_one = |text: &str| match instants.are_stated() {
            true => !text.contains(':'),
            false => text.contains([':', '.']),
        };
        let found = find(&is_surely_one).or_else(|| find(&|_| true));
        if let Some(fields) = found {
            let is_yearless = false;
            return Some(TimeFields {
                fields,
                is_yearless,
            });
        }
        // Any year shows whether it is a date.
        let any = Timestamp::from_micros(1_455_944_445_000_000);
        let is_date = |of: &Vec<usize>| instant::in_newest_year(&self.text_of(of), any).is_some();
        let is_date = |of: &Vec<usize>| is_date(of) && !self.has_zone_behind(of);
        let dated = places().find_map(|at| self.joined(at, 3).filter(is_date));
        let fields = dated.filter(|_| !instants.are_stated())?;
        let is_yearless = true;
        Some(TimeFields {
            fields,
            is_yearless,
        })
    }

    /// `count` fields separated by blanks, beginning at `at`.
    fn joined(&self, at: usize, count: usize) -> Option<Vec<usize>> {
        let of: Vec<usize> = (0..count).map(|number| at + 2 * number).collect();
        let are_fields = of
            .iter()
            .all(|at| matches!(self.pieces.get(*at), Some(Piece::Field(..))));
        let are_apart = || of[1..].iter().all(|at| self.pieces[at - 1] == Piece::Gap);
        (are_fields && are_apart()).then_some(of)
    }

    fn text_of(&self, of: &[usize]) -> String {
        let texts: Vec<&str> = of.iter().map(|at| self.texts[*at]).collect();
        texts.join(" ")
    }

    /// Whether fields form an instant that may be a request's.
    fn has_instant(&self, of: &[usize], instants: &Instants) -> bool {
        let text = self.text_of(of);
        if instants.are_stated() {
            let at = instants.parse(&text);
            return at.is_some_and(|at| instants.pattern.is_some() || is_plausible(at));
        }
        let last = of.last().map_or("", |at| self.texts[*at]);
        // A date and its time of day, or an instant and its zone.
        let goes_on = last.contains(':')
            || last.starts_with(['+', '-']) && matches!(last.len(), 3 | 5)
            || matches!(last, "UTC" | "GMT" | "Z" | "AM" | "PM");
        let has_time = text.contains(':') || !text.contains(['-', '/']);
        // Ten digits: a smaller number is a size, or a port.
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let is_long = text.contains(':') || 10 <= digits;
        let is_possible = has_time && is_long && (of.len() == 1 || goes_on);
        is_possible && instant::parse(&text, TimeUnit::Auto).is_some_and(is_plausible)
    }

    /// Whether the name of a zone other than UTC follows a time of day: which instant it is depends on the day, or on the
    /// country.
    fn has_zone_behind(&self, of: &[usize]) -> bool {
        let Some(last) = of.last() else {
            return false;
        };
        let next = self.pieces.get(last + 1) == Some(&Piece::Gap);
        let next = self.texts.get(last + 2).filter(|_| next);
        let is_of_name = |c: char| c.is_ascii_alphanumeric();
        let name = next.map(|next| next.trim_end_matches(|c| !is_of_name(c)));
        self.texts[*last].contains(':') && name.is_some_and(|name| ZONES.contains(&name))
    }

    /// Fields that have an address, or a name that clients have.
    fn candidates(&self, client: Option<&str>, clients: &Clients) -> Vec<(usize, &str)> {
        let fields = self.pieces.iter().enumerate();
        let is_client = |(at, piece): (usize, &'_ Piece)| match (piece, client) {
            (Piece::Field(name, _), Some(client)) => name.eq_ignore_ascii_case(client),
            (Piece::Field(..), None) => {
                let named = clients.named(self.texts[at]);
                named.is_some_and(|named| super::clients::is_address(&named))
            }
            (Piece::Text(_) | Piece::Gap, _) => false,
        };
        let fields = fields.filter(|(at, piece)| is_client((*at, piece)));
        let named = fields.filter_map(|(at, piece)| match piece {
            Piece::Field(name, _) => Some((at, name.as_str())),
            Piece::Text(_) | Piece::Gap => None,
        });
        named.take(CANDIDATES_MAX).collect()
    }
}

/// Whether a text goes on after an instant, as in `[2025-11-20T10:00:00Z INFO actix_web]`.
fn begins_with_instant(text: &str) -> bool {
    let parse = |text: &str| instant::parse(text, TimeUnit::Auto).is_some_and(is_plausible);
    let mut blanks = text.match_indices(' ').map(|(at, _)| &text[..at]);
    text.contains(':')
        && !parse(text)
        && blanks
            .by_ref()
            .take(2)
            .any(|head| head.contains(':') && parse(head))
}

/// A word before a mark, and the text after the mark.
fn keyed(text: &str, mark: char) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(mark)?;
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(is_of_key);
    is_key.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_of_marks_only_the_first_are_examined() {
        for marks in ["[", "(", "|;", "[,", "(["] {
            let line = marks.repeat(4_096);
            let fields = Fields::of(line.as_bytes()).expect("text");
            let [Piece::Text(text)] = &fields.pieces[..] else {
                panic!("{marks}: {} pieces", fields.pieces.len());
            };
            assert!(text.len() <= PIECES_MAX, "{marks}: {}", text.len());
        }
    }
}
