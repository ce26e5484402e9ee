//! Metrics in Prometheus' format, rendered from the counters on request.

mod by_resource;
mod rows;
mod security;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder as _, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use super::HttpCounters;
use crate::core::view::{Counted, Gauges};
use crate::edge::{Edge, PortCounters};
use crate::feed::FeedCounters;
use crate::link::LinkCounters;
use crate::telemetry;
use by_resource::of_resource;
use rows::{measured, of_candidate};
pub use security::SecurityMetrics;
use tollgate_log::DeadLetterCounters;

/// The metrics at `/metrics`. The recorder belongs to this aggregator and not to the process, so that two aggregators
/// in one process, as in tests, do not share counters.
pub struct Metrics {
    recorder: PrometheusRecorder,
    edge: Arc<Edge>,
    link: Arc<LinkCounters>,
    feed: Arc<FeedCounters>,
    dead_letters: Arc<DeadLetterCounters>,
    http: Arc<HttpCounters>,
    security: SecurityMetrics,
    name: String,
    group: String,
}

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, None);

impl Metrics {
    /// The metrics of an aggregator, by its name and group; the group is empty where the log is a journal.
    pub fn new(
        (edge, link, feed): (Arc<Edge>, Arc<LinkCounters>, Arc<FeedCounters>),
        dead_letters: Arc<DeadLetterCounters>,
        http: Arc<HttpCounters>,
        security: SecurityMetrics,
        (name, group): (String, String),
    ) -> Self {
        Self {
            recorder: PrometheusBuilder::new().build_recorder(),
            edge,
            link,
            feed,
            dead_letters,
            http,
            security,
            name,
            group,
        }
    }

    /// The text of all metrics.
    pub fn render(&self, counted_now: &Counted) -> String {
        let Counted {
            counters,
            gauges,
            clocks,
            candidates,
            resources,
        } = counted_now;
        for (name, help, value) in counters.rows() {
            self.counter(name, help, value, Vec::new());
        }
        self.render_ports();
        self.render_http();
        for (name, help, value) in measured(gauges) {
            self.gauge(name, help, value as f64, Vec::new());
        }
        self.render_ages(gauges);
        self.render_edge();
        self.render_security();
        self.gauge(
            "tollgate_aggregator_info",
            "1; labels identify the aggregator: its name, its consumer group (empty: a journal), its version.",
            1.0,
            vec![
                Label::new("name", self.name.clone()),
                Label::new("group", self.group.clone()),
                Label::from_static_parts("version", env!("CARGO_PKG_VERSION")),
            ],
        );
        for clock in clocks {
            self.gauge(
                "tollgate_agent_clock_moved_seconds",
                "Seconds by which an agent's timestamps are corrected, because its clock is wrong.",
                clock.moved_us as f64 / 1e6,
                vec![Label::new("agent", clock.agent.clone())],
            );
        }
        for (resource, counts) in candidates {
            for (name, help, value) in of_candidate(counts) {
                let labels = vec![Label::new("resource", resource.to_string())];
                self.counter(name, help, value, labels);
            }
        }
        for (resource, counts) in resources {
            for (name, help, value) in of_resource(counts) {
                let labels = vec![Label::new("resource", resource.to_string())];
                self.counter(name, help, value, labels);
            }
        }
        self.recorder.handle().render()
    }

    /// Counters of links, the feed, the edge and dead letters.
    fn render_ports(&self) {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let sockets = [
            (
                "tollgate_link_garbage_total",
                "Messages of agents that could not be read.",
                of(&self.link.garbage),
            ),
            (
                "tollgate_link_answers_dropped_total",
                "Answers to agents that could not be delivered.",
                of(&self.link.answers_dropped),
            ),
            (
                "tollgate_link_addresses_held_total",
                "Times that an address had as many records under way as one may have.",
                of(&self.link.addresses_held),
            ),
            (
                "tollgate_feed_frames_published_total",
                "Frames that were published.",
                of(&self.feed.frames),
            ),
            (
                "tollgate_feed_bytes_total",
                "Bytes of frames that were published.",
                of(&self.feed.bytes),
            ),
            (
                "tollgate_feed_frames_dropped_total",
                "Frames that were dropped for a subscriber at feed.subscriber_queue_max, times subscribers.",
                of(&self.feed.dropped),
            ),
            (
                "tollgate_feed_frames_unpublished_total",
                "Frames that were dropped for all subscribers: too many waited for the feed's thread.",
                of(&self.feed.unpublished),
            ),
            (
                "tollgate_feed_deliveries_total",
                "Frames that were queued for a subscriber, times subscribers.",
                of(&self.feed.deliveries),
            ),
            (
                "tollgate_accept_pauses_total",
                "Times that no connection was accepted, for want of descriptors or at listen.connections_max.",
                of(&self.edge.paused),
            ),
            (
                "tollgate_records_aside_total",
                "Refused records that were kept as dead letters.",
                of(&self.dead_letters.kept),
            ),
            (
                "tollgate_records_aside_dropped_total",
                "Refused records that were not kept as dead letters: too many, no room, or the write failed.",
                of(&self.dead_letters.dropped),
            ),
            (
                telemetry::LINES_LOST,
                "Log lines that could not be written to stderr.",
                telemetry::lines_lost(),
            ),
        ];
        for (name, help, value) in sockets {
            self.counter(name, help, value, Vec::new());
        }
        self.render_refused_batches();
    }

