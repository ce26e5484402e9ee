//! What is to be the next version: a document, or one record that changes the version in force.
//!
//! ```text
//! set R --domain D      a record of a few bytes
//! import F              a record of F's rows, where one has room for them; else the whole document
//! ```
//!
//! Knows nothing of logs. What stays true: both forms rule alike, and what is bad is neither.

use std::path::Path;

use tollgate_limits::{Limits, NotChanged, Own, Revision, Stated};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::{self, SetRow};

use crate::exit::Failure;
use tollgate_limits::versions::Version;
use tollgate_limits::versions::edit::{TextEdit, apply, listed};
use tollgate_server::record_keys;

/// What is to be the next version.
#[derive(Debug)]
pub(super) enum Wanted {
    /// This document.
    Text(String),
    /// The one in force with this change.
    Change(Act),
}

impl Wanted {
    /// The same, unless it is a document that names a key for aggregators' records which is not in the key file, where
    /// there is one: aggregators that lack a key do not bring the document into force.
    pub(super) fn with_keys(self, key_file: Option<&Path>) -> Result<Self, Failure> {
        let (Self::Text(text), Some(path)) = (&self, key_file) else {
            return Ok(self);
        };
        let keys = record_keys::read(path)
            .map_err(|fault| Failure::Data(format!("security.key_file: {fault}")))?;
        let limits = Limits::parse(text).map_err(|faults| Failure::Data(faults.to_string()))?;
        match keys.missing(limits.record_keys()) {
            None => Ok(self),
            Some(id) => Err(Failure::Data(format!(
                "record_keys names \"{id}\", and {} has no key of this id: expected it there, and in the key files of \
                 all aggregators, before it is named",
                path.display()
            ))),
        }
    }
}

/// The document in force with changes, if it is a good one.
pub(super) fn edited(version: &Version, changes: &[(String, TextEdit)]) -> Result<Wanted, Failure> {
    let text = apply(&version.text, changes).map_err(|why| Failure::Data(why.to_string()))?;
    match Limits::parse(&text) {
        Ok(_) => Ok(Wanted::Text(text)),
        Err(faults) => Err(Failure::Data(faults.in_file("as changed").to_string())),
    }
}

/// What one domain has of its own, changed, if that makes limits.
pub(super) fn set(
    version: &Version,
    resource: &str,
    domain: &str,
    own: Option<Own>,
) -> Result<Wanted, Failure> {
    version
        .limits
        .with_own(resource, domain, own.as_ref())
        .map_err(|why| Failure::Data(format!("limits set: {why}")))?;
    let own = own.unwrap_or_default();
    Ok(Wanted::Change(Act::Set(row_of(resource, domain, &own))))
}

/// The rows of a file, each with its place, as one record where that has room for them.
///
/// Rows that leave all limits as they are go by the document: whoever imports a file twice is to be told that
/// it is in force already, and only the texts tell that.
pub(super) fn imported(version: &Version, rows: &[(String, TextEdit)]) -> Result<Wanted, Failure> {
    match record_of(rows) {
        Some(record) if changes(&version.limits, rows)? => Ok(Wanted::Change(Act::SetMany(record))),
        _ => edited(version, rows),
    }
}

/// The rows for a record, if they fit into one.
fn record_of(rows: &[(String, TextEdit)]) -> Option<Vec<SetRow>> {
    // Longer ones are not even written down.
    if set_rows::ROWS_MAX < rows.len() {
        return None;
    }
    let row = |(_, change): &(String, TextEdit)| {
        let (domain, own) = (change.domain.as_ref()?, change.own.as_ref()?);
        Some(row_of(&change.resource, domain, own))
    };
    let record: Vec<SetRow> = rows.iter().map(row).collect::<Option<_>>()?;
    set_rows::fit(&record).then_some(record)
}

fn row_of(resource: &str, domain: &str, own: &Own) -> SetRow {
    SetRow {
        resource: resource.into(),
        domain: domain.into(),
        rate: own.rate.clone(),
        hard: own.hard.clone(),
        limit: own.limit,
    }
}

/// Whether rows change what anybody has of its own; all that cannot be done is said, each with its place.
fn changes(before: &Limits, rows: &[(String, TextEdit)]) -> Result<bool, Failure> {
    let mut revision = Revision::of(before);
    let mut faults = Vec::new();
    for (place, change) in rows {
        let domain = change.domain.as_deref().unwrap_or_default();
        match revision.set(&change.resource, domain, change.own.as_ref()) {
            Ok(()) => {}
            Err(NotChanged::Faults(why)) => faults.push(why.in_file(place).to_string()),
            Err(why) => faults.push(format!("{place}: {why}")),
        }
    }
    if !faults.is_empty() {
        return Err(Failure::Data(listed(&faults)));
    }
    let after = revision.limits();
    Ok(rows.iter().any(|(_, change)| {
        let domain = change.domain.as_deref().unwrap_or_default();
        own_of(before, &change.resource, domain) != own_of(&after, &change.resource, domain)
    }))
}

