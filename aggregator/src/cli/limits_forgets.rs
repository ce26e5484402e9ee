//! Tells the pusher of a version of which resources it forgets usage.
//!
//! Knows no log. What stays true: for invalid limits nothing is reported here; other code refuses them.

use tollgate_limits::{Forgotten, Limits, Revision, forgotten};

use super::limits_wanted::Wanted;
use tollgate_limits::versions::own_of;

/// The resources, and the number of further ones.
pub(super) type Forgets = (Vec<Forgotten>, u64);

/// What would be forgotten of the usage under the latest limits.
pub(super) fn forgets_of(latest: &Limits, wanted: &Wanted) -> Forgets {
    let next = || {
        let document = wanted
            .document
            .as_ref()
            .map(|text| Limits::parse_logged(text));
        let document = document.transpose().ok()?;
        let mut revision = Revision::of(document.as_ref().unwrap_or(latest));
        for row in wanted.changes.iter().flat_map(|act| act.rows()) {
            let own = own_of(row);
            revision
                .set(&row.resource, &row.domain, own.as_ref())
                .ok()?;
        }
        Some(revision.limits())
    };
    next().map_or_else(Forgets::default, |next| forgotten(latest, &next))
}

/// The same for people, one line each.
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
