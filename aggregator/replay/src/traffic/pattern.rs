//! A pattern of an access log's lines, in the syntax of nginx's `log_format` or of Apache's `LogFormat`.
//!
//! ```text
//! $remote_addr - $remote_user [$time_local] "$request" $status "$http_x_forwarded_for"
//! %v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"
//! ```
//!
//! A field ends where the text that follows it in the pattern is found; within quotes an escaped quote does not end
//! it. Text after the last wanted field is not checked. Does not know which field is the client. What stays true: a
//! line either has all wanted fields or is refused, with what was expected.

use std::borrow::Cow;

use tollgate_shared::time::Timestamp;

use super::clients::{Clients, Header};
use super::instant::{Instants, TimeUnit};
use super::times::{self, InstantFields, NamedKind, Times};

/// How many fields of one line can be wanted: a date of five words, and a client.
const WANTED_MAX: usize = 6;

/// How many fields a date may have.
pub(super) const TIME_FIELDS_MAX: usize = WANTED_MAX - 1;

/// A pattern, ready to read lines with.
#[derive(Clone, Debug)]
pub struct Pattern {
    pieces: Vec<Piece>,
    times: Times,
    /// The slots of the field in which proxies name their client, and of the field with the peer's address.
    forwarded: Option<usize>,
    peer: Option<usize>,
    header: Header,
    /// A field may be in quotes, and then contain the separator.
    quoted: bool,
    /// The peer's address always has its port after it.
    with_port: bool,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal text.
    Text(Box<[u8]>),
    /// Any number of blanks.
    Gap,
    /// A field, and its slot if it is wanted.
    Field(String, Option<usize>),
}

/// The wanted fields of a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    slots: [&'a [u8]; WANTED_MAX],
}

impl Pattern {
    /// A pattern in nginx's or Apache's syntax. Its client is the field `client`, or else a field that usually holds
    /// the client's address; `instants` says how instants are written.
    ///
    /// # Errors
    ///
    /// What is wrong with the pattern.
    pub fn new(text: &str, client: Option<&str>, instants: &Instants) -> Result<Self, String> {
        Self::of_pieces(super::words::pieces(text)?, client, instants)
    }

    /// A pattern whose instant is in these fields, with a year or without, and its client in another.
    pub(super) fn with(
        mut pieces: Vec<Piece>,
        time: &[usize],
        is_yearless: bool,
        client: usize,
        instants: &Instants,
    ) -> Self {
        let mut slots = 0;
        let mut want = |piece: usize| {
            let slot = slots;
            if let Some(Piece::Field(_, wanted)) = pieces.get_mut(piece) {
                *wanted = Some(slot);
            }
            slots += 1;
            slot
        };
        let slots_of_time: Vec<usize> = time.iter().map(|piece| want(*piece)).collect();
        let place = match (is_yearless, &*slots_of_time) {
            (true, _) => InstantFields::Yearless(slots_of_time),
            (false, [slot]) => InstantFields::Whole(*slot, TimeUnit::Auto),
            (false, _) => InstantFields::Joined(slots_of_time),
        };
        let times = Times::new(place, None, instants);
        // The field may be a list of forwarders, and has no peer beside it.
        let forwarded = Some(want(client));
        let mut pattern = Self {
            pieces,
            times,
            forwarded,
            peer: None,
            header: Header::List,
            quoted: false,
            with_port: false,
        };
        pattern.end_behind_last();
        pattern
    }

    /// The text after the last wanted field marks its end; nothing after that is checked.
    fn end_behind_last(&mut self) {
        let mut pieces = self.pieces.iter();
        let last = pieces.rposition(|piece| matches!(piece, Piece::Field(_, Some(_))));
        self.pieces.truncate(last.map_or(0, |last| last + 2));
    }

