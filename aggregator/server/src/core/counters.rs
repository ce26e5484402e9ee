//! The core's counters, each defined once: field, name on `/metrics`, and sentence. No decision depends on them.

/// A counter as `/metrics` shows it: name, sentence, value.
pub type CounterRow = (&'static str, &'static str, u64);

macro_rules! counters {
    (
        shown { $($counter:ident = $name:literal, $says:literal,)* }
        other { $($(#[$doc:meta])* $other:ident)* }
    ) => {
        /// Counts from the start of the process. Replayed records count again.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $says] pub $counter: u64,)*
            $($(#[$doc])* pub $other: u64,)*
        }

        impl Counters {
            /// Adds the counts of another part.
            pub fn add(&mut self, other: &Self) {
                $(self.$counter += other.$counter;)*
                $(self.$other += other.$other;)*
            }

            /// The counters that `/metrics` shows.
            pub fn rows(&self) -> impl Iterator<Item = CounterRow> {
                [$(($name, $says, self.$counter)),*].into_iter()
            }
        }
    };
}

counters! {
    shown {
        unknown_kinds = "tollgate_records_unknown_total", "Records of a kind that this build does not know and that no aggregator wrote: dead letters.",
        totals_forged = "tollgate_totals_forged_total", "Totals of globally limited resources that no ruling of their source accounts for.",
        epochs_given_up = "tollgate_epochs_given_up_total", "Agents' processes forgotten to make room for others, at engine.epochs_per_partition_max.",
        pairs_evicted = "tollgate_pairs_evicted_total", "Pairs evicted early at engine.pairs_per_partition_max: they remembered nothing any more.",
        pairs_at_cap = "tollgate_hits_at_cap_total", "Hits of new pairs that were only counted, at engine.pairs_per_partition_max.",
        states_compared = "tollgate_states_compared_total", "States of partitions compared with those of another aggregator that rules them.",
        states_differing = "tollgate_states_differing_total", "Of them, those that differed: machines or builds disagree.",
        restored = "tollgate_partitions_restored_total", "Partitions restored from snapshots when they were assigned.",
        records = "tollgate_records_total", "Records ruled.",
        entries = "tollgate_entries_total", "Entries of hits ruled.",
        granted = "tollgate_hits_granted_total", "Hits that the limits had room for. As all counters of rulings, this one counts replayed records too.",
        excess = "tollgate_hits_excess_total", "Hits let through beyond the limits.",
        late = "tollgate_hits_late_total", "Hits that arrived too late to rule: their pair had already seen newer ones.",
        duplicates = "tollgate_entries_duplicate_total", "Entries of batches seen before.",
        not_ruled = "tollgate_entries_not_ruled_total", "Entries of hits that were not ruled: too old, in a batch that is 128 behind its agent's newest, of a new pair at the cap, of too many agents, or in the wrong partition.",
        unconfigured = "tollgate_entries_unconfigured_total", "Entries on resources without limits on their rate.",
        global_excess = "tollgate_hits_global_excess_total", "Hits beyond global limits.",
        corrections = "tollgate_clock_corrections_total", "Records whose agent's clock was wrong by more than 250 ms.",
        foreign = "tollgate_records_foreign_total", "Ticks and identities of another log.",
        totals_out_of_order = "tollgate_totals_out_of_order_total", "Totals that were not after the last applied one of their source: sent again, or too late to count.",
        refused_calls = "tollgate_calls_refused_total", "Calls that agents refused.",
        refused_copies = "tollgate_hits_refused_total", "Hits that agents refused: the copies of refused calls.",
        denials = "tollgate_denials_total", "Statements that deny.",
        lifts = "tollgate_lifts_total", "Statements that lift a denial.",
        denials_recorded = "tollgate_denials_recorded_total", "Statements whose decision record the log has.",
        undecodable = "tollgate_records_undecodable_total", "Records that cannot be read.",
        forged = "tollgate_records_forged_total", "Records whose tag is wrong.",
        skipped = "tollgate_records_skipped_total", "Records of unknown kinds that may be skipped.",
        gaps = "tollgate_log_gaps_total", "Times that records were removed before they could be read.",
        records_lost = "tollgate_records_lost_total", "Records of hits that journal.retention_bytes removed before a snapshot had them.",
        ticks = "tollgate_ticks_total", "Ticks appended.",
        totals = "tollgate_totals_total", "Totals appended.",
        limits_activations = "tollgate_limits_activations_total", "Limits activations appended.",
        append_failures = "tollgate_append_failures_total", "Appends that the log refused.",
        agent_appends = "tollgate_agent_appends_total", "Records appended for agents.",
        agent_refusals = "tollgate_agent_refusals_total", "Records of agents refused for the moment.",
        snapshots = "tollgate_snapshots_given_total", "Snapshots given to agents.",
        asks_dropped = "tollgate_agent_asks_dropped_total", "Requests of agents for snapshots that were dropped because too many waited.",
        snapshots_saved = "tollgate_snapshots_saved_total", "Snapshots of partitions written.",
        snapshots_failed = "tollgate_snapshots_failed_total", "Snapshots of partitions that could not be written.",
        held_back = "tollgate_held_back_total", "Times that a partition waited until the log had the decision records and totals of its rulings.",
        snapshots_refuted = "tollgate_snapshots_refuted_total", "Snapshots of partitions that were not of this log, which was truncated or recreated.",
        pushes = "tollgate_limits_pushes_total", "Limits documents pushed.",
        pushes_void = "tollgate_limits_pushes_void_total", "Pushed limits documents that were void.",
        amendments = "tollgate_amendments_total", "Amendments that operators asked this process for.",
        amendments_void = "tollgate_amendments_void_total", "Of them, those that the log made void.",
        bans_refused = "tollgate_bans_refused_total", "Bans that were refused because a partition has as many as allowed.",
        notices = "tollgate_notices_total", "Notices to agents of a pair near its limit.",
        notices_shed = "tollgate_notices_shed_total", "Hits that left a pair near its limit without a notice to agents: more than 2,000 a second of a partition.",
        hold_ops = "tollgate_hold_operations_total", "Operations on holds.",
        hold_ops_refused = "tollgate_hold_operations_refused_total", "Operations on holds that changed nothing.",
        out_of_turn = "tollgate_hold_records_out_of_turn_total", "Operations that were overtaken, or of an epoch that was over.",
        copies_taken = "tollgate_copies_taken_total", "Copies taken before they were granted.",
        copies_excess = "tollgate_copies_excess_total", "Copies taken beyond the limits.",
        copies_granted = "tollgate_copies_granted_total", "Copies granted before use.",
        copies_not_granted = "tollgate_copies_not_granted_total", "Copies asked for before use and not granted.",
        copies_released = "tollgate_copies_released_total", "Copies given back.",
        copies_staged = "tollgate_copies_staged_total", "Copies staged for another agent.",
        copies_seized = "tollgate_copies_seized_total", "Copies seized from the staging area.",
        copies_unlimited = "tollgate_copies_unlimited_total", "Copies of resources that are not limited by copies.",
        copies_back = "tollgate_copies_back_total", "Copies that were freed because their agent was gone or its epoch was over.",
        heartbeats = "tollgate_heartbeats_total", "Heartbeats of agents.",
        heartbeats_wanted = "tollgate_heartbeats_wanted_total", "Heartbeats after which the aggregator requested a list of holds.",
        holds_ended_by_age = "tollgate_holds_ended_by_age_total", "Holds that ended by their greatest age.",
        holds_ended_by_operator = "tollgate_holds_ended_by_operator_total", "Holds that an operator ended.",
        transfers_ended_by_operator = "tollgate_transfers_ended_by_operator_total", "Transfers whose staged copies an operator released.",
        denials_at_cap = "tollgate_denials_at_cap_total", "Full domains that were not denied, at the cap.",
        agents_gone = "tollgate_agents_gone_total", "Agents that were silent for the timeout, so that their copies were freed.",
        agents_idle = "tollgate_agents_idle_total", "Agents that were silent for the timeout and held nothing.",
        agents_returned = "tollgate_agents_returned_total", "Agents that were silent for the timeout, gone or idle, and sent again.",
        epochs_over = "tollgate_agent_epochs_over_total", "Agents' epochs that were replaced or stopped.",
        agents_twin = "tollgate_agents_twin_total", "Times that two agents of one name were detected.",
        verdicts = "tollgate_verdicts_total", "Verdicts on holds sent to agents.",
    }
    // `/metrics` shows these among the feed's own counters.
    other {
        /// Frames published.
        frames
        /// Of them, those of notices.
        frames_of_notices
    }
}
