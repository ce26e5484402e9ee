//! What the core counts. Shown as metrics; nothing is decided by it.

/// Counts from the start of the process. Replayed records count again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records ruled.
    pub records: u64,
    /// Entries of hits that were ruled.
    pub entries: u64,
    /// Hits granted.
    pub granted: u64,
    /// Hits of excess.
    pub excess: u64,
    /// Hits that came too late to say.
    pub late: u64,
    /// Entries of batches that were seen before.
    pub duplicates: u64,
    /// Entries that were only counted: too old, older than the window of duplicates, at the cap.
    pub not_ruled: u64,
    /// Entries on resources without limits.
    pub unconfigured: u64,
    /// Hits of excess under global limits.
    pub global_excess: u64,
    /// Records whose agent's clock was so wrong that its stamps were moved.
    pub corrections: u64,
    /// Ticks and identities of another log.
    pub foreign: u64,
    /// Totals that did not follow the last applied one: copies, mostly.
    pub totals_out_of_order: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Operations on holds, and verdicts on what beats list.
    pub hold_ops: u64,
    /// Of them, those that were refused and changed nothing.
    pub hold_ops_refused: u64,
    /// Operations and parts of beats that came out of turn, or of an epoch that was over.
    pub out_of_turn: u64,
    /// Copies taken into use before they were granted.
    pub copies_taken: u64,
    /// Of them, those that would not have been granted.
    pub copies_excess: u64,
    /// Copies granted before use.
    pub copies_granted: u64,
    /// Copies asked for before use, and not granted.
    pub copies_not_granted: u64,
    /// Copies given back.
    pub copies_released: u64,
    /// Copies staged for another agent.
    pub copies_staged: u64,
    /// Copies seized by another agent.
    pub copies_seized: u64,
    /// Copies taken of resources that are not limited by copies.
    pub copies_unlimited: u64,
    /// Copies that came back because their agent was gone or its epoch over.
    pub copies_back: u64,
    /// Beats applied.
    pub beats: u64,
    /// Of them, those after which a list was wanted.
    pub beats_wanted: u64,
    /// Holds that ended by their greatest age.
    pub holds_ended_by_age: u64,
    /// Full domains that were not denied because as many are as may be.
    pub denials_at_cap: u64,
    /// Agents that were silent for too long, so that copies of theirs came back.
    pub agents_gone: u64,
    /// Agents that were silent for as long and held nothing: they do not beat then.
    pub agents_idle: u64,
    /// Agents of either kind that were heard again.
    pub agents_returned: u64,
    /// Epochs that were replaced, or said themselves that they are over.
    pub epochs_over: u64,
    /// Signs of two agents that have one name.
    pub agents_twin: u64,
    /// Verdicts told to agents.
    pub verdicts: u64,
    /// Statements that deny.
    pub denials: u64,
    /// Statements that lift.
    pub lifts: u64,
    /// Statements whose evidence the log has.
    pub denials_recorded: u64,
    /// Records that cannot be read.
    pub undecodable: u64,
    /// Records whose tag is wrong.
    pub forged: u64,
    /// Records of a kind that this build does not know and that no aggregator wrote.
    pub unknown_kinds: u64,
    /// Totals that no ruling of their source accounts for.
    pub totals_forged: u64,
    /// Agents' processes that were given up for others, at the bound on how many are remembered.
    pub epochs_given_up: u64,
    /// Pairs that left early at the bound on pairs, because they remembered nothing any more.
    pub pairs_evicted: u64,
    /// Entries of new pairs that were only counted, at the bound on pairs.
    pub pairs_at_cap: u64,
    /// Records of a skippable kind that this build does not know.
    pub skipped: u64,
    /// Records that were gone before they could be read.
    pub gaps: u64,
    /// Ticks appended.
    pub ticks: u64,
    /// Totals appended.
    pub totals: u64,
    /// Chains of totals that did not go on, and were bridged.
    pub totals_bridged: u64,
    /// Pointers appended.
    pub pointers: u64,
    /// Appends that the log refused, of whatever kind.
    pub append_failures: u64,
    /// Records appended for agents.
    pub agent_appends: u64,
    /// Records of agents that were refused for the moment.
    pub agent_refusals: u64,
    /// Snapshots given to agents.
    pub snapshots: u64,
    /// Asks for snapshots that were dropped because too many wait.
    pub asks_dropped: u64,
    /// Snapshots of partitions that were written.
    pub snapshots_saved: u64,
    /// Snapshots of partitions that could not be written.
    pub snapshots_failed: u64,
    /// Times that a partition waited until the log had its evidence and totals.
    pub held_back: u64,
    /// Snapshots that were not of this log.
    pub snapshots_refuted: u64,
    /// Partitions restored from snapshots when they were assigned.
    pub restored: u64,
    /// States of partitions that were compared with what another owner came to.
    pub states_compared: u64,
    /// Of them, those that differed: machines or builds disagree.
    pub states_differing: u64,
    /// Documents pushed.
    pub pushes: u64,
    /// Pushed documents that were void.
    pub pushes_void: u64,
    /// Amendments that operators asked this process for.
    pub amendments: u64,
    /// Of them, those that the log made void.
    pub amendments_void: u64,
    /// Holds that operators ended.
    pub holds_ended_by_operator: u64,
    /// Transfers whose staged copies operators let go.
    pub transfers_ended_by_operator: u64,
    /// Frames published.
    pub frames: u64,
    /// Of them, those of notices.
    pub frames_of_notices: u64,
    /// Notices: times that agents were told of a pair near its limit.
    pub notices: u64,
    /// Hits that left a pair near its limit of which nobody was told, at the bound on notices.
    pub notices_shed: u64,
}
