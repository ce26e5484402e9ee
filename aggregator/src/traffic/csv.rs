//! Comma-separated rows: `t`, `resource`, `domain`, `copies`, `min`, in the order of a heading.
//!
//! ```text
//! t,resource,domain,copies
//! 1455944445.25,api.search,acme,1
//! 2016-02-20T05:00:46Z,api.search,"globex, inc",3
//! ```
//!
//! Without a heading the columns are those above, in that order. Columns of other names are passed
//! over. One line is one row: a quoted field holds no line break, so that a stray quote spoils its own
//! line and not the rest of the file. That is why this is not read by a library for CSV, which would
//! have to take such a quote at its word.

use std::borrow::Cow;

use super::instant::{self, TimeUnit};
use super::{Columns, Row, Widths};

/// Which column stands where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Csv {
    at: usize,
    resource: Option<usize>,
    domain: Option<usize>,
    copies: Option<usize>,
    min: Option<usize>,
    unit: TimeUnit,
}

/// What a first line is.
pub(super) enum First {
    /// A heading: it is no row.
    Heading(Csv),
    /// A row like all others, in the usual order of columns.
    Row(Csv),
}

impl Csv {
    /// Looks at a first line; none where it can be neither a heading nor a row.
    pub fn of_first_line(line: &[u8], names: &Columns, unit: TimeUnit) -> Option<First> {
        let line = str::from_utf8(line).ok()?;
        let fields = fields(line.trim_start_matches('\u{feff}'))?;
        let column = |name: &str| {
            let mut fields = fields.iter();
            fields.position(|field| field.trim().eq_ignore_ascii_case(name))
        };
        if let Some(at) = column(&names.t) {
            return Some(First::Heading(Self {
                at,
                resource: column(&names.resource),
                domain: column(&names.domain),
                copies: column(&names.copies),
                min: column(&names.min),
                unit,
            }));
        }
        let has = |column: usize| (column < fields.len()).then_some(column);
        instant::parse(fields.first()?, unit)?;
        Some(First::Row(Self {
            at: 0,
            resource: has(1),
            domain: Some(has(2)?),
            copies: has(3),
            min: has(4),
            unit,
        }))
    }

    /// The row of a line; or what was expected.
    pub fn parse<'a>(&self, line: &'a [u8]) -> Result<Row<'a>, &'static str> {
        let line = str::from_utf8(line).map_err(|_| "a row in UTF-8")?;
        let mut fields = fields(line).ok_or("a quoted field that ends on its line")?;
        let mut field = |column: usize| {
            let field = fields.get_mut(column).map(std::mem::take);
            field.ok_or("as many fields as there are columns")
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
        Ok(Row {
            at,
            resource: self.resource.map(&mut field).transpose()?,
            domain: self.domain.map(&mut field).transpose()?,
            copies,
            min,
        })
    }
}

/// A number of copies; an empty field states none.
fn count(text: &str) -> Result<Option<u64>, &'static str> {
    match text.trim_ascii() {
        "" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| super::COPIES),
    }
}

/// The fields of a line; none where a quote is not closed, or something follows it.
pub(crate) fn fields(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut fields = Vec::with_capacity(5);
    if !line.contains('"') {
        fields.extend(line.split(',').map(Cow::Borrowed));
        return Some(fields);
    }
    let mut rest = line;
    loop {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        fields.push(field);
        if behind.is_empty() {
            return Some(fields);
        }
        rest = behind.strip_prefix(',')?;
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
        let field = match from {
            0 => Cow::Borrowed(&quoted[..quote]),
            _ => Cow::Owned(quoted[..quote].replace("\"\"", "\"")),
        };
        return Some((field, &quoted[quote + 1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