    /// A pattern for a file that names its columns, one after another.
    pub(super) fn of_columns(
        names: &[&str],
        separator: &Piece,
        client: Option<&str>,
        instants: &Instants,
    ) -> Result<Self, String> {
        let mut pieces = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if 0 < index {
                pieces.push(separator.clone());
            }
            pieces.push(Piece::Field((*name).to_owned(), None));
        }
        let mut pattern = Self::of_pieces(pieces, client, instants)?;
        pattern.quoted = true;
        Ok(pattern)
    }

    fn of_pieces(
        mut pieces: Vec<Piece>,
        client: Option<&str>,
        instants: &Instants,
    ) -> Result<Self, String> {
        let fields = |pieces: &[Piece]| -> Vec<String> {
            let fields = pieces.iter().filter_map(|piece| match piece {
                Piece::Field(name, _) => Some(name.clone()),
                Piece::Text(_) | Piece::Gap => None,
            });
            fields.collect()
        };
        let with_port = join_ports(&mut pieces, client);
        let names = fields(&pieces);
        expect_apart(&pieces)?;
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
        let named =
            times::named(&names).ok_or_else(|| NO_INSTANT.to_owned() + &names.join(", "))?;
        let mut of_time = named.fields.iter();
        let mut next = || of_time.next().and_then(|name| want(&mut pieces, name));
        let (first, second) = (next().unwrap_or_default(), next());
        let fraction = named.fraction.and_then(|name| want(&mut pieces, &name));
        let place = match (named.kind, second) {
            (NamedKind::Whole(unit), _) => InstantFields::Whole(first, unit),
            (NamedKind::By(pattern), _) => InstantFields::By(vec![first], pattern),
            (NamedKind::Parts, second) => InstantFields::Parts(first, second.unwrap_or_default()),
        };
        let times = Times::new(place, fraction, instants);
        let (forwarded, peer) = client_fields(client, &names)?;
        let peer_name = peer.clone();
        let header = Header::of(forwarded.as_deref().unwrap_or_default());
        let mut slot = |name: Option<String>| name.and_then(|name| want(&mut pieces, &name));
        let (forwarded, peer) = (slot(forwarded), slot(peer));
        let with_port =
            peer_name.is_some_and(|name| name == WITH_PORT || with_port.contains(&name));
        let mut pattern = Self {
            pieces,
            times,
            forwarded,
            peer,
            header,
            quoted: false,
            with_port,
        };
        pattern.end_behind_last();
        Ok(pattern)
    }

    /// Whether there is a field in which proxies name their client, and one with the peer.
    pub(super) const fn has_forwarded_and_peer(&self) -> bool {
        self.forwarded.is_some() && self.peer.is_some()
    }

    /// The field that is the client.
    pub fn client(&self) -> &str {
        let slot = self.forwarded.or(self.peer);
        let name = self.pieces.iter().find_map(|piece| match piece {
            Piece::Field(name, wanted) if *wanted == slot => Some(name.as_str()),
            _ => None,
        });
        match name {
            Some(WITH_PORT) => PEERS[0],
            name => name.unwrap_or_default(),
        }
    }

    /// The wanted fields of a line.
    ///
    /// # Errors
    ///
    /// What was expected.
    pub fn find<'a>(&self, line: &'a [u8]) -> Result<Found<'a>, &'static str> {
        let mut found = Found::default();
        let mut at = 0;
        let mut pieces = self.pieces.iter().peekable();
        let mut before = 0;
        while let Some(piece) = pieces.next() {
            let rest = line.get(at..).unwrap_or_default();
            match piece {
                Piece::Text(text) => {
                    // Text after a field was found when the field's end was searched.
                    if !rest.starts_with(text) {
                        return Err(EXPECTED);
                    }
                    at += text.len();
                    before = text.last().copied().unwrap_or(0);
                }
                Piece::Gap => match rest.iter().take_while(|byte| is_blank(byte)).count() {
                    0 => return Err(EXPECTED),
                    blanks => {
                        at += blanks;
                        before = b' ';
                    }
                },
                Piece::Field(_, slot) => {
                    let (from, end, passed) = self
                        .field(rest, pieces.peek().copied(), before, self.is_list(*slot))
                        .or_else(|| self.ends_line(rest, pieces.clone(), *slot))
                        .ok_or(EXPECTED)?;
                    if let Some(slot) = slot {
                        found.slots[*slot] = &rest[from..end];
                    }
                    at += passed;
                    if pieces.len() == 1 {
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The beginning and end of a field, and where the following piece begins.
    fn field(
        &self,
        rest: &[u8],
        next: Option<&Piece>,
        before: u8,
        is_list: bool,
    ) -> Option<(usize, usize, usize)> {
        let until = |rest: &[u8], quoted: bool| match next {
            Some(Piece::Text(next)) => end_of(rest, next, quoted && next.first() == Some(&b'"')),
            Some(Piece::Gap) => rest.iter().position(is_blank),
            Some(Piece::Field(..)) | None => Some(rest.len()),
        };
        if let (true, Some(inside)) = (self.quoted, rest.strip_prefix(b"\"")) {
            let end = end_of(inside, b"\"", true)?;
            let behind = until(&inside[end + 1..], false)?;
            return Some((1, 1 + end, 2 + end + behind));
        }
        let mut end = until(rest, before == b'"')?;
        // A list of forwarders goes on after a comma and blanks.
        while is_list && rest[..end].ends_with(b",") {
            let blanks = rest[end..].iter().take_while(|byte| is_blank(byte)).count();
            if blanks == 0 {
                break;
            }
            end += blanks + until(&rest[end + blanks..], false)?;
        }
        Some((0, end, end))
    }

    /// Whether the field of this slot may be a list of forwarders.
    fn is_list(&self, slot: Option<usize>) -> bool {
        slot.is_some() && (slot == self.forwarded || slot == self.peer)
    }

    /// The last field may end with its line, unless the line is cut: within quotes, brackets, or an address with its port.
    fn ends_line<'p>(
        &self,
        rest: &[u8],
        mut behind: impl ExactSizeIterator<Item = &'p Piece>,
        slot: Option<usize>,
    ) -> Option<(usize, usize, usize)> {
        let is_last = behind.len() == 1;
        let is_open = match behind.next() {
            Some(Piece::Text(text)) => text.first().is_some_and(|byte| b"\"'])}>".contains(byte)),
            _ => false,
        };
        let lacks_port = self.with_port && slot == self.peer && !rest.contains(&b':');
        (is_last && !is_open && !lacks_port).then_some((0, rest.len(), rest.len()))
    }

    /// The client that proxies name, and the peer.
    pub fn clients<'a>(&self, found: &Found<'a>) -> (Option<&'a str>, Option<&'a str>) {
        let text = |slot: Option<usize>| str::from_utf8(found.slots[slot?]).ok();
        let peer = text(self.peer);
        let peer = match peer.and_then(|peer| peer.rsplit_once(':')) {
            // An IPv6 address may be followed by its port without brackets.
            Some((address, _)) if self.with_port => Some(address),
            _ => peer,
        };
        (text(self.forwarded), peer)
    }

    /// The client of a line.
    pub(super) fn client_of<'a>(
        &self,
        found: &Found<'a>,
        clients: &Clients,
    ) -> Option<Cow<'a, str>> {
        let (forwarded, peer) = self.clients(found);
        clients.of(self.header, forwarded, peer)
    }

    /// The instant of a line; `date` caches the date read last.
    pub(super) fn at(
        &self,
        found: &Found<'_>,
        date: &mut super::dates::LastDate,
    ) -> Result<Timestamp, &'static str> {
        self.times.read(&found.slots, date)
    }

    /// Whether instants have no year.
    pub(super) const fn is_yearless(&self) -> bool {
        self.times.are_yearless()
    }
}

