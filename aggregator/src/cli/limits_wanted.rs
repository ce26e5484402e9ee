//! The next version: a document, or records that change the version in force.
//!
//! ```text
//! set R --domain D      a record of a few bytes
//! import F              F's rows in their order, in as few records as possible
//! ```
//!
//! Knows nothing of logs. What stays true: an invalid document or change is refused; rows with a fault make no
//! record.

use std::mem::take;
use std::path::Path;

use tollgate_limits::{Limits, Own};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::{self, SetRow};

use super::document_edit::{TextEdit, apply};
use super::limits_edit::changed;
use crate::exit::Failure;
use tollgate_limits::versions::{Version, digest};
use tollgate_server::record_keys;

/// What is to be in force: first the document, if there is one, then the changes in their order. Each is a record and
/// a version of its own.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// The document.
    pub(super) document: Option<String>,
    /// Changes of the version that is in force by then.
    pub(super) changes: Vec<Act>,
}

impl Wanted {
    /// A document.
    pub(super) fn document(text: String) -> Self {
        Self {
            document: Some(text),
            ..Self::default()
        }
    }

    /// Changes of the version in force.
    pub(super) fn changes(changes: Vec<Act>) -> Self {
        Self {
            changes,
            ..Self::default()
        }
    }

    /// What remains to be done over the version in force: an identical document is not pushed again.
    pub(super) fn over(mut self, latest: &Version) -> Self {
        self.document
            .take_if(|text| latest.text.digest() == digest(text.as_bytes()));
        self
    }

    /// Whether nothing remains to be done.
    pub(super) fn is_done(&self) -> bool {
        self.document.is_none() && self.changes.is_empty()
    }

