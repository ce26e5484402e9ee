//! The one loop: events in, effects out.

#[cfg(feature = "kafka")]
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tollgate_api::state::LogView;
use tollgate_log::clock::wall;
use tollgate_shared::kafka_properties::is_of_connection;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::Span;

use super::backlog::{Backlog, Next};
use super::dead_letters::DeadLetters;
#[cfg(feature = "kafka")]
use super::fleet::{Fleet, OwnAddresses};
use super::limits_file::read_file;
use super::saver::Saver;
use super::secure::{self, Secured};
use super::signals::{SignalRequest, Signals};
use super::{Bound, Listeners};
use crate::ServeError;
use crate::config::{Config, LogKind};
use crate::core::event::{AgentRoom, Effect, Event, Now};
use crate::core::recordings::WAITING_MAX;
use crate::core::snapshots::Policy;
use crate::core::{Core, Settings, Start};
use crate::edge::{self, Edge};
use crate::feed::{self, FeedCounters, Publisher};
use crate::http::fleet::Others;
use crate::http::{self, Hosts, HttpCounters, Metrics, PendingQueries, SecurityMetrics};
use crate::link::{self, Answers, LinkCounters, Sent};
use crate::security::Access;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::{DeadLetterCounters, Log, LogEvent};

/// Events of the log that may wait. Each holds at most about a megabyte.
const LOG_EVENTS_MAX: usize = 64;

/// Requests and queries that may wait.
const EVENTS_MAX: usize = 4_096;

/// How long events are handled before the turn ends and its statements are announced. This is half of what a denial
/// may take from a hit to an agent that is idle.
const TURN_MAX: Duration = Duration::from_micros(500);

/// How long the log may take to finish accepted appends. The process has to end within 5 s.
const CLOSE_PATIENCE: Duration = Duration::from_secs(4);

struct Shell {
    core: Core,
    log: Box<dyn Log>,
    feed: Publisher,
    answers: Answers,
    queries: PendingQueries,
    dead_letters: DeadLetters,
    snapshot_store: Keeper,
    /// Receives the limits file when it was read.
    files: mpsc::Sender<Event>,
    backlog: Backlog,
    started: Instant,
    effects: Vec<Effect>,
    log_faults: mpsc::Receiver<ServeError>,
    gave_up: Option<ServeError>,
}

/// Keeps snapshots.
enum Keeper {
    /// Files beside the journal.
    Files(Saver),
    /// The fleet's `state` topic.
    #[cfg(feature = "kafka")]
    Fleet(Fleet),
}

pub(super) async fn run(
    config: Arc<Config>,
    listeners: (Listeners, Secured),
    bound: Bound,
    with_stdin: bool,
) -> Result<(), ServeError> {
    let mut signals = Signals::catch(with_stdin)?;
    let (log_sender, mut log_events) = mpsc::channel(LOG_EVENTS_MAX);
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let of_agents = listeners.1.agents.clone();
    let mut shell = start(&config, listeners, bound, log_sender, sender).await?;
    // One line for people and for the parent process; the addresses in it are final.
    let Bound {
        http,
        agents,
        feed,
        probe,
    } = bound;
    let (probe, tls) = (
        probe.map(tracing::field::display),
        secure::speaks_tls(&config),
    );
    tracing::info!(%http, %agents, %feed, probe, tls, "listening");
    secure::warn_of_advertised(&config, bound);
    secure::warn_of_names(&config, &of_agents, bound);
    // The log's limits are read after it, so that a bad file is known by then.
    shell.read_first_limits_file(&config);
    loop {
        let turn_at = shell.started + shell.core.next_turn().to_std();
        // Everything that can wake this process, on one screen.
        tokio::select! {
            biased;
            asked = signals.next() => match asked {
                SignalRequest::Stop => break,
                SignalRequest::ReadLimits => shell.read_limits_file(&config),
            },
            Some(event) = log_events.recv(), if shell.backlog.has_room() => shell.backlog.push(event),
            Some(event) = events.recv() => shell.handle(event),
            Some(fault) = shell.log_faults.recv() => shell.gave_up = Some(fault),
            () = std::future::ready(()), if !shell.backlog.is_empty() => {}
            () = tokio::time::sleep_until(turn_at) => {}
        }
        let turn_ends = Instant::now() + TURN_MAX;
        while Instant::now() < turn_ends {
            // One of each in turn, so that neither starves the other.
            let is_from_log = shell.handle_log(&mut log_events);
            let from_others = events.try_recv().map(|event| shell.handle(event));
            if !is_from_log && from_others.is_err() {
                break;
            }
        }
        shell.step(Event::Turn);
        if let Some(failure) = shell.gave_up.take() {
            shell.close(&mut log_events).await;
            return Err(failure);
        }
    }
    tracing::info!("stopping");
    shell.close(&mut log_events).await;
    Ok(())
}

