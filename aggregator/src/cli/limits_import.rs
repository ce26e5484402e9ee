//! `tollgate limits import --url`: imports the rows of a file through an aggregator.
//!
//! ```text
//! F: 2,000 rows ── POST /v1/amendments, as many as one body takes ── version 19 ── the next part ── ...
//! ```
//!
//! For a journal, which only its aggregator writes, and for callers without permissions on Kafka. All rows are checked
//! against the limits in force before the first part is sent, so that a fault is named by its line and leaves nothing
//! half done; the aggregator checks each part again. What stays true: rows are sent in their order, and if a version is
//! expected, each part expects that of the part before it.

use std::path::Path;
use std::time::Duration;

use super::document_edit::TextEdit;
use super::operator::{OperatorNote, asked, limits_in_force, report_all};
use super::{Global, input_name, limits_edit, open_table};
use crate::exit::{Exit, Failure};
use tollgate_api::amend::{AmendRequest, AmendRow};

/// Bytes of rows in one request: an aggregator accepts bodies of 64 KiB, which include the reason.
const PART_BYTES_MAX: usize = 48 << 10;

/// Below the twenty amendments a second that an aggregator takes from one address, which it counts if there are more.
const PART_EVERY: Duration = Duration::from_millis(60);

/// Asks an aggregator to set the rows of a file.
///
/// # Errors
///
/// If a row cannot be set, with its line; and if a part is refused all the same: the parts before it stay in force.
pub(super) fn import(
    global: &Global,
    url: &str,
    file: &Path,
    note: &OperatorNote,
) -> Result<Exit, Failure> {
    let mut rows = limits_edit::rows(&input_name(file), open_table(file)?)?;
    let limits = limits_in_force(url)?;
    limits_edit::name_as_in_log(&global.domains()?, &limits, &mut rows)?;
    limits_edit::changed(&limits, &rows)?;
    let (places, rows): (Vec<String>, Vec<AmendRow>) = { rows.into_iter() }
        .map(|(place, row)| (place, row_of(row)))
        .unzip();
    let mut places = &*places;
    let parts = parts_of(rows);
    let (count, mut expected) = (parts.len(), note.expect_version);
    let mut answers = Vec::with_capacity(count);
    for (done, rows) in parts.into_iter().enumerate() {
        let (of_rows, after) = places.split_at(rows.len().min(places.len()));
        places = after;
        let request = AmendRequest {
            act: "set".to_owned(),
            rows: rows.clone(),
            ..AmendRequest::default()
        };
        if 0 < done {
            std::thread::sleep(PART_EVERY);
        }
        let mut of_part = note.clone();
        of_part.expect_version = expected;
        let answer = asked(global, url, &of_part, request);
        let answer = answer.map_err(|failure| placed(failure, &rows, of_rows));
        let answer = answer.inspect_err(|_| {
            if 0 < done && !note.dry_run {
                remark!(
                    "tollgate: {done} of {count} parts are in force: run the same command again, which sends all"
                );
            }
        })?;
        // Without a stated version, other acts may come between: each part is checked again.
        if expected.is_some() && !note.dry_run {
            expected = Some(answer.version);
        }
        answers.push(answer);
    }
    report_all(global, &answers)
}

/// An aggregator's refusal of a part, with the place of the row that it names, or of all of them.
fn placed(failure: Failure, rows: &[AmendRow], places: &[String]) -> Failure {
    let Failure::Data(text) = failure else {
        return failure;
    };
    let is_named = |row: &AmendRow| text.starts_with(&format!("domain {:?}: ", row.domain));
    let named = { rows.iter().zip(places) }.find(|(row, _)| is_named(row));
    Failure::Data(match (named, places) {
        (Some((_, place)), _) => format!("{place}: {text}"),
        (None, [first, .., last]) => format!("{first} to {last}: {text}"),
        (None, _) => format!("{}: {text}", places.concat()),
    })
}

fn row_of(row: TextEdit) -> AmendRow {
    let own = row.own.unwrap_or_default();
    AmendRow {
        resource: row.resource,
        domain: row.domain.unwrap_or_default(),
        rate: own.rate.map(Into::into),
        hard: own.hard.map(Into::into),
        limit: own.limit,
    }
}

/// Rows in their order, in as few parts as possible.
fn parts_of(rows: Vec<AmendRow>) -> Vec<Vec<AmendRow>> {
    let mut parts: Vec<Vec<AmendRow>> = Vec::new();
    let mut left = 0;
    for row in rows {
        // Rows consist of texts and numbers, which JSON can always represent.
        let bytes = serde_json::to_string(&row).map_or(PART_BYTES_MAX, |text| text.len() + 1);
        match parts.last_mut() {
            Some(part) if bytes <= left => {
                left -= bytes;
                part.push(row);
            }
            _ => {
                left = PART_BYTES_MAX.saturating_sub(bytes);
                parts.push(vec![row]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_place_of_its_row() {
        let row = |domain: &str| AmendRow {
            domain: domain.to_owned(),
            ..AmendRow::default()
        };
        let (rows, places) = (["a", "b\"c", "d"], ["f.csv:2", "f.csv:4", "f.csv:5"]);
        let (rows, places) = (rows.map(row), places.map(str::to_owned));
        let placed = |text: &str| placed(Failure::Data(text.to_owned()), &rows, &places);
        for (text, expected) in [
            (r#"domain "b\"c": no"#, r#"f.csv:4: domain "b\"c": no"#),
            ("rows: no", "f.csv:2 to f.csv:5: rows: no"),
        ] {
            assert_eq!(placed(text).to_string(), expected);
        }
    }

    #[test]
    fn rows_go_in_their_order_in_parts_that_a_body_takes() {
        let row = |n: usize| AmendRow {
            resource: "api.search".to_owned(),
            domain: format!("tenant-{n}"),
            rate: Some("9/s".to_owned()),
            ..AmendRow::default()
        };
        let rows: Vec<AmendRow> = (0..2_000).map(row).collect();
        let parts = parts_of(rows.clone());
        assert_eq!(parts.concat(), rows);
        let bytes = |part: &Vec<AmendRow>| serde_json::to_string(part).expect("JSON").len();
        assert!(1 < parts.len() && parts.iter().all(|part| bytes(part) <= PART_BYTES_MAX + 2));
        let whole = &parts[..parts.len() - 1];
        assert!(whole.iter().all(|part| PART_BYTES_MAX - 100 < bytes(part)));
        assert!(parts_of(Vec::new()).is_empty());
    }
}
