//! The aggregator's own configuration: text, then options by path, then this checked type.
//!
//! ```text
//! flags ─┐
//! env ───┼─> Source (options by path, faults) ──> Config
//! file ──┘
//! ```
//!
//! Nothing here can change a ruling: such settings stand in the limits document and are versioned. Knows
//! nothing of sockets, and of files only their names. What stays true: a [`Config`] can be served, and
//! all faults of one reading are reported together.

mod edge;
mod fault;
mod hosts;
mod listen;
mod source;
mod units;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

pub use fault::{FaultKind, OptionFault, OptionFaults, most_like};
pub use listen::{Listen, Security, TlsFiles};
pub use source::{Given, OPTIONS, PROPERTIES, from_environment, variable};

use crate::edge::Bounds;
use hosts::has_port;
use source::ConfigSource;
use tollgate_limits::{parse_span, print_span};
use tollgate_shared::names::check_name;
use tollgate_shared::time::Span;

/// The complete configuration of `tollgate serve`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The aggregator's name: it stands in its ticks and in its log lines.
    pub name: String,
    /// The number of threads that rule; `None`: one per core.
    pub threads: Option<NonZeroUsize>,
    /// The kind of log.
    pub log: LogKind,
    /// The embedded journal.
    pub journal: Journal,
    /// The Kafka cluster.
    pub kafka: Kafka,
    /// The limits file.
    pub limits: LimitsFile,
    /// The addresses.
    pub listen: Listen,
    /// The denial feed.
    pub feed: FeedConfig,
    /// Bounds on what peers may take of this process.
    pub edge: Bounds,
    /// Snapshots of engines.
    pub snapshot: Snapshot,
    /// What is logged.
    pub telemetry: Telemetry,
    /// Certificates, tokens and record keys.
    pub security: Security,
    /// The key with which agents hash domains; domains of the limits file are hashed with it before a push.
    pub domain_key_file: Option<PathBuf>,
}

/// The kind of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// In a directory of this machine.
    Journal,
    /// In a Kafka cluster.
    Kafka,
}

/// The embedded journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its directory.
    pub dir: PathBuf,
    /// How many partitions the journal has; `None`: an existing journal's own number, and 16 for a new one.
    pub partitions: Option<NonZeroU32>,
    /// When an append is acknowledged.
    pub ack: Ack,
    /// How long records are kept.
    pub retention: Duration,
    /// How many bytes of records are kept at most.
    pub retention_bytes: u64,
    /// The file, flag or variable that states `retention_bytes`, for messages.
    pub retention_bytes_origin: String,
}

/// When the journal acknowledges an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Once the operating system has the record: it survives the end of the process.
    Written,
    /// Once the record is on the disk: it survives a power cut as well.
    Synced,
}

/// The Kafka cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kafka {
    /// Brokers to ask first, as `host:port`.
    pub bootstrap: Vec<String>,
    /// The beginning of the topics' names.
    pub topic_prefix: String,
    /// The consumer group.
    pub group: String,
    /// How many partitions the topics have.
    pub partitions: u32,
    /// A file with more properties of the client; they override `properties`.
    pub properties_file: Option<PathBuf>,
    /// Properties that are passed on to the client.
    pub properties: BTreeMap<String, String>,
}

#[cfg(feature = "kafka")]
impl Kafka {
    /// The same as settings of `tollgate_log`.
    pub fn of_log(&self) -> tollgate_log::kafka::KafkaConfig {
        tollgate_log::kafka::KafkaConfig {
            bootstrap: self.bootstrap.clone(),
            topic_prefix: self.topic_prefix.clone(),
            group: self.group.clone(),
            partitions: self.partitions,
            replication: None,
            properties: self.properties.clone(),
        }
    }
}

/// The limits file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsFile {
    /// Its name; `None`: limits come from the log alone.
    pub file: Option<PathBuf>,
    /// Whether it is pushed to the log when it differs from the version in force.
    pub follow: bool,
}

/// The denial feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedConfig {
    /// How often topics without statements publish their watermarks.
    pub heartbeat: Duration,
}

