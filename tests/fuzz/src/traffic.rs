//! Recorded traffic: access logs, CSV and JSON. A row is read the same whatever surrounds it; every line is a row
//! or counted as unreadable; memory stays that of a line.

use std::borrow::Cow;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

use tollgate_replay::traffic::rows::OpenedRows;
use tollgate_replay::traffic::{Clients, Columns, FileKind, Instants, Row, Rows, TimeUnit, Wanted};
use tollgate_shared::networks::AddressPrefixes;
use tollgate_shared::time::Timestamp;

use crate::{Memory, choice};

/// Up to 200 first lines are kept, each examined for every format; JSON keeps the first objects as values, in
/// which a member of four bytes is a node of a tree.
const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 512,
};

/// A row that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    at: Timestamp,
    resource: Option<String>,
    domain: Option<String>,
    copies: NonZeroU32,
    min: Option<NonZeroU32>,
}

impl Kept {
    fn of(row: Row<'_>) -> Self {
        Self {
            at: row.at,
            resource: row.resource.map(Cow::into_owned),
            domain: row.domain.map(Cow::into_owned),
            copies: row.copies,
            min: row.min,
        }
    }
}

/// The rows of a text, and how many lines were unreadable; `None` means that the text does not fit the stated
/// format.
fn read(reader: impl BufRead, wanted: &Wanted) -> Option<(Vec<Kept>, u64)> {
    let mut rows = match Rows::open(reader, wanted).expect("memory") {
        OpenedRows::Rows(rows) => rows,
        OpenedRows::NoColumns(line) => {
            assert!(!line.expected.is_empty());
            return None;
        }
        OpenedRows::Misfit(what) => {
            assert!(!what.is_empty());
            return None;
        }
    };
    let mut kept = Vec::new();
    let mut each = |row: Row<'_>| {
        assert!(row.min.is_none_or(|min| min <= row.copies));
        kept.push(Kept::of(row));
        Ok(())
    };
    rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
        .expect("memory");
    let lines = rows.lines();
    let counted = kept.len() as u64 + lines.skipped();
    assert_eq!(lines.rows(), counted, "each line is a row or unreadable");
    let shown = lines.unreadable();
    assert!(shown.len() as u64 <= lines.skipped());
    shown.iter().for_each(|line| assert!(0 < line.line));
    Some((kept, lines.skipped()))
}

/// Reads a text as a whole, within memory, and in pieces.
fn read_all_ways(text: &[u8], wanted: &Wanted) -> Option<Vec<Kept>> {
    let whole = MEMORY.holds(text.len(), || read(text, wanted));
    for piece in [1, 7] {
        let pieces = BufReader::with_capacity(piece, text);
        assert_eq!(read(pieces, wanted), whole, "pieces of {piece} bytes");
    }
    Some(whole?.0)
}

fn grouped() -> Clients {
    Clients::new(None, Some(AddressPrefixes { v4: 24, v6: 64 }))
}

const UNITS: [TimeUnit; 5] = [
    TimeUnit::Auto,
    TimeUnit::Seconds,
    TimeUnit::Millis,
    TimeUnit::Micros,
    TimeUnit::Nanos,
];

/// Formats by name and by pattern; the last pattern comes from the input.
const FORMS: [&str; 18] = [
    "",
    "combined",
    "common",
    "vhost_combined",
    "forwarded_first",
    "combined_forwarded",
    "alb",
    "elb",
    "haproxy",
    "nginx_proxy_manager",
    "envoy",
    "s3",
    "traefik",
    "w3c",
    "$msec \"$http_x_forwarded_for\" $remote_addr",
    "%v:%p %h %l %u %t \"%r\" %>s \"%{X-Forwarded-For}i\"",
    "%{%Y-%m-%d %H:%M:%S}t %a %D",
    "given",
];

/// `[format][how clients are identified][text…]`, where a format of 17 is followed by its length and pattern.
pub fn access_log(bytes: &[u8]) {
    let (form, bytes) = choice(bytes);
    let (options, mut text) = choice(bytes);
    let mut wanted = Wanted {
        kind: Some(FileKind::AccessLog),
        ..Wanted::default()
    };
    match FORMS[usize::from(form) % FORMS.len()] {
        "" => wanted.kind = None,
        "given" => {
            let (length, rest) = choice(text);
            let (pattern, rest) = rest.split_at(usize::from(length).min(rest.len()));
            wanted.form = Some(String::from_utf8_lossy(pattern).into_owned());
            text = rest;
        }
        form => wanted.form = Some(form.to_owned()),
    }
    if options & 1 != 0 {
        wanted.clients = grouped();
    }
    if options & 2 != 0 {
        wanted.client = Some("http_x_forwarded_for".to_owned());
    }
    let Some(rows) = read_all_ways(text, &wanted) else {
        return;
    };
    let is_stated = wanted.form.as_deref().is_some_and(|form| form != "w3c");
    if is_stated {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let alone = lines.filter_map(|line| read(line, &wanted));
        let alone: Vec<Kept> = alone.flat_map(|(rows, _)| rows).collect();
        assert_eq!(
            rows, alone,
            "a line says the same whatever stands before it"
        );
    }
}

