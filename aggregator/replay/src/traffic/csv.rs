//! Rows of separated fields: `t`, `resource`, `domain`, `copies`, `min`, in the order of a heading.
//!
//! ```text
//! t,resource,domain,copies
//! 1455944445.25,api.search,acme,1
//! 2016-02-20T05:00:46Z,api.search,"globex, inc",3
//! ```
//!
//! Commas, semicolons, tabs or bars, whichever the heading has. Without a heading the columns are those above, in
//! that order. Columns of other names are ignored. Lines that begin with `#` are remarks, one of which may be the
//! heading; below another heading only those are that are not rows. `sep=;`, as Excel writes it, is a remark too. A
//! quoted field may hold line breaks (`lines`); a quote that is not closed within 64 KiB spoils its own line and not
//! the rest of the file. That is why this does not use a CSV library, which would read to the closing quote wherever it
//! is.

use std::borrow::Cow;

use super::clients::{Clients, Header, is_address};
use super::forms::is_plausible;
use super::instant::{self, Instants};
use super::names::{self, text_of};
use super::quotes::SEPARATORS;
use super::{Columns, Row, Widths};

/// The positions of the columns.
#[derive(Clone, Debug)]
pub(super) struct Csv {
    separator: char,
    /// The heading begins with `#`, so any other line that does is a remark.
    is_remarked: bool,
    /// How many columns the heading has; `None` without a heading.
    columns: Option<usize>,
    at: usize,
    /// The column of the date, if `at` may be a time of day.
    date: Option<usize>,
    resource: Option<usize>,
    domain: Option<usize>,
    /// The column in which proxies name their clients, and the kind of that header.
    forwarded: Option<(usize, Header)>,
    copies: Option<usize>,
    min: Option<usize>,
    instants: Instants,
    /// The name of the domain's column.
    client: Option<String>,
    /// How clients are spelled; `None` if domains are Tollgate's own.
    clients: Option<Clients>,
}

/// What a first line is.
pub(super) enum First {
    /// A heading, not a row.
    Heading(Csv),
    /// A row like all others, in the usual order of columns.
    Row(Csv),
    /// Neither of these.
    Neither,
    /// A heading without a column that the user named.
    Lacks(String),
}

impl Csv {
    /// Examines a first line and the one after it.
    pub fn of_first_line(
        (line, next): (&[u8], Option<&[u8]>),
        names: &Columns,
        client: Option<&str>,
        instants: &Instants,
        clients: &Clients,
    ) -> First {
        let line = &*text_of(line);
        let is_remark = is_remark(line);
        let line = line.trim_start_matches('#').trim_start();
        // Exchange and Zeek name columns like this: #Fields: date-time,…
        let mut named = ["Fields:", "fields\t"].into_iter();
        let line = named
            .find_map(|word| line.strip_prefix(word))
            .unwrap_or(line);
        let looked = Looked {
            names,
            client,
            instants,
            clients,
            next,
        };
        let mut separators = SEPARATORS.iter();
        let row = separators.find_map(|separator| looked.row(line, *separator));
        let row = row.filter(|_| !is_remark);
        let is_unnamed = *names == Columns::default() && client.is_none();
        // A row may have a field with a name that instants have: orders.created.
        if let (Some(csv), true) = (&row, is_unnamed && looked.begins_with_instant(line)) {
            return First::Row(csv.clone());
        }
        let headings = SEPARATORS
            .iter()
            .map(|separator| looked.heading(line, *separator));
        let mut lacks = None;
        for heading in headings {
            match heading {
                First::Neither => {}
                First::Lacks(what) => lacks = lacks.or(Some(what)),
                First::Heading(csv) => {
                    return First::Heading(Self {
                        is_remarked: is_remark,
                        ..csv
                    });
                }
                found @ First::Row(_) => return found,
            }
        }
        if let Some(what) = lacks {
            return First::Lacks(what);
        }
        let Some(csv) = row else {
            return First::Neither;
        };
        if !is_unnamed {
            return First::Lacks(
                "--column and --client name columns of a heading: no line is one that has them"
                    .to_owned(),
            );
        }
        First::Row(csv)
    }

    /// Whether a line has as many fields as rows have.
    pub fn is_as_wide(&self, line: &[u8], rows: &[u8]) -> bool {
        let width = |line| Some(fields_by(&text_of(line), self.separator)?.len());
        width(line).is_some_and(|fields| width(rows) == Some(fields))
    }

