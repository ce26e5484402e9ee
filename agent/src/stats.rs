//! What an agent counts. Nothing that is dropped is dropped silently.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::log_lines::LogLines;

/// Counters that the agent's threads share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) kill_switch_grants: AtomicU64,
    pub(crate) hits_unpacked: AtomicU64,
    pub(crate) refused_unpacked: AtomicU64,
    pub(crate) hits_unguarded: AtomicU64,
    pub(crate) hits_acknowledged: AtomicU64,
    pub(crate) hits_given_up: AtomicU64,
    pub(crate) refused_given_up: AtomicU64,
    pub(crate) batches_sent: AtomicU64,
    pub(crate) batches_sent_again: AtomicU64,
    pub(crate) batches_acknowledged: AtomicU64,
    pub(crate) batches_given_up: AtomicU64,
    pub(crate) batches_refused: AtomicU64,
    pub(crate) refusals_unknown: AtomicU64,
    pub(crate) batches_waiting: AtomicU64,
    pub(crate) denials_live: AtomicU64,
    pub(crate) denials_taken: AtomicU64,
    pub(crate) lifts_taken: AtomicU64,
    pub(crate) denials_without_room: AtomicU64,
    pub(crate) statements_known: AtomicU64,
    pub(crate) statements_ignored: AtomicU64,
    pub(crate) near_live: AtomicU64,
    pub(crate) near_notices: AtomicU64,
    pub(crate) near_without_room: AtomicU64,
    pub(crate) near_gaps: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) frames_refused: AtomicU64,
    pub(crate) gaps: AtomicU64,
    pub(crate) silences: AtomicU64,
    pub(crate) silent_topics: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) snapshots_torn: AtomicU64,
    pub(crate) foreign_logs: AtomicU64,
    pub(crate) welcomes: AtomicU64,
    pub(crate) feeds_opened: AtomicU64,
    pub(crate) links_lost: AtomicU64,
    pub(crate) connections_ended: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) members_not_followed: AtomicU64,
    pub(crate) names_not_resolved: AtomicU64,
    pub(crate) resources_without_room: AtomicU64,
    pub(crate) hold_operations: AtomicU64,
    pub(crate) hold_operations_dropped: AtomicU64,
    pub(crate) holds_live: AtomicU64,
    pub(crate) holds_excess: AtomicU64,
    pub(crate) holds_ended: AtomicU64,
    pub(crate) holds_uncounted: AtomicU64,
    pub(crate) holds_beyond_strict: AtomicU64,
    pub(crate) beats: AtomicU64,
    pub(crate) verdicts: AtomicU64,
    pub(crate) verdicts_ignored: AtomicU64,
    pub(crate) callbacks_panicked: AtomicU64,
    /// Of panics of callbacks, which are counted in several places.
    pub(crate) panic_lines: LogLines,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        if by != 0 {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// What an agent has counted since its start, and how it stands. Calls are counted as calls, whatever
/// their copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls let through that the recorder took.
    pub hits_accepted: u64,
    /// Calls let through that the recorder dropped: their thread's ring was full, there are too many
    /// threads, or the agent had ended.
    pub hits_dropped_recorder: u64,
    /// Calls let through that were dropped on their way to the courier, at the bound on bytes.
    pub hits_dropped_queue: u64,
    /// Calls let through that the courier gave up: refused by the log, or not acknowledged in time.
    pub hits_dropped_courier: u64,
    /// Calls let through unguarded: nothing current had been heard of their partition for a second, or
    /// denials were grants. What they use beyond a limit is never held against anybody later.
    pub hits_unguarded: u64,
    /// Calls let through that the log has acknowledged.
    pub hits_acknowledged: u64,
    /// Calls refused that the recorder took.
    pub refused_accepted: u64,
    /// Calls refused whose record was dropped anywhere. They were refused all the same.
    pub refused_dropped: u64,
    /// Calls that were let through by the kill switch, or where denials are ignored.
    pub kill_switch_grants: u64,
    /// Batches sent for the first time.
    pub batches_sent: u64,
    /// Batches sent again.
    pub batches_sent_again: u64,
    /// Batches that the log acknowledged.
    pub batches_acknowledged: u64,
    /// Batches that were given up after five minutes, or at the end.
    pub batches_given_up: u64,
    /// Batches that the log refused for ever.
    pub batches_refused: u64,
    /// Refusals of batches that were not under way.
    pub refusals_unknown: u64,
    /// Batches that wait, or are under way.
    pub batches_waiting: u64,
    /// Denials in the list.
    pub denials_live: u64,
    /// Denials entered into the list.
    pub denials_taken: u64,
    /// Denials that ended before their time.
    pub lifts_taken: u64,
    /// Denials for which the list had no room: their scopes stayed open.
    pub denials_without_room: u64,
    /// Statements that said nothing new.
    pub statements_known: u64,
    /// Statements of a kind, a partition or a log that this agent does not follow.
    pub statements_ignored: u64,
    /// Pairs that are known to be near their limits.
    pub near_live: u64,
    /// Notices of pairs near their limits.
    pub near_notices: u64,
    /// Notices for which there was no room: what their pairs have left is not known here.
    pub near_without_room: u64,
    /// Gaps in topics of notices. What was known by them is void; denials are not.
    pub near_gaps: u64,
    /// Counters of the filter that are stuck; lookups in it are a little slower.
    pub filter_stuck: u64,
    /// Frames of the feed.
    pub frames: u64,
    /// Frames that could not be read, or came from somebody unknown.
    pub frames_refused: u64,
    /// Gaps in topics' sequences.
    pub gaps: u64,
    /// Times that a feed was silent for too long.
    pub silences: u64,
    /// Times that a topic said nothing although denials of it are in the list, and was asked about.
    pub silent_topics: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Snapshots of which a part was lost on its way; they are asked for again.
    pub snapshots_torn: u64,
    /// Evidence about logs that are not the ones followed.
    pub foreign_logs: u64,
    /// Answers of aggregators to a hello.
    pub welcomes: u64,
    /// Connections to feeds that were made. None of them, with a welcome heard: the feed that an aggregator
    /// advertises cannot be reached from here.
    pub feeds_opened: u64,
    /// Connections to aggregators that were lost.
    pub links_lost: u64,
    /// Connections to aggregators that this agent ended for what came over them: not ZeroMQ's protocol,
    /// longer than is allowed, too slow, or nothing.
    pub connections_ended: u64,
    /// Connections to aggregators that were not made or ended because of credentials: a certificate that does not hold, a
    /// token that is not let in, or a network that nothing protects.
    pub connections_refused: u64,
    /// Times that an aggregator named another one that was not followed, because 1,024 are already.
    pub members_not_followed: u64,
    /// Times that no connection to an aggregator was tried, because its name has no address, or none was found in time.
    pub names_not_resolved: u64,
    /// Resources beyond the bound: their calls are let through and recorded nowhere.
    pub resources_without_room: u64,
    /// What was done with holds: taken, given back, passed on.
    pub hold_operations: u64,
    /// Operations on holds that were dropped at a bound; the next full list heals them.
    pub hold_operations_dropped: u64,
    /// Holds on record.
    pub holds_live: u64,
    /// Holds of which some was too much.
    pub holds_excess: u64,
    /// Holds that were ended without their holders' doing.
    pub holds_ended: u64,
    /// Holds that the aggregators refused to count.
    pub holds_uncounted: u64,
    /// Copies of strict resources that were used without having been granted, by the blind policy.
    pub holds_beyond_strict: u64,
    /// Beats sent.
    pub beats: u64,
    /// Verdicts on holds that were of use.
    pub verdicts: u64,
    /// Verdicts on holds that said nothing new, or were not for this epoch.
    pub verdicts_ignored: u64,
    /// Calls of `on_hold`, `on_heard` and `on_near`, and of the process's recorder of metrics, that panicked; the
    /// agent went on.
    pub callbacks_panicked: u64,
    /// Holds that were let through without being recorded: at the bound on them, or after the end.
    pub holds_unrecorded: u64,
    /// For how long not all partitions have been heard; none: all are.
    pub blind_for: Option<Duration>,
}

