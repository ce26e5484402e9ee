//! Changes of limits, as operators write them: `limits set` and `limits import`.
//!
//! ```text
//! resource,domain,rate,hard,limit
//! api.search,acme,1000/s,,            a rate of its own; its hard limit stays as it was
//! sandbox,acme,,,50                   copies
//! ```
//!
//! Knows nothing of documents. What stays true: rows that cannot be read are all refused together, each with its
//! place.

use std::borrow::Cow;
use std::io::BufRead;

use tollgate_limits::{Limits, NotChanged, Own, RateResource, Revision, StatedLimits, StatedTwice};
use tollgate_shared::escape::escaped;

use super::document_edit::{FaultList, TextEdit};
use super::table_lines::TableLines;
use crate::exit::Failure;
use tollgate_api::amend::AmendRequest;
use tollgate_replay::traffic::csv::fields as csv_fields;
use tollgate_server::domains::Domains;

/// What is stated of a resource or of a domain of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[group(id = "stated", multiple = true)]
pub struct StatedEdit {
    /// Hits in a time, as "100/s"; replaces tiers, windows and bucket, and forgets what was used of a bucket
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Hits a second of one domain, as "200/s"
    #[arg(long, value_name = "RATE")]
    pub hard: Option<String>,
    /// Copies of one domain
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "hard"])]
    pub limit: Option<u64>,
}

impl StatedEdit {
    /// The change, as the type that `limits` uses.
    pub fn own(&self) -> Own {
        Own {
            rate: self.rate.as_deref().map(Into::into),
            hard: self.hard.as_deref().map(Into::into),
            limit: self.limit,
        }
    }

    /// The change, as a request to an aggregator.
    pub fn asked(&self) -> AmendRequest {
        AmendRequest {
            act: "set".to_owned(),
            rate: self.rate.clone(),
            hard: self.hard.clone(),
            limit: self.limit,
            ..AmendRequest::default()
        }
    }
}

/// Reads the rows of a CSV file, each with its place.
///
/// # Errors
///
/// If the table cannot be read, columns are missing, or rows have faults: the first ones are listed, and the others counted.
pub fn rows(name: &str, table: impl BufRead) -> Result<Vec<(String, TextEdit)>, Failure> {
    let mut lines = TableLines::new(name, table);
    let heading = lines.next_line()?.map_or(Ok(""), |(_, line)| line);
    let heading = heading.map_err(|fault| Failure::Data(format!("{name}:1: {fault}")))?;
    let columns = columns(name, heading.trim_start_matches('\u{feff}'))?;
    let (mut rows, mut faults) = (Vec::new(), FaultList::default());
    while let Some((number, line)) = lines.next_line()? {
        let place = format!("{name}:{number}");
        let read = match line {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => row(line, &columns),
            Err(fault) => Err(fault),
        };
        match read {
            Ok(edit) => rows.push((place, edit)),
            Err(fault) => faults.push(|| format!("{place}: {fault}")),
        }
    }
    let rows = faults.or(rows).map_err(Failure::Data)?;
    if rows.is_empty() {
        remark!("tollgate: {name}: no rows below the heading, so nothing is changed");
    }
    Ok(rows)
}

/// Replaces the domains of a file's rows by their names in the log; the first faults are listed, each with its place.
///
/// # Errors
///
/// If a domain is no name of this fleet.
pub fn name_as_in_log(
    domains: &Domains,
    limits: &Limits,
    rows: &mut [(String, TextEdit)],
) -> Result<(), Failure> {
    let mut faults = FaultList::default();
    for (place, row) in rows {
        let Some(typed) = &row.domain else {
            continue;
        };
        let addresses = limits.rate(&row.resource).and_then(RateResource::addresses);
        match domains.of_resource(addresses, typed) {
            Ok(domain) => row.domain = Some(domain),
            Err(mixture) => faults.push(|| format!("{place}: {mixture}")),
        }
    }
    faults.or(()).map_err(Failure::Data)
}

/// Limits changed by the rows of a file; the first faults are listed, each with its place.
///
/// # Errors
///
/// If a row cannot be set, or states a limit of a domain that another row states already, perhaps in another spelling.
pub fn changed(before: &Limits, rows: &[(String, TextEdit)]) -> Result<Limits, Failure> {
    let mut revision = Revision::of(before);
    let mut faults = FaultList::default();
    let mut stated = StatedLimits::default();
    for (number, (place, change)) in rows.iter().enumerate() {
        let domain = change.domain.as_deref().unwrap_or_default();
        let pair = (&*change.resource, domain);
        let own = change.own.as_ref();
        let again = own.and_then(|own| stated.stated_before(before, number, pair, own));
        if let Some(again) = again {
            let (first, _) = &rows[again.first];
            faults.push(|| format!("{place}: {}", stated_twice(change, first, &again)));
            continue;
        }
        match revision.set(&change.resource, domain, change.own.as_ref()) {
            Ok(()) => {}
            Err(NotChanged::Faults(why)) => faults.push(|| why.in_file(place).to_string()),
            Err(why) => faults.push(|| format!("{place}: {why}")),
        }
    }
    faults.or(revision.limits()).map_err(Failure::Data)
}