    /// The name of the client's column.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Whether some column is the client.
    pub const fn has_client(&self) -> bool {
        self.domain.is_some() || self.forwarded.is_some()
    }

    /// The names of the columns.
    pub fn heading(&self, line: &[u8]) -> String {
        let text = text_of(line);
        let fields = fields_by(text.trim_start_matches(['#', ' ']), self.separator);
        let fields = fields.unwrap_or_default().into_iter().map(trimmed);
        fields.collect::<Vec<_>>().join(", ")
    }

    /// The row of a line; `None`: a remark.
    ///
    /// # Errors
    ///
    /// What was expected.
    pub fn parse<'a>(&self, line: &'a [u8]) -> Result<Option<Row<'a>>, &'static str> {
        match text_of(line) {
            Cow::Borrowed(text) => self.row(text),
            Cow::Owned(text) => Ok(self.row(&text)?.map(Row::into_owned)),
        }
    }

    fn row<'a>(&self, line: &'a str) -> Result<Option<Row<'a>>, &'static str> {
        match is_remark(line) {
            true if self.is_remarked || self.columns.is_none() => Ok(None),
            // Its first field may begin with `#`.
            true => Ok(self.fields(line).ok()),
            false => self.fields(line).map(Some),
        }
    }

    fn fields<'a>(&self, line: &'a str) -> Result<Row<'a>, &'static str> {
        let mut fields = fields_by(line, self.separator)
            .ok_or("a quoted field that is closed, and behind it a separator")?;
        let date = self.date.and_then(|date| fields.get(date).cloned());
        let extra = self.columns.and_then(|columns| fields.get(columns..));
        if extra.is_some_and(|extra| extra.iter().any(|field| !field.trim().is_empty())) {
            return Err("no more fields than the heading has columns");
        }
        let mut field = |column: usize| {
            let field = fields.get_mut(column).map(std::mem::take);
            field
                .map(trimmed)
                .ok_or("as many fields as there are columns")
        };
        let time = field(self.at)?;
        let at = self
            .instants
            .of_row(&time)
            .or_else(|| instant::of_parts(&date?, &time))
            .ok_or("an instant in column t: a number since 1970, or a date as in RFC 3339 (or --time-format)")?;
        // Some programs write no separators after a row's last field with content.
        let mut number = |column: Option<usize>| match column.map(&mut field) {
            Some(Ok(text)) => count(&text),
            Some(Err(_)) | None => Ok(None),
        };
        let widths = Widths {
            copies: number(self.copies)?,
            min: number(self.min)?,
        };
        let (copies, min) = widths.checked()?;
        let resource = self.resource.map(&mut field).transpose()?;
        let domain = self.domain.map(&mut field).transpose()?;
        let list = self.forwarded.map(|(column, _)| field(column));
        let list = list.transpose()?;
        let domain = match (&self.clients, domain) {
            (Some(clients), domain) => {
                let header = self.forwarded.map_or(Header::List, |(_, header)| header);
                let client = match &list {
                    Some(list) => clients.of(header, Some(list), domain.as_deref()),
                    None => domain.as_deref().and_then(|domain| clients.named(domain)),
                };
                client.map(|client| Cow::Owned(client.into_owned()))
            }
            (None, domain) => domain,
        };
        Ok(Row {
            at,
            resource,
            domain,
            copies,
            min,
        })
    }
}

/// A line that may be a heading.
struct Heading<'l> {
    fields: Vec<Cow<'l, str>>,
    /// The columns' names without differences of spelling, and their last parts.
    called: Vec<Vec<String>>,
}

impl<'l> Heading<'l> {
    fn of(line: &'l str, separator: char) -> Option<Self> {
        let fields = fields_by(line, separator)?;
        let ends = |field: &Cow<'_, str>| names::ends(&field.split('.').collect::<Vec<_>>());
        let called = fields.iter().map(ends).collect();
        Some(Self { fields, called })
    }

    fn column(&self, name: &str) -> Option<usize> {
        let mut fields = self.fields.iter();
        fields.position(|field| field.trim().eq_ignore_ascii_case(name))
    }

    fn known(&self, names: &[&str]) -> Option<usize> {
        find_named(&self.called, names)
    }

