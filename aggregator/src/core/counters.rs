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
    /// Records of a skippable kind that this build does not know.
    pub skipped: u64,
    /// Records that were gone before they could be read.
    pub gaps: u64,
    /// Ticks appended.
    pub ticks: u64,
    /// Totals appended.
    pub totals: u64,
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
    /// Partitions restored from snapshots when they were assigned.
    pub restored: u64,
    /// Documents pushed.
    pub pushes: u64,
    /// Pushed documents that were void.
    pub pushes_void: u64,
    /// Frames published.
    pub frames: u64,
}