/// A choice of statements about columns.
fn stated(kind: FileKind, choice: u8) -> Wanted {
    let mut wanted = Wanted {
        kind: (choice & 1 != 0).then_some(kind),
        instants: Instants {
            unit: UNITS[usize::from(choice >> 1 & 7) % UNITS.len()],
            pattern: None,
            changed: None,
        },
        ..Wanted::default()
    };
    let name = |name: &str| Some(name.to_owned());
    match choice >> 4 & 3 {
        1 => wanted.client = name("ip"),
        2 => {
            wanted.columns = Columns {
                t: name("when"),
                domain: name("who"),
                copies: name("n"),
                ..Columns::default()
            }
        }
        _ => {}
    }
    if choice & 0x40 != 0 {
        wanted.clients = grouped();
    }
    wanted
}

/// How to read rows written by `as_csv` and `as_json`.
fn of_ours(kind: FileKind) -> Wanted {
    Wanted {
        kind: Some(kind),
        instants: Instants {
            unit: TimeUnit::Micros,
            pattern: None,
            changed: None,
        },
        ..Wanted::default()
    }
}

/// `[statements][text…]`
pub fn csv(bytes: &[u8]) {
    let (choice, text) = choice(bytes);
    let Some(rows) = read_all_ways(text, &stated(FileKind::Csv, choice)) else {
        return;
    };
    // Quoted content is used as it is, except in an instant and counts; an empty name is a name.
    let wanted = of_ours(FileKind::Csv);
    let named = rows.into_iter().map(|row| Kept {
        resource: Some(row.resource.unwrap_or_default()),
        domain: Some(row.domain.unwrap_or_default()),
        ..row
    });
    let rows: Vec<Kept> = named.collect();
    let written = as_csv(&rows);
    let again = read(written.as_bytes(), &wanted).map(|(again, _)| again);
    assert_eq!(again.as_ref(), Some(&rows), "{written}");
}

fn as_csv(rows: &[Kept]) -> String {
    let quoted = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        format!("\"{}\"", text.replace('"', "\"\""))
    };
    let mut text = "t,resource,domain,copies,min\n".to_owned();
    for row in rows {
        let min = row.min.map_or(String::new(), |min| min.to_string());
        let (resource, domain) = (quoted(&row.resource), quoted(&row.domain));
        let (at, copies) = (row.at.as_micros(), row.copies);
        text += &format!("{at},{resource},{domain},{copies},{min}\n");
    }
    text
}

/// `[statements][text…]`
pub fn jsonl(bytes: &[u8]) {
    let (choice, text) = choice(bytes);
    let wanted = stated(FileKind::JsonLines, choice);
    let Some(rows) = read_all_ways(text, &wanted) else {
        return;
    };
    let wanted = of_ours(FileKind::JsonLines);
    let objects: Vec<String> = rows.iter().map(as_json).collect();
    for written in [objects.join("\n"), format!("[{}]", objects.join(",\n "))] {
        let again = read(written.as_bytes(), &wanted).map(|(again, _)| again);
        assert_eq!(again.as_ref(), Some(&rows), "{written}");
    }
}

fn as_json(row: &Kept) -> String {
    let mut object = serde_json::Map::new();
    object.insert("t".to_owned(), row.at.as_micros().into());
    let names = [("resource", &row.resource), ("domain", &row.domain)];
    for (member, name) in names {
        if let Some(name) = name {
            object.insert(member.to_owned(), name.as_str().into());
        }
    }
    object.insert("copies".to_owned(), row.copies.get().into());
    if let Some(min) = row.min {
        object.insert("min".to_owned(), min.get().into());
    }
    serde_json::Value::Object(object).to_string()
}

fn behind(mode: &[u8], text: &str) -> Vec<u8> {
    [mode, text.as_bytes()].concat()
}

