//! The state that calls, flusher and network thread of one agent share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Notify;
use tollgate_shared::domain_key::DomainKey;
use tollgate_shared::holdings::TransferId;

use crate::clock::Clock;
use crate::deny::DenyView;
use crate::feed_liveness::Liveness;
use crate::holds::{HoldTable, RevokedHolds};
use crate::most::Mosts;
use crate::recorder::Recorder;
use crate::resource::Resources;
use crate::stats::{Counters, Stats};
use crate::timer::Timer;

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

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
