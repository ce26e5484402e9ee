//! Rows of recorded traffic, whatever format a file has.
//!
//! The first lines show the format (`plan`): an object or an array of objects is JSON; a heading with a column of
//! instants, or an instant before a comma, is CSV; `#Fields:` is a W3C log; everything else is an access log, whose
//! format `forms` guesses.

use std::io::{self, BufRead};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

use super::clients::{Clients, is_address};
use super::dates::LastDate;
use super::forms::LineReading;
use super::instant::Instants;
use super::lines::{Lines, Split, Unreadable};
use super::names::text_of;
use super::peek::Peeked;
use super::plan::{Before, Parser, Plan, fits_as_it_is, plan};
use super::wrap::Wraps;
use super::{Columns, Row, csv, w3c};

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// One line per request, in one of many formats.
    AccessLog,
    /// Separated by commas, semicolons or tabs, mostly with a heading.
    Csv,
    /// JSON objects, one per line or in an array.
    JsonLines,
}

impl FileKind {
    /// Its name, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessLog => "access_log",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }
}

/// The user's statements about how to read; the rest is guessed from the first lines.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The kind of file.
    pub kind: Option<FileKind>,
    /// The format of an access log: its name, or a pattern.
    pub form: Option<String>,
    /// The field that is the client.
    pub client: Option<String>,
    /// The names of columns and members.
    pub columns: Columns,
    /// How instants are written.
    pub instants: Instants,
    /// How clients are identified and spelled.
    pub clients: Clients,
}

/// How a file is read, for a report.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileReading {
    /// The format: `combined`, `csv`, `jsonl`, …
    pub form: String,
    /// The field that is the client or domain, if it has a name.
    pub client: Option<String>,
    /// The user did not state the format.
    pub guessed: bool,
    /// Rows in which a header of forwarders named another client than the connection's, and was not believed, because
    /// the connection was not a trusted proxy's.
    pub disbelieved: u64,
    /// When the file was last changed, if its stamps have no year and take it from that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub years_by_change_us: Option<u64>,
    /// What to do if no field is known as the client.
    #[serde(skip)]
    pub lacks_client: Option<String>,
}

/// The rows of one file.
pub struct Rows<R> {
    lines: Lines<Peeked<R>>,
    parser: Parser,
    clients: Clients,
    client: Option<String>,
    instants: Instants,
    reading: FileReading,
    /// Lines to skip before the rows: remarks and a heading, and unreadable lines before it.
    before: Before,
}

/// The result of opening a text.
#[expect(clippy::large_enum_variant, reason = "there is one for a file")]
pub enum OpenedRows<R> {
    /// Rows.
    Rows(Rows<R>),
    /// It should be CSV, but cannot be read as CSV.
    NoColumns(Unreadable),
    /// The user's statements do not fit it.
    Misfit(String),
}