/// A line of each format, guessed and stated.
pub fn access_log_seeds() -> Vec<Vec<u8>> {
    const DATE: &str = "[20/Feb/2016:05:00:45 +0000]";
    let rest = "\"GET /a HTTP/1.1\" 200 5 \"-\" \"curl \\\"7\\\"\"";
    let w3c = "#Software: IIS\n#Fields: date time cs-method c-ip\n2016-02-20 05:00:45 GET 203.0.113.7\n\
        #Fields: c-ip date time\n::1 2016-02-20 05:00:46\n";
    let lines = [
        (1, format!("203.0.113.7:51034 - bob {DATE} {rest}\n[2001:db8::1]:443 - - {DATE} {rest}")),
        (3, format!("www.example.com:443 203.0.113.7 - - {DATE} {rest}")),
        (4, format!("\"6.6.6.6, 203.0.113.7, 10.0.0.1\" - - {DATE} {rest}")),
        (5, format!("10.0.0.5 - - {DATE} {rest} \"203.0.113.7\"")),
        (6, "https 2018-07-02T22:23:00.186641Z app/a/5 203.0.113.7:2817 10.0.0.1:80 0.0".to_owned()),
        (8, "Feb  6 12:14:14 lb haproxy[14389]: 203.0.113.7:33317 [06/Feb/2009:12:14:14.655] in".to_owned()),
        (9, format!("{DATE} - 200 200 - GET https a.example \"/\" [Client 203.0.113.7] [Length 1]")),
        (10, "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"203.0.113.7\" \"ua\"".to_owned()),
        (11, format!("owner bucket {DATE} 203.0.113.7 requester")),
        (13, w3c.to_owned()),
        (14, "1455944445.250 \"203.0.113.7\" 10.0.0.5".to_owned()),
        (16, "2016-02-20 05:00:45 203.0.113.7 5".to_owned()),
    ];
    let mut seeds = vec![behind(
        &[17, 0, 19],
        "%h %t \"%{Referer}i\"203.0.113.7 [20/Feb/2016:05:00:45 +0000] \"-\"",
    )];
    for (form, line) in lines {
        seeds.push(behind(&[0, form % 4], &line));
        seeds.push(behind(&[form, 0], &line));
    }
    seeds
}

/// Headings of each separator, and rows without one.
pub fn csv_seeds() -> Vec<Vec<u8>> {
    vec![
        behind(
            &[0],
            "t,resource,domain,copies,min\n1455944445.25,api,\"globex, \"\"inc\"\"\",3,2\n# remark\n2016-02-20T05:00:46Z,api,acme,,\n",
        ),
        behind(&[1], "t;resource;domain;copies\n1;api;acme;3.0\n2;api;7;\n"),
        behind(&[0], "# t\tresource\tdomain\tcopies\n1\tapi\tacme\t3\n"),
        behind(
            &[0],
            "junk before it\n time | ip | copies\n1.4e9|203.0.113.7:80|3e2\n",
        ),
        behind(&[0], "1,api,acme,5,2\n2,api,acme,1,2\n"),
        behind(&[0x20], "who,n,when\nacme,2,20/Feb/2016:00:00:45 -0500\n"),
        behind(
            &[0x51],
            "ip,t\n\"6.6.6.6, 203.0.113.7\",Sat, 20 Feb 2016 05:00:45 GMT\n",
        ),
        behind(&[4], "t,domain\n1455944445250,10.0.0.7\n"),
    ]
}

/// Objects in lines and in arrays: Tollgate's own and those of proxies.
pub fn jsonl_seeds() -> Vec<Vec<u8>> {
    vec![
        behind(
            &[0],
            "{\"t\":1455944445.25,\"resource\":\"api\",\"domain\":\"acme\",\"copies\":3,\"min\":1}\n{\"t\":\"2016-02-20T05:00:45Z\",\"domain\":7}\n",
        ),
        behind(
            &[0],
            "[{\"t\":1,\"domain\":\"a\\u0001b\"},\n {\"t\":2.0,\n\"domain\":\"}{\",\"copies\":\"3.0\"}]",
        ),
        behind(
            &[1],
            "{\"ts\":1646861401.52,\"request\":{\"client_ip\":\"203.0.113.7\",\"headers\":{\"X-Forwarded-For\":[\"6.6.6.6\",\"203.0.113.7\"]}}}\n",
        ),
        behind(
            &[0],
            "{\"ClientHost\":\"203.0.113.7\",\"StartUTC\":\"2026-11-20T10:00:00.25Z\"}\n",
        ),
        behind(
            &[0],
            "{\"time_local\":\"20/Feb/2016:00:00:45 -0500\",\"remote_addr\":\"10.0.0.5\",\"http_x_forwarded_for\":\"203.0.113.7\",\"a\":\"\\x22\"}\n",
        ),
        behind(&[0x20], "{\"when\":1,\"who\":\"acme\",\"n\":2}\n"),
        behind(&[0x50], "{\"t\":1,\"ip\":\"2001:db8::7\"}\n"),
    ]
}
