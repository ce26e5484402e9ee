//! The results of a backtest, for people.
//!
//! ```text
//! access.log.xz: 206,860 rows, 0 skipped; 2016-02-20T05:00:45Z to 2016-03-28T18:59:20Z
//!
//! limits            calls    granted    refused       %     excess   domains   refused
//! limits.toml     206,860    201,339      5,521   2.669      5,521     8,799       112
//! ```
//!
//! The report contains everything in it as well.

use std::fmt::Write as _;

use tollgate_limits::print_span;
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Span;

use super::inputs::Inputs;
use super::report::{
    BacktestReport, PairReport, PairsChange, Percentiles, ResourceReport, ResultReport,
};
use super::tally::Causes;

/// The report as a page of text.
pub fn page(report: &BacktestReport) -> String {
    let mut text = String::new();
    push_inputs(&mut text, &report.inputs);
    push_summary(&mut text, &report.results);
    push_suggestions(&mut text, report);
    for result in &report.results {
        push_result(&mut text, result);
    }
    text
}

/// A table with names in its first columns and numbers in the others.
struct NumbersTable {
    names: usize,
    rows: Vec<Vec<String>>,
}

impl NumbersTable {
    fn new(names: usize, heading: &[&str]) -> Self {
        let heading = heading.iter().map(|cell| (*cell).to_owned()).collect();
        Self {
            names,
            rows: vec![heading],
        }
    }

    /// Adds a row; cells are escaped like names, so that a row is one line.
    fn push(&mut self, row: Vec<String>) {
        let row = row.iter().map(|cell| escaped(cell).to_string());
        self.rows.push(row.collect());
    }