/// Snapshots of engines: the bound on recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The longest time between two.
    pub every: Duration,
    /// The most entries between two.
    pub entries_max: u64,
    /// How many hourly snapshots are kept beside the newest; only on Kafka.
    pub keep_hourly: u64,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// A level, or directives by module.
    pub log: String,
    /// Whether an event is one line of text or one JSON object.
    pub log_format: LogFormat,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Config {
    /// Reads the text of a file called `file` and the options given beside it, in ascending order of priority;
    /// `host` is the machine's name.
    ///
    /// # Errors
    ///
    /// All faults, wherever the values were written.
    pub fn read(
        file: &str,
        text: &str,
        given: Vec<Given>,
        host: &str,
    ) -> Result<Self, OptionFaults> {
        let mut source = ConfigSource::new(file, text, given);
        let kind = source.text(
            "log.kind",
            "\"journal\" or \"kafka\"",
            LogKind::Journal,
            |text| match text {
                "journal" => Some(LogKind::Journal),
                "kafka" => Some(LogKind::Kafka),
                _ => None,
            },
        );
        if kind == LogKind::Kafka && !cfg!(feature = "kafka") {
            source.not_yet("log.kind", "it was built without the feature `kafka`");
        }
        let security = Security::read(&mut source);
        let config = Self {
            name: read_name(&mut source, host),
            threads: read_threads(&mut source),
            log: kind,
            journal: Journal::read(&mut source),
            kafka: Kafka::read(&mut source),
            limits: LimitsFile::read(&mut source, kind),
            listen: Listen::read(&mut source, &security),
            security,
            feed: FeedConfig::read(&mut source),
            edge: edge::read(&mut source),
            snapshot: Snapshot::read(&mut source, kind),
            telemetry: Telemetry::read(&mut source),
            domain_key_file: source.file("security.domain_key_file"),
        };
        if kind == LogKind::Journal {
            refuse_lost_records(&mut source, &config);
        }
        if source.faults.is_empty() {
            Ok(config)
        } else {
            Err(OptionFaults(source.faults))
        }
    }
}