impl Stats {
    /// Calls let through whose record was dropped anywhere.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// assert_eq!(kit.agent().stats().hits_dropped(), 0);
    /// ```
    pub fn hits_dropped(&self) -> u64 {
        self.hits_dropped_recorder
            .saturating_add(self.hits_dropped_queue)
            .saturating_add(self.hits_dropped_courier)
    }
}

impl From<&Counters> for Stats {
    fn from(counters: &Counters) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            hits_dropped_queue: of(&counters.hits_unpacked),
            hits_dropped_courier: of(&counters.hits_given_up),
            hits_unguarded: of(&counters.hits_unguarded),
            hits_acknowledged: of(&counters.hits_acknowledged),
            refused_dropped: of(&counters.refused_unpacked) + of(&counters.refused_given_up),
            kill_switch_grants: of(&counters.kill_switch_grants),
            batches_sent: of(&counters.batches_sent),
            batches_sent_again: of(&counters.batches_sent_again),
            batches_acknowledged: of(&counters.batches_acknowledged),
            batches_given_up: of(&counters.batches_given_up),
            batches_refused: of(&counters.batches_refused),
            refusals_unknown: of(&counters.refusals_unknown),
            batches_waiting: of(&counters.batches_waiting),
            denials_live: of(&counters.denials_live),
            denials_taken: of(&counters.denials_taken),
            lifts_taken: of(&counters.lifts_taken),
            denials_without_room: of(&counters.denials_without_room),
            statements_known: of(&counters.statements_known),
            statements_ignored: of(&counters.statements_ignored),
            near_live: of(&counters.near_live),
            near_notices: of(&counters.near_notices),
            near_without_room: of(&counters.near_without_room),
            near_gaps: of(&counters.near_gaps),
            frames: of(&counters.frames),
            frames_refused: of(&counters.frames_refused),
            gaps: of(&counters.gaps),
            silences: of(&counters.silences),
            silent_topics: of(&counters.silent_topics),
            snapshots: of(&counters.snapshots),
            snapshots_torn: of(&counters.snapshots_torn),
            foreign_logs: of(&counters.foreign_logs),
            welcomes: of(&counters.welcomes),
            feeds_opened: of(&counters.feeds_opened),
            links_lost: of(&counters.links_lost),
            connections_ended: of(&counters.connections_ended),
            connections_refused: of(&counters.connections_refused),
            members_not_followed: of(&counters.members_not_followed),
            names_not_resolved: of(&counters.names_not_resolved),
            resources_without_room: of(&counters.resources_without_room),
            hold_operations: of(&counters.hold_operations),
            hold_operations_dropped: of(&counters.hold_operations_dropped),
            holds_live: of(&counters.holds_live),
            holds_excess: of(&counters.holds_excess),
            holds_ended: of(&counters.holds_ended),
            holds_uncounted: of(&counters.holds_uncounted),
            holds_beyond_strict: of(&counters.holds_beyond_strict),
            beats: of(&counters.beats),
            verdicts: of(&counters.verdicts),
            verdicts_ignored: of(&counters.verdicts_ignored),
            callbacks_panicked: of(&counters.callbacks_panicked),
            ..Self::default()
        }
    }
}
