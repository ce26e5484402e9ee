//! Limits of domains beside a document, rolled back to those of an earlier version.
//!
//! ```text
//! version 18   acme 5/s   globex 7/s          rolled back to 18 from 21: acme 5/s again, initech removed
//! version 21   acme 9/s   globex 7/s   initech 1/s
//! ```
//!
//! Knows nothing of logs. What stays true: document and rows are those of the earlier version.

use std::collections::BTreeMap;

use tollgate_limits::{Limits, Own};
use tollgate_shared::wire::set_rows::SetRow;

use super::limits_history::History;
use super::limits_wanted::{Wanted, records_of, row_of};
use crate::exit::Failure;

/// The document and changes that restore an earlier version.
pub(super) fn rolled_back(history: &History, version: u64) -> Result<Wanted, Failure> {
    let wanted = &history.find(Some(version))?.version;
    let nothing = Limits::default();
    let latest = history.book.latest();
    let before = latest.map_or(&nothing, |latest| &latest.limits);
    let document =
        Limits::parse_logged(&wanted.text).map_err(|faults| Failure::Data(faults.to_string()))?;
    let after = document
        .with_rows_of(before)
        .map_err(|why| Failure::Data(format!("limits rollback: {why}")))?;
    Ok(Wanted {
        document: Some(wanted.text.to_string()),
        changes: records_of(between(&after, &wanted.limits)),
    })
}

/// The rows that change those of one version into those of another.
fn between(from: &Limits, to: &Limits) -> Vec<SetRow> {
    let named = |limits| -> BTreeMap<(&str, &str), Own> {
        let rows = Limits::rows(limits);
        rows.map(|row| ((row.resource, row.domain), row.own))
            .collect()
    };
    let (mut old, new) = (named(from), named(to));
    let mut changes = Vec::new();
    let removed = Own::default();
    for ((resource, domain), own) in &new {
        let before = old.remove(&(*resource, *domain));
        if before.as_ref() == Some(own) {
            continue;
        }
        // Fields that a row does not state stay as they were.
        if before.is_some_and(|before| own.clone().or(Some(&before)) != *own) {
            changes.push(row_of(resource, domain, &removed));
        }
        changes.push(row_of(resource, domain, own));
    }
    let gone = old.keys();
    changes.extend(gone.map(|(resource, domain)| row_of(resource, domain, &removed)));
    changes
}

#[cfg(test)]
mod tests {
    use super::super::limits_edit::rows;
    use super::super::limits_show::rows_text;
    use super::*;
    use tollgate_limits::Revision;

    const DOCUMENT: &str = "[rate.a]\nrate = \"1/s\"\n[copies.c]\nlimit = 1\n";

    fn with_rows(csv: &str) -> Limits {
        let mut revision = Revision::of(&Limits::parse(DOCUMENT).expect("it is good"));
        let csv = format!("resource,domain,rate,hard,limit\n{csv}");
        for (_, row) in rows("f.csv", csv.as_bytes()).expect("good rows") {
            let domain = row.domain.expect("a domain");
            let set = revision.set(&row.resource, &domain, row.own.as_ref());
            set.expect("it can be set");
        }
        revision.limits()
    }

    #[test]
    fn rows_of_an_earlier_version_come_back_by_the_rows_that_differ() {
        let earlier = with_rows("a,same,5/s,,\na,less,5/s,,\na,gone,5/s,,\nc,e,,,7\n");
        let later = with_rows("a,same,5/s,,\na,less,7/s,9/s,\na,new,5/s,,\nc,e,,,9\n");
        let changes = between(&later, &earlier);
        let domains: Vec<&str> = changes.iter().map(|row| &*row.domain).collect();
        // To drop a field, the row is removed first.
        assert_eq!(domains, ["gone", "less", "less", "e", "new"]);
        let mut revision = Revision::of(&later);
        for row in &changes {
            let own = tollgate_limits::versions::own_of(row);
            let set = revision.set(&row.resource, &row.domain, own.as_ref());
            set.expect("it can be set");
        }
        assert_eq!(rows_text(&revision.limits()), rows_text(&earlier));
    }
}