    /// Whether it is a heading, whatever column it lacks: it has columns that the user named, or known names.
    fn is_one(&self, named: &Columns) -> bool {
        let named = [&named.domain, &named.resource, &named.copies, &named.min];
        let mut named = named.into_iter().flatten();
        let has_named = named.any(|name| self.column(name).is_some());
        let has_known = self.known(names::TIMES).or(self.known(names::CLIENTS));
        1 < self.fields.len() && (has_named || has_known.is_some())
    }

    fn lacks(&self, flag: &str, name: &str) -> String {
        let names: Vec<&str> = self.fields.iter().map(|field| field.trim()).collect();
        let names = names.join(", ");
        format!("{flag}{name}: no such column, expected one of {names}")
    }
}

/// What a first line is examined with.
struct Looked<'a> {
    names: &'a Columns,
    client: Option<&'a str>,
    instants: &'a Instants,
    clients: &'a Clients,
    /// The line after it.
    next: Option<&'a [u8]>,
}

impl Looked<'_> {
    fn heading(&self, line: &str, separator: char) -> First {
        let Some(heading) = Heading::of(line, separator) else {
            return First::Neither;
        };
        let date = heading.known(&[names::DATE]);
        let Some(at) = (match &self.names.t {
            Some(name) if heading.column(name).is_none() && heading.is_one(self.names) => {
                return First::Lacks(heading.lacks("--column t=", name));
            }
            Some(name) => heading.column(name),
            // `date` alone may be a value in a row.
            None => self
                .time_column(&heading.called, separator)
                .or_else(|| heading.known(names::TIMES))
                .or(date)
                .filter(|_| 1 < heading.fields.len()),
        }) else {
            return First::Neither;
        };
        match self.columns(&heading, separator, at, date) {
            Ok(csv) => First::Heading(csv),
            Err(what) => First::Lacks(what),
        }
    }

    /// The positions of the columns, or the name of a missing one.
    fn columns(
        &self,
        heading: &Heading<'_>,
        separator: char,
        at: usize,
        date: Option<usize>,
    ) -> Result<Csv, String> {
        let stated_names = self.names;
        let stated = |flag: &str, name: Option<&str>| match name {
            None => Ok(None),
            Some(name) => match heading.column(name) {
                Some(column) => Ok(Some(column)),
                None => Err(heading.lacks(flag, name)),
            },
        };
        let of_domain = match self.client {
            Some(client) => stated("--client ", Some(client))?,
            None => stated("--column domain=", stated_names.domain.as_deref())?,
        };
        let called = self.client.or(stated_names.domain.as_deref());
        let domain = match (of_domain, called) {
            (Some(at), Some(name)) => Some((at, name.to_owned())),
            _ => {
                let known = heading.known(names::CLIENTS);
                known.map(|at| (at, heading.fields[at].trim().to_owned()))
            }
        };
        let ours = !self.clients.is_stated()
            && domain
                .as_ref()
                .is_none_or(|(_, name)| name.eq_ignore_ascii_case("domain"));
        let is_ours = |(_, name): &(usize, String)| name.eq_ignore_ascii_case("domain");
        let is_known = called.is_some() || domain.as_ref().is_some_and(is_ours);
        let forwarded = heading.known(names::FORWARDED).filter(|_| !is_known);
        let ours = ours && forwarded.is_none();
        let resource = stated("--column resource=", stated_names.resource.as_deref())?;
        let copies = stated("--column copies=", stated_names.copies.as_deref())?;
        let min = stated("--column min=", stated_names.min.as_deref())?;
        Ok(Csv {
            separator,
            is_remarked: false,
            columns: Some(heading.fields.len()),
            at,
            date: date.filter(|date| *date != at),
            resource: resource.or_else(|| heading.column("resource")),
            domain: domain.as_ref().map(|(at, _)| *at),
            forwarded: forwarded.map(|at| (at, Header::of(heading.fields[at].trim()))),
            copies: copies.or_else(|| heading.column("copies")),
            min: min.or_else(|| heading.column("min")),
            instants: self.instants.clone(),
            clients: (!ours).then(|| self.clients.clone()),
            client: forwarded
                .map(|at| heading.fields[at].trim().to_owned())
                .or(domain.map(|(_, name)| name)),
        })
    }

    /// The column that holds an instant in the row after the heading: `time` may be a duration, and then `date` is
    /// the instant.
    fn time_column(&self, called: &[Vec<String>], separator: char) -> Option<usize> {
        let next = text_of(self.next?);
        let values = fields_by(&next, separator)?;
        let is_instant = |column: &usize| {
            let value = values.get(*column).map_or("", |value| value.trim());
            let is_long = value.contains(':') || 9 <= value.len() && !value.contains(['-', '/']);
            let at = self.instants.parse(value).filter(|_| is_long);
            at.is_some_and(is_plausible)
        };
        let times = names::TIMES.iter().chain([&names::DATE]);
        let mut columns = times.filter_map(|name| find_named(called, &[name]));
        columns.find(is_instant)
    }

    /// Whether the text before the first separator is an instant that may be a request's.
    fn begins_with_instant(&self, line: &str) -> bool {
        let first = line.split(SEPARATORS).next().unwrap_or_default();
        self.instants.parse(first).is_some_and(is_plausible)
    }

    fn row(&self, line: &str, separator: char) -> Option<Csv> {
        let fields = fields_by(line, separator)?;
        let has = |column: usize| (column < fields.len()).then_some(column);
        self.instants.parse(fields.first()?)?;
        // If the resource is an address and the domain is not, these are another program's columns.
        let is_address = |field: &str| is_address(&self.clients.named(field).unwrap_or_default());
        if is_address(fields.get(1)?) && !is_address(fields.get(2)?) {
            return None;
        }
        Some(Csv {
            separator,
            is_remarked: false,
            columns: None,
            at: 0,
            date: None,
            resource: has(1),
            domain: Some(has(2)?),
            forwarded: None,
            copies: has(3),
            min: has(4),
            instants: self.instants.clone(),
            client: None,
            clients: self.clients.is_stated().then(|| self.clients.clone()),
        })
    }
}