/// Says that a row states a limit of a domain that the row at the place `first` states.
fn stated_twice(row: &TextEdit, first: &str, again: &StatedTwice<'_>) -> String {
    let typed = row.domain.as_deref().unwrap_or_default();
    let line = first.rsplit_once(':').map_or(first, |(_, line)| line);
    let limited = match *again.domain == *typed {
        true => String::new(),
        false => format!(" (as {})", again.domain),
    };
    let (what, resource) = (again.what, &row.resource);
    format!(
        "{what} of {typed}{limited} of {resource} was stated in line {line} already, expected it once"
    )
}

/// The columns that a file may have.
const COLUMNS: [&str; 5] = ["resource", "domain", "rate", "hard", "limit"];

/// Reads the heading; its names may be in any order.
fn columns(name: &str, heading: &str) -> Result<Columns, Failure> {
    let heading = csv_fields(heading).unwrap_or_default();
    let heading: Vec<String> = { heading.iter() }
        .map(|field| field.trim().to_ascii_lowercase())
        .collect();
    let mut faults = FaultList::default();
    for (at, field) in heading
        .iter()
        .enumerate()
        .filter(|(_, field)| !field.is_empty())
    {
        if !COLUMNS.contains(&&**field) {
            faults.push(|| {
                let (field, columns) = (escaped(field), COLUMNS.join(", "));
                format!("{name}:1: column \"{field}\": expected one of {columns}")
            });
        } else if heading[..at].contains(field) {
            faults.push(|| {
                format!("{name}:1: column \"{field}\" stands there twice, expected it once")
            });
        }
    }
    faults.or(()).map_err(Failure::Data)?;
    let column = |wanted: &str| heading.iter().position(|field| field == wanted);
    let [Some(resource), Some(domain), rate, hard, limit] = COLUMNS.map(column) else {
        return Err(Failure::Data(format!(
            "{name}:1: expected a heading with the columns resource, domain, and rate, hard or limit"
        )));
    };
    let named = heading
        .iter()
        .enumerate()
        .filter(|(_, field)| !field.is_empty());
    Ok(Columns {
        resource,
        domain,
        limits: [rate, hard, limit],
        named: named.map(|(at, _)| at).collect(),
    })
}

/// The places of the columns in a row.
struct Columns {
    resource: usize,
    domain: usize,
    /// Rate, hard limit and limit; `None` without the column.
    limits: [Option<usize>; 3],
    /// All places that have a column; in others there may only be empty cells, as spreadsheets write them.
    named: Vec<usize>,
}

