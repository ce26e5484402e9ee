//! Publishes the agent's counters to the process's `metrics` recorder.
//!
//! The network thread publishes them once a second, so that no call pays for it. No metric has a domain as a label.
//! What stays true: counters are those of [`crate::Stats`], and only grow.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::stats::Stats;

/// A metric: its name, its value, and its help text.
type MetricRow<T> = (&'static str, T, &'static str);

/// Counters of [`Stats`] with their names, `tollgate_agent_FIELD_total`.
macro_rules! totals {
    ($stats:ident: $($field:ident $help:literal)*) => {
        [$((concat!("tollgate_agent_", stringify!($field), "_total"), $stats.$field, $help)),*]
    };
}

/// How often the counters are published.
pub(crate) const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Gives the recorder the help texts, once.
pub(crate) fn describe() {
    let stats = Stats::default();
    for (name, _, help) in counters(&stats) {
        describe_counter!(name, help);
    }
    for (name, _, help) in gauges(&stats) {
        describe_gauge!(name, help);
    }
}

/// Publishes the counters.
pub(crate) fn report(agent: &str, stats: &Stats) {
    for (name, value, _) in counters(stats) {
        counter!(name, "agent" => agent.to_owned()).absolute(value);
    }
    for (name, value, _) in gauges(stats) {
        gauge!(name, "agent" => agent.to_owned()).set(value);
    }
}

fn counters(stats: &Stats) -> impl Iterator<Item = MetricRow<u64>> {
    let rows = totals![stats:
        hits_accepted "Calls that were let through and that the recorder accepted."
        hits_unguarded "Calls that were let through unguarded: the agent had received no current watermark of their partition for a second, or denials were ignored."
        hits_acknowledged "Calls that were let through and that the log has acknowledged."
        hits_dropped_recorder "Calls that were let through and that the recorder dropped: their thread's buffer was full, there were too many threads, or the agent had ended."
        hits_dropped_queue "Calls that were let through and dropped between recorder and courier, at the bound on bytes."
        hits_dropped_courier "Calls that were let through and that the courier gave up: the log refused them, or did not acknowledge them in time."
        refused_accepted "Calls that were refused and that the recorder accepted."
        refused_dropped "Calls that were refused and whose record was dropped anywhere."
        kill_switch_grants "Denied calls that were let through because of the kill switch, because the resource ignores denials, or because the agent had ended."
        batches_sent "Batches sent for the first time."
        batches_sent_again "Batches sent again."
        batches_given_up "Batches that were given up after five minutes, or at the end."
        batches_refused "Batches that the log refused finally."
        refusals_unknown "Refusals of batches that were not in flight."
        denials_taken "Denials entered into the deny list."
        denials_without_room "Denials for which the deny list had no room: their scopes stayed open."
        near_notices "Notices of pairs near their limits."
        near_without_room "Notices for which there was no room: the agent does not know what their pairs have left."
        near_gaps "Gaps in topics of notices."
        frames "Frames received from feeds."
        frames_refused "Frames that could not be decoded, or came from an unknown sender."
        gaps "Gaps in topics' sequences."
        silences "How often a feed was silent for too long."
        silent_topics "How often a topic was silent although the deny list has denials of it; the agent then asked an aggregator about it."
        snapshots "Snapshots received."
        snapshots_torn "Snapshots of which a part was lost on the way; the agent asks for them again."
        welcomes "Answers of aggregators to a hello."
        feeds_opened "Connections to feeds that were made."
        links_lost "Connections to aggregators that were lost."
        connections_ended "Connections to aggregators that the agent closed because of what it received: not ZeroMQ's protocol, longer than allowed, too slow, or nothing at all."
        connections_refused "Connections to aggregators that failed or were closed because of credentials: an invalid certificate, a token that the aggregator does not accept, or an unprotected network."
        members_not_followed "How often the agent did not follow another aggregator of the fleet, because it follows 1,024 already."
        members_waiting "How often a connection to another aggregator of the fleet had to wait, because 256 have one of its kind already."
        names_not_resolved "How often the agent did not try to connect to an aggregator, because its host name has no address, or none was found in time."
        resources_without_room "Resources beyond the bound: their calls are let through and not recorded."
        hold_operations "Operations on holds: copies taken, given back, passed on."
        hold_operations_dropped "Operations on holds that were dropped at a bound; the next full list in a heartbeat corrects them."
        holds_unrecorded "Holds that were let through without being recorded: at the bound on holds, or after the agent's end."
        holds_excess "Holds of which some copies were too many."
        holds_ended "Holds that ended without an act of their holders."
        holds_uncounted "Holds that the aggregators refused to count."
        holds_beyond_strict "Copies of strict resources that were used without a grant, under the policy blind."
        heartbeats "Heartbeats sent."
        callbacks_panicked "Panics of on_hold, on_statement, on_near, and the process's metrics recorder; the agent went on."
        threads_panicked "Threads of the agent that panicked, or tasks of its network thread, by a fault of ours or of the process's logger: the agent has ended, and is blind."
    ];
    rows.into_iter()
}

fn gauges(stats: &Stats) -> [MetricRow<f64>; 5] {
    let blind = stats.blind_for.map_or(0.0, |blind| blind.as_secs_f64());
    [
        (
            "tollgate_agent_denials",
            stats.denials_live as f64,
            "Denials in the deny list.",
        ),
        (
            "tollgate_agent_near",
            stats.near_live as f64,
            "Pairs that are known to be near their limits.",
        ),
        (
            "tollgate_agent_holds",
            stats.holds_live as f64,
            "Holds that the agent tracks.",
        ),
        (
            "tollgate_agent_batches_waiting",
            stats.batches_waiting as f64,
            "Batches that wait or are in flight.",
        ),
        (
            "tollgate_agent_blind_seconds",
            blind,
            "How long the denials of some partition have not held any more, because nothing was received about it.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };

    /// Keeps the values that it receives.
    #[derive(Default)]
    struct Kept(Arc<Mutex<BTreeMap<String, f64>>>, Mutex<BTreeSet<String>>);

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
        fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
            self.1.lock().unwrap().insert(name.as_str().to_owned());
        }
        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
            self.describe_counter(name, unit, help);
        }
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
        metrics::with_local_recorder(&kept, || {
            describe();
            report("a", &stats);
        });
        let Kept(kept, described) = kept;
        let kept = kept.lock().unwrap();
        assert_eq!(kept["tollgate_agent_hits_accepted_total"], 7.0);
        assert_eq!(kept["tollgate_agent_gaps_total"], 2.0);
        assert_eq!(kept["tollgate_agent_blind_seconds"], 1.5);
        assert_eq!(kept.len(), 50);
        let described = described.into_inner().unwrap();
        assert!(kept.keys().eq(&described), "each has a help text");
    }
}
