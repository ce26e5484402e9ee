//! `tollgate limits`: lists the versions in the log, pushes another, and goes back to an earlier one.
//!
//! ```text
//! push F ── faults? 65 ── in force already? done ── append, expecting the version in force
//!        ── the log decides: this version, or another was faster (75)
//! ```
//!
//! Accesses Kafka itself: the topic `limits` has permissions of its own, and no aggregator needs to run. Knows
//! nothing of how versions come into force in partitions: ruling aggregators activate them. What stays true: the
//! log alone decides which version won, whatever a command was told first.

use std::path::PathBuf;

use clap::Subcommand;

use super::Global;
use super::kafka_args::KafkaArgs;
use super::limits_candidates::{self, CompareArgs};
use super::limits_convert::{self, ConvertArgs};
use super::limits_edit::StatedEdit;
use super::limits_import;
use super::limits_show;
use super::operator::{self, OperatorNote};
use crate::exit::{Exit, Failure};
use tollgate_api::amend::AmendRequest;

/// What `limits` takes.
#[derive(Debug, clap::Args)]
pub struct LimitsArgs {
    /// What to do; without a command: lists the versions
    #[command(subcommand)]
    verb: Option<LimitsVerb>,
    #[command(flatten)]
    kafka: KafkaArgs,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum LimitsVerb {
    /// Lists the versions, the oldest first; the last one is in force
    List,
    /// Prints a version's document as it was pushed; with --journal DIR, of a journal, whose aggregator may be running
    #[command(
        after_help = "Of a journal:\n      --journal <DIR>  The journal's directory, in place of Kafka"
    )]
    Show {
        /// The version [default: the one in force]
        version: Option<u64>,
        /// Prints the rows instead (limits of single domains, which override the document), as `limits import` reads
        /// them
        #[arg(long)]
        rows: bool,
    },
    /// Shows how two versions differ, and exits with 1 if they do
    Diff {
        /// The first version
        from: u64,
        /// The second version [default: the one in force]
        to: Option<u64>,
    },
    /// Pushes a document, which is then in force; exits with 65 if it has faults, with 75 if another version came
    /// between reading and writing. `--expect-version N`, the version that was edited, keeps it from undoing anything
    /// that somebody else has pushed since
    Push {
        /// The document; `-` is stdin
        file: PathBuf,
        #[command(flatten)]
        act: ActArgs,
    },
    /// Changes the limits of one domain by one small record, or a resource's default by a new document
    Set {
        /// The resource, or the pattern, by its name in the document
        #[arg(value_parser = super::operator::configured_name)]
        resource: String,
        /// The domain; without it, the limits of all domains that have none of their own (not with --url, which
        /// needs a domain)
        #[arg(long, value_parser = super::operator::domain)]
        domain: Option<String>,
        #[command(flatten)]
        stated: StatedEdit,
        /// Removes the limits that were set for the domain; those of the document apply again
        #[arg(long, requires = "domain", conflicts_with_all = ["rate", "hard", "limit"])]
        remove: bool,
        /// Asks this aggregator to write the record; the aggregator has the document, so the command need not read it
        /// first [env: TOLLGATE_URL, for a domain, if no option names a Kafka]
        #[arg(long, value_name = "URL", requires = "domain", value_parser = super::values::url)]
        url: Option<String>,
        #[command(flatten)]
        act: ActArgs,
    },
    /// Changes the limits of many domains by the rows of a CSV file: by one record and version for each 8,192 rows,
    /// or 512 KiB of them
    Import {
        /// The file; its heading names the columns resource, domain, rate, hard, limit; an empty cell changes
        /// nothing; `-` is stdin
        file: PathBuf,
        /// Asks this aggregator to write the records, some hundred rows each; required for a journal [env:
        /// TOLLGATE_URL, if no option names a Kafka]
        #[arg(long, value_name = "URL", value_parser = super::values::url)]
        url: Option<String>,
        #[command(flatten)]
        act: ActArgs,
    },
    /// Shows what candidates would have refused, beside what the limits in force refused
    Compare(CompareArgs),
    /// Converts the configuration of another limiter to a limits document, and prints a line for each setting without
    /// an equivalent
    Convert(ConvertArgs),
    /// Replaces a resource's limits by its candidate, and pushes the document
    Promote {
        /// The resource, or the pattern, by its name in the document
        #[arg(value_parser = super::operator::configured_name)]
        resource: String,
        /// Changes this limits file instead, for aggregators that read their limits from a file
        #[arg(long, value_name = "FILE", conflicts_with = "expect_version")]
        file: Option<PathBuf>,
        #[command(flatten)]
        act: ActArgs,
    },
    /// Pushes the document of an earlier version again, and then the rows of that version
    Rollback {
        /// The version
        version: u64,
        #[command(flatten)]
        act: ActArgs,
    },
}

