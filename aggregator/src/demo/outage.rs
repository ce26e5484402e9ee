//! The outage of the aggregator in a demonstration: when it is to begin and to end, how long it lasted, and when the log
//! had caught up.
//!
//! Knows nothing of processes: `run` kills and starts them, each once. What stays true: the log has caught up when it has
//! every agent's records from before the end, except those that agents gave up.

use std::time::{Duration, Instant};

use super::clock::wall_us;
use super::player::PlayerNotice;

/// The outage begins after the first share of the run, and lasts for the second.
const OUTAGE: (f64, f64) = (0.65, 0.15);

/// The outage of the aggregator, and its result.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    from: Duration,
    to: Duration,
    /// When it began, by the wall clock; the greatest number if it has not begun.
    pub(super) began_us: u64,
    pub(super) lasted: Option<Duration>,
    /// When the aggregator was started again, once it is ready.
    again: Option<Instant>,
    /// What each agent had recorded by then, from its first report afterwards.
    owed: Vec<Option<u64>>,
    /// How long after the start the log had it all.
    pub(super) caught_up: Option<Duration>,
}

impl Outage {
    /// The outage of a run of this length.
    pub(super) fn planned(seconds: u64) -> Self {
        let from = Duration::from_secs(seconds).mul_f64(OUTAGE.0);
        let to = from + Duration::from_secs(seconds).mul_f64(OUTAGE.1);
        Self {
            from,
            to,
            began_us: u64::MAX,
            lasted: None,
            again: None,
            owed: Vec::new(),
            caught_up: None,
        }
    }

    /// Whether it is to begin, when this much of the run has passed.
    pub(super) fn is_to_begin(&self, passed: Duration) -> bool {
        self.began_us == u64::MAX && self.from <= passed
    }

    /// Whether it has begun and is to end.
    pub(super) fn is_to_end(&self, passed: Duration) -> bool {
        self.began_us != u64::MAX && self.to <= passed
    }

    pub(super) fn begins(&mut self) {
        self.began_us = wall_us();
    }

    /// It ends: the aggregator is started.
    pub(super) fn ends(&mut self) {
        let lasted_us = wall_us().saturating_sub(self.began_us);
        self.lasted = Some(Duration::from_micros(lasted_us));
    }

    /// The aggregator, whose start began at this instant, is ready: what the agents report from now on shows when the
    /// log has everything.
    pub(super) fn restarted(&mut self, started: Instant, agents: usize) {
        self.again = Some(started);
        self.owed = vec![None; agents];
    }

    /// Handles an agent's report after the outage. Returns whether the log now has, or agents gave up for good,
    /// everything that agents had recorded until the aggregator was back.
    pub(super) fn received(&mut self, agent: usize, notice: &PlayerNotice) -> bool {
        let (Some(again), None) = (self.again, self.caught_up) else {
            return false;
        };
        let Some(owed) = self.owed.get_mut(agent) else {
            return false;
        };
        let recorded = *owed.get_or_insert(notice.accepted);
        if recorded <= notice.acknowledged + notice.dropped {
            *owed = Some(0);
        }
        if self.owed.iter().any(|owed| *owed != Some(0)) {
            return false;
        }
        self.caught_up = Some(again.elapsed());
        true
    }
}