    /// Batches that were refused, by reason.
    fn render_refused_batches(&self) {
        for (reason, value) in self.link.refused.counts() {
            self.counter(
                "tollgate_link_refused_total",
                "Batches of agents that were not admitted to the log, and questions about resources that a token does not cover.",
                value,
                vec![Label::from_static_parts("reason", reason)],
            );
        }
    }

    /// Counters of the HTTP server.
    fn render_http(&self) {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let http = [
            (
                "tollgate_http_turned_away_total",
                "Connections for HTTP that were closed to make room for others, or found no room.",
                of(&self.http.turned_away),
            ),
            (
                "tollgate_http_stalled_total",
                "Connections for HTTP that ended because their peer stalled.",
                of(&self.http.stalled),
            ),
            (
                "tollgate_http_strange_hosts_total",
                "Requests for a host that is not one of this aggregator's.",
                of(&self.http.strange_hosts),
            ),
            (
                "tollgate_http_bodies_too_large_total",
                "Requests with a body of more than 64 KiB.",
                of(&self.http.too_large),
            ),
            (
                "tollgate_http_accept_errors_total",
                "Times that no connection for HTTP could be accepted.",
                of(&self.http.accept_errors),
            ),
            (
                "tollgate_http_busy_total",
                "Lists and explanations that were refused because too many wait.",
                of(&self.http.busy),
            ),
            (
                "tollgate_amendments_refused_total",
                "Amendments refused because their caller asks for more than 20 a second.",
                of(&self.http.amendments_refused),
            ),
        ];
        for (name, help, value) in http {
            self.counter(name, help, value, Vec::new());
        }
        self.gauge(
            "tollgate_http_connections",
            "Connections for HTTP that are open.",
            self.http.open.load(Ordering::Relaxed) as f64,
            Vec::new(),
        );
    }

    /// Ages, in seconds.
    fn render_ages(&self, gauges: &Gauges) {
        let seconds = [
            (
                "tollgate_log_lag_seconds",
                "How far the last ruled record of a partition lies before now; the greatest.",
                gauges.log_lag_us,
            ),
            (
                "tollgate_log_ahead_seconds",
                "How far the last ruled record of a partition lies after now, by the clock of this machine; the greatest.",
                gauges.log_ahead_us,
            ),
            (
                "tollgate_snapshot_age_seconds",
                "How old the newest snapshot of a partition is that has ruled hits since; the greatest.",
                gauges.snapshot_age_us,
            ),
            (
                "tollgate_snapshot_seconds",
                "How long the last snapshot of a partition took to be saved, beside ruling and behind those of others; the greatest.",
                gauges.snapshot_took_us,
            ),
        ];
        for (name, help, us) in seconds {
            self.gauge(name, help, us as f64 / 1e6, Vec::new());
        }
    }

    /// Gauges and counters of connections to the ports for agents and the feed.
    fn render_edge(&self) {
        let edge = &self.edge;
        for (port, counters) in [("agents", &edge.agents), ("feed", &edge.feed)] {
            self.render_port(port, counters);
        }
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let gauges = [
            (
                "tollgate_feed_subscribers",
                "Connections to the feed that are open: agents that receive denials.",
                of(&edge.feed.open),
            ),
            (
                "tollgate_feed_subscriptions",
                "Topics that they subscribe to, times connections.",
                of(&self.feed.subscriptions),
            ),
            (
                "tollgate_connections_pending",
                "Connections whose handshake is not complete.",
                edge.pending() as f64,
            ),
            (
                "tollgate_connections_queued_bytes",
                "Bytes that wait for connections to take them.",
                edge.queued.get() as f64,
            ),
            (
                "tollgate_connections_unfinished_bytes",
                "Bytes of messages whose end has not come.",
                edge.unfinished.get() as f64,
            ),
            (
                "tollgate_link_appends_bytes",
                "Bytes of agents' records under way to the log.",
                of(&self.link.appends_bytes),
            ),
        ];
        for (name, help, value) in gauges {
            self.gauge(name, help, value, Vec::new());
        }
    }

    fn render_port(&self, port: &'static str, counters: &PortCounters) {
        let label = Label::from_static_parts("port", port);
        self.gauge(
            "tollgate_connections_open",
            "Connections whose handshake is complete.",
            counters.open.load(Ordering::Relaxed) as f64,
            vec![label.clone()],
        );
        for (reason, count) in counters.ended() {
            self.counter(
                "tollgate_connections_ended_total",
                "Connections that ended, by reason; gone: the peer closed it, or the network did.",
                count,
                vec![label.clone(), Label::from_static_parts("reason", reason)],
            );
        }
    }

    fn counter(&self, name: &'static str, help: &'static str, value: u64, labels: Vec<Label>) {
        let key = KeyName::from_const_str(name);
        self.recorder
            .describe_counter(key, Some(Unit::Count), SharedString::const_str(help));
        self.recorder
            .register_counter(&Key::from_parts(name, labels), &METADATA)
            .absolute(value);
    }

    fn gauge(&self, name: &'static str, help: &'static str, value: f64, labels: Vec<Label>) {
        let key = KeyName::from_const_str(name);
        self.recorder
            .describe_gauge(key, Some(Unit::Count), SharedString::const_str(help));
        self.recorder
            .register_gauge(&Key::from_parts(name, labels), &METADATA)
            .set(value);
    }
}
