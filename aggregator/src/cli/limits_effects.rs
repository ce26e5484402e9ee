//! Tells the pusher of a version what it has as an effect beside its limits: usage that it forgets, rows that it removes.
//!
//! ```text
//! in force   [rate.a] windows 10/s, 1000/h     [rate.b]     rows: b acme 5/s, b globex 7/s
//! wanted     [rate.a] windows 10/s             a: forgets what was used of window "1h"     b: removes its 2 rows
//! ```
//!
//! Knows no log. What stays true: a version that would be void has a fault here, so that it is not appended.

use tollgate_limits::versions::own_of;
use tollgate_limits::{DroppedRows, Forgotten, Limits, NotChanged, Revision, forgotten};

use super::limits_wanted::Wanted;
use crate::exit::Failure;

/// The resources, and the number of further ones.
pub(super) type Forgets = (Vec<Forgotten>, u64);

/// The effects of a version.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The usage that it forgets.
    pub(super) forgets: Forgets,
    /// The rows that it removes.
    pub(super) dropped: Vec<DroppedRows>,
}

/// The effects of a wanted version over the latest limits.
///
/// # Errors
///
/// If the log would refuse it: a row cannot stand beside its document, or a change is not possible.
pub(super) fn effects_of(latest: &Limits, wanted: &Wanted) -> Result<Effects, Failure> {
    let refused = |why: NotChanged| Failure::Data(why.to_string());
    let (document, dropped) = match &wanted.document {
        Some(text) => {
            let document =
                Limits::parse_logged(text).map_err(|faults| Failure::Data(faults.to_string()))?;
            let dropped = document.rows_dropped_of(latest);
            let document = document.with_rows_of(latest).map_err(refused)?;
            (document, dropped)
        }
        None => (latest.clone(), Vec::new()),
    };
    let mut revision = Revision::of(&document);
    for row in wanted.changes.iter().flat_map(|act| act.rows()) {
        let own = own_of(row);
        let set = revision.set(&row.resource, &row.domain, own.as_ref());
        set.map_err(refused)?;
    }
    Ok(Effects {
        forgets: forgotten(latest, &revision.limits()),
        dropped,
    })
}

impl Effects {
    /// The same for people, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut all: Vec<String> = self.dropped.iter().map(DroppedRows::to_string).collect();
        all.extend(lines_of(&self.forgets));
        all
    }
}

/// Forgotten usage for people, one line each.
pub(super) fn lines_of((lines, omitted): &Forgets) -> Vec<String> {
    let mut all: Vec<String> = lines.iter().map(Forgotten::to_string).collect();
    if 0 < *omitted {
        all.push(format!("and {omitted} more of that kind"));
    }
    if !all.is_empty() {
        all.push(
            "the number of pairs is not known yet: each aggregator counts them in tollgate_resource_pairs_forgotten_total"
                .to_owned(),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limits::Own;

    const ADDRESSES: &str = "addresses = { v4 = 32, v6 = 128 }";

    fn document(addresses: &str, more: &str) -> String {
        format!("[rate.a]\nrate = \"1/s\"\n{addresses}\n{more}\n")
    }

    fn with_rows(text: &str, rows: &[(&str, &str)]) -> Limits {
        let mut revision = Revision::of(&Limits::parse(text).expect("it is good"));
        for (resource, domain) in rows {
            let own = Own {
                rate: (*resource != "c").then(|| "9/s".into()),
                hard: None,
                limit: (*resource == "c").then_some(9),
            };
            let set = revision.set(resource, domain, Some(&own));
            set.expect("it can be set");
        }
        revision.limits()
    }

    #[test]
    fn a_document_that_rows_cannot_stand_beside_is_a_fault_before_it_is_pushed() {
        let latest = with_rows(&document(ADDRESSES, ""), &[("a", "10.0.0.0/28")]);
        let wide = Wanted::document(document("addresses = { v4 = 24 }", ""));
        let fault = effects_of(&latest, &wide).expect_err("it is wider");
        assert!(matches!(fault, Failure::Data(_)), "65");
        let expected = "resource \"a\": a row beside the document: domain \"10.0.0.0/28\": is a part of \"10.0.0.0/24\"";
        assert!(fault.to_string().starts_with(expected), "{fault}");

        let two = [("a", "10.0.0.7"), ("a", "10.0.0.8")];
        let latest = with_rows(&document("", ""), &two);
        let fault = effects_of(&latest, &wide).expect_err("two rows of one network");
        assert!(fault.to_string().contains("one row for each"), "{fault}");
        let same = Wanted::document(document("", "hard = \"5/s\""));
        assert!(effects_of(&latest, &same).is_ok());
    }

    #[test]
    fn rows_that_a_document_has_no_place_for_are_counted_by_resource() {
        let both = document("", "[rate.b]\nrate = \"1/s\"\n[copies.c]\nlimit = 1");
        let rows = [("a", "x"), ("b", "x"), ("b", "y"), ("c", "x")];
        let latest = with_rows(&both, &rows);
        let lines = |text: &str| {
            let effects = effects_of(&latest, &Wanted::document(text.to_owned()));
            let effects = effects.expect("it is good");
            let rows = effects.dropped.iter().map(|of| (&*of.resource, of.rows));
            let lines = effects.dropped.iter().map(DroppedRows::to_string);
            assert_eq!(
                effects.lines()[..effects.dropped.len()],
                lines.collect::<Vec<_>>()
            );
            format!("{:?}", rows.collect::<Vec<_>>())
        };
        assert_eq!(lines(&both), "[]");
        // A resource that is limited by the other kind has none of these rows either.
        let without = document("", "[rate.c]\nrate = \"1/s\"");
        assert_eq!(lines(&without), "[(\"b\", 2), (\"c\", 1)]");
    }
}
