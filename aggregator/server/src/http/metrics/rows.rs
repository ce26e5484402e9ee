//! The names of metrics, what each means, and where its value stands.

use tollgate_engine::engine::CandidateCounts;

use crate::core::counters::Counters;
use crate::core::view::Gauges;

pub(super) type Row = (&'static str, &'static str, u64);

pub(super) fn counted(c: &Counters) -> [Row; 48] {
    [
        (
            "tollgate_records_unknown_total",
            "Records of a kind that this build does not know and that no aggregator wrote: dead letters.",
            c.unknown_kinds,
        ),
        (
            "tollgate_totals_forged_total",
            "Totals of globally limited resources that no ruling of their source accounts for.",
            c.totals_forged,
        ),
        (
            "tollgate_epochs_given_up_total",
            "Agents' processes given up for others, at engine.epochs_per_partition_max.",
            c.epochs_given_up,
        ),
        (
            "tollgate_pairs_evicted_total",
            "Pairs that left early at engine.pairs_per_partition_max: they remembered nothing any more.",
            c.pairs_evicted,
        ),
        (
            "tollgate_hits_at_cap_total",
            "Hits of new pairs that were only counted, at engine.pairs_per_partition_max.",
            c.pairs_at_cap,
        ),
        (
            "tollgate_states_compared_total",
            "States of partitions compared with what another owner came to.",
            c.states_compared,
        ),
        (
            "tollgate_states_differing_total",
            "Of them, those that differed: machines or builds disagree.",
            c.states_differing,
        ),
        (
            "tollgate_partitions_restored_total",
            "Partitions restored from snapshots when they were assigned.",
            c.restored,
        ),
        ("tollgate_records_total", "Records ruled.", c.records),
        (
            "tollgate_entries_total",
            "Entries of hits ruled.",
            c.entries,
        ),
        (
            "tollgate_hits_granted_total",
            "Hits that the limits had room for.",
            c.granted,
        ),
        (
            "tollgate_hits_excess_total",
            "Hits let through beyond the limits.",
            c.excess,
        ),
        (
            "tollgate_hits_late_total",
            "Hits that came too late to say.",
            c.late,
        ),
        (
            "tollgate_entries_duplicate_total",
            "Entries of batches seen before.",
            c.duplicates,
        ),
        (
            "tollgate_entries_not_ruled_total",
            "Entries that were only counted.",
            c.not_ruled,
        ),
        (
            "tollgate_entries_unconfigured_total",
            "Entries on resources without limits.",
            c.unconfigured,
        ),
        (
            "tollgate_hits_global_excess_total",
            "Hits beyond global limits.",
            c.global_excess,
        ),
        (
            "tollgate_clock_corrections_total",
            "Records whose agent's clock was wrong by more than 250 ms.",
            c.corrections,
        ),
        (
            "tollgate_records_foreign_total",
            "Ticks and identities of another log.",
            c.foreign,
        ),
        (
            "tollgate_totals_out_of_order_total",
            "Totals that did not follow the last applied one.",
            c.totals_out_of_order,
        ),
        (
            "tollgate_totals_bridged_total",
            "Chains of totals that did not go on, and were bridged.",
            c.totals_bridged,
        ),
        (
            "tollgate_calls_refused_total",
            "Calls that agents refused.",
            c.refused_calls,
        ),
        ("tollgate_denials_total", "Statements that deny.", c.denials),
        (
            "tollgate_lifts_total",
            "Statements that lift a denial.",
            c.lifts,
        ),
        (
            "tollgate_denials_recorded_total",
            "Statements whose evidence the log has.",
            c.denials_recorded,
        ),
        (
            "tollgate_records_undecodable_total",
            "Records that cannot be read.",
            c.undecodable,
        ),
        (
            "tollgate_records_forged_total",
            "Records whose tag is wrong.",
            c.forged,
        ),
        (
            "tollgate_records_skipped_total",
            "Records of unknown kinds that may be skipped.",
            c.skipped,
        ),
        (
            "tollgate_log_gaps_total",
            "Times that records were gone before they could be read.",
            c.gaps,
        ),
        ("tollgate_ticks_total", "Ticks appended.", c.ticks),
        ("tollgate_totals_total", "Totals appended.", c.totals),
        (
            "tollgate_pointers_total",
            "Limits pointers appended.",
            c.pointers,
        ),
        (
            "tollgate_append_failures_total",
            "Appends that the log refused.",
            c.append_failures,
        ),
        (
            "tollgate_agent_appends_total",
            "Records appended for agents.",
            c.agent_appends,
        ),
        (
            "tollgate_agent_refusals_total",
            "Records of agents refused for the moment.",
            c.agent_refusals,
        ),
        (
            "tollgate_agent_snapshots_total",
            "Snapshots given to agents.",
            c.snapshots,
        ),
        (
            "tollgate_agent_asks_dropped_total",
            "Asks of agents for snapshots that were dropped because too many wait.",
            c.asks_dropped,
        ),
        (
            "tollgate_snapshots_saved_total",
            "Snapshots of partitions written.",
            c.snapshots_saved,
        ),
        (
            "tollgate_snapshots_failed_total",
            "Snapshots of partitions that could not be written.",
            c.snapshots_failed,
        ),
        (
            "tollgate_held_back_total",
            "Times that a partition waited until the log had the evidence and totals of what it ruled.",
            c.held_back,
        ),
        (
            "tollgate_snapshots_refuted_total",
            "Snapshots of partitions that were not of this log, which lost its end or was made anew.",
            c.snapshots_refuted,
        ),
        (
            "tollgate_limits_pushes_total",
            "Limits documents pushed.",
            c.pushes,
        ),
        (
            "tollgate_limits_pushes_void_total",
            "Pushed limits documents that were void.",
            c.pushes_void,
        ),
        (
            "tollgate_amendments_total",
            "Amendments that operators asked this process for.",
            c.amendments,
        ),
        (
            "tollgate_amendments_void_total",
            "Of them, those that the log made void.",
            c.amendments_void,
        ),
        (
            "tollgate_bans_refused_total",
            "Bans that were refused, since as many last as may.",
            c.bans_refused,
        ),
        (
            "tollgate_notices_total",
            "Times that agents were told of a pair near its limit.",
            c.notices,
        ),
        (
            "tollgate_notices_shed_total",
            "Hits that left a pair near its limit of which nobody was told: more than 2,000 a second of a partition.",
            c.notices_shed,
        ),
    ]
}

