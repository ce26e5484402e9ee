//! The counts of one resource, as rows.

use crate::core::counters::CounterRow as Row;
use crate::core::resources::ByResource;

/// Rows of a resource, by its name in the limits.
pub(super) fn of_resource(of: &ByResource) -> [Row; 5] {
    [
        (
            "tollgate_resource_calls_total",
            "Calls that agents let through, by resource. Replayed records do not count.",
            of.calls,
        ),
        (
            "tollgate_resource_refused_total",
            "Calls that agents refused, by resource.",
            of.refused,
        ),
        (
            "tollgate_resource_excess_total",
            "Copies let through beyond the limits, by resource.",
            of.excess,
        ),
        (
            "tollgate_resource_near_total",
            "Notices to agents of a pair near its limit, by resource.",
            of.near,
        ),
        (
            "tollgate_resource_pairs_forgotten_total",
            "Pairs that came under limits which forget what they had used, by resource.",
            of.pairs_forgotten,
        ),
    ]
}
