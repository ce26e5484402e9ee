//! `tollgate topics`: compares the settings of Kafka's topics with the required ones, and creates topics.
//!
//! ```text
//! tollgate.hits: differs
//!   cleanup.policy = compact: expected delete: compaction would take records that are needed
//! ```
//!
//! Without a command it lists every setting. Knows nothing of the requirements: their table is part of the log crate.

use clap::Subcommand;

use super::Global;
use super::kafka_args::KafkaArgs;
use crate::exit::{Exit, Failure};

/// What `topics` takes.
#[derive(Debug, clap::Args)]
pub struct TopicsArgs {
    /// What to do; without a command: lists all settings
    #[command(subcommand)]
    verb: Option<TopicsVerb>,
    #[command(flatten)]
    kafka: KafkaArgs,
    /// How many brokers keep each record [default: 3, or all brokers if there are fewer]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    replication: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
enum TopicsVerb {
    /// Creates the topics that are missing, then does what `check` does
    Create,
    /// Lists settings that differ: exits with 78 if an aggregator would not start with them, with 1 if they differ
    /// only from recommendations
    Check,
}

/// Runs the command.
///
/// # Errors
///
/// If Kafka does not answer (69) or refuses access (77), or the configuration is invalid (78).
pub fn run(global: &Global, args: &TopicsArgs) -> Result<Exit, Failure> {
    // Without the feature `kafka` this fails with a message.
    let config = args.kafka.load(global, "topics")?;
    #[cfg(not(feature = "kafka"))]
    return Err(Failure::Bug(format!("kafka is configured: {config:?}")));
    #[cfg(feature = "kafka")]
    kafka::run(global, args, &config)
}

#[cfg(feature = "kafka")]
mod kafka {
    use serde::Serialize;

    use super::{Exit, Failure, Global, TopicsArgs, TopicsVerb};
    use crate::cli::output::{Format, Output};
    use tollgate_log::kafka::{KafkaConfig, Missing, Setting, TopicReport, Weight, survey};
    use tollgate_server::config::Config;

    /// One topic, for programs.
    #[derive(Serialize)]
    struct TopicView<'a> {
        schema: &'static str,
        topic: &'a str,
        exists: bool,
        created: bool,
        fits: bool,
        settings: Vec<SettingView<'a>>,
    }

    #[derive(Serialize)]
    struct SettingView<'a> {
        setting: &'static str,
        found: &'a str,
        expected: String,
        fits: bool,
        required: bool,
        why: &'static str,
    }

    pub(super) fn run(
        global: &Global,
        args: &TopicsArgs,
        config: &Config,
    ) -> Result<Exit, Failure> {
        let kafka = KafkaConfig {
            replication: args.replication,
            ..config.kafka.of_log()
        };
        let missing = match args.verb {
            Some(TopicsVerb::Create) => Missing::Create,
            Some(TopicsVerb::Check) | None => Missing::Report,
        };
        let reports = survey(&kafka, missing)?;
        let mut output = global.open_output()?;
        for report in &reports {
            match global.format {
                Format::Json => output.json(&view(report))?,
                Format::Text => print(&mut output, report, args.verb.is_none())?,
            }
        }
        output.finish()?;
        Ok(match args.verb {
            None => Exit::Done,
            Some(_) if !reports.iter().all(TopicReport::is_usable) => Exit::Config,
            Some(_) if !reports.iter().all(TopicReport::fits) => Exit::No,
            Some(_) => Exit::Done,
        })
    }

    fn view(report: &TopicReport) -> TopicView<'_> {
        TopicView {
            schema: "tollgate.topics/1",
            topic: &report.name,
            exists: report.exists,
            created: report.created,
            fits: report.fits(),
            settings: report
                .settings
                .iter()
                .map(|setting| SettingView {
                    setting: setting.name,
                    found: &setting.found,
                    expected: setting.expected.to_string(),
                    fits: setting.fits,
                    required: setting.weight == Weight::Must,
                    why: setting.why,
                })
                .collect(),
        }
    }

    fn print(output: &mut Output, report: &TopicReport, everything: bool) -> Result<(), Failure> {
        let state = match report {
            TopicReport { exists: false, .. } => "missing",
            TopicReport { created: true, .. } if report.fits() => "created",
            _ if report.fits() => "fits",
            _ => "differs",
        };
        output.line(format_args!("{}: {state}", report.name))?;
        for setting in &report.settings {
            let Setting {
                name,
                found,
                expected,
                why,
                ..
            } = setting;
            let found = if found.is_empty() { "(nothing)" } else { found };
            match (setting.fits, setting.weight) {
                (true, _) if everything => output.line(format_args!("  {name} = {found}"))?,
                (true, _) => {}
                (false, Weight::Must) => output.line(format_args!(
                    "  {name} = {found}: expected {expected}: {why}"
                ))?,
                (false, Weight::Should) => output.line(format_args!(
                    "  {name} = {found}: recommended {expected}: {why}"
                ))?,
            }
        }
        Ok(())
    }
}