/// The first of these names that a column has, as its whole name or else as the end of a path. Returns the column.
fn find_named(called: &[Vec<String>], names: &[&str]) -> Option<usize> {
    let whole = |name: &&str| {
        called
            .iter()
            .position(|ends| ends.first().is_some_and(|end| end == name))
    };
    let end = |name: &&str| {
        let is = |ends: &Vec<String>| ends.iter().any(|end| end == *name);
        called.iter().position(is)
    };
    names
        .iter()
        .find_map(whole)
        .or_else(|| names.iter().find_map(end))
}

/// Whether a line is a remark about the others: it begins with `#`, or is Excel's `sep=;`.
pub(super) fn is_remark(line: &str) -> bool {
    line.starts_with('#')
        || line
            .strip_prefix("sep=")
            .is_some_and(|rest| rest.len() <= 1)
}

fn trimmed(field: Cow<'_, str>) -> Cow<'_, str> {
    match field {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        // A quoted field is used as it is.
        owned => owned,
    }
}

/// A number of copies; an empty field states no number.
fn count(text: &str) -> Result<Option<u64>, &'static str> {
    let digits = Some(text.trim_ascii()).filter(|digits| !digits.is_empty());
    digits.map(super::whole).transpose()
}

/// The fields of a line with commas; `None` if a quote is not closed, or something follows it.
pub fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    fields_by(line, ',')
}

fn fields_by(line: &str, separator: char) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::with_capacity(5);
    if !line.contains('"') {
        fields.extend(line.split(separator).map(Cow::Borrowed));
        return Some(fields);
    }
    let mut rest = line;
    loop {
        // Blanks before a quote and after it do not belong to the field.
        let (field, behind) = match rest.trim_start_matches(' ').strip_prefix('"') {
            Some(quoted) => {
                let (field, behind) = quoted_field(quoted)?;
                (field, behind.trim_start_matches(' '))
            }
            None => {
                let end = rest.find(separator).unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        fields.push(field);
        if behind.is_empty() {
            return Some(fields);
        }
        rest = behind.strip_prefix(separator)?;
    }
}

/// The text up to the closing quote, where two quotes stand for one; and what follows the closing quote.
fn quoted_field(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut from = 0;
    loop {
        let quote = from + quoted[from..].find('"')?;
        if quoted[quote + 1..].starts_with('"') {
            from = quote + 2;
            continue;
        }
        // Owned, which marks the field as quoted: its blanks are kept.
        let field = match from {
            0 => quoted[..quote].to_owned(),
            _ => quoted[..quote].replace("\"\"", "\""),
        };
        let field = Cow::Owned(field);
        return Some((field, &quoted[quote + 1..]));
    }
}

#[cfg(test)]
mod tests;