async fn start(
    config: &Config,
    (listeners, secured): (Listeners, Secured),
    bound: Bound,
    log_events: mpsc::Sender<LogEvent>,
    events: mpsc::Sender<Event>,
) -> Result<Shell, ServeError> {
    let opened = super::log::open(config, log_events)?;
    let log = opened.log;
    let partitions = log.partitions();
    let socket = |name: &'static str| {
        move |source| ServeError::Io {
            name: name.to_owned(),
            source,
        }
    };
    let (link_counters, feed_counters) = (
        Arc::<LinkCounters>::default(),
        Arc::<FeedCounters>::default(),
    );
    let edge = Arc::new(Edge::new(config.edge, edge::raise_descriptors()));
    let watched = secured.watch.counters.clone();
    let in_force = (secured.watch.tls.clone(), secured.watch.tokens.clone());
    let insecure = secured.watch.insecure.clone();
    secured.watch.start(&edge).map_err(socket("keys"))?;
    let feed = feed::serve(
        (listeners.feed, secured.feed),
        Arc::clone(&edge),
        Arc::clone(&feed_counters),
    );
    let feed = feed.map_err(socket("feed"))?;
    let answers = link::serve(
        (listeners.agents, secured.agents),
        partitions,
        events.clone(),
        Arc::clone(&edge),
        Arc::clone(&link_counters),
    )
    .map_err(socket("link"))?;
    let queries = PendingQueries::new(events.clone());
    let aside_counters = Arc::<DeadLetterCounters>::default();
    let http_counters = Arc::<HttpCounters>::default();
    let metrics = Arc::new(Metrics::new(
        (edge, link_counters, feed_counters),
        Arc::clone(&aside_counters),
        Arc::clone(&http_counters),
        SecurityMetrics::new(watched, in_force, insecure),
        (config.name.clone(), group_of(config)),
    ));
    let others = Others::asked_by(secured.client);
    let shown = log_view(config, partitions, bound, secured.keys.clone());
    let answer = |listener: std::net::TcpListener, access, routes, hosts| {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let counters = Arc::clone(&http_counters);
        tokio::spawn(http::serve((listener, access), routes, hosts, counters));
        Ok(())
    };
    if let Some(probe) = listeners.probe {
        let seen = config.listen.probe_metrics.then(|| Arc::clone(&metrics));
        let routes = http::probe_routes(queries.clone(), seen);
        answer(probe, Access::default(), routes, Hosts::any()).map_err(socket("probe"))?;
    }
    let routes = http::routes(
        queries.clone(),
        metrics,
        shown,
        others.clone(),
        Arc::clone(&http_counters),
    );
    let hosts = super::secure::hosts(config, &secured.http);
    answer(listeners.http, secured.http, routes, hosts).map_err(socket("http"))?;
    let settings = settings(config, partitions, opened.start, bound, secured.keys);
    warn_of_public_key(config, &settings.keys);
    let (mut core, effects, snapshot_store, dead_letters);
    let files = events.clone();
    match config.log {
        LogKind::Journal => {
            let dir = &config.journal.dir;
            let snapshots = Snapshots::beside(dir, Arc::new(OsDisk));
            let saver = Saver::start(snapshots, events);
            snapshot_store = Keeper::Files(saver.map_err(socket("snapshots"))?);
            dead_letters = DeadLetters::in_dir(dir.join("aside"), aside_counters);
            (core, effects) = Core::new(settings);
        }
        #[cfg(feature = "kafka")]
        LogKind::Kafka => {
            let bug = || ServeError::Bug("no place in the fleet".to_owned());
            let (place, faults) = opened.place.ok_or_else(bug)?;
            (core, effects) = Core::shared(settings);
            let advertised =
                |address: SocketAddr| format!("{}:{}", config.listen.advertise, address.port());
            let found = OwnAddresses {
                instance: core.instance(),
                agents: advertised(bound.agents),
                http: advertised(bound.http),
            };
            dead_letters =
                DeadLetters::in_topic(place.kafka.clone(), &config.name, aside_counters)?;
            snapshot_store = Keeper::Fleet(Fleet::join(place, found, others, events, faults)?);
        }
        #[cfg(not(feature = "kafka"))]
        LogKind::Kafka => return Err(ServeError::Bug("built without kafka".to_owned())),
    }
    let threads = threads(config);
    core.rule_on(threads);
    let mut shell = Shell {
        core,
        log,
        feed,
        answers,
        queries,
        dead_letters,
        snapshot_store,
        files,
        backlog: Backlog::new(threads),
        started: Instant::now(),
        effects,
        log_faults: opened.faults,
        gave_up: None,
    };
    shell.perform();
    Ok(shell)
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

fn log_view(config: &Config, partitions: u32, bound: Bound, keys: Keyring) -> http::LogAccess {
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
    }
}

impl Shell {
    fn now(&self) -> Now {
        Now {
            clock: Span::from_std(self.started.elapsed()),
            wall: wall(),
        }
    }

