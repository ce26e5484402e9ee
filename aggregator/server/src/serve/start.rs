//! Starts an aggregator: its log, what agents and HTTP connect to, and the core.
//!
//! What stays true: nothing is ruled here; and connections stay on the runtime that this is called within.

#[cfg(feature = "kafka")]
use std::net::SocketAddr;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tollgate_api::state::LogView;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::{DeadLetterCounters, LogReceiver, LogSender};
use tollgate_shared::kafka_properties::is_of_connection;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::Span;

use super::backlog::Backlog;
use super::dead_letters::DeadLetters;
#[cfg(feature = "kafka")]
use super::fleet::{Fleet, FleetSettings, OwnAddresses};
use super::run::{Keeper, Shell};
use super::saver::Saver;
use super::secure::{self, Secured};
use super::signals::Signals;
use super::watch::Watch;
use super::{Bound, Listeners};
use crate::ServeError;
use crate::config::{Config, LogKind};
use crate::core::event::{Effect, Event};
use crate::core::recordings::WAITING_MAX;
use crate::core::snapshots::Policy;
use crate::core::topics::Subscribed;
use crate::core::{Core, Settings, Start};
use crate::edge::{self, Edge};
use crate::feed::{self, FeedCounters};
use crate::http::fleet::Others;
use crate::http::{self, Hosts, HttpCounters, Metrics, PendingQueries, SecurityMetrics};
use crate::link::{self, LinkCounters};
use crate::security::Access;

/// Sendings of the log that may wait. Each holds at most about a megabyte.
const LOG_EVENTS_MAX: usize = 64;

/// Requests and queries that may wait.
const EVENTS_MAX: usize = 4_096;

/// What can wake the ruling thread.
pub(super) struct Inboxes {
    pub signals: Signals,
    pub log_events: LogReceiver,
    pub events: mpsc::Receiver<Event>,
}

/// What the parts count, which `/metrics` shows together.
struct ServeCounters {
    edge: Arc<Edge>,
    link: Arc<LinkCounters>,
    feed: Arc<FeedCounters>,
    dead_letters: Arc<DeadLetterCounters>,
    http: Arc<HttpCounters>,
}

impl ServeCounters {
    fn new(config: &Config) -> Self {
        Self {
            edge: Arc::new(Edge::new(config.edge, edge::raise_descriptors())),
            link: Arc::default(),
            feed: Arc::default(),
            dead_letters: Arc::default(),
            http: Arc::default(),
        }
    }

    fn metrics(&self, config: &Config, watch: &Watch) -> Metrics {
        let of_connections = (self.edge.clone(), self.link.clone(), self.feed.clone());
        let in_force = (watch.tls.clone(), watch.tokens.clone());
        let security =
            SecurityMetrics::new(watch.counters.clone(), in_force, watch.insecure.clone());
        Metrics::new(
            of_connections,
            self.dead_letters.clone(),
            self.http.clone(),
            security,
            (config.name.clone(), group_of(config)),
        )
    }
}

/// Starts everything but the loop.
pub(super) fn start(
    config: &Config,
    (listeners, secured): (Listeners, Secured),
    bound: Bound,
    with_stdin: bool,
) -> Result<(Shell, Inboxes), ServeError> {
    let signals = Signals::catch(with_stdin)?;
    let of_agents = secured.agents.clone();
    let (log_sender, log_events) = tollgate_log::channel(LOG_EVENTS_MAX);
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let mut shell = open(config, (listeners, secured), bound, log_sender, sender)?;
    shell.perform();
    // One line for people and for the parent process; the addresses in it are final.
    let Bound {
        http,
        agents,
        feed,
        probe,
    } = bound;
    let (probe, tls) = (
        probe.map(tracing::field::display),
        secure::speaks_tls(config),
    );
    tracing::info!(%http, %agents, %feed, probe, tls, "listening");
    secure::warn_of_advertised(config, bound);
    secure::warn_of_names(config, &of_agents, bound);
    let inboxes = Inboxes {
        signals,
        log_events,
        events,
    };
    Ok((shell, inboxes))
}

