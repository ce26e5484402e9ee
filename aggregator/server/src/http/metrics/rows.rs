//! Names, sentences and values of gauges and of candidates' counters.

use tollgate_engine::engine::CandidateCounts;

use crate::core::counters::CounterRow as Row;
use crate::core::view::Gauges;

/// Rows of a resource's candidate.
pub(super) fn of_candidate(c: &CandidateCounts) -> [Row; 5] {
    [
        (
            "tollgate_candidate_hits_granted_total",
            "Hits let through that the resource's candidate has room for.",
            c.granted,
        ),
        (
            "tollgate_candidate_hits_refused_total",
            "Hits let through that the resource's candidate would have refused.",
            c.excess,
        ),
        (
            "tollgate_candidate_hits_newly_refused_total",
            "Of them, those that the limits in force had room for.",
            c.newly,
        ),
        (
            "tollgate_candidate_hits_no_longer_refused_total",
            "Hits beyond the limits in force that the candidate has room for.",
            c.no_longer,
        ),
        (
            "tollgate_candidate_denials_total",
            "Times that the candidate would have begun to deny a domain.",
            c.closed,
        ),
    ]
}

/// A gauge: its name, its sentence, and its value.
type Gauge = (&'static str, &'static str, fn(&Gauges) -> u64);

const MEASURED: [Gauge; 19] = [
    (
        "tollgate_partitions_ours",
        "Partitions that this aggregator rules, or is about to.",
        |g| g.partitions_ours,
    ),
    ("tollgate_partitions", "Partitions of the log.", |g| {
        g.partitions
    }),
    (
        "tollgate_partitions_ready",
        "Partitions that are ruled and announced.",
        |g| g.partitions_ready,
    ),
    (
        "tollgate_partitions_stopped",
        "Partitions that stopped with an error.",
        |g| g.partitions_stopped,
    ),
    ("tollgate_pairs", "Pairs that engines know.", |g| g.pairs),
    ("tollgate_statements_live", "Statements in force.", |g| {
        g.live
    }),
    ("tollgate_holds", "Holds and staged transfers.", |g| g.holds),
    ("tollgate_copies", "Copies that are held or staged.", |g| {
        g.copies
    }),
    (
        "tollgate_agents_present",
        "Agents' epochs that send heartbeats, by partition.",
        |g| g.agents_present,
    ),
    (
        "tollgate_agents_away",
        "Agents' epochs that are silent, gone or idle, by partition.",
        |g| g.agents_gone,
    ),
    (
        "tollgate_totals_waiting",
        "Totals that the log may not have yet.",
        |g| g.totals_waiting,
    ),
    (
        "tollgate_denials_waiting",
        "Statements whose decision record the log may not have yet.",
        |g| g.denials_waiting,
    ),
    (
        "tollgate_limits_version",
        "The limits version in force; 0: none.",
        |g| g.limits_version,
    ),
    (
        "tollgate_amendments_in_force",
        "Bans and pardons that last, by partition.",
        |g| g.amended,
    ),
    (
        "tollgate_namespace_switches",
        "Namespaces with switches that override the limits document.",
        |g| g.switches,
    ),
    (
        "tollgate_partitions_behind_limits",
        "Partitions ruled by an older limits version than the newest.",
        |g| g.partitions_behind,
    ),
    (
        "tollgate_limits_file_differs",
        "1 where the limits file differs and is not followed.",
        |g| g.limits_file_differs,
    ),
    (
        "tollgate_limits_file_bad",
        "1 where the limits file has faults.",
        |g| g.limits_file_bad,
    ),
    ("tollgate_log_up", "1 where the log can be reached.", |g| {
        g.log_up
    }),
];

pub(super) fn measured(gauges: &Gauges) -> impl Iterator<Item = Row> {
    MEASURED
        .into_iter()
        .map(|(name, says, value)| (name, says, value(gauges)))
}
