//! Of which partitions the agent has a current watermark: calls about the other partitions are unguarded.
//!
//! ```text
//! heard   up to 40      up to 41                                up to 42
//! time    0.0           0.3                      1.3            9.0
//!         guarded ──────────────────────────────>│ unguarded    │ guarded ──>
//! ```
//!
//! A call is guarded if, less than a second before it, the agent received a newer watermark of the pair's partition,
//! on any topic, and the ruling aggregator had marked that watermark as current. Excess of unguarded calls is no
//! debt: no domain is refused later for what passed above its limit because aggregators were unreachable. The packer asks, a few hundred microseconds
//! after the call, so that calls pay nothing. It asks by the call's own instant, so that watermarks received since
//! then change nothing.
//!
//! Knows nothing of denials and leases. What stays true: a call is unguarded unless it is known to be guarded.

mod stretch;

use std::sync::{Arc, PoisonError, RwLock};

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Span;

use crate::clock::Mono;
use stretch::Stretch;

/// How long a watermark of a partition guards calls about it.
const GUARDED_FOR: Span = Span::from_secs(1);

/// The stretches of all partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards(Arc<[Stretch]>);

/// The state that the listener writes and other threads read.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    guards: RwLock<Guards>,
    /// By partition, the greatest watermark received, current or not.
    newest: RwLock<Vec<Option<LogPosition>>>,
}

impl Guards {
    /// Whether a call at an instant was guarded. An instant before the newest stretch counts as
    /// unguarded, although there may have been an earlier one: the packer asks at once.
    pub(crate) fn is_guarded(&self, partition: usize, at: Mono) -> bool {
        let stretch = self.0.get(partition);
        stretch.is_some_and(|stretch| stretch.covers(at.0))
    }
}

impl Guard {
    /// Sets the number of partitions, and forgets all watermarks.
    pub(crate) fn set_partitions(&self, partitions: u32) {
        let stretches = (0..partitions).map(|_| Stretch::default()).collect();
        *self.guards.write().unwrap_or_else(PoisonError::into_inner) = Guards(stretches);
        let mut newest_of = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        *newest_of = vec![None; partitions as usize];
    }

    /// The stretches; valid as long as the number of partitions stays the same.
    pub(crate) fn guards(&self) -> Guards {
        let guards = self.guards.read().unwrap_or_else(PoisonError::into_inner);
        guards.clone()
    }

    /// The agent received a partition's watermark, on a frame that was delayed by `late`.
    pub(crate) fn note_watermark(
        &self,
        partition: u32,
        watermark: LogPosition,
        current: bool,
        late: Span,
        now: Mono,
    ) {
        let index = partition as usize;
        let mut newest_of = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let Some(newest) = newest_of.get_mut(index) else {
            return;
        };
        if newest.is_some_and(|newest| watermark <= newest) {
            return;
        }
        *newest = Some(watermark);
        drop(newest_of);
        if !current || GUARDED_FOR <= late {
            return;
        }
        let guards = self.guards();
        let Some(stretch) = guards.0.get(index) else {
            return;
        };
        let until = now.plus(GUARDED_FOR.saturating_sub(late)).0;
        stretch.extend(now.0, until);
    }

    /// Guards calls about every partition for ever, for a test.
    #[cfg(feature = "testing")]
    pub(crate) fn keep(&self) {
        for stretch in self.guards().0.iter() {
            stretch.extend(0, u64::MAX);
        }
    }

    /// The partition has another log: its watermarks start again.
    pub(crate) fn forget(&self, partition: u32) {
        let mut newest_of = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = newest_of.get_mut(partition as usize) {
            *newest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(10_000_000);

    fn position(offset: u64) -> LogPosition {
        LogPosition {
            generation: 1,
            offset,
            entry: 0,
        }
    }

    fn at(millis: u64) -> Mono {
        NOW.plus(Span::from_millis(millis))
    }

    fn guard() -> Guard {
        let guard = Guard::default();
        guard.set_partitions(2);
        guard
    }

    #[test]
    fn a_current_watermark_guards_its_partition_for_a_second() {
        let guard = guard();
        let is_guarded = |partition, at| guard.guards().is_guarded(partition, at);
        assert!(!is_guarded(0, NOW), "nothing was heard");
        guard.note_watermark(0, position(5), true, Span::ZERO, NOW);
        assert!(is_guarded(0, NOW) && is_guarded(0, at(999)));
        assert!(!is_guarded(0, at(1_000)) && !is_guarded(1, NOW));
        assert!(!is_guarded(2, NOW), "there is none");
        guard.note_watermark(0, position(6), true, Span::ZERO, at(300));
        assert!(is_guarded(0, NOW) && is_guarded(0, at(1_299)));
        assert!(!is_guarded(0, at(1_300)));
    }

    #[test]
    fn repeated_and_lagging_watermarks_guard_no_call() {
        let guard = guard();
        guard.note_watermark(0, position(5), true, Span::ZERO, NOW);
        guard.note_watermark(0, position(5), true, Span::ZERO, at(900));
        guard.note_watermark(0, position(4), true, Span::ZERO, at(900));
        guard.note_watermark(0, position(6), false, Span::ZERO, at(900));
        guard.note_watermark(0, position(6), true, Span::ZERO, at(900));
        assert!(!guard.guards().is_guarded(0, at(1_000)));
        guard.forget(0);
        guard.note_watermark(0, position(1), true, Span::ZERO, at(1_500));
        assert!(guard.guards().is_guarded(0, at(1_500)));
    }

    #[test]
    fn calls_before_the_end_of_a_silence_stay_unguarded() {
        let guard = guard();
        guard.note_watermark(0, position(5), true, Span::ZERO, NOW);
        guard.note_watermark(0, position(6), true, Span::ZERO, at(5_000));
        let guards = guard.guards();
        assert!(!guards.is_guarded(0, at(4_999)) && guards.is_guarded(0, at(5_000)));
    }

    #[test]
    fn a_late_watermark_guards_for_less_time() {
        let guard = guard();
        guard.note_watermark(0, position(5), true, Span::from_millis(400), NOW);
        let guards = guard.guards();
        assert!(guards.is_guarded(0, at(599)) && !guards.is_guarded(0, at(600)));
        guard.note_watermark(0, position(6), true, Span::from_secs(1), at(700));
        assert!(!guards.is_guarded(0, at(700)));
    }
}