fn open(
    config: &Config,
    (listeners, secured): (Listeners, Secured),
    bound: Bound,
    log_events: LogSender,
    events: mpsc::Sender<Event>,
) -> Result<Shell, ServeError> {
    let opened = super::log::open(config, log_events)?;
    let partitions = opened.log.partitions();
    let counters = ServeCounters::new(config);
    let metrics = Arc::new(counters.metrics(config, &secured.watch));
    secured
        .watch
        .start(&counters.edge)
        .map_err(failed("keys"))?;
    let port = (listeners.feed, secured.feed);
    let feed = feed::serve(port, counters.edge.clone(), counters.feed.clone());
    let feed = feed.map_err(failed("feed"))?;
    let answers = link::serve(
        (listeners.agents, secured.agents),
        partitions,
        events.clone(),
        counters.edge.clone(),
        counters.link.clone(),
    );
    let answers = answers.map_err(failed("link"))?;
    let queries = PendingQueries::new(events.clone());
    let others = Others::asked_by(secured.client);
    let keys = (secured.keys.clone(), secured.domain_key_id);
    serve_http(
        config,
        (listeners.http, listeners.probe),
        secured.http,
        log_view(config, partitions, bound, keys),
        (&queries, metrics, others.clone(), &counters.http),
    )?;
    let mut settings = settings(config, partitions, opened.start, bound, secured.keys);
    settings.subscribed = feed.subscribed();
    warn_of_public_key(config, &settings.keys);
    let files = events.clone();
    let to_core = (events, counters.dead_letters);
    let parts = match config.log {
        LogKind::Journal => beside_journal(config, settings, to_core)?,
        #[cfg(feature = "kafka")]
        LogKind::Kafka => {
            let place = opened.place.ok_or_else(|| bug("no place in the fleet"))?;
            beside_kafka(config, settings, place, (bound, others), to_core)?
        }
        #[cfg(not(feature = "kafka"))]
        LogKind::Kafka => return Err(bug("built without kafka")),
    };
    let threads = threads(config);
    let mut core = parts.core;
    core.rule_on(threads);
    Ok(Shell {
        core,
        log: opened.log,
        feed,
        answers,
        queries,
        dead_letters: parts.dead_letters,
        snapshot_store: parts.snapshot_store,
        files,
        backlog: Backlog::new(threads),
        started: Instant::now(),
        effects: parts.effects,
        log_faults: opened.faults,
        gave_up: None,
    })
}

fn failed(name: &'static str) -> impl Fn(std::io::Error) -> ServeError {
    move |source| ServeError::Io {
        name: name.to_owned(),
        source,
    }
}

fn bug(text: &str) -> ServeError {
    ServeError::Bug(text.to_owned())
}

/// Answers HTTP, and probes if they have a listener of their own.
fn serve_http(
    config: &Config,
    (http, probe): (TcpListener, Option<TcpListener>),
    access: Access,
    log: http::LogAccess,
    (queries, metrics, others, counters): (
        &PendingQueries,
        Arc<Metrics>,
        Others,
        &Arc<HttpCounters>,
    ),
) -> Result<(), ServeError> {
    let serve = |listener: TcpListener, access, routes, hosts| {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(http::serve(
            (listener, access),
            routes,
            hosts,
            counters.clone(),
        ));
        Ok(())
    };
    if let Some(probe) = probe {
        let shown = config.listen.probe_metrics.then(|| Arc::clone(&metrics));
        let routes = http::probe_routes(queries.clone(), shown);
        serve(probe, Access::default(), routes, Hosts::any()).map_err(failed("probe"))?;
    }
    let routes = http::routes(queries.clone(), metrics, log, others, counters.clone());
    let hosts = secure::hosts(config, &access);
    serve(http, access, routes, hosts).map_err(failed("http"))
}

/// The core, its first effects, and where its snapshots and dead letters are kept.
struct CoreParts {
    core: Core,
    effects: Vec<Effect>,
    snapshot_store: Keeper,
    dead_letters: DeadLetters,
}

