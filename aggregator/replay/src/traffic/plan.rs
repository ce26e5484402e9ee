//! How a text is to be read: as the user stated, or as its first lines show.
//!
//! Does not read the text. What stays true: the same head and statements give the same plan.

use serde_json::Value;

use tollgate_shared::time::Timestamp;

use super::csv::{Csv, First};
use super::dates::LastDate;
use super::forms::{self, Hints, LineReading};
use super::json::{self, Json};
use super::lines::{Lines, Split, bare};
use super::rows::{FileKind, FileReading, Wanted};
use super::{Columns, w3c};

/// Reads a row.
pub(super) enum Parser {
    Text(Box<LineReading>, LastDate),
    /// A W3C log, which names its columns itself.
    Columns(Option<Box<LineReading>>),
    Csv(Box<Csv>),
    Json(Box<Json>),
}

/// The lines before the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// How many lines are neither rows nor remarks: each counts as unreadable.
    pub junk: usize,
    /// A heading follows them.
    pub heading: bool,
}

/// How many lines of other content may precede a heading.
const BEFORE_HEADING_MAX: usize = 20;

/// How the first lines are to be read.
pub(super) enum Plan {
    Parser(Parser, FileReading, Before),
    /// JSON with objects that do not have a line each.
    Objects(Parser, FileReading, Split),
    NoColumns,
    Misfit(String),
}

/// A report's description of a format.
fn reading_of(read: &LineReading, wanted: &Wanted) -> FileReading {
    let changed = wanted.instants.changed.map(Timestamp::as_micros);
    FileReading {
        form: read.name.clone(),
        client: Some(read.pattern.client().to_owned()),
        guessed: read.guessed,
        disbelieved: 0,
        years_by_change_us: changed.filter(|_| read.pattern.is_yearless()),
        lacks_client: None,
    }
}

/// The first lines that are not blank, without leading bytes that do not belong to them. If the
/// text goes on, without the last line, which may be incomplete.
fn first_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let lines = head.split(|byte| *byte == b'\n').map(bare);
    lines.filter(|line: &&[u8]| !line.is_empty())
}

/// Whether most lines have the stated format, including whatever precedes their rows.
pub(super) fn fits_as_it_is(head: &[u8], wanted: &Wanted) -> bool {
    let lines = first_lines(head);
    let Some(form) = wanted.form.as_deref() else {
        return false;
    };
    let hints = Hints::of(wanted);
    let Ok(read) = forms::stated(form, lines.clone(), hints) else {
        return false;
    };
    let fits = |line: &&[u8]| {
        let found = read.pattern.find(line);
        found.is_ok_and(|found| read.pattern.at(&found, &mut LastDate::default()).is_ok())
    };
    lines.clone().count() < 2 * lines.filter(fits).count()
}

/// How a text is read, given its head and the user's statements.
pub(super) fn plan(head: &[u8], wanted: &Wanted) -> Plan {
    let lines = first_lines(head);
    let Some(first) = lines.clone().next() else {
        // After this many blank lines the rest is examined line by line.
        return plan_text(lines, &Wanted::default());
    };
    let start = first.trim_ascii_start();
    let is_json = start.starts_with(b"{") || is_array(head) || are_behind(lines.clone());
    let kind = match (&wanted.form, wanted.kind) {
        (Some(_), None) => Some(FileKind::AccessLog),
        (_, kind) => kind.or(is_json.then_some(FileKind::JsonLines)),
    };
    match kind {
        Some(FileKind::JsonLines) => plan_json(head, wanted),
        Some(FileKind::AccessLog) => plan_text(lines, wanted),
        Some(FileKind::Csv) => plan_csv(head, wanted).unwrap_or(Plan::NoColumns),
        None if is_w3c(lines.clone()) => plan_text(lines, wanted),
        None => plan_csv(head, wanted).unwrap_or_else(|| plan_text(lines, wanted)),
    }
}