/// What every act of an operator says.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
struct ActArgs {
    /// The reason, which the log records
    #[arg(long, visible_alias = "why", value_name = "TEXT", value_parser = super::values::reason)]
    reason: String,
    /// Who gives the command, which the log records [default: the user and the host]
    #[arg(long, value_name = "NAME", value_parser = super::values::author)]
    by: Option<String>,
    /// Does nothing and exits with 75 unless this version is in force
    #[arg(long, value_name = "N")]
    expect_version: Option<u64>,
    /// Changes nothing, and prints what would be done
    #[arg(long)]
    dry_run: bool,
}

impl ActArgs {
    /// The same, for an aggregator that is asked.
    fn note(&self) -> OperatorNote {
        let (reason, by) = (self.reason.clone(), self.by.clone());
        OperatorNote::new(reason, by, self.expect_version, self.dry_run)
    }
}

/// Runs the command.
///
/// # Errors
///
/// If Kafka does not answer (69) or refuses access (77), the document has faults (65), another version came first
/// (75), or the configuration is invalid (78).
pub fn run(global: &Global, args: &LimitsArgs) -> Result<Exit, Failure> {
    if let (Some(LimitsVerb::Show { version, rows }), Some(dir)) =
        (&args.verb, args.kafka.journal())
    {
        return limits_show::show_journal(global, dir, *version, *rows);
    }
    match &args.verb {
        Some(LimitsVerb::Compare(compare)) => return limits_candidates::compare(global, compare),
        Some(LimitsVerb::Convert(args)) => return limits_convert::run(global, args),
        Some(LimitsVerb::Promote {
            resource,
            file: Some(file),
            act,
        }) => return super::limits_promote::promote_in(global, file, resource, act.dry_run),
        Some(verb) => {
            if let Some(exit) = asked_of_aggregator(global, verb, &args.kafka)? {
                return Ok(exit);
            }
        }
        None => {}
    }
    // Without the feature `kafka` this fails with a message.
    let config = args.kafka.load(global, "limits")?;
    #[cfg(not(feature = "kafka"))]
    return Err(Failure::Bug(format!("kafka is configured: {config:?}")));
    #[cfg(feature = "kafka")]
    kafka::run(global, args.verb.as_ref(), &config)
}

