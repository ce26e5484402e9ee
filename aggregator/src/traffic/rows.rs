//! Rows of recorded traffic, whichever form a file has.
//!
//! The form is told by the first line that is not blank: an object is JSON Lines; a heading with a
//! column `t`, or an instant before a comma, is CSV; everything else is an access log.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

use super::access_log::{self, LastDate};
use super::csv::{Csv, First};
use super::lines::{Lines, Unreadable};
use super::{Columns, Row, TimeUnit, json_lines};

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Apache combined or common.
    AccessLog,
    /// Comma-separated, mostly with a heading.
    Csv,
    /// One JSON object a line.
    #[value(name = "jsonl")]
    JsonLines,
}

impl Kind {
    /// Its name, as in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessLog => "access_log",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }
}

enum Parser {
    AccessLog(LastDate),
    Csv(Csv),
    JsonLines,
}

/// The rows of one file.
pub struct Rows<R> {
    lines: Lines<R>,
    parser: Parser,
    unit: TimeUnit,
    /// The first line was looked at, and is a row.
    pending: bool,
}

/// What there was to read.
pub enum Opened<R> {
    /// Rows.
    Rows(Rows<R>),
    /// Not one line that is not blank.
    Empty,
    /// It should have been CSV and cannot be.
    NoColumns(Unreadable),
}

impl<R: BufRead> Rows<R> {
    /// Looks at the first line and makes a reader of the form that was stated, or else of the form
    /// that it has.
    ///
    /// # Errors
    ///
    /// What reading says.
    pub fn open(
        reader: R,
        stated: Option<Kind>,
        columns: &Columns,
        unit: TimeUnit,
    ) -> io::Result<Opened<R>> {
        let mut lines = Lines::new(reader);
        if !lines.advance()? {
            return Ok(match lines.unreadable().first() {
                // One endless line: the access log's reader has counted it as what it is.
                Some(_) => Opened::Rows(Self {
                    lines,
                    parser: Parser::AccessLog(LastDate::default()),
                    unit,
                    pending: false,
                }),
                None => Opened::Empty,
            });
        }
        let line = lines.line();
        let is_object = line.trim_ascii_start().starts_with(b"{");
        let of_csv = match stated {
            Some(Kind::Csv) => Csv::of_first_line(line, columns, unit),
            None if !is_object => Csv::of_first_line(line, columns, unit),
            _ => None,
        };
        let (parser, pending) = match (stated, of_csv) {
            (_, Some(First::Heading(csv))) => (Parser::Csv(csv), false),
            (_, Some(First::Row(csv))) => (Parser::Csv(csv), true),
            (Some(Kind::Csv), None) => {
                lines.refuse("a heading with a column t, or a row of t,resource,domain,copies");
                let first = lines.unreadable().first().cloned();
                return Ok(first.map_or(Opened::Empty, Opened::NoColumns));
            }
            (Some(Kind::JsonLines), None) => (Parser::JsonLines, true),
            (None, None) if is_object => (Parser::JsonLines, true),
            (_, None) => (Parser::AccessLog(LastDate::default()), true),
        };
        if !pending {
            lines.is_heading();
        }
        Ok(Opened::Rows(Self {
            lines,
            parser,
            unit,
            pending,
        }))
    }

    /// The form that it has.
    pub const fn kind(&self) -> Kind {
        match self.parser {
            Parser::AccessLog(_) => Kind::AccessLog,
            Parser::Csv(_) => Kind::Csv,
            Parser::JsonLines => Kind::JsonLines,
        }
    }

    /// Gives the rows to `each`, which may end the reading; or refuse a row by saying what was
    /// expected. Unreadable ones are passed over and counted.
    ///
    /// # Errors
    ///
    /// What reading says, faults of the compression included.
    pub fn for_each(
        &mut self,
        each: &mut dyn FnMut(Row<'_>) -> Result<(), &'static str>,
        until: &mut dyn FnMut(&Lines<R>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        while std::mem::take(&mut self.pending) || self.lines.advance()? {
            let line = self.lines.line();
            let row = match &mut self.parser {
                Parser::AccessLog(last) => access_log::parse(line, last).map(|request| Row {
                    at: request.at,
                    resource: None,
                    domain: Some(Cow::Borrowed(request.client)),
                    copies: NonZeroU32::MIN,
                    min: None,
                }),
                Parser::Csv(csv) => csv.parse(line),
                Parser::JsonLines => json_lines::parse(line, self.unit),
            };
            if let Err(expected) = row.and_then(&mut *each) {
                self.lines.refuse(expected);
            }
            if until(&self.lines).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// What was counted.
    pub const fn lines(&self) -> &Lines<R> {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row as text, and the lines that were refused.
    fn read(text: &str) -> (Kind, Vec<String>, Vec<u64>) {
        let opened = Rows::open(text.as_bytes(), None, &Columns::default(), TimeUnit::Auto);
        let Ok(Opened::Rows(mut rows)) = opened else {
            panic!("no rows in {text:?}")
        };
        let mut read = Vec::new();
        let mut each = |row: Row<'_>| {
            read.push(format!(
                "{} {} {} {} {}",
                row.at.as_micros(),
                row.resource.as_deref().unwrap_or("-"),
                row.domain.as_deref().unwrap_or("-"),
                row.copies,
                row.min.map_or(0, NonZeroU32::get),
            ));
            Ok(())
        };
        rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
            .expect("memory");
        let refused = rows.lines().unreadable().iter().map(|bad| bad.line);
        let refused = refused.collect();
        assert_eq!(
            rows.lines().rows(),
            (read.len() + rows.lines().skipped() as usize) as u64
        );
        (rows.kind(), read, refused)
    }

    #[test]
    fn columns_are_found_by_their_heading_wherever_they_stand() {
        let (kind, rows, refused) = read(
            "domain,note,T,copies,resource\nacme,,1.5,2,api\n\nacme,x,soon,1,api\nacme,x,2,0,api\nacme,x\n\"a,b\",x,3,,api\n",
        );
        assert_eq!(kind, Kind::Csv);
        assert_eq!(rows, ["1500000 api acme 2 0", "3000000 api a,b 1 0"]);
        assert_eq!(refused, [4, 5, 6]);
    }

    #[test]
    fn rows_without_a_heading_have_the_usual_columns() {
        let (kind, rows, _) = read("1,api,acme,5,2\n2,api,acme,1,2\n");
        assert_eq!(kind, Kind::Csv);
        assert_eq!(rows, ["1000000 api acme 5 2"]);
    }

    #[test]
    fn objects_are_json_lines_and_keep_all_digits_of_an_instant() {
        let (kind, rows, refused) = read(
            "{\"t\":1455944445.123456,\"resource\":\"api\",\"domain\":\"a\\\"b\"}\n\
             {\"t\":\"2016-02-20T05:00:45Z\",\"domain\":\"c\",\"copies\":3,\"min\":1,\"more\":[1]}\n\
             {\"t\":1,\"domain\":7}\n[]\n{\"domain\":\"d\"}\n",
        );
        assert_eq!(kind, Kind::JsonLines);
        assert_eq!(
            rows,
            ["1455944445123456 api a\"b 1 0", "1455944445000000 - c 3 1"]
        );
        assert_eq!(refused, [3, 4, 5]);
    }

    #[test]
    fn everything_else_is_an_access_log() {
        let (kind, rows, refused) =
            read("junk, indeed\n10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET / HTTP/1.1\"\n");
        assert_eq!(kind, Kind::AccessLog);
        assert_eq!(rows, ["1455944445000000 - 10.0.0.1 1 0"]);
        assert_eq!(refused, [1]);
    }
}