/// Whether a text names its columns like a W3C log, and not with commas, as Exchange does.
fn is_w3c<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let named = lines.find(|line| line.starts_with(w3c::FIELDS.as_bytes()));
    named.is_some_and(|line| !line.contains(&b','))
}

/// Whether the rows of a text are in an array, so that its lines are not its rows.
pub(super) fn is_in_array(head: &[u8]) -> bool {
    is_array(head) || is_wrapped(head)
}

/// Whether a text begins like an array of objects.
fn is_array(head: &[u8]) -> bool {
    let inside = head.trim_ascii_start().strip_prefix(b"[");
    inside.is_some_and(|inside| inside.trim_ascii_start().starts_with(b"{"))
}

fn plan_text<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, wanted: &Wanted) -> Plan {
    if wanted.columns != Columns::default() {
        let what = "--column: an access log has none; --client and --log-format state where its fields are";
        return Plan::Misfit(what.to_owned());
    }
    let client = wanted.client.as_deref();
    let hints = Hints::of(wanted);
    let is_w3c = match wanted.form.as_deref() {
        Some(form) => form == "w3c",
        None => is_w3c(lines.clone()),
    };
    if is_w3c {
        let named = lines
            .clone()
            .find_map(|line| w3c::directive(line, client, &wanted.instants));
        return match named {
            Some(Err(fault)) => Plan::Misfit(format!("#Fields: {fault}")),
            Some(Ok(read)) => Plan::Parser(
                Parser::Columns(None),
                reading_of(&read, wanted),
                Before::default(),
            ),
            None => Plan::Misfit("no line #Fields: among the first".to_owned()),
        };
    }
    let read = match wanted.form.as_deref() {
        Some(form) => {
            forms::stated(form, lines, hints).map_err(|fault| format!("--log-format {fault}"))
        }
        None => forms::guess(lines, hints),
    };
    match read {
        Ok(read) => {
            let reading = reading_of(&read, wanted);
            Plan::Parser(
                Parser::Text(Box::new(read), LastDate::default()),
                reading,
                Before::default(),
            )
        }
        Err(fault) => Plan::Misfit(fault),
    }
}

fn plan_csv(head: &[u8], wanted: &Wanted) -> Option<Plan> {
    let client = wanted.client.as_deref();
    let reading = |csv: &Csv| FileReading {
        form: FileKind::Csv.name().to_owned(),
        client: csv.client().map(str::to_owned),
        guessed: wanted.kind.is_none(),
        disbelieved: 0,
        years_by_change_us: None,
        lacks_client: None,
    };
    let lines = quoted_rows(head);
    let first = lines.first().map(Vec::as_slice).unwrap_or_default();
    for (number, line) in lines.iter().enumerate() {
        match Csv::of_first_line(
            (line, lines.get(number + 1).map(Vec::as_slice)),
            &wanted.columns,
            client,
            &wanted.instants,
            &wanted.clients,
        ) {
            First::Heading(csv) => {
                let before = Before {
                    junk: number,
                    heading: true,
                };
                let mut reading = reading(&csv);
                if !csv.has_client() {
                    reading.lacks_client = Some(lacks_client(&csv.heading(line)));
                }
                return Some(Plan::Parser(Parser::Csv(Box::new(csv)), reading, before));
            }
            First::Lacks(what) => return Some(Plan::Misfit(what)),
            First::Row(csv) if 0 < number && csv.is_as_wide(first, line) => {
                return Some(Plan::Misfit(format!(
                    "line 1: expected a heading with a column t (or --column t=NAME), found {:?}",
                    String::from_utf8_lossy(first)
                )));
            }
            // Without a heading all lines are rows.
            First::Row(csv) => {
                let reading = reading(&csv);
                let parser = Parser::Csv(Box::new(csv));
                return Some(Plan::Parser(parser, reading, Before::default()));
            }
            First::Neither => {}
        }
    }
    None
}

