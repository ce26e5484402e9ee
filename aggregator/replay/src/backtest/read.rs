//! Reads files of recorded traffic onto a tape.
//!
//! Knows file formats only as rows. What stays true: an unusable row is counted as skipped, with its line, and
//! nothing of it reaches the tape; a file that ends too early is an error, and so is a recording without rows.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use tollgate_shared::names::{admit_domain, check_name};
use tollgate_shared::time::Timestamp;

use super::ahead;
use super::pairs::Pairs;
use super::tape::{Call, CallKind, PlayOrder, Recorder, Tape};
use crate::traffic::rows::OpenedRows;
use crate::traffic::{self, FileKind, FileReading, Instants, Row, Rows, Unreadable, Wanted};

/// How rows are read.
#[derive(Clone, Debug)]
pub struct RowReading {
    /// The resource of rows that name no resource.
    pub resource: String,
    /// The only resource to read; `None`: all.
    pub only_resource: Option<String>,
    /// The only domain to read, and the domain of rows that name none; `None`: all, and rows without a domain are
    /// skipped.
    pub only_domain: Option<String>,
    /// What the user states about the files' format; each file has its own kind.
    pub wanted: Wanted,
    /// Whether calls stamped in whole seconds are spread over them.
    pub spread: bool,
    /// The min of rows that state none; `None`: all their copies.
    pub min: Option<NonZeroU32>,
    /// The order of calls.
    pub order: PlayOrder,
    /// Whether to end at the first row that cannot be read.
    pub strict: bool,
    /// Reads calls stamped from the first instant on and before the second; `None`: no bound on that side.
    pub stamps: (Option<Timestamp>, Option<Timestamp>),
}

impl RowReading {
    /// Whether calls on a pair are read.
    pub fn takes(&self, resource: &str, domain: &str) -> bool {
        let is =
            |only: &Option<String>, name: &str| only.as_deref().is_none_or(|only| only == name);
        is(&self.only_resource, resource) && is(&self.only_domain, domain)
    }
}

/// One file to read.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its path; `-` is stdin.
    pub path: PathBuf,
    /// Its name in reports.
    pub name: String,
    /// Its format; `None`: detected from its first line.
    pub kind: Option<FileKind>,
}

/// A row that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The file.
    pub input: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What was expected.
    pub expected: &'static str,
    /// The beginning of the line.
    pub found: String,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct ReadCounts {
    /// Rows, including skipped ones; of a log: calls.
    pub rows: u64,
    /// Rows that could not be used.
    pub skipped: u64,
    /// Rows of resources or domains that were not asked for.
    pub passed_over: u64,
    /// Rows stamped outside the range that was asked for.
    pub out_of_range: u64,
    /// The first skipped rows.
    pub shown: Vec<Skipped>,
    /// The kinds of the files.
    pub kinds: Vec<FileKind>,
    /// How each file is read.
    pub readings: Vec<FileReading>,
    /// Files without rows.
    pub empty: Vec<String>,
}

/// A recording, ready to be played.
#[derive(Debug)]
pub struct Recording {
    /// Names.
    pub pairs: Pairs,
    /// Calls.
    pub tape: Tape,
    /// What was read.
    pub counts: ReadCounts,
}

/// Why reading yields no recording.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// A file is missing or cannot be opened.
    #[error("{name}: {source}")]
    Open {
        /// The file.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// Reading failed within a file.
    #[error("{name}: line {line}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The line at which it failed.
        line: u64,
        /// The error.
        source: io::Error,
    },
    /// A compressed file is damaged or cut off.
    #[error("{name}: damaged or cut off after line {line}: {source}")]
    Damaged {
        /// The file.
        name: String,
        /// The last line that could be read.
        line: u64,
        /// The decompressor's error.
        source: io::Error,
    },
    /// The temporary file failed.
    #[error("temporary file: {0}")]
    Temporary(io::Error),
    /// A row is unreadable, and the caller asked for an error in that case.
    #[error("{}: line {}: expected {}, found {:?}", .0.input, .0.line, .0.expected, .0.found)]
    Row(Skipped),
    /// No row of a file could be read.
    #[error("{}: none of {rows} rows can be read; line {}: expected {}, found {:?}", .first.input, .first.line, .first.expected, .first.found)]
    Nothing {
        /// How many rows there are.
        rows: u64,
        /// The first of them.
        first: Skipped,
    },
    /// What the user stated about a file does not fit it.
    #[error("{name}: {what}")]
    Misfit {
        /// The file.
        name: String,
        /// What does not fit, and what would.
        what: String,
    },
    /// No file has rows.
    #[error("{name}: no rows, expected an access log, CSV or JSON Lines")]
    Empty {
        /// The first file.
        name: String,
    },
}