pub(super) fn counted_copies(c: &Counters) -> [Row; 24] {
    [
        (
            "tollgate_hold_operations_total",
            "Operations on holds.",
            c.hold_ops,
        ),
        (
            "tollgate_hold_operations_refused_total",
            "Operations on holds that changed nothing.",
            c.hold_ops_refused,
        ),
        (
            "tollgate_hold_records_out_of_turn_total",
            "Operations that were overtaken, or of an epoch that was over.",
            c.out_of_turn,
        ),
        (
            "tollgate_copies_taken_total",
            "Copies taken before they were granted.",
            c.copies_taken,
        ),
        (
            "tollgate_copies_excess_total",
            "Copies taken beyond the limits.",
            c.copies_excess,
        ),
        (
            "tollgate_copies_granted_total",
            "Copies granted before use.",
            c.copies_granted,
        ),
        (
            "tollgate_copies_not_granted_total",
            "Copies asked for before use and not granted.",
            c.copies_not_granted,
        ),
        (
            "tollgate_copies_released_total",
            "Copies given back.",
            c.copies_released,
        ),
        (
            "tollgate_copies_staged_total",
            "Copies staged for another agent.",
            c.copies_staged,
        ),
        (
            "tollgate_copies_seized_total",
            "Copies seized from the staging area.",
            c.copies_seized,
        ),
        (
            "tollgate_copies_unlimited_total",
            "Copies of resources that are not limited by copies.",
            c.copies_unlimited,
        ),
        (
            "tollgate_copies_back_total",
            "Copies that came back from agents that were gone or over.",
            c.copies_back,
        ),
        ("tollgate_beats_total", "Beats of agents.", c.beats),
        (
            "tollgate_beats_wanted_total",
            "Beats after which a list was wanted.",
            c.beats_wanted,
        ),
        (
            "tollgate_holds_ended_by_age_total",
            "Holds that ended by their greatest age.",
            c.holds_ended_by_age,
        ),
        (
            "tollgate_holds_ended_by_operator_total",
            "Holds that an operator ended.",
            c.holds_ended_by_operator,
        ),
        (
            "tollgate_transfers_ended_by_operator_total",
            "Transfers whose staged copies an operator let go.",
            c.transfers_ended_by_operator,
        ),
        (
            "tollgate_denials_at_cap_total",
            "Full domains that were not denied, at the cap.",
            c.denials_at_cap,
        ),
        (
            "tollgate_agents_gone_total",
            "Agents that were silent for the timeout, so that copies of theirs came back.",
            c.agents_gone,
        ),
        (
            "tollgate_agents_idle_total",
            "Agents that were silent for the timeout and held nothing.",
            c.agents_idle,
        ),
        (
            "tollgate_agents_returned_total",
            "Agents that were silent for the timeout, gone or idle, and were heard again.",
            c.agents_returned,
        ),
        (
            "tollgate_agent_epochs_over_total",
            "Agents' epochs that were replaced or stopped.",
            c.epochs_over,
        ),
        (
            "tollgate_agents_twin_total",
            "Signs of two agents of one name.",
            c.agents_twin,
        ),
        (
            "tollgate_verdicts_total",
            "Verdicts on holds told to agents.",
            c.verdicts,
        ),
    ]
}

