//! Rows of separated fields: `t`, `resource`, `domain`, `copies`, `min`, in the order of a heading.
//!
//! ```text
//! t,resource,domain,copies
//! 1455944445.25,api.search,acme,1
//! 2016-02-20T05:00:46Z,api.search,"globex, inc",3
//! ```
//!
//! Commas, semicolons or tabs, whichever the heading has. Without a heading the columns are those above, in that
//! order. Columns of other names are passed over; lines that begin with `#` are remarks, of which one may be the
//! heading. One line is one row: a quoted field holds no line break, so that a stray quote spoils its own
//! line and not the rest of the file. That is why this is not read by a library for CSV, which would
//! have to take such a quote at its word.

use std::borrow::Cow;

use super::clients::Clients;
use super::instant::{self, TimeUnit};
use super::{Columns, Row, Widths};

/// What separates fields, the likeliest first.
const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// What a column of instants may be called, ours first.
const TIMES: &[&str] = &[
    "t",
    "time",
    "timestamp",
    "ts",
    "@timestamp",
    "datetime",
    "date",
];

/// What a column of clients may be called, ours first.
const CLIENTS: &[&str] = &[
    "domain",
    "client_ip",
    "client",
    "ip",
    "remote_addr",
    "tenant",
    "user",
];

/// Which column stands where.
#[derive(Clone, Debug)]
pub(super) struct Csv {
    separator: char,
    at: usize,
    resource: Option<usize>,
    domain: Option<usize>,
    copies: Option<usize>,
    min: Option<usize>,
    unit: TimeUnit,
    /// What the column of the domain is called.
    client: Option<String>,
    /// How clients are spelled; none where domains are ours.
    clients: Option<Clients>,
}

/// What a first line is.
pub(super) enum First {
    /// A heading: it is no row.
    Heading(Csv),
    /// A row like all others, in the usual order of columns.
    Row(Csv),
    /// Neither.
    Neither,
    /// A heading without a column that was asked for.
    Lacks(String),
}

impl Csv {
    /// Looks at a first line.
    pub fn of_first_line(
        line: &[u8],
        names: &Columns,
        client: Option<&str>,
        unit: TimeUnit,
        clients: &Clients,
    ) -> First {
        let Ok(line) = str::from_utf8(line) else {
            return First::Neither;
        };
        let is_remark = line.starts_with('#');
        let line = line.trim_start_matches(['#', '\u{feff}']).trim_start();
        let looked = Looked {
            names,
            client,
            unit,
            clients,
        };
        let headings = SEPARATORS
            .iter()
            .map(|separator| looked.heading(line, *separator));
        let mut lacks = None;
        for heading in headings {
            match heading {
                First::Neither => {}
                First::Lacks(what) => lacks = lacks.or(Some(what)),
                found => return found,
            }
        }
        if let Some(what) = lacks {
            return First::Lacks(what);
        }
        if is_remark {
            return First::Neither;
        }
        let mut rows = SEPARATORS.iter();
        let Some(csv) = rows.find_map(|separator| looked.row(line, *separator)) else {
            return First::Neither;
        };
        if *names != Columns::default() || client.is_some() {
            return First::Lacks(
                "--column and --client name columns of a heading: no line is one that has them"
                    .to_owned(),
            );
        }
        First::Row(csv)
    }

    /// Whether a line has as many fields as rows have.
    pub fn is_as_wide(&self, line: &[u8], rows: &[u8]) -> bool {
        let width = |line| Some(fields_by(str::from_utf8(line).ok()?, self.separator)?.len());
        width(line).is_some_and(|fields| width(rows) == Some(fields))
    }

    /// Which column is the client.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// The row of a line; or what was expected. None: a remark.
    pub fn parse<'a>(&self, line: &'a [u8]) -> Result<Option<Row<'a>>, &'static str> {
        let line = str::from_utf8(line).map_err(|_| "a row in UTF-8")?;
        if line.starts_with('#') {
            return Ok(None);
        }
        let mut fields =
            fields_by(line, self.separator).ok_or("a quoted field that ends on its line")?;
        let mut field = |column: usize| {
            let field = fields.get_mut(column).map(std::mem::take);
            field
                .map(trimmed)
                .ok_or("as many fields as there are columns")
        };
        let at = instant::parse(&field(self.at)?, self.unit)
            .ok_or("an instant in column t: a number since 1970, or a date as in RFC 3339")?;
        let mut widths = Widths::default();
        if let Some(column) = self.copies {
            widths.copies = count(&field(column)?)?;
        }
        if let Some(column) = self.min {
            widths.min = count(&field(column)?)?;
        }
        let (copies, min) = widths.checked()?;
        let resource = self.resource.map(&mut field).transpose()?;
        let domain = self.domain.map(&mut field).transpose()?;
        let domain = match (&self.clients, domain) {
            (Some(clients), Some(domain)) => {
                let client = clients.named(&domain).map(Cow::into_owned);
                client.map(Cow::Owned)
            }
            (_, domain) => domain,
        };
        Ok(Some(Row {
            at,
            resource,
            domain,
            copies,
            min,
        }))
    }
}