/// Refuses a retention by which records could go before a snapshot has them: a snapshot is due after `snapshot.every`,
/// and writing it takes some time.
fn refuse_lost_records(source: &mut ConfigSource, config: &Config) {
    let (retention, every) = (config.journal.retention, config.snapshot.every);
    let pair = [("journal.retention", retention), ("snapshot.every", every)];
    let is_refused = |(path, _): &(&'static str, Duration)| source.is_refused(path);
    if every.saturating_mul(2) <= retention || pair.iter().any(is_refused) {
        return;
    }
    let texts =
        pair.map(|(path, time)| (path, format!("\"{}\"", print_span(Span::from_std(time)))));
    source.refuse_pair(texts, ["at least twice", "at most half of"]);
}

fn read_threads(source: &mut ConfigSource) -> Option<NonZeroUsize> {
    let expected = "a whole number from 0 to 1024; 0: as many as the machine has cores";
    let threads = source.number("threads", expected, 0, 0..=1024);
    NonZeroUsize::new(threads as usize)
}

/// A duration, in the notation of Tollgate's documents.
fn read_duration(text: &str) -> Option<Duration> {
    parse_span(text).map(Span::to_std)
}

fn read_name(source: &mut ConfigSource, host: &str) -> String {
    let stated = source.text(
        "name",
        "1 to 256 bytes without `*` and control characters; empty: the host's name",
        String::new(),
        |text| (text.is_empty() || check_name(text).is_ok()).then(|| text.to_owned()),
    );
    match (stated.is_empty(), check_name(host).is_ok()) {
        (false, _) => stated,
        (true, true) => host.to_owned(),
        (true, false) => "aggregator".to_owned(),
    }
}

impl Journal {
    fn read(source: &mut ConfigSource) -> Self {
        // A partition without hits goes without a snapshot for 10,000 records, which are up to 84 minutes of ticks.
        // Totals and acts of operators may be among them.
        const LEAST: Duration = Duration::from_secs(2 * 3_600);
        const MOST: Duration = Duration::from_secs(36_500 * 24 * 3_600);
        Self {
            dir: source.text(
                "journal.dir",
                "the name of a directory",
                PathBuf::from("./tollgate-data"),
                |text| (!text.is_empty()).then(|| PathBuf::from(text)),
            ),
            partitions: NonZeroU32::new(source.number(
                "journal.partitions",
                "a whole number from 0 to 1024; 0: as an existing journal has, and 16 for a new one",
                0,
                0..=1024,
            ) as u32),
            ack: source.text(
                "journal.ack",
                "\"written\" or \"synced\"",
                Ack::Written,
                |text| match text {
                    "written" => Some(Ack::Written),
                    "synced" => Some(Ack::Synced),
                    _ => None,
                },
            ),
            retention: source.text(
                "journal.retention",
                "a duration from 2h to 36500d, such as \"24h\"; what no snapshot has yet must not be removed",
                Duration::from_secs(24 * 3_600),
                |text| read_duration(text).filter(|time| (LEAST..=MOST).contains(time)),
            ),
            retention_bytes: source.text(
                "journal.retention_bytes",
                "a size without blanks, such as \"8GiB\", of at least 2MiB for each of the 2 × partitions + 1 segments that are \
                 being written (66MiB with 16 partitions)",
                8 << 30,
                // The bound for one partition; that for more is checked once their number is known.
                |text| units::bytes(text).filter(|bytes| 6 << 20 <= *bytes),
            ),
            retention_bytes_origin: source.origin("journal.retention_bytes"),
        }
    }
}

impl Kafka {
    fn read(source: &mut ConfigSource) -> Self {
        Self {
            bootstrap: source.list(
                "kafka.bootstrap",
                "a list of brokers with their ports, such as [\"127.0.0.1:9092\"]",
                vec!["127.0.0.1:9092".to_owned()],
                has_port,
            ),
            topic_prefix: source.text(
                "kafka.topic_prefix",
                "1 to 200 of the letters a-z A-Z 0-9 . _ -",
                "tollgate".to_owned(),
                topic_word,
            ),
            group: source.text(
                "kafka.group",
                "1 to 200 of the letters a-z A-Z 0-9 . _ -",
                "a".to_owned(),
                topic_word,
            ),
            partitions: source.number(
                "kafka.partitions",
                "a whole number from 1 to 1024",
                16,
                1..=1024,
            ) as u32,
            properties_file: source.file("kafka.properties_file"),
            properties: source.properties(),
        }
    }
}

/// Checks characters that Kafka allows in a topic's name, and leaves room for a suffix.
fn topic_word(text: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (matches!(text.len(), 1..=200) && text.chars().all(legal)).then(|| text.to_owned())
}

impl LimitsFile {
    fn read(source: &mut ConfigSource, kind: LogKind) -> Self {
        let file = source.file("limits.file");
        let follow = source.truth_or_empty("limits.follow_file");
        if follow == Some(true) && file.is_none() {
            source.refuse("limits.follow_file", "limits.file beside it");
        }
        Self {
            file,
            follow: follow.unwrap_or(kind == LogKind::Journal),
        }
    }
}

impl FeedConfig {
    fn read(source: &mut ConfigSource) -> Self {
        Self {
            heartbeat: source.text(
                "feed.heartbeat",
                "a duration from 10ms to 500ms: a second without one, and calls are unguarded",
                Duration::from_millis(250),
                |text| {
                    read_duration(text).filter(|heartbeat| {
                        (Duration::from_millis(10)..=Duration::from_millis(500)).contains(heartbeat)
                    })
                },
            ),
        }
    }
}

impl Snapshot {
    fn read(source: &mut ConfigSource, kind: LogKind) -> Self {
        let every = source.duration(
            "snapshot.every",
            "a duration of at least 1s, such as \"30s\"",
            Duration::from_secs(30),
            Duration::from_secs(1),
        );
        let entries_max = source.number(
            "snapshot.entries_max",
            "a whole number from 1000 on",
            2_000_000,
            1_000..=u64::MAX,
        );
        let keep_hourly = source.number("snapshot.keep_hourly", "a whole number", 0, 0..=u64::MAX);
        if keep_hourly != 0 && kind == LogKind::Journal {
            source.not_yet(
                "snapshot.keep_hourly",
                "beside a journal it keeps the last two snapshots, so expected 0",
            );
        }
        Self {
            every,
            entries_max,
            keep_hourly,
        }
    }
}

impl Telemetry {
    fn read(source: &mut ConfigSource) -> Self {
        Self {
            log: source.text(
                "telemetry.log",
                "a level (off, error, warn, info, debug, trace) or directives such as \"info,tollgate_server::feed=debug\"",
                "info".to_owned(),
                |text| are_directives(text).then(|| text.to_owned()),
            ),
            log_format: source.text(
                "telemetry.log_format",
                "\"text\" or \"json\"",
                LogFormat::Text,
                |text| match text {
                    "text" => Some(LogFormat::Text),
                    "json" => Some(LogFormat::Json),
                    _ => None,
                },
            ),
        }
    }
}

/// Whether the text is a list of levels, and of modules or spans with their levels.
///
/// The filter itself also takes a bare word for a module and an empty level for `error`, so that a misspelt level, which
/// is a module that does not exist, would silence the log.
fn are_directives(text: &str) -> bool {
    let is_level = |level: &str| {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        levels.iter().any(|known| known.eq_ignore_ascii_case(level))
    };
    let is_directive = |one: &str| match one.rsplit_once('=') {
        None => is_level(one),
        Some((of, level)) => !of.is_empty() && !of.contains(char::is_whitespace) && is_level(level),
    };
    let is_read = tracing_subscriber::EnvFilter::builder().parse(text).is_ok();
    is_read && text.split(',').all(is_directive)
}

#[cfg(test)]
mod tests;
