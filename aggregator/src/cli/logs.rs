//! Which log a command reads: a journal, Kafka, or an export. It is never locked and never written.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_shared::keyring::Keyring;

use super::Global;
use crate::exit::{Exit, Failure};
use tollgate_replay::export::ExportSource;
use tollgate_replay::range::{Range, parse_point};
use tollgate_replay::replay::ReplayError;
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{Source, SourceError};

/// Names a log.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The log")]
pub struct LogArgs {
    /// The directory of a journal; its aggregator may be running
    #[arg(long, value_name = "DIR", group = "log")]
    pub journal: Option<PathBuf>,
    /// The Kafka brokers
    #[arg(long, value_name = "HOST:PORT", group = "log")]
    pub kafka: Option<String>,
    /// The prefix of Kafka's topic names (kafka.topic_prefix)
    #[arg(long, value_name = "PREFIX", requires = "kafka")]
    pub topic_prefix: Option<String>,
    /// A file that `audit export` wrote
    #[arg(long, value_name = "FILE", group = "log")]
    pub export: Option<PathBuf>,
    /// The fleet's key file (security.key_file), to verify the tags of aggregators' records; without it, all tags are
    /// accepted
    #[arg(long, value_name = "FILE", requires = "log")]
    pub key_file: Option<PathBuf>,
}

/// Which part of a log.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The log")]
pub struct RangeArgs {
    /// Begins at this append time or record, as in 2026-11-21T12:00:00Z, -2h or @3:18250 (PARTITION:OFFSET)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Ends before this append time or record
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// On how many threads a log is replayed.
#[derive(Clone, Debug, clap::Args)]
pub struct ThreadsArgs {
    /// The number of threads that replay the log [default: the number of the machine's cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

impl ThreadsArgs {
    /// The number of threads.
    pub fn count(&self) -> usize {
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.threads.unwrap_or_else(cores).get()
    }
}

impl LogArgs {
    /// Whether a log is named.
    pub fn is_named(&self) -> bool {
        self.journal.is_some() || self.kafka.is_some() || self.export.is_some()
    }

    /// Opens the log.
    ///
    /// # Errors
    ///
    /// If no log is named, or it is missing, or this build cannot read it.
    pub fn open(&self, global: &Global) -> Result<Arc<dyn Source>, Failure> {
        if let Some(dir) = &self.journal {
            return Ok(Arc::new(JournalSource::open(dir).map_err(failure)?));
        }
        if let Some(file) = &self.export {
            return Ok(Arc::new(ExportSource::open(file).map_err(failure)?));
        }
        if let Some(bootstrap) = &self.kafka {
            let prefix = self.topic_prefix.as_deref();
            let kafka = super::kafka_args::load(global, bootstrap, prefix)?.kafka;
            return open_kafka(bootstrap, &kafka.topic_prefix, kafka.properties);
        }
        Err(Failure::Usage(
            "expected a log: --journal DIR, --kafka HOST:PORT or --export FILE".to_owned(),
        ))
    }

    /// The keys with which its aggregators sign. Records under a missing key are taken as authentic.
    ///
    /// # Errors
    ///
    /// If the key file cannot be read, or is invalid.
    pub fn keys(&self) -> Result<Keyring, Failure> {
        let read = |path: &PathBuf| {
            let keys = tollgate_server::record_keys::read(path);
            keys.map_err(|fault| Failure::of_key_file("--key-file", fault))
        };
        let keys = self.key_file.as_ref().map(read).transpose()?;
        Ok(keys.unwrap_or_default().trusting_missing())
    }
}

#[cfg(feature = "kafka")]
fn open_kafka(
    bootstrap: &str,
    prefix: &str,
    properties: BTreeMap<String, String>,
) -> Result<Arc<dyn Source>, Failure> {
    use tollgate_replay::source::kafka::KafkaSource;

    let source = KafkaSource::open(bootstrap, prefix, properties);
    Ok(Arc::new(source.map_err(failure)?))
}

#[cfg(not(feature = "kafka"))]
fn open_kafka(_: &str, _: &str, _: BTreeMap<String, String>) -> Result<Arc<dyn Source>, Failure> {
    let text = "--kafka: built without the feature `kafka`";
    Err(Failure::Usage(text.to_owned()))
}

impl RangeArgs {
    /// The range.
    ///
    /// # Errors
    ///
    /// If one of its ends is invalid.
    pub fn range(&self) -> Result<Range, Failure> {
        let now = tollgate_log::clock::wall();
        let point = |flag: &str, text: &Option<String>| {
            let parsed = text.as_ref().map(|text| parse_point(text, now));
            parsed.transpose().map_err(|expected| {
                let found = text.as_deref().unwrap_or_default();
                Failure::Usage(format!("{flag} {found:?}: {expected}"))
            })
        };
        Ok(Range {
            from: point("--from", &self.from)?,
            to: point("--to", &self.to)?,
        })
    }
}

/// The failure of a command whose log cannot be read.
pub fn failure(error: SourceError) -> Failure {
    let exit = match &error {
        SourceError::Missing(_) => Exit::NoInput,
        SourceError::Bad(_) => Exit::Data,
        SourceError::Unreachable(_) => Exit::Unavailable,
        SourceError::NotAuthorised(_) => Exit::NotAuthorised,
        SourceError::Settings(_) => Exit::Config,
    };
    Failure::Log {
        exit,
        text: error.to_string(),
    }
}

/// The failure of a command whose log cannot be replayed.
pub fn replay_failure(error: ReplayError) -> Failure {
    match error {
        ReplayError::Source(error) => failure(error),
        other => Failure::Log {
            exit: Exit::Data,
            text: other.to_string(),
        },
    }
}