fn lacks_client(fields: &str) -> String {
    format!(
        "no field is known as the client: --client FIELD (or --domain NAME for one client), expected one of {fields}"
    )
}

/// The first rows of a CSV, each over any number of lines.
fn quoted_rows(head: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Lines::new(head);
    lines.split_by(Split::Quoted);
    let mut rows = Vec::new();
    while rows.len() < BEFORE_HEADING_MAX && matches!(lines.advance(), Ok(true)) {
        rows.push(lines.line().to_vec());
    }
    rows
}

fn plan_json(head: &[u8], wanted: &Wanted) -> Plan {
    let lines = || first_lines(head);
    let are_behind = are_behind(lines());
    let of_lines: Vec<Value> = match are_behind {
        true => lines().map(json::behind).filter_map(json::object).collect(),
        false => lines().filter_map(json::object).collect(),
    };
    let split = match is_wrapped(head) {
        true => Split::Wrapped,
        false => Split::Objects,
    };
    let in_lines = !of_lines.is_empty() && !is_array(head) && split == Split::Objects;
    let objects = match in_lines {
        true => of_lines,
        false => objects(head, split),
    };
    let (columns, client) = (&wanted.columns, wanted.client.as_deref());
    let json = match Json::of_first(&objects, columns, client, &wanted.instants, &wanted.clients) {
        Ok(json) if are_behind => json.behind(),
        Ok(json) => json,
        Err(fault) => return Plan::Misfit(fault),
    };
    let reading = FileReading {
        form: FileKind::JsonLines.name().to_owned(),
        client: json.client().map(str::to_owned),
        guessed: wanted.kind.is_none(),
        disbelieved: 0,
        years_by_change_us: None,
        lacks_client: match json.client() {
            None if !objects.is_empty() => Some(lacks_client(&json::members(&objects))),
            _ => None,
        },
    };
    let parser = Parser::Json(Box::new(json));
    match in_lines || objects.is_empty() {
        true => Plan::Parser(parser, reading, Before::default()),
        false => Plan::Objects(parser, reading, split),
    }
}

/// Whether most lines have an object after other text, as syslog and similar programs write it.
fn are_behind<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut all, mut behind) = (0, 0);
    for line in lines {
        let object = json::behind(line);
        all += 1;
        let is_behind = object.len() < line.len() && object.first() == Some(&b'{');
        behind += usize::from(is_behind && json::object(object).is_some());
    }
    all < 2 * behind
}

/// Whether a text is an object with its rows in an array: {"records":[{…},{…}]}.
fn is_wrapped(head: &[u8]) -> bool {
    const MEMBERS: [&str; 10] = [
        "records", "logs", "entries", "events", "items", "data", "rows", "results", "value", "hits",
    ];
    let after = |text: &'_ [u8], byte: u8| -> Option<usize> {
        let blanks = text.len() - text.trim_ascii_start().len();
        (text.get(blanks) == Some(&byte)).then_some(blanks + 1)
    };
    let inside = || {
        let mut rest = &head[after(head, b'{')?..];
        rest = &rest[after(rest, b'"')?..];
        let name = rest.split(|byte| *byte == b'"').next()?;
        rest = rest.get(name.len() + 1..)?;
        rest = &rest[after(rest, b':')?..];
        rest = &rest[after(rest, b'[')?..];
        after(rest, b'{')?;
        let name = str::from_utf8(name).ok()?.to_ascii_lowercase();
        Some(MEMBERS.contains(&&*name))
    };
    inside() == Some(true)
}

/// The objects of a text, wherever its lines end.
fn objects(head: &[u8], split: Split) -> Vec<Value> {
    let mut lines = Lines::new(head);
    lines.split_by(split);
    let mut objects = Vec::new();
    while let Ok(true) = lines.advance() {
        // The head may end within an object, and objects that follow are parts of that one.
        if lines.is_cut() {
            break;
        }
        objects.extend(json::object(lines.line()));
    }
    objects
}