impl<R: BufRead> Rows<R> {
    /// Examines the first lines, and returns a reader for the stated format, or else for the format that they have.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    pub fn open(reader: R, wanted: &Wanted) -> io::Result<OpenedRows<R>> {
        let peeked = Peeked::new(reader);
        let mut head = peeked.head();
        // Lines end as on old Macintoshes, and as spreadsheets write for them.
        let is_of_mac = head.contains(&b'\r') && !head.contains(&b'\n');
        if is_of_mac {
            let newline = |byte: &u8| if *byte == b'\r' { b'\n' } else { *byte };
            head = head.iter().map(newline).collect();
        }
        let wraps = match fits_as_it_is(&head, wanted) {
            true => Wraps::default(),
            false => Wraps::of_first(&head),
        };
        if !wraps.is_empty() {
            head = wraps.all_inside(&head).into();
        }
        let plan = plan(&head, wanted);
        let mut lines = Lines::new(peeked);
        lines.wrapped_by(wraps);
        if is_of_mac {
            lines.end_by(b'\r');
        }
        let (parser, reading, before) = match plan {
            Plan::Parser(parser, reading, before) => {
                if let Parser::Csv(_) = parser {
                    lines.split_by(Split::Quoted);
                }
                (parser, reading, before)
            }
            Plan::Objects(parser, reading, split) => {
                lines.split_by(split);
                (parser, reading, Before::default())
            }
            Plan::Misfit(what) => return Ok(OpenedRows::Misfit(what)),
            Plan::NoColumns => {
                lines.advance()?;
                lines.refuse("a heading with a column t, or a row of t,resource,domain,copies");
                let first = lines.unreadable().first().cloned();
                return first
                    .map(OpenedRows::NoColumns)
                    .ok_or_else(|| io::Error::other("no line"));
            }
        };
        Ok(OpenedRows::Rows(Self {
            lines,
            parser,
            clients: wanted.clients.of_file(),
            client: wanted.client.clone(),
            instants: wanted.instants.clone(),
            reading,
            before,
        }))
    }

    /// The format of the text.
    pub const fn kind(&self) -> FileKind {
        match self.parser {
            Parser::Text(..) | Parser::Columns(..) => FileKind::AccessLog,
            Parser::Csv(_) => FileKind::Csv,
            Parser::Json(_) => FileKind::JsonLines,
        }
    }

    /// How it is read.
    pub fn reading(&self) -> &FileReading {
        &self.reading
    }

    /// How it was read, with the final counts.
    pub fn final_reading(&self) -> FileReading {
        let clients = match &self.parser {
            Parser::Json(json) => json.clients(),
            Parser::Text(..) | Parser::Columns(..) | Parser::Csv(_) => &self.clients,
        };
        FileReading {
            disbelieved: clients.disbelieved(),
            ..self.reading.clone()
        }
    }

    /// Passes the rows to `each`, which may end the reading, or refuse a row by returning what it expected.
    /// Unreadable rows are skipped and counted.
    ///
    /// # Errors
    ///
    /// Errors of reading, including faults of the compression.
    pub fn for_each(
        &mut self,
        each: &mut dyn FnMut(Row<'_>) -> Result<(), &'static str>,
        until: &mut dyn FnMut(&Lines<Peeked<R>>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.pass_before()?;
        while self.lines.advance()? {
            let line = self.lines.line();
            let row = match &mut self.parser {
                Parser::Text(read, last) => of_text(read, last, &self.clients, line).map(Some),
                Parser::Columns(read) => {
                    let stated = (self.client.as_deref(), &self.instants);
                    of_columns(read, stated, &self.clients, line)
                }
                Parser::Csv(csv) => csv.parse(line),
                Parser::Json(json) => json.parse(line).map(Some),
            };
            let taken = match row {
                Ok(Some(row)) => each(row),
                Ok(None) => {
                    self.lines.is_heading();
                    continue;
                }
                Err(expected) => Err(expected),
            };
            if let Err(expected) = taken {
                self.lines.refuse(expected);
            }
            if until(&self.lines).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Skips the lines before the rows.
    fn pass_before(&mut self) -> io::Result<()> {
        let Before { junk, heading } = std::mem::take(&mut self.before);
        for left in (0..junk + usize::from(heading)).rev() {
            if !self.lines.advance()? {
                break;
            }
            let is_heading = heading && left == 0;
            let is_remark = || csv::is_remark(&text_of(self.lines.line()));
            if is_heading || is_remark() {
                self.lines.is_heading();
            } else {
                self.lines.refuse("a heading");
            }
        }
        Ok(())
    }

    /// The lines with their counts.
    pub const fn lines(&self) -> &Lines<Peeked<R>> {
        &self.lines
    }
}

/// The row of an access log's line.
///
/// # Errors
///
/// What was expected.
fn of_text<'a>(
    read: &LineReading,
    last: &mut LastDate,
    clients: &Clients,
    line: &'a [u8],
) -> Result<Row<'a>, &'static str> {
    let found = read.pattern.find(line)?;
    let at = read.pattern.at(&found, last)?;
    let client = read
        .pattern
        .client_of(&found, clients)
        .ok_or("a client in UTF-8 that is not -")?;
    if read.guessed && is_of_virtual_host(&client) {
        return Err("a client, and no host with its port: the line has another form");
    }
    Ok(Row {
        at,
        resource: None,
        domain: Some(client),
        copies: NonZeroU32::MIN,
        min: None,
    })
}

/// Whether a text is a host with its port, as a log of virtual hosts has it before the client.
fn is_of_virtual_host(client: &str) -> bool {
    let Some((host, port)) = client.rsplit_once(':') else {
        return false;
    };
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_port && host.contains('.') && !is_address(client)
}

/// The same for a W3C log; `None` if the line is a directive.
fn of_columns<'a>(
    read: &mut Option<Box<LineReading>>,
    (client, instants): (Option<&str>, &Instants),
    clients: &Clients,
    line: &'a [u8],
) -> Result<Option<Row<'a>>, &'static str> {
    if line.starts_with(b"#") {
        return match w3c::directive(line, client, instants) {
            None => Ok(None),
            Some(named) => {
                *read = named.ok().map(Box::new);
                let known = read.as_ref().map(|_| None);
                known.ok_or("#Fields: with date, time and c-ip")
            }
        };
    }
    let read = read.as_ref().ok_or("#Fields: before the first row")?;
    of_text(read, &mut LastDate::default(), clients, line).map(Some)
}

#[cfg(test)]
mod tests;