/// Runs the command through an aggregator, if one is named; `None`: it is for Kafka.
fn asked_of_aggregator(
    global: &Global,
    verb: &LimitsVerb,
    kafka: &KafkaArgs,
) -> Result<Option<Exit>, Failure> {
    match verb {
        LimitsVerb::Set {
            resource,
            domain: Some(domain),
            stated,
            remove,
            url,
            act,
        } => {
            let Some(url) = aggregator(url.as_ref(), kafka)? else {
                return Ok(None);
            };
            let asked = AmendRequest {
                resource: Some(resource.clone()),
                domain: Some(operator::entry_on(global, &url, resource, domain)?),
                remove: *remove,
                ..stated.asked()
            };
            operator::ask(global, &url, &act.note(), asked).map(Some)
        }
        LimitsVerb::Import { file, url, act } => match aggregator(url.as_ref(), kafka)? {
            Some(url) => limits_import::import(global, &url, file, &act.note()).map(Some),
            None => Ok(None),
        },
        LimitsVerb::Set { domain: None, .. } if global.config.is_none() => {
            match aggregator(None, kafka)? {
                Some(url) => Err(Failure::Usage(format!(
                    "limits set: an aggregator ({VARIABLE} = {url}) changes the limits of one domain: expected --domain \
                     DOMAIN; or, for the limits of all domains, --kafka HOST:PORT, and of a journal a changed file \
                     (limits.file) and SIGHUP to its aggregator"
                ))),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// The variable that names an aggregator.
const VARIABLE: &str = "TOLLGATE_URL";

/// The aggregator that a command names: by --url, or by the environment, unless options name a Kafka.
fn aggregator(stated: Option<&String>, kafka: &KafkaArgs) -> Result<Option<String>, Failure> {
    match (stated, kafka.is_stated()) {
        (Some(url), true) => {
            return Err(Failure::Usage(format!(
                "--url {url}: --kafka or another option of a log is given, too: expected one of them"
            )));
        }
        (Some(_), false) | (None, true) => return Ok(stated.cloned()),
        (None, false) => {}
    }
    // An empty variable is not set, as everywhere.
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    let url = super::values::url(&text);
    url.map(Some)
        .map_err(|expected| Failure::Usage(format!("{VARIABLE} = {text:?}: {expected}")))
}

#[cfg(feature = "kafka")]
mod kafka {
    use serde::Serialize;
    use tollgate_limits::{DroppedRows, Forgotten, Limits, Own, RateResource, with_zone_tables};

    use super::{ActArgs, Exit, Failure, Global, LimitsVerb};
    use crate::cli::document_edit::TextEdit;
    use crate::cli::limits_append::{LimitsStream, conflict};
    use crate::cli::limits_candidates::promoted;
    use crate::cli::limits_diff::diff;
    use crate::cli::limits_edit;
    use crate::cli::limits_effects::{Effects, effects_of};
    use crate::cli::limits_history::{History, list, read, read_if_there};
    use crate::cli::limits_rows::rolled_back;
    use crate::cli::limits_show::show;
    use crate::cli::limits_wanted::{Wanted, edited, imported, set};
    use crate::cli::output::Format;
    use crate::cli::user::user_and_host;
    use crate::cli::{input_name, open_table, read_input};
    use tollgate_log::kafka::{KafkaConfig, KafkaFault, Missing, check, reader};
    use tollgate_server::config::Config;

    #[derive(Serialize)]
    struct PushView {
        schema: &'static str,
        /// The version in force; after a dry run the one that was.
        version: u64,
        /// The version that was in force before.
        expected: u64,
        pushed: bool,
        /// Resources of which usage is forgotten.
        forgets: Vec<Forgotten>,
        /// The number of further such resources.
        forgets_omitted: u64,
        /// The rows that the document has no place for, by resource.
        rows_removed: Vec<DroppedRows>,
        /// The topics that the push created, because they were missing.
        topics_created: Vec<String>,
    }

    pub(super) fn run(
        global: &Global,
        verb: Option<&LimitsVerb>,
        config: &Config,
    ) -> Result<Exit, Failure> {
        let kafka = config.kafka.of_log();
        let keys = config.security.key_file.as_deref();
        match verb {
            None | Some(LimitsVerb::List) => list(global, &read(&kafka)?),
            Some(LimitsVerb::Show { version, rows }) => {
                show(global, &read(&kafka)?.find(*version)?.version, *rows)
            }
            Some(LimitsVerb::Diff { from, to }) => diff(global, &read(&kafka)?, *from, *to),
            Some(LimitsVerb::Push { file, act }) => {
                let name = input_name(file);
                let text = with_zone_tables(global.document(read_input(file)?, &name)?);
                if let Err(faults) = Limits::parse(&text) {
                    return Err(Failure::Data(faults.in_file(&name).to_string()));
                }
                push(global, &kafka, act, |_| {
                    Wanted::document(text).with_keys(keys)
                })
            }
            Some(LimitsVerb::Set {
                resource,
                domain,
                stated,
                remove,
                act,
                ..
            }) => {
                let own = (!remove).then(|| stated.own());
                push(global, &kafka, act, |history| {
                    wanted_by_set(global, history, (resource, domain.as_ref()), own)
                })
            }
            Some(LimitsVerb::Import { file, act, .. }) => {
                let mut rows = limits_edit::rows(&input_name(file), open_table(file)?)?;
                let domains = global.domains()?;
                push(global, &kafka, act, |history| {
                    let version = &history.find(None)?.version;
                    limits_edit::name_as_in_log(&domains, &version.limits, &mut rows)?;
                    imported(version, &rows)
                })
            }
            Some(LimitsVerb::Promote { resource, act, .. }) => {
                push(global, &kafka, act, |history| {
                    promoted(&history.find(None)?.version.text, resource).map(Wanted::document)
                })
            }
            Some(LimitsVerb::Compare(_) | LimitsVerb::Convert(_)) => {
                Err(Failure::Bug("asks no log".to_owned()))
            }
            Some(LimitsVerb::Rollback { version, act }) => push(global, &kafka, act, |history| {
                rolled_back(history, *version)?.with_keys(keys)
            }),
        }
    }

    /// The limits that `set` asks for: of a domain, or of a resource.
    fn wanted_by_set(
        global: &Global,
        history: &History,
        (resource, domain): (&str, Option<&String>),
        own: Option<Own>,
    ) -> Result<Wanted, Failure> {
        let version = &history.find(None)?.version;
        let Some(typed) = domain else {
            let change = TextEdit {
                resource: resource.to_owned(),
                domain: None,
                own,
            };
            return edited(version, &[("limits set".to_owned(), change)]);
        };
        let rate = version.limits.rate(resource);
        let addresses = || Ok(rate.and_then(RateResource::addresses));
        let domain = global.entry_by(typed, addresses)?;
        set(version, resource, &domain, own)
    }

    /// The settings with as many partitions as the topics have: a version is the same for any number.
    fn with_its_partitions(kafka: &KafkaConfig) -> Result<KafkaConfig, Failure> {
        Ok(KafkaConfig {
            partitions: reader::partitions(kafka)?,
            ..kafka.clone()
        })
    }

    /// Pushes what `wanted` builds from the versions in the log, and waits for the outcome.
    fn push(
        global: &Global,
        kafka: &KafkaConfig,
        act: &ActArgs,
        wanted: impl FnOnce(&History) -> Result<Wanted, Failure>,
    ) -> Result<Exit, Failure> {
        // Reports faults of topics and permissions, of which an append would only be refused. The check creates no
        // topics: a refused push, or a dry run, leaves nothing behind.
        let adopted;
        let kafka = match check(kafka, Missing::Report) {
            Err(KafkaFault::Unfit { .. }) => {
                adopted = with_its_partitions(kafka)?;
                check(&adopted, Missing::Report)?;
                &adopted
            }
            checked => {
                checked?;
                kafka
            }
        };
        let found = read_if_there(kafka)?;
        let is_there = found.is_ok();
        let history = found.unwrap_or_default();
        let wanted = wanted(&history)?;
        let in_force = history.book.latest_number();
        let expected = act.expect_version.unwrap_or(in_force);
        if expected != in_force {
            return Err(conflict(expected, in_force));
        }
        let latest = { history.book.latest() }.filter(|latest| latest.number == in_force);
        let wanted = match latest {
            Some(latest) => wanted.over(latest),
            None => wanted,
        };
        let effects = match history.book.latest() {
            Some(latest) if !wanted.is_done() => effects_of(&latest.limits, &wanted)?,
            _ => Effects::default(),
        };
        if wanted.is_done() || act.dry_run {
            let what = match (wanted.is_done(), is_there) {
                (true, _) => ": in force already",
                (false, true) => " is in force; another one would be pushed",
                (false, false) => {
                    ": none is in force; missing topics would be created, and the first one pushed"
                }
            };
            let report_of = (false, what, Vec::new());
            return report(global, (in_force, in_force), report_of, effects);
        }
        let created = check(kafka, Missing::Create)?;
        let mut stream = LimitsStream::open(kafka, history)?;
        let who = act.by.clone().unwrap_or_else(user_and_host);
        let version = stream.append_all(wanted, expected, (&who, &act.reason))?;
        stream.close();
        let report_of = (true, "pushed", created);
        report(global, (version, expected), report_of, effects)
    }

    fn report(
        global: &Global,
        (version, expected): (u64, u64),
        (pushed, what, topics_created): (bool, &str, Vec<String>),
        effects: Effects,
    ) -> Result<Exit, Failure> {
        let mut lines = effects.lines();
        if !topics_created.is_empty() {
            let names = topics_created.join(", ");
            lines.push(format!("created the missing topics: {names}"));
        }
        let (forgets, forgets_omitted) = effects.forgets;
        let mut output = global.open_output()?;
        match global.format {
            Format::Json => output.json(&PushView {
                schema: "tollgate.limits_push/1",
                version,
                expected,
                pushed,
                forgets,
                forgets_omitted,
                rows_removed: effects.dropped,
                topics_created,
            })?,
            Format::Text if pushed => {
                output.line(format_args!("version {version} ({what} over {expected})"))?;
            }
            Format::Text => output.line(format_args!("version {version}{what}"))?,
        }
        if global.format == Format::Text {
            lines.iter().try_for_each(|line| output.line(line))?;
        }
        output.finish()?;
        Ok(Exit::Done)
    }
}