const NO_INSTANT: &str = "no instant: expected $time_local, $time_iso8601, $msec or %t, found ";

const NO_CLIENT: &str = "no client: expected $remote_addr, $http_x_forwarded_for, %h or a field that --client names, found ";

const EXPECTED: &str =
    "a line of the form that the file has: client, instant and what stands between";

/// Fields in which proxies name their client: single clients before lists.
const FORWARDED: &[&str] = &[
    "http_cf_connecting_ip",
    "http_true_client_ip",
    "http_fastly_client_ip",
    "http_x_forwarded_for",
    "x-forwarded-for",
    "proxy_add_x_forwarded_for",
    "http_forwarded",
    "http_x_real_ip",
    "http_x_client_ip",
    "proxy_protocol_addr",
];

/// Fields with the address of the peer.
const PEERS: &[&str] = &[
    "remote_addr",
    "%h",
    "%a",
    "c-ip",
    "%{c}a",
    "realip_remote_addr",
];

/// The peer's address followed by a colon and its port, in formats that always have the port.
const WITH_PORT: &str = "remote_addr_port";

/// Merges each field with the peer's address, a colon and its port into one field, since the address may have colons
/// itself. Returns the names of these fields; one whose port is the client stays as it is.
fn join_ports(pieces: &mut Vec<Piece>, client: Option<&str>) -> Vec<String> {
    let is_port = |name: &str| name.ends_with("_port") || name == "%p" || name.ends_with("}p");
    let is_client = |name: &str| client.is_some_and(|client| same_field(client, name));
    let is_peer = |name: &str| PEERS.iter().any(|peer| same_field(peer, name));
    let mut joined = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        if let Some(
            [
                Piece::Field(address, _),
                Piece::Text(colon),
                Piece::Field(port, _),
            ],
        ) = pieces.get(at..at + 3)
            && is_peer(address)
            && **colon == *b":"
            && is_port(port)
            && !is_client(port)
        {
            joined.push(address.clone());
            pieces.drain(at + 1..at + 3);
        }
        at += 1;
    }
    joined
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// An error that names two fields without separator between them.
fn expect_apart(pieces: &[Piece]) -> Result<(), String> {
    let adjacent = pieces.windows(2).find_map(|two| match two {
        [Piece::Field(one, _), Piece::Field(other, _)] => Some((one, other)),
        _ => None,
    });
    if let Some((one, other)) = adjacent {
        return Err(format!(
            "{one} and {other} are adjacent, so the end of the first is ambiguous"
        ));
    }
    Ok(())
}