/// By resource.
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

pub(super) fn measured(g: &Gauges) -> [Row; 19] {
    [
        (
            "tollgate_partitions_ours",
            "Partitions that this aggregator rules, or is about to.",
            g.partitions_ours,
        ),
        (
            "tollgate_partitions",
            "Partitions of the log.",
            g.partitions,
        ),
        (
            "tollgate_partitions_ready",
            "Partitions that are ruled and announced.",
            g.partitions_ready,
        ),
        (
            "tollgate_partitions_stopped",
            "Partitions that stopped with an error.",
            g.partitions_stopped,
        ),
        ("tollgate_pairs", "Pairs that engines know.", g.pairs),
        ("tollgate_statements_live", "Statements in force.", g.live),
        ("tollgate_holds", "Holds and staged transfers.", g.holds),
        (
            "tollgate_copies",
            "Copies that are held or staged.",
            g.copies,
        ),
        (
            "tollgate_agents_beating",
            "Agents' epochs that beat, by partition.",
            g.agents_beating,
        ),
        (
            "tollgate_agents_away",
            "Agents' epochs that are silent, gone or idle, by partition.",
            g.agents_gone,
        ),
        (
            "tollgate_totals_waiting",
            "Totals that the log may not have yet.",
            g.totals_waiting,
        ),
        (
            "tollgate_denials_waiting",
            "Statements whose evidence the log may not have yet.",
            g.denials_waiting,
        ),
        (
            "tollgate_limits_version",
            "The limits version in force; 0: none.",
            g.limits_version,
        ),
        (
            "tollgate_amendments_in_force",
            "Bans and pardons that last, by partition.",
            g.amended,
        ),
        (
            "tollgate_namespace_switches",
            "Namespaces whose switches are turned over what the document says.",
            g.switches,
        ),
        (
            "tollgate_partitions_behind_limits",
            "Partitions ruled by an older limits version than the newest.",
            g.partitions_behind,
        ),
        (
            "tollgate_limits_file_differs",
            "1 where the limits file differs and is not followed.",
            g.limits_file_differs,
        ),
        (
            "tollgate_limits_file_bad",
            "1 where the limits file has faults.",
            g.limits_file_bad,
        ),
        (
            "tollgate_log_up",
            "1 where the log can be reached.",
            g.log_up,
        ),
    ]
}
