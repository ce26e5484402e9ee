//! The state that calls, flusher and network thread of one agent share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;
use tollgate_shared::domain_key::DomainKey;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Timestamp;

use crate::answer::Denied;
use crate::clock::Clock;
use crate::deny::DenyView;
use crate::feed_liveness::Liveness;
use crate::holds::{HoldTable, RevokedHolds};
use crate::log_lines::LogLines;
use crate::most::Mosts;
use crate::recorder::{Happened, Recorder, RecorderEvent};
use crate::resource::{Resource, ResourceId, Resources};
use crate::stats::{Counters, Stats};
use crate::timer::Timer;
use crate::urgency::Urgency;

/// The agent's shared state.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<Clock>,
    pub(crate) view: Arc<DenyView>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) resources: Arc<Resources>,
    /// The most copies that pairs can be granted at once, as denials state it.
    pub(crate) mosts: Arc<Mosts>,
    pub(crate) recorder: Recorder,
    pub(crate) urgency: Arc<Urgency>,
    pub(crate) hold_table: HoldTable,
    pub(crate) revoked: Arc<RevokedHolds>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) kill_switch: AtomicBool,
    /// The key with which domains are hashed. `None`: the log contains domains' names.
    pub(crate) domain_key: Option<DomainKey>,
    pub(crate) timer: Timer,
    /// Signals progress that [`crate::Agent::ready`] may wait for.
    pub(crate) news: Notify,
    /// A resource was used for the first time.
    pub(crate) new_resource: Notify,
    /// Partitions of the log that hits go to; 0 while unknown.
    pub(crate) log_partitions: AtomicU32,
    /// Log lines about resources beyond the bound.
    pub(crate) resource_lines: LogLines,
    /// The agent's threads have ended, or are about to.
    pub(crate) ended: AtomicBool,
    /// The source of transfer ids.
    pub(crate) transfers: TransferIds,
}

/// The source of transfer ids, which must be unique.
#[derive(Debug)]
pub(crate) enum TransferIds {
    /// Random numbers.
    Random,
    /// A simulation's reproducible ids: they count up from a number of its choice.
    #[cfg(feature = "simulation")]
    Counted(u128, std::sync::atomic::AtomicU64),
}

impl TransferIds {
    pub(crate) fn draw(&self) -> TransferId {
        TransferId(match self {
            Self::Random => rand::random(),
            #[cfg(feature = "simulation")]
            Self::Counted(first, drawn) => {
                let drawn = drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                first.wrapping_add(u128::from(drawn))
            }
        })
    }
}

/// The stamp of a call while the clock is at rest. Calls of one pair that have one stamp share an entry of the log, as
/// they do while the clock is awake.
fn whole_millisecond(wall: Timestamp) -> Timestamp {
    Timestamp::from_millis(wall.as_millis())
}

impl Shared {
    /// Whether the agent has a watermark of every partition, and the limits of every resource.
    pub(crate) fn is_ready(&self) -> bool {
        self.liveness.state() == crate::feed_liveness::ALL
            && self.resources.all().iter().all(|one| one.joined())
    }

    pub(crate) fn stats(&self) -> Stats {
        let recorded = self.recorder.recorded();
        let mut stats = Stats::from(&*self.counters);
        stats.hits_accepted = recorded.hits;
        stats.hits_dropped_recorder = recorded.hits_dropped;
        stats.refused_accepted = recorded.refused;
        stats.refused_dropped = stats
            .refused_dropped
            .saturating_add(recorded.refused_dropped);
        stats.holds_unrecorded = self.hold_table.unrecorded();
        stats.filter_stuck = self.view.stuck();
        stats.blind_for = self
            .liveness
            .blind_since()
            .map(|since| self.clock.read().since(since).to_std());
        stats
    }

    /// The stamp of a call that is let through for this many copies. If the flusher rests, and the call is urgent, this
    /// wakes it.
    #[inline]
    pub(crate) fn stamp(&self, resource: &Resource, fingerprint: u64, copies: u32) -> Timestamp {
        let awake = self.clock.wall_if_awake();
        awake.unwrap_or_else(|| self.stamp_at_rest(resource, fingerprint, copies))
    }

    #[cold]
    #[inline(never)]
    fn stamp_at_rest(&self, resource: &Resource, fingerprint: u64, copies: u32) -> Timestamp {
        let now = self.clock.read();
        let is_urgent = self.urgency.wakes(resource, fingerprint, copies, now);
        whole_millisecond(self.clock.wall_at_rest(is_urgent, now))
    }

    /// The stamp of a record for which nobody waits.
    pub(crate) fn stamp_relaxed(&self) -> Timestamp {
        let awake = self.clock.wall_if_awake();
        awake.unwrap_or_else(|| {
            let fills = self.urgency.fills();
            whole_millisecond(self.clock.wall_at_rest(fills, self.clock.read()))
        })
    }

    /// Records a refused call.
    pub(crate) fn record_refused(
        &self,
        resource: ResourceId,
        domain: &str,
        copies: u32,
        denied: &Denied,
    ) {
        self.recorder.record(&RecorderEvent {
            resource,
            domain,
            at: self.stamp_relaxed(),
            happened: Happened::Refused {
                copies,
                cause: denied.cause(),
                position: denied.code().map(|code| code.position),
            },
        });
    }

    /// The agent ends: what calls record from now on, nobody takes.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the agent has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the agent has ended because its process wanted that. The process must not be refused by what was true
    /// before. An agent that a panic ended is blind instead, and keeps its policies.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_ended() && self.counters.threads_panicked.load(Ordering::Relaxed) == 0
    }
}