    /// Checks, if there is a key file, that it has all record keys that the document names: aggregators that lack a
    /// key do not activate the document.
    pub(super) fn with_keys(self, key_file: Option<&Path>) -> Result<Self, Failure> {
        let (Some(text), Some(path)) = (&self.document, key_file) else {
            return Ok(self);
        };
        let keys = record_keys::read(path)
            .map_err(|fault| Failure::of_key_file("security.key_file", fault))?;
        let limits =
            Limits::parse_logged(text).map_err(|faults| Failure::Data(faults.to_string()))?;
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

/// The document in force with changes, if the result is valid.
pub(super) fn edited(version: &Version, changes: &[(String, TextEdit)]) -> Result<Wanted, Failure> {
    let text = apply(&version.text, changes).map_err(|why| Failure::Data(why.to_string()))?;
    match Limits::parse(&text) {
        Ok(_) => Ok(Wanted::document(text)),
        Err(faults) => Err(Failure::Data(faults.in_file("as changed").to_string())),
    }
}

/// A change of one domain's own limits, if the result is valid.
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
    let row = row_of(resource, domain, &own);
    Ok(Wanted::changes(vec![Act::Set(row)]))
}

/// The rows of a file, each with its place, as records. Rows that are beside the document already are left out: importing
/// a file twice, or again after some of its records were taken, does only the rest. One that states what the document
/// states is not: it stays when another document is pushed.
pub(super) fn imported(version: &Version, rows: &[(String, TextEdit)]) -> Result<Wanted, Failure> {
    let before = &*version.limits;
    let after = changed(before, rows)?;
    let changes = rows.iter().filter_map(|(_, change)| {
        let domain = change.domain.as_deref().unwrap_or_default();
        // Without its canonical spelling, the row would seem to change nothing.
        let limited = before.domain_of_entry(&change.resource, domain);
        let limited = limited.as_deref().unwrap_or(domain);
        let own = |limits: &Limits| limits.row_of(&change.resource, limited);
        (own(before) != own(&after)).then(|| {
            let own = change.own.clone().unwrap_or_default();
            row_of(&change.resource, domain, &own)
        })
    });
    Ok(Wanted::changes(records_of(changes)))
}

/// Rows in their order, in as few records as possible.
pub(super) fn records_of(rows: impl IntoIterator<Item = SetRow>) -> Vec<Act> {
    let mut records = Vec::new();
    let (mut record, mut bytes) = (Vec::new(), set_rows::HEAD_BYTES_MAX);
    for row in rows {
        let more = set_rows::bytes_of(&row);
        let is_full = record.len() == set_rows::ROWS_MAX || set_rows::ROWS_BYTES_MAX < bytes + more;
        if is_full {
            records.push(Act::SetMany(take(&mut record)));
            bytes = set_rows::HEAD_BYTES_MAX;
        }
        bytes += more;
        record.push(row);
    }
    if !record.is_empty() {
        records.push(Act::SetMany(record));
    }
    records
}

/// A row with these limits of a domain; without any it removes them.
pub(super) fn row_of(resource: &str, domain: &str, own: &Own) -> SetRow {
    SetRow {
        resource: resource.into(),
        domain: domain.into(),
        rate: own.rate.clone(),
        hard: own.hard.clone(),
        limit: own.limit,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        let at = tollgate_shared::time::Timestamp::ZERO;
        book.read(1, at, &pushed.record()).unwrap();
        Version::clone(book.latest().expect("it is good"))
    }

    fn import(csv: &str) -> Result<Wanted, Failure> {
        import_into(&version(), csv)
    }

    fn import_into(version: &Version, csv: &str) -> Result<Wanted, Failure> {
        let rows = rows(
            "f.csv",
            format!("resource,domain,rate,hard,limit\n{csv}").as_bytes(),
        )?;
        imported(version, &rows)
    }

    /// The rows of each record that a file makes.
    fn records(csv: &str) -> Vec<Vec<SetRow>> {
        let wanted = import(csv).expect("good rows");
        assert!(wanted.document.is_none());
        wanted
            .changes
            .iter()
            .map(|act| act.rows().to_vec())
            .collect()
    }

    #[test]
    fn rows_that_one_record_has_room_for_are_one_record() {
        let made = records("a,acme,,9/s,\na,globex,7/s,,\nc,acme,,,30\na,acme,6/s,,\n");
        let [rows] = &made[..] else {
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
    fn rows_that_exceed_one_record_continue_in_the_next() {
        let many = |count: usize, digits: usize| -> String {
            let row = |n| format!("a,{n:0digits$},7/s,,\n");
            (0..count).map(row).collect()
        };
        let lengths = |csv: &str| -> Vec<usize> { records(csv).iter().map(Vec::len).collect() };
        assert_eq!(lengths(&many(set_rows::ROWS_MAX, 8)), [set_rows::ROWS_MAX]);
        let more = records(&many(2 * set_rows::ROWS_MAX + 1, 8));
        let domains = more.iter().flatten().map(|row| &*row.domain);
        assert!(domains.is_sorted() && more.len() == 3 && more[2].len() == 1);
        // Each has 3 bytes beside the resource's 2, the name's 2 and the rate's 4.
        let room = (set_rows::ROWS_BYTES_MAX - 3) / (200 + 2 + 2 + 4 + 3);
        assert_eq!(lengths(&many(room, 200)), [room]);
        assert_eq!(lengths(&many(room + 1, 200)), [room, 1]);
        // The longest record fits into a message.
        let mut writer = Writer::new();
        let (who, why) = ("w".repeat(256), "y".repeat(1024));
        let (push, expected) = (u128::MAX, u64::MAX);
        let longest = Amendment {
            push,
            expected,
            who: &who,
            why: &why,
            act: Act::SetMany(records(&many(room, 200)).remove(0)),
        };
        longest.encode(&mut writer);
        assert!(writer.as_slice().len() < MESSAGE_BYTES_MAX);
        assert_eq!(Amendment::decode(writer.as_slice()), Ok(longest));
    }

    #[test]
    fn rows_that_change_nothing_make_no_record() {
        let rows = "a,acme,5/s,,\na,2001:DB8::/32,7/s,,\nc,acme,,,50\n";
        let [made] = &import(rows).expect("good rows").changes[..] else {
            panic!("one record, though the document states the same of acme");
        };
        assert_eq!(made.rows().len(), 3);
        let mut taken = version();
        let lines = super::super::limits_edit::rows(
            "f.csv",
            format!("resource,domain,rate,hard,limit\n{rows}").as_bytes(),
        );
        taken.limits =
            Arc::new(changed(&version().limits, &lines.expect("good rows")).expect("good"));
        for csv in ["", "a,acme,5/s,,\n", rows] {
            let wanted = import_into(&taken, csv).expect("good rows");
            assert!(wanted.changes.is_empty(), "{csv:?} changes nothing");
        }
        let made = records("a,acme,5/s,,\na,globex,1/s,,\n");
        assert_eq!(made.len(), 1, "globex had nothing of its own");
        let made = records("a,2001:DB8::/32,7/s,,\n");
        assert_eq!(made.len(), 1, "a network in another spelling");
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
