//! `tollgate limits show`: the document of a version, or the rows beside it, of Kafka or of a journal.
//!
//! ```text
//! limits show > limits.toml      limits show --rows > rows.csv       ── elsewhere ──> limits push, limits import
//! ```
//!
//! What stays true: `limits import` reads the rows that are written here, and results in the same rows.

use std::fmt::Write as _;
use std::path::Path;

use tollgate_limits::versions::Version;
use tollgate_limits::{Limits, OverrideRow};
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::limits_of;
use tollgate_shared::hex::hex;

use super::Global;
use super::logs::failure;
use super::output::Format;
use crate::exit::{Exit, Failure};

/// Prints a version of a journal, by default the one in force.
///
/// # Errors
///
/// If the journal cannot be read, or has no such version.
pub(super) fn show_journal(
    global: &Global,
    dir: &Path,
    number: Option<u64>,
    rows: bool,
) -> Result<Exit, Failure> {
    let source = JournalSource::open(dir).map_err(failure)?;
    let book = limits_of(&source).map_err(failure)?;
    let wanted = number.unwrap_or_else(|| book.latest_number());
    match (book.get(wanted), number) {
        (Some(version), _) => show(global, version, rows),
        (None, None) => Err(Failure::Data("the log has no limits version".to_owned())),
        (None, Some(wanted)) => Err(Failure::Data(format!(
            "version {wanted}: there is no such version; the newest is {}",
            book.latest_number()
        ))),
    }
}

/// Prints a version's document, or the rows beside it.
///
/// # Errors
///
/// If the output cannot be written.
pub(super) fn show(global: &Global, version: &Version, rows: bool) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    match (rows, version.limits.rows_len()) {
        (true, _) if global.format == Format::Json => {
            for row in version.limits.rows() {
                output.json(&json_of_row(&row))?;
            }
        }
        (false, beside) if global.format == Format::Json => output.json(&serde_json::json!({
            "schema": "tollgate.limits_version/1",
            "version": version.number,
            "digest": hex(&version.digest),
            "text": &*version.text,
            "rows": beside,
        }))?,
        (true, _) => output.document(&rows_text(&version.limits))?,
        (false, beside) => {
            output.document(&version.text)?;
            if 0 < beside {
                remark!(
                    "tollgate: beside the document {beside} domains have rows of their own: limits show --rows"
                );
            }
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}

fn json_of_row(row: &OverrideRow<'_>) -> serde_json::Value {
    serde_json::json!({
        "schema": "tollgate.limits_row/1",
        "resource": row.resource,
        "domain": row.domain,
        "rate": row.own.rate,
        "hard": row.own.hard,
        "limit": row.own.limit,
    })
}

/// The rows as a CSV file.
pub(super) fn rows_text(limits: &Limits) -> String {
    let mut text = "resource,domain,rate,hard,limit\n".to_owned();
    for OverrideRow {
        resource,
        domain,
        own,
    } in limits.rows()
    {
        let limit = own.limit.map(|limit| limit.to_string());
        let fields = [
            Some(resource),
            Some(domain),
            own.rate.as_deref(),
            own.hard.as_deref(),
            limit.as_deref(),
        ];
        let fields = fields.map(|field| csv_field(field.unwrap_or_default()));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", fields.join(","));
    }
    text
}

/// A CSV field, quoted if needed.
fn csv_field(text: &str) -> String {
    match text.contains([',', '"']) || text.trim() != text {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits_edit::rows;
    use super::*;
    use tollgate_limits::Revision;

    #[test]
    fn rows_are_written_as_an_import_reads_them() {
        let document = "[rate.a]\nrate = \"1/s\"\n[copies.c]\nlimit = 1\n";
        let mut revision = Revision::of(&Limits::parse(document).expect("it is good"));
        let csv = "resource,domain,rate,hard,limit\n\
            a,\" acme\",5/s,,\na,\"b, \"\"inc\"\"\",5/s,9/s,\na,d,,9/s,\nc,\"e\u{a0}\",,,7\n";
        for (_, row) in rows("f.csv", csv.as_bytes()).expect("good rows") {
            let domain = row.domain.expect("a domain");
            let set = revision.set(&row.resource, &domain, row.own.as_ref());
            set.expect("it can be set");
        }
        assert_eq!(rows_text(&revision.limits()), csv);
    }
}