/// Reads one row; fails with its fault.
fn row(line: &str, columns: &Columns) -> Result<TextEdit, String> {
    let fields =
        csv_fields(line).ok_or("a quote is not closed, or something follows it".to_owned())?;
    let mut cells = fields.iter().enumerate();
    let beyond = cells.find(|(at, cell)| !columns.named.contains(at) && !cell.trim().is_empty());
    if let Some((at, cell)) = beyond {
        return Err(format!(
            "cell {} (\"{}\") has no column, expected {} cells",
            at + 1,
            escaped(cell.trim()),
            columns.named.len()
        ));
    }
    // Blanks at the ends of a quoted cell belong to it.
    let field = |at: usize| match fields.get(at) {
        Some(Cow::Owned(quoted)) => quoted.clone(),
        Some(Cow::Borrowed(bare)) => bare.trim().to_owned(),
        None => String::new(),
    };
    let stated = |at: Option<usize>| {
        let field = at.map(field)?.trim().to_owned();
        (!field.is_empty()).then_some(field)
    };
    let [rate, hard, limit] = columns.limits.map(stated);
    let limit = limit.map(|text| {
        let fault = |_| format!("limit = \"{text}\": expected a whole number");
        text.parse::<u64>().map_err(fault)
    });
    let own = Own {
        rate: rate.map(Into::into),
        hard: hard.map(Into::into),
        limit: limit.transpose()?,
    };
    let (resource, domain) = (field(columns.resource), field(columns.domain));
    if own == Own::default() || domain.is_empty() {
        return Err("expected a domain, and a rate, a hard limit or a limit".to_owned());
    }
    Ok(TextEdit {
        resource,
        domain: Some(domain),
        own: Some(own),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_their_heading_and_faults_name_their_lines() {
        let text = "domain,resource,rate,hard\n\"new, inc\",api.search,7/s,\nb,api.search,,9/s\n\n";
        let rows = rows("f.csv", text.as_bytes()).expect("good rows");
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].0, "f.csv:2");
        let first = TextEdit {
            resource: "api.search".to_owned(),
            domain: Some("new, inc".to_owned()),
            own: Some(Own {
                rate: Some("7/s".into()),
                ..Own::default()
            }),
        };
        assert_eq!(rows[0].1, first);
        let bad = "resource,domain,limit\nsandbox,acme,many\nsandbox,,3\nsandbox,acme,\"3\nsandbox,acme,\n";
        let error = super::rows("f.csv", bad.as_bytes())
            .expect_err("bad")
            .to_string();
        let places: Vec<_> = error.lines().map(|line| &line[..7]).collect();
        assert_eq!(
            places,
            ["f.csv:2", "f.csv:3", "f.csv:4", "f.csv:5"],
            "{error}"
        );
        let many = format!("resource,domain,limit\n{}", "sandbox,,3\n".repeat(1_000));
        let error = super::rows("f.csv", many.as_bytes())
            .expect_err("bad")
            .to_string();
        assert!(error.ends_with("\nand 980 more"), "{error}");
        assert_eq!(error.lines().count(), 21, "{error}");
        assert!(super::rows("f.csv", &b"a,b\n"[..]).is_err());
        let long = format!(
            "resource,domain,limit\n\nsandbox,{},1\n",
            "x".repeat(1 << 20)
        );
        let error = super::rows("f.csv", long.as_bytes())
            .expect_err("long")
            .to_string();
        assert_eq!(error, "f.csv:3: the line is longer than 65536 bytes");
    }

    #[test]
    fn columns_and_cells_that_nobody_reads_are_refused() {
        let error = |text: &str| rows("f.csv", text.as_bytes()).expect_err("bad").to_string();
        assert_eq!(
            error("resource,domain,rate,hrad,rate\na,b,1/s,2/s,3/s\n"),
            "f.csv:1: column \"hrad\": expected one of resource, domain, rate, hard, limit\n\
             f.csv:1: column \"rate\" stands there twice, expected it once"
        );
        assert_eq!(
            error("resource,domain,rate\na,b,1/s\na,c,1/s,9/s\n"),
            "f.csv:3: cell 4 (\"9/s\") has no column, expected 3 cells"
        );
        // Spreadsheets write empty cells behind the last column.
        let spread = "resource,domain,rate,,\na,b,1/s,,\n";
        assert_eq!(
            rows("f.csv", spread.as_bytes()).expect("good rows").len(),
            1
        );
    }

    #[test]
    fn two_rows_that_state_one_limit_are_a_fault() {
        let document = "[rate.api]\nrate = \"5/m\"\naddresses = { v4 = 24, v6 = 64 }\n\
            [rate.web]\nrate = \"5/m\"\n[copies.sandbox]\nlimit = 1\n";
        let limits = Limits::parse(document).expect("a document");
        let changed = |table: &str| {
            let table = format!("resource,domain,rate,hard,limit\n{table}");
            let rows = rows("f.csv", table.as_bytes()).expect("good rows");
            super::changed(&limits, &rows).map_err(|failure| failure.to_string())
        };
        let fault = |of: &str| {
            Err(format!(
                "f.csv:4: {of} was stated in line 2 already, expected it once"
            ))
        };
        for (first, second, of) in [
            (
                "sandbox,acme,,,1",
                "sandbox,acme,,,2",
                "limit of acme of sandbox",
            ),
            (
                "api,203.0.113.99,70/m,,",
                "api,203.0.113.5,3/m,,",
                "rate of 203.0.113.5 (as 203.0.113.0/24) of api",
            ),
            (
                "api,203.0.113.99,70/m,,",
                "api,203.0.113.0/24,3/m,,",
                "rate of 203.0.113.0/24 of api",
            ),
            (
                "web,2001:DB8:CC::/48,70/m,,",
                "web,2001:db8:cc::/48,3/m,,",
                "rate of 2001:db8:cc::/48 of web",
            ),
            (
                "sandbox,2001:db8:cc::/48,,,1",
                "sandbox,2001:DB8:CC::/48,,,2",
                "limit of 2001:DB8:CC::/48 (as 2001:db8:cc::/48) of sandbox",
            ),
        ] {
            let table = format!("{first}\nweb,b,1/s,,\n{second}\n");
            assert_eq!(changed(&table), fault(of), "{second}");
        }
        // Two limits of one domain may stand in two rows.
        assert!(changed("api,203.0.113.99,70/m,,\napi,203.0.113.5,,3/s,\n").is_ok());
    }
}