/// What a first line is looked at by.
struct Looked<'a> {
    names: &'a Columns,
    client: Option<&'a str>,
    unit: TimeUnit,
    clients: &'a Clients,
}

impl Looked<'_> {
    fn heading(&self, line: &str, separator: char) -> First {
        let Some(fields) = fields_by(line, separator) else {
            return First::Neither;
        };
        let column = |name: &str| {
            let mut fields = fields.iter();
            fields.position(|field| field.trim().eq_ignore_ascii_case(name))
        };
        let known = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| Some((column(name)?, (*name).to_owned())))
        };
        let Some(at) = (match &self.names.t {
            Some(name) => column(name),
            // `date` alone may be a value in some row.
            None => known(TIMES).map(|(at, _)| at).filter(|_| 1 < fields.len()),
        }) else {
            return First::Neither;
        };
        let stated = |flag: &str, name: Option<&str>| match name {
            None => Ok(None),
            Some(name) => column(name).map(Some).ok_or_else(|| {
                let heading: Vec<&str> = fields.iter().map(|field| field.trim()).collect();
                format!(
                    "{flag}{name}: no such column, expected one of {}",
                    heading.join(", ")
                )
            }),
        };
        let columns = || -> Result<Csv, String> {
            let names = self.names;
            let of_domain = match self.client {
                Some(client) => stated("--client ", Some(client))?,
                None => stated("--column domain=", names.domain.as_deref())?,
            };
            let called = self.client.or(names.domain.as_deref()).map(str::to_owned);
            let domain = match (of_domain, called) {
                (Some(at), Some(name)) => Some((at, name)),
                _ => known(CLIENTS),
            };
            let ours = !self.clients.is_stated()
                && domain.as_ref().is_none_or(|(_, name)| name == "domain");
            let resource = stated("--column resource=", names.resource.as_deref())?;
            let copies = stated("--column copies=", names.copies.as_deref())?;
            let min = stated("--column min=", names.min.as_deref())?;
            Ok(Csv {
                separator,
                at,
                resource: resource.or_else(|| column("resource")),
                domain: domain.as_ref().map(|(at, _)| *at),
                copies: copies.or_else(|| column("copies")),
                min: min.or_else(|| column("min")),
                unit: self.unit,
                clients: (!ours).then(|| self.clients.clone()),
                client: domain.map(|(_, name)| name),
            })
        };
        match columns() {
            Ok(csv) => First::Heading(csv),
            Err(what) => First::Lacks(what),
        }
    }

    fn row(&self, line: &str, separator: char) -> Option<Csv> {
        let fields = fields_by(line, separator)?;
        let has = |column: usize| (column < fields.len()).then_some(column);
        instant::parse(fields.first()?, self.unit)?;
        Some(Csv {
            separator,
            at: 0,
            resource: has(1),
            domain: Some(has(2)?),
            copies: has(3),
            min: has(4),
            unit: self.unit,
            client: None,
            clients: self.clients.is_stated().then(|| self.clients.clone()),
        })
    }
}

fn trimmed(field: Cow<'_, str>) -> Cow<'_, str> {
    match field {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        // What was quoted is meant as it is.
        owned => owned,
    }
}

/// A number of copies; an empty field states none.
fn count(text: &str) -> Result<Option<u64>, &'static str> {
    match text.trim_ascii() {
        "" => Ok(None),
        digits => super::whole(digits).map(Some),
    }
}

/// The fields of a line with commas; none where a quote is not closed, or something follows it.
pub(crate) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
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
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
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

/// What stands up to the closing quote, where two quotes are one; and what follows.
fn quoted_field(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut from = 0;
    loop {
        let quote = from + quoted[from..].find('"')?;
        if quoted[quote + 1..].starts_with('"') {
            from = quote + 2;
            continue;
        }
        // Owned, by which it is told from a field whose blanks are passed over.
        let field = match from {
            0 => quoted[..quote].to_owned(),
            _ => quoted[..quote].replace("\"\"", "\""),
        };
        let field = Cow::Owned(field);
        return Some((field, &quoted[quote + 1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_within_quotes_are_meant() {
        let of =
            |line| fields(line).map(|fields| fields.into_iter().map(trimmed).collect::<Vec<_>>());
        let read = of("1, a ,\" a \",\"\u{b}2\",\" \"\" \"").expect("fields");
        assert_eq!(read, ["1", "a", " a ", "\u{b}2", " \" "]);
    }

    #[test]
    fn quotes_hold_commas_and_quotes_and_end_on_their_line() {
        let of = |line| fields(line).map(|fields| fields.join("|"));
        assert_eq!(of(r#"1,a,"b, c",2"#).as_deref(), Some("1|a|b, c|2"));
        assert_eq!(of(r#""say ""x""",,"#).as_deref(), Some(r#"say "x"||"#));
        assert_eq!(of(r#"1,"open,2"#), None);
        assert_eq!(of(r#"1,"a"b,2"#), None);
        assert_eq!(of("").as_deref(), Some(""));
    }
}
