//! Of which resources a version forgets what was used, for who pushes it.
//!
//! Knows no log. What stays true: limits that are wrong are no business of this room, and nothing is said of them.

use tollgate_limits::{Forgotten, Limits, Revision, forgotten};

use super::limits_wanted::Wanted;
use tollgate_limits::versions::own_of;

/// What is forgotten, and how many further lines of it there are.
pub(super) type Forgets = (Vec<Forgotten>, u64);

/// What would be forgotten of what counts under the latest limits.
pub(super) fn forgets_of(latest: &Limits, wanted: &Wanted) -> Forgets {
    let next = match wanted {
        Wanted::Text(text) => Limits::parse(text).ok(),
        Wanted::Change(act) => {
            let mut revision = Revision::of(latest);
            let set = act.rows().iter().try_for_each(|row| {
                let own = own_of(row);
                revision.set(&row.resource, &row.domain, own.as_ref())
            });
            set.is_ok().then(|| revision.limits())
        }
    };
    next.map_or_else(Forgets::default, |next| forgotten(latest, &next))
}

/// The same for people, a line each.
pub(super) fn lines_of((lines, omitted): &Forgets) -> Vec<String> {
    let mut all: Vec<String> = lines.iter().map(Forgotten::to_string).collect();
    if 0 < *omitted {
        all.push(format!("and {omitted} more of that kind"));
    }
    if !all.is_empty() {
        all.push(
            "of how many pairs: each aggregator counts them as they come, in tollgate_resource_pairs_forgotten_total"
                .to_owned(),
        );
    }
    all
}