    fn write(&self, text: &mut String) {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                let _ = match column < self.names {
                    true => write!(line, "{cell:<width$}  "),
                    false => write!(line, "{cell:>width$}  "),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

fn push_inputs(text: &mut String, inputs: &Inputs) {
    let _ = writeln!(
        text,
        "{}: {} rows, {} skipped, {} domains; {} to {}",
        inputs.names.join(", "),
        count(inputs.rows),
        count(inputs.skipped),
        count(inputs.domains),
        instant(inputs.first_us),
        instant(inputs.last_us),
    );
    for bad in &inputs.skipped_shown {
        let _ = writeln!(
            text,
            "  skipped {}: line {}: expected {}, found {:?}",
            bad.input, bad.line, bad.expected, bad.found
        );
    }
    let more = inputs.skipped - inputs.skipped_shown.len() as u64;
    if 0 < more && !inputs.skipped_shown.is_empty() {
        let _ = writeln!(text, "  and {} more", count(more));
    }
    for note in inputs.notes() {
        let _ = writeln!(text, "{note}");
    }
}

fn push_summary(text: &mut String, results: &[ResultReport]) {
    let mut table = NumbersTable::new(
        1,
        &[
            "limits", "calls", "granted", "refused", "%", "excess", "domains", "refused",
        ],
    );
    for result in results {
        table.push(vec![
            result.limits.clone(),
            count(result.calls),
            count(result.granted),
            count(result.refused),
            format!("{:.3}", 100.0 * result.refused_share),
            count(result.excess),
            count(result.domains),
            count(result.domains_refused),
        ]);
    }
    text.push('\n');
    table.write(text);
}

fn push_suggestions(text: &mut String, report: &BacktestReport) {
    if report.suggestions.is_empty() {
        return;
    }
    let mut table = NumbersTable::new(1, &["least limits", "limit", "refused", "%"]);
    for of in &report.suggestions {
        table.push(vec![
            of.of(),
            of.written.clone(),
            count(of.refused),
            format!("{:.3}", 100.0 * of.refused_share),
        ]);
    }
    text.push('\n');
    table.write(text);
    let share = report.suggestions.first().map_or(0.0, |of| of.share_max);
    // Shares have seven places.
    let percent = format!("{:.7}", 100.0 * share);
    let _ = writeln!(
        text,
        "each refuses at most {}% as the only constraint of every domain",
        percent.trim_end_matches('0').trim_end_matches('.')
    );
}

fn push_result(text: &mut String, result: &ResultReport) {
    let _ = writeln!(text, "\n{}", result.limits);
    if result.hits != result.calls {
        let _ = writeln!(
            text,
            "{} hits asked for, {} granted, {} refused",
            count(result.hits),
            count(result.hits_granted),
            count(result.hits_refused)
        );
    }
    if 0 < result.unlimited {
        let _ = writeln!(
            text,
            "{} calls are on resources without limits on rates, and are granted",
            count(result.unlimited)
        );
    }
    push_resources(text, &result.resources);
    push_use(text, &result.resources);
    if result.refused == 0 {
        let _ = writeln!(text, "nothing is refused");
    }
    push_pairs(text, "worst", &result.worst);
    push_pairs(text, "refused first", &result.first_refusals);
    push_pairs(text, "refused longest", &result.longest_refusals);
    if !result.longest_refusals.is_empty() {
        let _ = writeln!(
            text,
            "longest: from the first to the last of refused calls between which no call was granted, nor would have been"
        );
    }
    if let Some(compared) = &result.compared {
        let with = &compared.with;
        push_change(text, "newly refused", with, &compared.newly_refused);
        push_change(text, "no longer refused", with, &compared.no_longer_refused);
    }
}

fn push_resources(text: &mut String, resources: &[ResourceReport]) {
    // Refused calls by cause; a cause that refused nothing on any resource has no column.
    let causes = |of: &Causes| {
        [
            ("by window", of.window),
            ("by bucket", of.bucket),
            ("by quota", of.quota),
            ("by tier", of.tier),
            ("by hard", of.hard),
            ("by global", of.global),
            ("unconfigured", of.unconfigured),
        ]
    };
    let has_refused = |column: usize| {
        let mut all = resources.iter().map(|of| causes(&of.refused_by)[column].1);
        all.any(|calls| 0 < calls)
    };
    let shown: Vec<usize> = (0..causes(&Causes::default()).len())
        .filter(|column| has_refused(*column))
        .collect();
    let names = causes(&Causes::default());
    let mut heading = vec!["resource", "calls", "granted", "refused"];
    heading.extend(shown.iter().map(|column| names[*column].0));
    heading.extend(["domains", "refused"]);
    let mut table = NumbersTable::new(1, &heading);
    for of in resources {
        let by = causes(&of.refused_by);
        let mut row = vec![
            of.resource.clone(),
            count(of.calls),
            count(of.granted),
            count(of.refused),
        ];
        row.extend(shown.iter().map(|column| count(by[*column].1)));
        row.extend([count(of.domains), count(of.domains_refused)]);
        table.push(row);
    }
    table.write(text);
    for of in resources.iter().filter(|of| 0 < of.refused_by.unconfigured) {
        let _ = writeln!(
            text,
            "{} is not configured, and its namespace refuses unconfigured resources",
            escaped(&of.resource)
        );
    }
}

fn push_use(text: &mut String, resources: &[ResourceReport]) {
    let mut table = NumbersTable::new(1, &["use of limits", "p50", "p90", "p99", "p99.9", "max"]);
    for of in resources {
        let mut push = |what: &str, used: Option<Percentiles>| {
            let Some(used) = used else { return };
            let shares = [used.p50, used.p90, used.p99, used.p999, used.max];
            let shares = shares.map(|share| format!("{:.1}%", 100.0 * share));
            let name = format!("{}, {what}", of.resource);
            table.push([vec![name], shares.to_vec()].concat());
        };
        push("after a call", of.use_by_call);
        push("a domain's most", of.use_by_domain);
    }
    if 1 < table.rows.len() {
        table.write(text);
    }
}

fn push_pairs(text: &mut String, what: &str, listed: &[PairReport]) {
    if listed.is_empty() {
        return;
    }
    let mut table = NumbersTable::new(
        2,
        &[
            what, "", "calls", "granted", "refused", "first", "longest", "from",
        ],
    );
    for pair in listed {
        table.push(vec![
            pair.resource.clone(),
            pair.domain.clone(),
            count(pair.calls),
            count(pair.granted),
            count(pair.refused),
            pair.first_refused_us.map(instant).unwrap_or_default(),
            pair.longest_refusal_us.map(span).unwrap_or_default(),
            pair.longest_refusal_from_us
                .map(instant)
                .unwrap_or_default(),
        ]);
    }
    table.write(text);
}

fn push_change(text: &mut String, what: &str, with: &str, change: &PairsChange) {
    let _ = writeln!(
        text,
        "{what}, against {with}: {} pairs, {} calls",
        count(change.pairs),
        count(change.refused)
    );
    push_pairs(text, what, &change.shown);
}

/// A number with thousands separators.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An instant in UTC, without trailing zeros behind the seconds.
pub fn instant(micros: u64) -> String {
    let micros_signed = i64::try_from(micros).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_microsecond(micros_signed) {
        Ok(timestamp) => timestamp.to_string(),
        Err(_) => format!("{micros}us"),
    }
}

/// A span as limits write it, rounded to the millisecond from a second on, and to the second from a
/// minute on.
pub fn span(micros: u64) -> String {
    let rounded = match micros {
        0..1_000_000 => micros,
        1_000_000..60_000_000 => micros / 1_000 * 1_000,
        micros => micros / 1_000_000 * 1_000_000,
    };
    print_span(Span::from_micros(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_thousands() {
        let text = [0, 999, 1_000, 206_860, 1_234_567].map(count);
        assert_eq!(text, ["0", "999", "1,000", "206,860", "1,234,567"]);
    }

    #[test]
    fn instants_are_in_utc() {
        assert_eq!(instant(1_455_944_445_000_000), "2016-02-20T05:00:45Z");
        assert_eq!(instant(250_000), "1970-01-01T00:00:00.25Z");
    }
}