/// Reads all files, one after another; `progress` receives the number of rows.
///
/// # Errors
///
/// [`ReadFault`].
pub fn read(
    inputs: &[Input],
    reading: &RowReading,
    progress: &dyn Fn(u64),
) -> Result<Recording, ReadFault> {
    let mut reader = RowReader {
        reading,
        pairs: Pairs::default(),
        recorder: Recorder::new(reading.order).spread(reading.spread),
        counts: ReadCounts::default(),
    };
    for input in inputs {
        reader.file(input, progress)?;
    }
    if let (0, Some(name)) = (reader.counts.rows, reader.counts.empty.first()) {
        let name = name.clone();
        return Err(ReadFault::Empty { name });
    }
    Ok(Recording {
        pairs: reader.pairs,
        tape: reader.recorder.wind(),
        counts: reader.counts,
    })
}

struct RowReader<'a> {
    reading: &'a RowReading,
    pairs: Pairs,
    recorder: Recorder,
    counts: ReadCounts,
}

/// How many rows lie between two calls of `progress`.
const PROGRESS_ROWS: u64 = 1 << 16;

impl RowReader<'_> {
    fn file(&mut self, input: &Input, progress: &dyn Fn(u64)) -> Result<(), ReadFault> {
        let name = || input.name.clone();
        let reading = self.reading;
        let reader =
            traffic::open(&input.path).map_err(|source| opening(&input.path, name(), source))?;
        let wanted = Wanted {
            kind: input.kind,
            instants: Instants {
                changed: changed(&input.path),
                ..reading.wanted.instants.clone()
            },
            ..reading.wanted.clone()
        };
        let opened = Rows::open(reader, &wanted).map_err(|source| under_way(name(), 1, source))?;
        self.recorder.begin_file().map_err(ReadFault::Temporary)?;
        let mut rows = match opened {
            OpenedRows::Misfit(what) => return Err(ReadFault::Misfit { name: name(), what }),
            OpenedRows::Rows(rows) => match (&rows.reading().lacks_client, &reading.only_domain) {
                (Some(what), None) => {
                    let (name, what) = (name(), what.clone());
                    return Err(ReadFault::Misfit { name, what });
                }
                _ => rows,
            },
            OpenedRows::NoColumns(first) => return Err(ReadFault::Row(skipped(input, first))),
        };
        let mut temporary = None;
        let read = match rows.kind() {
            FileKind::AccessLog => self.ahead(&mut rows, progress, &mut temporary),
            FileKind::Csv | FileKind::JsonLines => {
                self.in_line(&mut rows, progress, &mut temporary)
            }
        };
        if let Some(error) = temporary {
            return Err(ReadFault::Temporary(error));
        }
        let lines = rows.lines();
        read.map_err(|source| under_way(name(), lines.number(), source))?;
        let mut shown = lines.unreadable().iter().cloned();
        let mut shown = shown.by_ref().map(|bad| skipped(input, bad)).peekable();
        if let Some(first) = shown.peek() {
            if reading.strict {
                return Err(ReadFault::Row(first.clone()));
            }
            if lines.skipped() == lines.rows() {
                return Err(ReadFault::Nothing {
                    rows: lines.rows(),
                    first: first.clone(),
                });
            }
        }
        if lines.rows() == 0 {
            self.counts.empty.push(name());
            return Ok(());
        }
        self.counts.rows += lines.rows();
        self.counts.skipped += lines.skipped();
        let room = SHOWN_MAX - self.counts.shown.len();
        self.counts.shown.extend(shown.take(room));
        self.counts.kinds.push(rows.kind());
        self.counts.readings.push(rows.final_reading());
        Ok(())
    }

    /// Reads on a thread of its own, since reading takes most of the time.
    fn ahead<R: BufRead + Send>(
        &mut self,
        rows: &mut Rows<R>,
        progress: &dyn Fn(u64),
        temporary: &mut Option<io::Error>,
    ) -> io::Result<()> {
        let mut given = 0u64;
        ahead::for_each(rows, self.reading.strict, &mut |at, client| {
            given += 1;
            if given.is_multiple_of(PROGRESS_ROWS) {
                progress(PROGRESS_ROWS);
            }
            let row = Row {
                at,
                resource: None,
                domain: Some(Cow::Borrowed(client)),
                copies: NonZeroU32::MIN,
                min: None,
            };
            // No step refuses a row with a domain and without a resource.
            let recorded = match self.call(&row) {
                Ok(Some(call)) => self.recorder.push(call),
                Ok(None) => self.recorder.pass_over(row.at),
                Err(_) => Ok(()),
            };
            match recorded {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    *temporary = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    }

    /// Reads row by row: a later step may refuse a row, and that is reported with the row's line.
    fn in_line<R: BufRead>(
        &mut self,
        rows: &mut Rows<R>,
        progress: &dyn Fn(u64),
        temporary: &mut Option<io::Error>,
    ) -> io::Result<()> {
        let strict = self.reading.strict;
        let failed = std::cell::Cell::new(false);
        rows.for_each(
            &mut |row| {
                let recorded = match self.call(&row)? {
                    Some(call) => self.recorder.push(call),
                    None => self.recorder.pass_over(row.at),
                };
                if let Err(error) = recorded {
                    failed.set(true);
                    temporary.get_or_insert(error);
                }
                Ok(())
            },
            &mut |lines| {
                if lines.rows().is_multiple_of(PROGRESS_ROWS) {
                    progress(PROGRESS_ROWS);
                }
                match failed.get() || (strict && 0 < lines.skipped()) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        )
    }

    /// The call of a row; `None` if it is not to be read.
    fn call(&mut self, row: &Row<'_>) -> Result<Option<Call>, &'static str> {
        let reading = self.reading;
        let resource = match row.resource.as_deref() {
            Some(resource) => {
                check_name(resource)
                    .map_err(|_| "a resource of 1 to 256 bytes without * and control characters")?;
                resource
            }
            None => &reading.resource,
        };
        let domain = match (row.domain.as_deref(), &reading.only_domain) {
            (Some(domain), _) => domain,
            (None, Some(domain)) => domain,
            (None, None) => return Err("a domain (or --domain for rows that name none)"),
        };
        // As an agent does: no name evades the limits.
        let domain = admit_domain(domain);
        if !reading.takes(resource, &domain) {
            self.counts.passed_over += 1;
            return Ok(None);
        }
        let (from, to) = reading.stamps;
        if from.is_some_and(|from| row.at < from) || to.is_some_and(|to| to <= row.at) {
            self.counts.out_of_range += 1;
            return Ok(None);
        }
        let min = row.min.or(reading.min).unwrap_or(row.copies);
        Ok(Some(Call {
            at: row.at,
            pair: self.pairs.number_of(resource, &domain),
            copies: row.copies.get(),
            min: min.min(row.copies).get(),
            kind: CallKind::LetThrough,
        }))
    }
}

/// When a file was last changed, to read stamps without a year; `None` for stdin, and if it is not known.
fn changed(path: &Path) -> Option<Timestamp> {
    let metadata = std::fs::metadata(path).ok()?;
    let modified = metadata.modified().ok().filter(|_| metadata.is_file())?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros())
        .ok()
        .map(Timestamp::from_micros)
}

/// How many skipped rows are kept to be shown.
const SHOWN_MAX: usize = 10;

fn skipped(input: &Input, bad: Unreadable) -> Skipped {
    Skipped {
        input: input.name.clone(),
        line: bad.line,
        expected: bad.expected,
        found: bad.found,
    }
}

fn opening(path: &Path, name: String, source: io::Error) -> ReadFault {
    if source.kind() == io::ErrorKind::Unsupported {
        let what = source.to_string();
        return ReadFault::Misfit { name, what };
    }
    match is_damage(&source) && path != Path::new("-") {
        true => ReadFault::Damaged {
            name,
            line: 0,
            source,
        },
        false => ReadFault::Open { name, source },
    }
}

fn under_way(name: String, line: u64, source: io::Error) -> ReadFault {
    match is_damage(&source) {
        true => ReadFault::Damaged { name, line, source },
        false => ReadFault::Io { name, line, source },
    }
}

/// Whether an error is about a file's content and not about reading it.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof, Unsupported};
    matches!(
        error.kind(),
        InvalidData | InvalidInput | UnexpectedEof | Unsupported
    )
}
