//! The agent's counters. Everything that is dropped is counted.

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
    pub(crate) members_waiting: AtomicU64,
    pub(crate) names_not_resolved: AtomicU64,
    pub(crate) resources_without_room: AtomicU64,
    pub(crate) hold_operations: AtomicU64,
    pub(crate) hold_operations_dropped: AtomicU64,
    pub(crate) holds_live: AtomicU64,
    pub(crate) holds_excess: AtomicU64,
    pub(crate) holds_ended: AtomicU64,
    pub(crate) holds_uncounted: AtomicU64,
    pub(crate) holds_beyond_strict: AtomicU64,
    pub(crate) heartbeats: AtomicU64,
    pub(crate) verdicts: AtomicU64,
    pub(crate) verdicts_ignored: AtomicU64,
    pub(crate) callbacks_panicked: AtomicU64,
    pub(crate) threads_panicked: AtomicU64,
    /// Limits the log lines about panics of callbacks, which several places count.
    pub(crate) panic_lines: LogLines,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        if by != 0 {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }
}

/// What an agent has counted since its start, and its current state. A call counts as one call, whatever its copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were let through and that the recorder accepted.
    pub hits_accepted: u64,
    /// Calls that were let through and that the recorder dropped: their thread's buffer was full, there were too many
    /// threads, or the agent had ended.
    pub hits_dropped_recorder: u64,
    /// Calls that were let through and dropped between recorder and courier, at the bound on bytes.
    pub hits_dropped_queue: u64,
    /// Calls that were let through and that the courier gave up: the log refused them, or did not acknowledge them in
    /// time.
    pub hits_dropped_courier: u64,
    /// Calls that were let through unguarded: the agent had received no current watermark of their partition for a
    /// second, or denials were ignored. Copies that they use beyond a limit are never held against a domain later.
    pub hits_unguarded: u64,
    /// Calls that were let through and that the log has acknowledged.
    pub hits_acknowledged: u64,
    /// Calls that were refused and that the recorder accepted.
    pub refused_accepted: u64,
    /// Calls that were refused and whose record was dropped anywhere. They were refused all the same.
    pub refused_dropped: u64,
    /// Denied calls that were let through because of the kill switch, because the resource ignores denials, or because
    /// the agent had ended.
    pub kill_switch_grants: u64,
    /// Batches sent for the first time.
    pub batches_sent: u64,
    /// Batches sent again.
    pub batches_sent_again: u64,
    /// Batches that the log acknowledged.
    pub batches_acknowledged: u64,
    /// Batches that were given up after five minutes, or at the end.
    pub batches_given_up: u64,
    /// Batches that the log refused finally.
    pub batches_refused: u64,
    /// Refusals of batches that were not in flight.
    pub refusals_unknown: u64,
    /// Batches that wait or are in flight.
    pub batches_waiting: u64,
    /// Denials in the deny list.
    pub denials_live: u64,
    /// Denials entered into the deny list.
    pub denials_taken: u64,
    /// Denials that ended before their time.
    pub lifts_taken: u64,
    /// Denials for which the deny list had no room: their scopes stayed open.
    pub denials_without_room: u64,
    /// Statements that the agent already knew.
    pub statements_known: u64,
    /// Statements of a kind, a partition or a log that this agent does not follow.
    pub statements_ignored: u64,
    /// Pairs that are known to be near their limits.
    pub near_live: u64,
    /// Notices of pairs near their limits.
    pub near_notices: u64,
    /// Notices for which there was no room: the agent does not know what their pairs have left.
    pub near_without_room: u64,
    /// Gaps in topics of notices. What the agent learnt from such a topic no longer holds; its denials do.
    pub near_gaps: u64,
    /// Counters of the filter that are stuck; lookups in it are a little slower.
    pub filter_stuck: u64,
    /// Frames received from feeds.
    pub frames: u64,
    /// Frames that could not be decoded, or came from an unknown sender.
    pub frames_refused: u64,
    /// Gaps in topics' sequences.
    pub gaps: u64,
    /// How often a feed was silent for too long.
    pub silences: u64,
    /// How often a topic was silent although the deny list has denials of it; the agent then asked an aggregator
    /// about it.
    pub silent_topics: u64,
    /// Snapshots received.
    pub snapshots: u64,
    /// Snapshots of which a part was lost on the way; the agent asks for them again.
    pub snapshots_torn: u64,
    /// Watermarks of logs other than the ones that the agent follows.
    pub foreign_logs: u64,
    /// Answers of aggregators to a hello.
    pub welcomes: u64,
    /// Connections to feeds that were made. If this is zero although [`Stats::welcomes`] is not, the agent cannot
    /// reach the feed address that an aggregator advertises.
    pub feeds_opened: u64,
    /// Connections to aggregators that were lost.
    pub links_lost: u64,
    /// Connections to aggregators that the agent closed because of what it received: not ZeroMQ's protocol, longer
    /// than allowed, too slow, or nothing at all.
    pub connections_ended: u64,
    /// Connections to aggregators that failed or were closed because of credentials: an invalid certificate, a token
    /// that the aggregator does not accept, or an unprotected network.
    pub connections_refused: u64,
    /// How often the agent did not follow another aggregator of the fleet, because it follows 1,024 already.
    pub members_not_followed: u64,
    /// How often a connection to another aggregator of the fleet had to wait, because 256 have one of its kind already.
    pub members_waiting: u64,
    /// How often the agent did not try to connect to an aggregator, because its host name has no address, or none was
    /// found in time.
    pub names_not_resolved: u64,
    /// Resources beyond the bound: their calls are let through and not recorded.
    pub resources_without_room: u64,
    /// Operations on holds: copies taken, given back, passed on.
    pub hold_operations: u64,
    /// Operations on holds that were dropped at a bound; the next full list in a heartbeat corrects them.
    pub hold_operations_dropped: u64,
    /// Holds that the agent tracks.
    pub holds_live: u64,
    /// Holds of which some copies were too many.
    pub holds_excess: u64,
    /// Holds that ended without an act of their holders.
    pub holds_ended: u64,
    /// Holds that the aggregators refused to count.
    pub holds_uncounted: u64,
    /// Copies of strict resources that were used without a grant, under the policy `blind`.
    pub holds_beyond_strict: u64,
    /// Heartbeats sent.
    pub heartbeats: u64,
    /// Verdicts on holds that changed something.
    pub verdicts: u64,
    /// Verdicts on holds that changed nothing, or were for another epoch.
    pub verdicts_ignored: u64,
    /// Panics of `on_hold`, `on_statement`, `on_near`, and the process's metrics recorder; the agent went on. At the end
    /// of an agent whose thread panicked, also those of the process's logger.
    pub callbacks_panicked: u64,
    /// Threads of the agent that panicked, or tasks of its network thread, by a fault of ours or of the process's logger:
    /// the agent has ended, and is blind. The other counters may lack what that thread had taken.
    pub threads_panicked: u64,
    /// Holds that were let through without being recorded: at the bound on holds, or after the agent's end.
    pub holds_unrecorded: u64,
    /// How long the denials of some partition have not held any more, because nothing was received about it: they hold
    /// for a minute without news, so this begins a minute after an aggregator went away. `None` while the denials of
    /// every partition hold. An earlier sign is that `hits_unguarded` rises, from the first second on; denials of copies
    /// hold for two seconds ([`Copies::blind`](crate::Copies::blind)).
    pub blind_for: Option<Duration>,
}

impl Stats {
    /// Calls that were let through and whose record was dropped anywhere.
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
            members_waiting: of(&counters.members_waiting),
            names_not_resolved: of(&counters.names_not_resolved),
            resources_without_room: of(&counters.resources_without_room),
            hold_operations: of(&counters.hold_operations),
            hold_operations_dropped: of(&counters.hold_operations_dropped),
            holds_live: of(&counters.holds_live),
            holds_excess: of(&counters.holds_excess),
            holds_ended: of(&counters.holds_ended),
            holds_uncounted: of(&counters.holds_uncounted),
            holds_beyond_strict: of(&counters.holds_beyond_strict),
            heartbeats: of(&counters.heartbeats),
            verdicts: of(&counters.verdicts),
            verdicts_ignored: of(&counters.verdicts_ignored),
            callbacks_panicked: of(&counters.callbacks_panicked),
            threads_panicked: of(&counters.threads_panicked),
            ..Self::default()
        }
    }
}