    /// Handles the next event of the log, or several at once that concern partitions. Returns whether there was one.
    fn handle_log(&mut self, log_events: &mut mpsc::Receiver<LogEvent>) -> bool {
        while self.backlog.has_room()
            && let Ok(event) = log_events.try_recv()
        {
            self.backlog.push(event);
        }
        match self.backlog.next() {
            None => return false,
            Some(Next::Event(event)) => self.handle(Event::Log(event)),
            Some(Next::Together(events)) => {
                let now = self.now();
                self.core.rule_together(now, &events, &mut self.effects);
            }
        }
        true
    }

    /// Handles an event. Its effects are carried out at the end of the turn, together: one append after the other
    /// would wake the log's thread for each.
    fn handle(&mut self, event: Event) {
        if let Event::Agent { peer, request } = &event {
            self.answers.request_read(peer, request);
        }
        let now = self.now();
        self.core.step(now, event, &mut self.effects);
    }

    /// Handles an event, and carries out all effects until now.
    fn step(&mut self, event: Event) {
        self.handle(event);
        self.perform();
    }

    fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Append {
                    stream,
                    partition,
                    ticket,
                    record,
                } => self.log.append(stream, partition, ticket, record),
                Effect::Follow {
                    stream,
                    partition,
                    from,
                } => self.log.follow(stream, partition, from),
                Effect::Unfollow { stream, partition } => self.log.unfollow(stream, partition),
                Effect::Publish { topic, frame } => self.feed.publish(topic, frame),
                Effect::Answer { peer, message } => match self.answers.send(&peer, &message) {
                    Sent::Sent => {}
                    Sent::Full => self.core.room(peer, AgentRoom::Full),
                    Sent::Gone => self.core.room(peer, AgentRoom::Gone),
                },
                Effect::Reply { id, reply } => self.queries.answer(id, *reply),
                Effect::SaveSnapshot {
                    partition,
                    upto,
                    moment,
                } => match &self.snapshot_store {
                    Keeper::Files(saver) => saver.save(partition, upto, moment),
                    #[cfg(feature = "kafka")]
                    Keeper::Fleet(fleet) => fleet.save(partition, upto, moment),
                },
                Effect::DropSnapshot { partition, upto } => match &self.snapshot_store {
                    Keeper::Files(saver) => saver.drop_snapshot(partition, upto),
                    // It is removed with others when there are two newer ones.
                    #[cfg(feature = "kafka")]
                    Keeper::Fleet(_) => {}
                },
                Effect::Restore {
                    partition,
                    attempt,
                    known,
                } => match &self.snapshot_store {
                    // This process rules all partitions of a journal, from the start.
                    Keeper::Files(_) => drop((partition, attempt, known)),
                    #[cfg(feature = "kafka")]
                    Keeper::Fleet(fleet) => fleet.restore(partition, attempt, known),
                },
                Effect::Aside(letter) => self.dead_letters.keep(&letter),
                Effect::GiveUp { why, unreadable } => {
                    self.gave_up = Some(if unreadable {
                        ServeError::LimitsUnreadable(why)
                    } else {
                        ServeError::LimitsInvalid(why)
                    });
                }
            }
        }
        // The vector's memory is reused.
        self.effects = effects;
    }

    fn read_first_limits_file(&mut self, config: &Config) {
        if let Some(path) = &config.limits.file {
            let file = read_file(path, config.domain_key_file.as_deref());
            self.step(Event::LimitsFile(file));
        }
    }

    /// Reads the limits file in the background.
    fn read_limits_file(&self, config: &Config) {
        let Some(path) = config.limits.file.clone() else {
            tracing::debug!("no limits file is configured");
            return;
        };
        let (key, files) = (config.domain_key_file.clone(), self.files.clone());
        tokio::task::spawn_blocking(move || {
            let file = read_file(&path, key.as_deref());
            // The receiver is gone if the process ends.
            let _ = files.blocking_send(Event::LimitsFile(file));
        });
    }

    /// Closes the log: when this returns, the log has everything that agents were told, and answers to appends under
    /// way were still sent.
    async fn close(mut self, log_events: &mut mpsc::Receiver<LogEvent>) {
        #[cfg(feature = "kafka")]
        if let Keeper::Fleet(fleet) = &self.snapshot_store {
            fleet.leave();
        }
        self.dead_letters.close();
        self.log.close();
        for event in self.backlog.take_all() {
            self.close_by(event);
        }
        let closing = async {
            while let Some(event) = log_events.recv().await {
                if self.close_by(event) {
                    return;
                }
            }
        };
        if tokio::time::timeout(CLOSE_PATIENCE, closing).await.is_err() {
            tracing::error!("the log did not close in time; what was acknowledged is in it");
        }
    }

    /// Handles an event of a log that is being closed; returns whether it was the last.
    fn close_by(&mut self, event: LogEvent) -> bool {
        match event {
            LogEvent::Closed => return true,
            event @ LogEvent::Appended { .. } => self.step(Event::Log(event)),
            // What is delivered now will be ruled by the next process.
            _ => {}
        }
        false
    }
}