fn beside_journal(
    config: &Config,
    settings: Settings,
    (events, counters): (mpsc::Sender<Event>, Arc<DeadLetterCounters>),
) -> Result<CoreParts, ServeError> {
    let dir = &config.journal.dir;
    let snapshots = Snapshots::beside(dir, Arc::new(OsDisk));
    let saver = Saver::start(snapshots, events).map_err(failed("snapshots"))?;
    let (core, effects) = Core::new(settings);
    Ok(CoreParts {
        core,
        effects,
        snapshot_store: Keeper::Files(saver),
        dead_letters: DeadLetters::in_dir(dir.join("aside"), counters),
    })
}

#[cfg(feature = "kafka")]
fn beside_kafka(
    config: &Config,
    settings: Settings,
    (place, faults): (FleetSettings, mpsc::Sender<ServeError>),
    (bound, others): (Bound, Others),
    (events, counters): (mpsc::Sender<Event>, Arc<DeadLetterCounters>),
) -> Result<CoreParts, ServeError> {
    let (core, effects) = Core::shared(settings);
    let advertised =
        |address: SocketAddr| format!("{}:{}", config.listen.advertise, address.port());
    let addresses = OwnAddresses {
        instance: core.instance(),
        agents: advertised(bound.agents),
        http: advertised(bound.http),
    };
    let dead_letters = DeadLetters::in_topic(place.kafka.clone(), &config.name, counters)?;
    Ok(CoreParts {
        core,
        effects,
        snapshot_store: Keeper::Fleet(Fleet::join(place, addresses, others, events, faults)?),
        dead_letters,
    })
}

/// The consumer group; empty where the log is a journal.
fn group_of(config: &Config) -> String {
    match config.log {
        LogKind::Kafka => config.kafka.group.clone(),
        LogKind::Journal => String::new(),
    }
}

/// How many threads rule: as many as configured, or as many as there are cores.
fn threads(config: &Config) -> NonZeroUsize {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    config.threads.unwrap_or_else(cores)
}

fn settings(
    config: &Config,
    partitions: u32,
    start: Start,
    bound: Bound,
    keys: Keyring,
) -> Settings {
    Settings {
        aggregator: config.name.clone(),
        seed: rand::random(),
        keys,
        partitions,
        group: (config.log == LogKind::Kafka).then(|| group_of(config).into()),
        start,
        feeds: vec![format!("tcp://{}:{}", config.listen.advertise, bound.feed.port()).into()],
        heartbeat: Span::from_std(config.feed.heartbeat),
        subscribed: Subscribed::default(),
        follow_file: config.limits.follow,
        waiting_max: WAITING_MAX,
        snapshots: Some(Policy {
            every: Span::from_std(config.snapshot.every),
            entries_max: config.snapshot.entries_max,
        }),
    }
}

/// Warns that others can write records to Kafka as well as aggregators. A journal has no other writers.
fn warn_of_public_key(config: &Config, keys: &Keyring) {
    if config.log == LogKind::Kafka && keys.is_empty() {
        tracing::warn!(
            "aggregators' records (ticks, totals, limits activations) are tagged under the public key of zero \
             bytes: the tag is a checksum, and any process that may write to the topic of hits can forge them; give \
             that right only to trusted agents (deploy/kafka/ACLS.md), and watch tollgate_totals_forged_total; to \
             prevent forgery, set security.key_file"
        );
    }
}

fn log_view(
    config: &Config,
    partitions: u32,
    bound: Bound,
    (keys, domain_key_id): (Keyring, Option<Box<str>>),
) -> http::LogAccess {
    let kafka = config.log == LogKind::Kafka;
    let dir = &config.journal.dir;
    let view = LogView {
        schema: "tollgate.log/1".into(),
        kind: if kafka { "kafka" } else { "journal" }.into(),
        dir: (!kafka).then(|| dir.canonicalize().unwrap_or_else(|_| dir.clone())),
        bootstrap: match kafka {
            true => config.kafka.bootstrap.clone(),
            false => Vec::new(),
        },
        topic_prefix: kafka.then(|| config.kafka.topic_prefix.clone()),
        partitions,
        agents: format!("{}:{}", config.listen.advertise, bound.agents.port()),
    };
    let properties = config.kafka.properties.iter();
    let of_connection = properties.filter(|(name, _)| is_of_connection(name));
    http::LogAccess {
        view,
        properties: of_connection
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        keys: keys.trusting_missing(),
        domain_key_id,
    }
}
