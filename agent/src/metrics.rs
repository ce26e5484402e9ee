//! The agent's counters, for the `metrics` recorder of the process.
//!
//! Told once a second by the network thread, so that no call pays for it. No metric is labelled by a
//! domain. What stays true: counters are those of [`crate::Stats`], and only grow.

use metrics::{counter, gauge};

use crate::stats::Stats;

/// How often they are told.
pub(crate) const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Tells them.
pub(crate) fn tell(agent: &str, stats: &Stats) {
    let counters = [
        ("tollgate_agent_hits_accepted_total", stats.hits_accepted),
        ("tollgate_agent_hits_unguarded_total", stats.hits_unguarded),
        (
            "tollgate_agent_hits_acknowledged_total",
            stats.hits_acknowledged,
        ),
        (
            "tollgate_agent_hits_dropped_recorder_total",
            stats.hits_dropped_recorder,
        ),
        (
            "tollgate_agent_hits_dropped_queue_total",
            stats.hits_dropped_queue,
        ),
        (
            "tollgate_agent_hits_dropped_courier_total",
            stats.hits_dropped_courier,
        ),
        (
            "tollgate_agent_refused_accepted_total",
            stats.refused_accepted,
        ),
        (
            "tollgate_agent_refused_dropped_total",
            stats.refused_dropped,
        ),
        (
            "tollgate_agent_kill_switch_grants_total",
            stats.kill_switch_grants,
        ),
        ("tollgate_agent_batches_sent_total", stats.batches_sent),
        (
            "tollgate_agent_batches_sent_again_total",
            stats.batches_sent_again,
        ),
        (
            "tollgate_agent_batches_given_up_total",
            stats.batches_given_up,
        ),
        (
            "tollgate_agent_batches_refused_total",
            stats.batches_refused,
        ),
        (
            "tollgate_agent_refusals_unknown_total",
            stats.refusals_unknown,
        ),
        ("tollgate_agent_denials_taken_total", stats.denials_taken),
        (
            "tollgate_agent_denials_without_room_total",
            stats.denials_without_room,
        ),
        ("tollgate_agent_near_notices_total", stats.near_notices),
        (
            "tollgate_agent_near_without_room_total",
            stats.near_without_room,
        ),
        ("tollgate_agent_near_gaps_total", stats.near_gaps),
        ("tollgate_agent_frames_total", stats.frames),
        ("tollgate_agent_frames_refused_total", stats.frames_refused),
        ("tollgate_agent_gaps_total", stats.gaps),
        ("tollgate_agent_silences_total", stats.silences),
        ("tollgate_agent_silent_topics_total", stats.silent_topics),
        ("tollgate_agent_snapshots_total", stats.snapshots),
        ("tollgate_agent_snapshots_torn_total", stats.snapshots_torn),
        ("tollgate_agent_welcomes_total", stats.welcomes),
        ("tollgate_agent_feeds_opened_total", stats.feeds_opened),
        ("tollgate_agent_links_lost_total", stats.links_lost),
        (
            "tollgate_agent_connections_ended_total",
            stats.connections_ended,
        ),
        (
            "tollgate_agent_connections_refused_total",
            stats.connections_refused,
        ),
        (
            "tollgate_agent_members_not_followed_total",
            stats.members_not_followed,
        ),
        (
            "tollgate_agent_names_not_resolved_total",
            stats.names_not_resolved,
        ),
        (
            "tollgate_agent_hold_operations_total",
            stats.hold_operations,
        ),
        (
            "tollgate_agent_hold_operations_dropped_total",
            stats.hold_operations_dropped,
        ),
        (
            "tollgate_agent_holds_unrecorded_total",
            stats.holds_unrecorded,
        ),
        ("tollgate_agent_holds_excess_total", stats.holds_excess),
        ("tollgate_agent_holds_ended_total", stats.holds_ended),
        (
            "tollgate_agent_holds_uncounted_total",
            stats.holds_uncounted,
        ),
        (
            "tollgate_agent_holds_beyond_strict_total",
            stats.holds_beyond_strict,
        ),
        ("tollgate_agent_beats_total", stats.beats),
        (
            "tollgate_agent_callbacks_panicked_total",
            stats.callbacks_panicked,
        ),
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

    /// Keeps what it is told.
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
        metrics::with_local_recorder(&kept, || tell("a", &stats));
        let kept = kept.0.lock().unwrap();
        assert_eq!(kept["tollgate_agent_hits_accepted_total"], 7.0);
        assert_eq!(kept["tollgate_agent_gaps_total"], 2.0);
        assert_eq!(kept["tollgate_agent_blind_seconds"], 1.5);
        assert_eq!(kept.len(), 47);
    }
}