/// What a domain has of its own, of whichever kind the resource is.
fn own_of<'l>(
    limits: &'l Limits,
    resource: &str,
    domain: &str,
) -> (Option<&'l Stated>, Option<u64>) {
    let rate = limits
        .rate(resource)
        .and_then(|rate| rate.override_of(domain));
    let copies = limits
        .copies(resource)
        .and_then(|copies| copies.override_of(domain));
    (rate.map(|of| &of.stated), copies)
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::amendment::Amendment;
    use tollgate_shared::wire::{MESSAGE_BYTES_MAX, Writer};

    use super::super::limits_edit::rows;
    use super::*;
    use tollgate_limits::versions::LimitsBook;
    use tollgate_server::core::limits_push::Pushed;

    const DOCUMENT: &str = "[rate.a] # ours\nrate = \"1/s\"\n[rate.a.domains]\nacme = { rate = \"5/s\" }\n\
        [copies.c]\nlimit = 1\nglobal = 40\ndomains = { acme = 50 }\n";

    fn version() -> Version {
        let pushed = Pushed {
            push: 1,
            text: DOCUMENT,
            expected: 0,
            who: "w",
            why: "y",
            at: tollgate_shared::time::Timestamp::ZERO,
        };
        let mut book = LimitsBook::default();
        for (offset, record) in (1..).zip(pushed.records()) {
            let chunk = tollgate_shared::wire::limits_chunk::LimitsChunk::decode(&record);
            book.enter(offset, &chunk.unwrap());
        }
        Version::clone(book.latest().expect("it is good"))
    }

    fn import(csv: &str) -> Result<Wanted, Failure> {
        let rows = rows("f.csv", &format!("resource,domain,rate,hard,limit\n{csv}"))?;
        imported(&version(), &rows)
    }

    #[test]
    fn rows_that_one_record_has_room_for_are_one_record() {
        let made = import("a,acme,,9/s,\na,globex,7/s,,\nc,acme,,,30\na,acme,6/s,,\n").unwrap();
        let Wanted::Change(Act::SetMany(rows)) = made else {
            panic!("{made:?}");
        };
        let domains: Vec<&str> = rows.iter().map(|row| &*row.domain).collect();
        assert_eq!(
            domains,
            ["acme", "globex", "acme", "acme"],
            "in their order"
        );
        assert_eq!(
            (rows[0].rate.as_deref(), rows[0].hard.as_deref()),
            (None, Some("9/s"))
        );
        assert_eq!(rows[2].limit, Some(30));
    }

    #[test]
    fn what_one_record_has_no_room_for_is_a_document() {
        let many = |count: usize, digits: usize| -> String {
            let row = |n| format!("a,{n:0digits$},7/s,,\n");
            (0..count).map(row).collect()
        };
        let is_record = |csv: &str| matches!(import(csv), Ok(Wanted::Change(Act::SetMany(_))));
        assert!(is_record(&many(set_rows::ROWS_MAX, 8)));
        assert!(!is_record(&many(set_rows::ROWS_MAX + 1, 8)));
        // Each has 3 bytes beside the resource's 2, the name's 2 and the rate's 4.
        let room = (set_rows::ROWS_BYTES_MAX - 3) / (200 + 2 + 2 + 4 + 3);
        assert!(is_record(&many(room, 200)));
        assert!(!is_record(&many(room + 1, 200)));
        let Ok(Wanted::Text(text)) = import(&many(room + 1, 200)) else {
            panic!("it is a good document");
        };
        assert!(text.starts_with("[rate.a] # ours\n"));
        assert!(Limits::parse(&text).is_ok());
        // The longest record is a message.
        let Ok(Wanted::Change(act)) = import(&many(room, 200)) else {
            panic!("it has room");
        };
        let mut writer = Writer::new();
        let (who, why) = ("w".repeat(256), "y".repeat(1024));
        let (push, expected) = (u128::MAX, u64::MAX);
        let longest = Amendment {
            push,
            expected,
            who: &who,
            why: &why,
            act,
        };
        longest.encode(&mut writer);
        assert!(writer.as_slice().len() < MESSAGE_BYTES_MAX);
        assert_eq!(Amendment::decode(writer.as_slice()), Ok(longest));
    }

    #[test]
    fn rows_that_change_nothing_are_the_document_in_force() {
        for csv in ["", "a,acme,5/s,,\n", "a,acme,5/s,,\nc,acme,,,50\n"] {
            let Ok(Wanted::Text(text)) = import(csv) else {
                panic!("{csv:?} changes nothing");
            };
            assert_eq!(text, DOCUMENT, "{csv:?}");
        }
        let Ok(Wanted::Change(_)) = import("a,acme,5/s,,\na,globex,1/s,,\n") else {
            panic!("globex had nothing of its own");
        };
    }

    #[test]
    fn rows_that_are_refused_are_named_by_file_and_line_all_together() {
        let bad = "nobody,d,1/s,,\na,d,often,,\na,e,2/s,,\nc,d,2/s,,\na,d*,2/s,,\n";
        let error = import(bad).expect_err("bad").to_string();
        let places: Vec<&str> = error.lines().map(|line| &line[..8]).collect();
        assert_eq!(
            places,
            ["f.csv:2:", "f.csv:3:", "f.csv:5:", "f.csv:6:"],
            "{error}"
        );
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[0], "f.csv:2: resource \"nobody\" is not configured");
        assert!(
            lines[1]
                .starts_with("f.csv:3: resource \"a\": domain \"d\": rate = \"often\": expected")
        );
        assert!(!lines[1].contains("(line"), "of no document: {error}");
    }
}
