//! Help texts of the gateway's metrics.

use metrics::{describe_counter, describe_gauge};

const COUNTERS: [(&str, &str); 9] = [
    ("tollgate_gateway_answers_total", "Answers, by kind."),
    (
        "tollgate_gateway_undecided_total",
        "Requests that were let through without a decision, by reason.",
    ),
    (
        "tollgate_gateway_holds_dropped_total",
        "Holds or estimates above 100,000, which were let through without being kept.",
    ),
    (
        "tollgate_gateway_reports_dropped_total",
        "Refused requests through Envoy above 100,000 whose end has not been reported.",
    ),
    (
        "tollgate_gateway_leases_ended_total",
        "Holds that were given back because their lease ended.",
    ),
    (
        "tollgate_gateway_estimates_unsettled_total",
        "Estimates that were not settled within ten minutes.",
    ),
    (
        "tollgate_gateway_limits_ignored_total",
        "Limits in rate limit requests, which the gateway ignores.",
    ),
    (
        "tollgate_gateway_ended_total",
        "Connections and requests that were ended at a bound, by reason.",
    ),
    (
        "tollgate_gateway_accept_errors_total",
        "Connections that could not be accepted.",
    ),
];

const GAUGES: [(&str, &str); 2] = [
    (
        "tollgate_gateway_holds",
        "Holds of requests through Envoy that are kept.",
    ),
    (
        "tollgate_gateway_leases",
        "Holds of services that are kept.",
    ),
];

/// Gives the process's recorder the help texts.
pub(crate) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
}