/// The field in which proxies name their client, and the one with the peer; or of both the one that is named.
fn client_fields(
    client: Option<&str>,
    names: &[String],
) -> Result<(Option<String>, Option<String>), String> {
    let known = |wanted: &[&str]| {
        let find = |one: &&str| names.iter().find(|name| same_field(one, name));
        wanted.iter().find_map(find).cloned()
    };
    let fields = match client {
        Some(client) => {
            let name = known(&[client]).ok_or_else(|| {
                format!("no field {client}: expected one of {}", names.join(", "))
            })?;
            // A header that proxies write is a list, also if the user names it.
            match FORWARDED.iter().any(|header| same_field(header, &name)) {
                true => (Some(name), None),
                false => (None, Some(name)),
            }
        }
        None => (known(FORWARDED), known(PEERS)),
    };
    match fields {
        (None, None) => Err(NO_CLIENT.to_owned() + &names.join(", ")),
        fields => Ok(fields),
    }
}

/// Whether two names mean the same field, such as `$http_x_forwarded_for` and `%{X-Forwarded-For}i`.
fn same_field(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        let text = text.trim_start_matches('$');
        let header = text
            .strip_prefix("%{")
            .and_then(|text| text.strip_suffix("}i"));
        match header {
            Some(header) => format!("http_{}", header.to_ascii_lowercase().replace('-', "_")),
            None if text == WITH_PORT => PEERS[0].to_owned(),
            None => text.to_ascii_lowercase(),
        }
    };
    plain(one) == plain(other)
}

/// The end of a field: where the text that follows it begins.
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
        // At the end of a line, the text after the field may be shorter than in the pattern.
        if !escaped && quoted && next.starts_with(&rest[at..]) {
            return Some(at);
        }
        from = at + 1;
    }
}
