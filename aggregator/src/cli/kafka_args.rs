//! The Kafka cluster of commands that access it themselves and need no aggregator.
//!
//! The flags are options of the configuration under other names, and override its file. Knows nothing of what a
//! command does there.

use std::path::{Path, PathBuf};

use super::{Global, serve};
use crate::exit::Failure;
use tollgate_server::config::{Config, Given, LogKind};

/// The broker if the configuration names none.
const BOOTSTRAP: &str = "127.0.0.1:9092";

/// The variable that names the brokers.
const VARIABLE: &str = "TOLLGATE_KAFKA_BOOTSTRAP";

/// What to do where the log is a journal.
const OF_A_JOURNAL: &str = "A journal has the limits of its aggregator's file (limits.file): change the file and send \
    SIGHUP to the aggregator, or change one domain with `limits set RESOURCE --domain D --url URL`; what is in force: \
    `limits show --journal DIR`, GET /v1/limits";

/// What such a command takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct KafkaArgs {
    /// Bootstrap brokers (kafka.bootstrap)
    #[arg(long, global = true, value_name = "HOST:PORT,...")]
    kafka: Option<String>,
    /// The prefix of topic names (kafka.topic_prefix)
    #[arg(long, global = true, value_name = "PREFIX")]
    topic_prefix: Option<String>,
    /// The number of partitions of the topic of hits (kafka.partitions)
    #[arg(long, global = true, value_name = "N")]
    partitions: Option<String>,
    /// A journal, which only `limits show` reads; other commands refuse it with what to do instead
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    journal: Option<PathBuf>,
}

/// The configuration of a command with own flags for brokers and perhaps the topics' prefix.
///
/// # Errors
///
/// As [`KafkaArgs::load`].
pub fn load(global: &Global, bootstrap: &str, prefix: Option<&str>) -> Result<Config, Failure> {
    let args = KafkaArgs {
        kafka: Some(bootstrap.to_owned()),
        topic_prefix: prefix.map(str::to_owned),
        partitions: None,
        journal: None,
    };
    args.load(global, "--kafka")
}

impl KafkaArgs {
    /// Whether any of the options is given.
    pub fn is_stated(&self) -> bool {
        let texts = [&self.kafka, &self.topic_prefix, &self.partitions];
        self.journal.is_some() || texts.into_iter().any(Option::is_some)
    }

    /// The journal, if one is given.
    pub fn journal(&self) -> Option<&Path> {
        self.journal.as_deref()
    }

    /// The configuration of the command, with Kafka as the log.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, this build has no Kafka, or the log is a journal.
    pub fn load(&self, global: &Global, command: &'static str) -> Result<Config, Failure> {
        self.refuse_journal(global, command)?;
        self.refuse_unnamed(global, command)?;
        serve::load_with(global, self.given(command))
    }

    /// Refuses to take a Kafka that nobody has named: there might be one at the default address, whose fleet is another.
    fn refuse_unnamed(&self, global: &Global, command: &str) -> Result<(), Failure> {
        let variable = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
        match self.kafka.is_some() || global.config.is_some() || variable.is_some() {
            true => Ok(()),
            false => Err(Failure::Usage(format!(
                "{command}: no log is named: expected --kafka HOST:PORT, {VARIABLE}, or --config FILE. {OF_A_JOURNAL}"
            ))),
        }
    }

    /// Refuses a journal: only its aggregator writes to it, and its limits come from a file.
    fn refuse_journal(&self, global: &Global, command: &str) -> Result<(), Failure> {
        let configured = || {
            let path = global.config.as_ref().filter(|_| self.kafka.is_none())?;
            let config = serve::load_with(global, Vec::new()).ok()?;
            let is_journal =
                config.log == LogKind::Journal && config.kafka.bootstrap == [BOOTSTRAP];
            is_journal.then(|| {
                format!(
                    "{}: the log is a journal, {}",
                    path.display(),
                    config.journal.dir.display()
                )
            })
        };
        let given = self.journal.as_ref();
        let given = given.map(|dir| format!("--journal {}", dir.display()));
        match given.or_else(configured) {
            None => Ok(()),
            Some(found) => Err(Failure::Usage(format!(
                "{command}: {found}: expected Kafka (--kafka HOST:PORT). {OF_A_JOURNAL}"
            ))),
        }
    }

    fn given(&self, command: &str) -> Vec<Given> {
        let stated = [
            ("kafka.bootstrap", "--kafka", &self.kafka),
            ("kafka.topic_prefix", "--topic-prefix", &self.topic_prefix),
            ("kafka.partitions", "--partitions", &self.partitions),
        ];
        let stated = stated.into_iter().filter_map(|(path, flag, text)| {
            Some(Given {
                path,
                origin: flag.to_owned(),
                text: text.clone()?,
            })
        });
        let kind = Given {
            path: "log.kind",
            origin: command.to_owned(),
            text: "kafka".to_owned(),
        };
        [kind].into_iter().chain(stated).collect()
    }
}
