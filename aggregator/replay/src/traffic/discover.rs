//! The form of lines that no form with a name fits: fields are told by what stands between them, and of those that
//! have an instant and an address, which is what.
//!
//! ```text
//! 1763632800.250     87 203.0.113.7 TCP_MISS/200 1182 GET …            field 1, field 3 (Squid)
//! Nov 20 10:00:00 web1 nginx: 203.0.113.7 - - [20/Nov/2025:10:00:00 +0000] "GET …      behind syslog's head
//! time:20/Nov/2025:10:00:00 +0000<TAB>host:203.0.113.7<TAB>req:GET …    time, host (LTSV)
//! time=2025-11-20T10:00:00Z level=info remote_addr=203.0.113.7:51034    time, remote_addr (logfmt)
//! ```
//!
//! Knows nothing of files. What stays true: the same lines are told alike, and a line is read only if it has the
//! pieces of the one that was taken for the form.

use super::clients::Clients;
use super::forms::{Fit, Read, is_plausible};
use super::instant::{self, TimeUnit};
use super::names::{CLIENTS, FORWARDED, plain};
use super::pattern::{Pattern, Piece};

/// Lines that are tried as the form of all: those before may be what a program says when it starts.
const TEMPLATES_MAX: usize = 8;

/// Fields of a line that are looked at.
const FIELDS_MAX: usize = 64;

/// Fields with an address that are tried.
const CANDIDATES_MAX: usize = 6;

/// The form in which most lines have an instant and a client, or this field of a name.
pub(super) fn discover<'a>(
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    client: Option<&str>,
    clients: &Clients,
) -> Option<Fit> {
    let all = lines.clone().count();
    let mut best: Option<Fit> = None;
    for line in lines.clone().take(TEMPLATES_MAX) {
        let Some(fit) = of_line(line, lines.clone(), client, clients) else {
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

/// How lines are read whose form is that of one of them.
fn of_line<'a>(
    line: &[u8],
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    client: Option<&str>,
    clients: &Clients,
) -> Option<Fit> {
    let fields = Fields::of(line)?;
    let time = fields.time()?;
    let mut fits: Vec<Fit> = Vec::new();
    for (piece, name) in fields.candidates(client, clients) {
        if piece == time.0 || Some(piece) == time.1 {
            continue;
        }
        let pattern = Pattern::with(fields.pieces.clone(), time, piece);
        let mut fit = Fit::new(Read {
            name: "fields".to_owned(),
            pattern,
            guessed: true,
        });
        for line in lines.clone() {
            fit.take(line, client.is_some(), clients);
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
    // One that is called so; or of no proxy; or that varies as much as any; or the first.
    let rank = |fit: &Fit| {
        let varies = varied <= fit.clients.len().saturating_mul(2);
        (fit.is_named, 2 * fit.foreign >= fit.lines, varies)
    };
    let best = fits.iter().map(rank).max()?;
    fits.into_iter().find(|fit| rank(fit) == best)
}

/// The pieces of a line, and the text of each that is a field.
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
        while let Some(first) = rest.chars().next() {
            if FIELDS_MAX * 3 <= fields.pieces.len() {
                break;
            }
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

    /// A field between two marks, or a mark that nothing closes.
    fn enclosed(&mut self, rest: &'l str, open: char, close: char) -> &'l str {
        let inside = &rest[1..];
        let mut ends = inside.match_indices(close);
        let end = ends.find(|(at, _)| open != '"' || !inside[..*at].ends_with('\\'));
        self.text(&rest[..1]);
        let Some((end, _)) = end else {
            return inside;
        };
        self.field(None, &inside[..end]);
        self.text(&inside[end..=end]);
        &inside[end + 1..]
    }

    /// To the next blank or mark; of `key=value` the key is text.
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
        let end = value
            .find([' ', '\t', '"', '|', ',', ';'])
            .unwrap_or(value.len());
        self.field(key, &value[..end]);
        &value[end..]
    }

    /// To the next tab: `key:value`.
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

    /// The first field, or the first two together, that have an instant.
    fn time(&self) -> Option<(usize, Option<usize>)> {
        let instant = |text: &str| {
            let is_number = !text.contains(':');
            let at = instant::parse(text, TimeUnit::Auto)?;
            // Ten digits: a smaller number is a size, or a port.
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (is_plausible(at) && (!is_number || 10 <= digits)).then_some(())
        };
        let is_field = |at: usize| matches!(self.pieces.get(at), Some(Piece::Field(..)));
        let mut places = (0..self.pieces.len()).filter(|at| is_field(*at));
        places.find_map(|at| {
            let text = self.texts[at];
            let is_next = is_field(at + 2) && self.pieces[at + 1] == Piece::Gap;
            let next = if is_next { self.texts[at + 2] } else { "" };
            // A date and its time of day, or an instant and its zone.
            let goes_on = next.contains(':') || next.starts_with(['+', '-']) && next.len() == 5;
            if goes_on && instant(&format!("{text} {next}")).is_some() {
                return Some((at, Some(at + 2)));
            }
            let has_time = text.contains(':') || !text.contains(['-', '/']);
            (has_time && instant(text).is_some()).then_some((at, None))
        })
    }

    /// Fields that have an address, or that are called as the client is.
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

/// A word before a mark, and what stands behind that.
fn keyed(text: &str, mark: char) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(mark)?;
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(is_of_key);
    is_key.then_some((key, value))
}
