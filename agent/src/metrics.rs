//! Publishes the agent's counters to the process's `metrics` recorder.
//!
//! The network thread publishes them once a second, so that no call pays for it. No metric has a domain as a label.
//! What stays true: counters are those of [`crate::Stats`], and only grow.

use metrics::{counter, gauge};

use crate::stats::Stats;

/// Counters of [`Stats`] with their names, `tollgate_agent_FIELD_total`.
macro_rules! totals {
    ($stats:ident: $($field:ident)*) => {
        [$((concat!("tollgate_agent_", stringify!($field), "_total"), $stats.$field)),*]
    };
}

/// How often the counters are published.
pub(crate) const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Publishes the counters.
pub(crate) fn report(agent: &str, stats: &Stats) {
    let counters = totals![stats:
        hits_accepted
        hits_unguarded
        hits_acknowledged
        hits_dropped_recorder
        hits_dropped_queue
        hits_dropped_courier
        refused_accepted
        refused_dropped
        kill_switch_grants
        batches_sent
        batches_sent_again
        batches_given_up
        batches_refused
        refusals_unknown
        denials_taken
        denials_without_room
        near_notices
        near_without_room
        near_gaps
        frames
        frames_refused
        gaps
        silences
        silent_topics
        snapshots
        snapshots_torn
        welcomes
        feeds_opened
        links_lost
        connections_ended
        connections_refused
        members_not_followed
        names_not_resolved
        hold_operations
        hold_operations_dropped
        holds_unrecorded
        holds_excess
        holds_ended
        holds_uncounted
        holds_beyond_strict
        heartbeats
        callbacks_panicked
        threads_panicked
    ];
    for (name, value) in counters {
        counter!(name, "agent" => agent.to_owned()).absolute(value);
    }
    let gauges = [
        ("tollgate_agent_denials", stats.denials_live as f64),
        ("tollgate_agent_near", stats.near_live as f64),
        ("tollgate_agent_holds", stats.holds_live as f64),
        (
            "tollgate_agent_batches_waiting",
            stats.batches_waiting as f64,
        ),
        (
            "tollgate_agent_blind_seconds",
            stats.blind_for.map_or(0.0, |blind| blind.as_secs_f64()),
        ),
    ];
    for (name, value) in gauges {
        gauge!(name, "agent" => agent.to_owned()).set(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };

    /// Keeps the values that it receives.
    #[derive(Default)]
    struct Kept(Arc<Mutex<BTreeMap<String, f64>>>);

    struct One(String, Arc<Mutex<BTreeMap<String, f64>>>);

    impl One {
        fn keep(&self, value: f64) {
            self.1.lock().unwrap().insert(self.0.clone(), value);
        }
    }

    impl CounterFn for One {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            self.keep(value as f64);
        }
    }

    impl GaugeFn for One {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.keep(value);
        }
    }

    impl Recorder for Kept {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(One(key.name().to_owned(), Arc::clone(&self.0))))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(One(key.name().to_owned(), Arc::clone(&self.0))))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn counters_arrive_under_names_of_their_own() {
        let kept = Kept::default();
        let mut stats = Stats::default();
        (stats.hits_accepted, stats.gaps, stats.blind_for) =
            (7, 2, Some(Duration::from_millis(1_500)));
        metrics::with_local_recorder(&kept, || report("a", &stats));
        let kept = kept.0.lock().unwrap();
        assert_eq!(kept["tollgate_agent_hits_accepted_total"], 7.0);
        assert_eq!(kept["tollgate_agent_gaps_total"], 2.0);
        assert_eq!(kept["tollgate_agent_blind_seconds"], 1.5);
        assert_eq!(kept.len(), 48);
    }
}
