//! What the core counts. Shown as metrics; nothing is decided by it.

macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident)*) => {
        /// Counts from the start of the process. Replayed records count again.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $counter: u64,)*
        }

        impl Counters {
            /// Adds what was counted elsewhere.
            pub fn add(&mut self, other: &Self) {
                $(self.$counter += other.$counter;)*
            }
        }
    };
}

counters! {
    /// Records ruled.
    records
    /// Entries of hits that were ruled.
    entries
    /// Hits granted.
    granted
    /// Hits of excess.
    excess
    /// Hits that came too late to say.
    late
    /// Entries of batches that were seen before.
    duplicates
    /// Entries that were only counted: too old, older than the window of duplicates, at the cap.
    not_ruled
    /// Entries on resources without limits.
    unconfigured
    /// Hits of excess under global limits.
    global_excess
    /// Records whose agent's clock was so wrong that its stamps were moved.
    corrections
    /// Ticks and identities of another log.
    foreign
    /// Totals that did not follow the last applied one: copies, mostly.
    totals_out_of_order
    /// Calls that agents refused.
    refused_calls
    /// Operations on holds, and verdicts on what beats list.
    hold_ops
    /// Of them, those that were refused and changed nothing.
    hold_ops_refused
    /// Operations and parts of beats that came out of turn, or of an epoch that was over.
    out_of_turn
    /// Copies taken into use before they were granted.
    copies_taken
    /// Of them, those that would not have been granted.
    copies_excess
    /// Copies granted before use.
    copies_granted
    /// Copies asked for before use, and not granted.
    copies_not_granted
    /// Copies given back.
    copies_released
    /// Copies staged for another agent.
    copies_staged
    /// Copies seized by another agent.
    copies_seized
    /// Copies taken of resources that are not limited by copies.
    copies_unlimited
    /// Copies that came back because their agent was gone or its epoch over.
    copies_back
    /// Beats applied.
    beats
    /// Of them, those after which a list was wanted.
    beats_wanted
    /// Holds that ended by their greatest age.
    holds_ended_by_age
    /// Full domains that were not denied because as many are as may be.
    denials_at_cap
    /// Agents that were silent for too long, so that copies of theirs came back.
    agents_gone
    /// Agents that were silent for as long and held nothing: they do not beat then.
    agents_idle
    /// Agents of either kind that were heard again.
    agents_returned
    /// Epochs that were replaced, or said themselves that they are over.
    epochs_over
    /// Signs of two agents that have one name.
    agents_twin
    /// Verdicts told to agents.
    verdicts
    /// Statements that deny.
    denials
    /// Statements that lift.
    lifts
    /// Statements whose evidence the log has.
    denials_recorded
    /// Records that cannot be read.
    undecodable
    /// Records whose tag is wrong.
    forged
    /// Records of a kind that this build does not know and that no aggregator wrote.
    unknown_kinds
    /// Totals that no ruling of their source accounts for.
    totals_forged
    /// Agents' processes that were given up for others, at the bound on how many are remembered.
    epochs_given_up
    /// Pairs that left early at the bound on pairs, because they remembered nothing any more.
    pairs_evicted
    /// Entries of new pairs that were only counted, at the bound on pairs.
    pairs_at_cap
    /// Records of a skippable kind that this build does not know.
    skipped
    /// Records that were gone before they could be read.
    gaps
    /// Ticks appended.
    ticks
    /// Totals appended.
    totals
    /// Chains of totals that did not go on, and were bridged.
    totals_bridged
    /// Pointers appended.
    pointers
    /// Appends that the log refused, of whatever kind.
    append_failures
    /// Records appended for agents.
    agent_appends
    /// Records of agents that were refused for the moment.
    agent_refusals
    /// Snapshots given to agents.
    snapshots
    /// Asks for snapshots that were dropped because too many wait.
    asks_dropped
    /// Snapshots of partitions that were written.
    snapshots_saved
    /// Snapshots of partitions that could not be written.
    snapshots_failed
    /// Times that a partition waited until the log had its evidence and totals.
    held_back
    /// Snapshots that were not of this log.
    snapshots_refuted
    /// Partitions restored from snapshots when they were assigned.
    restored
    /// States of partitions that were compared with what another owner came to.
    states_compared
    /// Of them, those that differed: machines or builds disagree.
    states_differing
    /// Documents pushed.
    pushes
    /// Pushed documents that were void.
    pushes_void
    /// Amendments that operators asked this process for.
    amendments
    /// Of them, those that the log made void.
    amendments_void
    /// Bans that were refused, since as many last as may.
    bans_refused
    /// Holds that operators ended.
    holds_ended_by_operator
    /// Transfers whose staged copies operators let go.
    transfers_ended_by_operator
    /// Frames published.
    frames
    /// Of them, those of notices.
    frames_of_notices
    /// Notices: times that agents were told of a pair near its limit.
    notices
    /// Hits that left a pair near its limit of which nobody was told, at the bound on notices.
    notices_shed
}
