//! `tollgate serve`: runs an aggregator until it is stopped.
//!
//! Nothing is bound or connected before the configuration was checked.

use std::path::{Path, PathBuf};

use tollgate_shared::{file_mode, kafka_properties};

use super::{Global, input_name, read_input, variables};
use crate::exit::{Exit, Failure};
use tollgate_server::config::{Config, Given, LogKind, from_environment};
use tollgate_server::domains::Domains;
use tollgate_server::{serve, telemetry};

/// What `serve` takes; each beats the option of the file that it names.
#[derive(Debug, Default, clap::Args)]
pub struct ServeArgs {
    /// The aggregator's name (name)
    #[arg(long)]
    pub name: Option<String>,
    /// The number of threads that rule partitions (threads) [default: the number of the machine's cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
    /// Keeps the log in a journal in this directory (log.kind, journal.dir)
    #[arg(long, value_name = "DIR", conflicts_with = "kafka")]
    pub journal: Option<String>,
    /// Partitions of a new journal, or of topics in Kafka; existing ones must have as many (journal.partitions,
    /// kafka.partitions) [default: those of the existing journal, 16 otherwise]
    #[arg(long, value_name = "N")]
    pub partitions: Option<String>,
    /// Keeps the log in Kafka, reached through these brokers (log.kind, kafka.bootstrap)
    #[arg(long, value_name = "HOST:PORT,...")]
    pub kafka: Option<String>,
    /// The prefix of Kafka's topic names (kafka.topic_prefix)
    #[arg(long, value_name = "PREFIX")]
    pub topic_prefix: Option<String>,
    /// The address of the HTTP port (listen.http)
    #[arg(long, value_name = "HOST:PORT")]
    pub http: Option<String>,
    /// The address that agents connect to (listen.agents)
    #[arg(long, value_name = "HOST:PORT")]
    pub agents: Option<String>,
    /// The address of the denial feed (listen.feed)
    #[arg(long, value_name = "HOST:PORT")]
    pub feed: Option<String>,
    /// The host under which agents reach the feed (listen.advertise)
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Stops when standard input ends, so that it does not outlive the process that started it
    #[arg(long)]
    pub with_stdin: bool,
}

/// Runs the command.
///
/// # Errors
///
/// If the configuration is invalid, an address is taken, or the log cannot be opened.
pub fn run(global: &Global, args: &ServeArgs) -> Result<Exit, Failure> {
    let config = load(global, args)?;
    // Faults of the key are reported at once, with or without a limits file.
    if let Some(key) = &config.domain_key_file {
        Domains::read_again(key)?;
    }
    telemetry::start(&config.telemetry, global.quiet, global.verbose)?;
    serve::run(&config, args.with_stdin)?;
    Ok(Exit::Done)
}

/// The configuration: flags, environment, file, defaults.
///
/// # Errors
///
/// If the file cannot be read, or it, the environment or the flags have a fault.
pub fn load(global: &Global, args: &ServeArgs) -> Result<Config, Failure> {
    load_of(global, flags(global, args), args.partitions.as_deref())
}

/// The configuration for another command than `serve`, overridden by these flags.
///
/// # Errors
///
/// As [`load`].
pub fn load_with(global: &Global, mut flags: Vec<Given>) -> Result<Config, Failure> {
    // Such a command follows no limits file, so it does not need the one that `serve --limits` names.
    flags.push(Given {
        path: "limits.follow_file",
        origin: "command".to_owned(),
        text: String::new(),
    });
    load_of(global, flags, None)
}

/// The same with the flag for the partitions of the log, of whichever kind it is.
fn load_of(
    global: &Global,
    flags: Vec<Given>,
    partitions: Option<&str>,
) -> Result<Config, Failure> {
    let (file, text_of_file) = match &global.config {
        Some(path) => (path.display().to_string(), read_input(path)?),
        None => ("tollgate.toml".to_owned(), String::new()),
    };
    let mut given = from_environment(variables::text)?;
    given.extend(flags);
    if let Some(text) = partitions {
        // All other faults are reported below.
        let others = Config::read(&file, &text_of_file, given.clone(), &serve::host_name());
        let is_kafka = others.is_ok_and(|config| config.log == LogKind::Kafka);
        given.push(Given {
            path: match is_kafka {
                true => "kafka.partitions",
                false => "journal.partitions",
            },
            origin: "--partitions".to_owned(),
            text: text.to_owned(),
        });
    }
    let mut config = Config::read(&file, &text_of_file, given, &serve::host_name())?;
    if let (LogKind::Kafka, Some(path)) = (config.log, &config.kafka.properties_file) {
        let of_file = kafka_properties::parse(&read_input(path)?).map_err(|fault| {
            Failure::Data(format!("kafka properties {}: {fault}", input_name(path)))
        })?;
        if kafka_properties::has_secret(&of_file) {
            check_kept(path)?;
        }
        config.kafka.properties.extend(of_file);
    }
    Ok(config)
}

/// Checks that other users of this machine cannot read a file with passwords.
fn check_kept(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    // Standard input is not a file, and the mode of a pipe or a device is not the operator's to change.
    let Some(metadata) = std::fs::metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
    else {
        return Ok(());
    };
    file_mode::check_secret(metadata.permissions().mode())
        .map_err(|fault| Failure::Data(format!("kafka properties {}: {fault}", input_name(path))))
}

fn flags(global: &Global, args: &ServeArgs) -> Vec<Given> {
    let mut given = Vec::new();
    let mut flag = |path, flag: &str, text: Option<&str>| {
        given.extend(text.map(|text| Given {
            path,
            origin: flag.to_owned(),
            text: text.to_owned(),
        }));
    };
    flag("name", "--name", args.name.as_deref());
    flag("threads", "--threads", args.threads.as_deref());
    flag(
        "log.kind",
        "--journal",
        args.journal.as_ref().map(|_| "journal"),
    );
    flag("journal.dir", "--journal", args.journal.as_deref());
    flag("log.kind", "--kafka", args.kafka.as_ref().map(|_| "kafka"));
    flag("kafka.bootstrap", "--kafka", args.kafka.as_deref());
    flag(
        "kafka.topic_prefix",
        "--topic-prefix",
        args.topic_prefix.as_deref(),
    );
    flag("listen.http", "--http", args.http.as_deref());
    flag("listen.agents", "--agents", args.agents.as_deref());
    flag("listen.feed", "--feed", args.feed.as_deref());
    flag("listen.advertise", "--advertise", args.advertise.as_deref());
    let named = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    flag("limits.file", "--limits", named(&global.limits).as_deref());
    let key = named(&global.domain_key);
    flag("security.domain_key_file", "--domain-key", key.as_deref());
    given
}
