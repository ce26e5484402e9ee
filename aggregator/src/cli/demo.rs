//! `tollgate demo`: turns the command line into a plan; and `demo-agent` and `demo-holder`, its child processes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use tollgate_limits::Limits;

use super::form_args::{self, FormArgs, Stamps};
use super::output::Format;
use super::{Global, input_name, kafka_args, read_input, serve};
use crate::demo::holder::{HolderPart, hold};
use crate::demo::part::{AgentPart, KafkaPart};
use crate::demo::player::{PlayerPart, play};
use crate::demo::replayed::AccessLog;
use crate::demo::{Attached, Interrupted, Log, Plan, TrafficSource, run};
use crate::exit::{Exit, Failure};
use tollgate_replay::backtest::read::ReadFault;
use tollgate_server::config::Given;

/// The limits of a demonstration without `--limits`.
const LIMITS: &str = include_str!("../demo/limits.toml");

/// The head of the limits for an access log without `--limits`; its resource is added.
const ACCESS_LOG_LIMITS: &str = "version = 1\nrules = 2\n";

/// What `demo` takes.
#[derive(Debug, clap::Args)]
#[command(mut_args(of_access_log))]
pub struct DemoArgs {
    /// Uses this Kafka in place of a journal, with topics under a prefix of its own
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "attach")]
    pub kafka: Option<String>,
    /// Runs agents only, against the fleet of this aggregator; pushes no limits, and stops nothing
    #[arg(long, value_name = "URL", value_parser = super::values::url, conflicts_with = "access_log")]
    pub attach: Option<String>,
    /// Creates a CA, a certificate and a token for the run: agents connect to the aggregator by TLS and present the
    /// token
    #[arg(long, conflicts_with = "attach")]
    pub tls: bool,
    /// The seed of the made-up traffic
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// For how many seconds calls are made
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub seconds: u64,
    /// Replays the busiest period of this access log (in any format that backtest reads, also compressed); without
    /// --limits, each address may make 2 requests a minute
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// How many times faster than recorded the access log is replayed; limits are scaled accordingly
    #[arg(long, default_value = "60", requires = "access_log")]
    pub speed: NonZeroU32,
    /// The resource that the access log's requests hit
    #[arg(long, default_value = "http.requests", requires = "access_log")]
    pub resource: String,
    /// How the access log is read
    #[command(flatten)]
    pub form: FormArgs,
}

/// Arguments about a form require an access log.
fn of_access_log(arg: clap::Arg) -> clap::Arg {
    match form_args::is_of_form(&arg) {
        true => arg.requires("access_log"),
        false => arg,
    }
}

/// Which agent a process of a demonstration has.
#[derive(Debug, clap::Args)]
struct AgentArgs {
    /// The agent's name
    #[arg(long)]
    name: String,
    /// The aggregator's address for agents
    #[arg(long)]
    aggregator: String,
    /// Kafka, where hits and holds go to it directly
    #[arg(long)]
    kafka: Option<String>,
    /// The prefix of Kafka's topics
    #[arg(long, default_value = "tollgate")]
    topic_prefix: String,
    /// The file with the properties of Kafka's clients
    #[arg(long)]
    kafka_properties: Option<PathBuf>,
}

impl AgentArgs {
    fn part(&self, global: &Global) -> AgentPart {
        AgentPart {
            reach: global.reach.clone(),
            name: self.name.clone(),
            aggregator: self.aggregator.clone(),
            kafka: self.kafka.as_ref().map(|bootstrap| KafkaPart {
                bootstrap: bootstrap.clone(),
                prefix: self.topic_prefix.clone(),
                properties: self.kafka_properties.clone(),
            }),
        }
    }
}

/// What `demo-agent` takes. It is started by `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoAgentArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// What to play
    #[arg(long)]
    pub schedule: PathBuf,
    /// Where to write down what was seen
    #[arg(long)]
    pub seen: PathBuf,
}

/// What `demo-holder` takes. It is started by `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoHolderArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// The resource
    #[arg(long)]
    pub resource: String,
    /// The domain
    #[arg(long)]
    pub domain: String,
    /// All its copies
    #[arg(long)]
    pub copies: u32,
    /// The resource is strict
    #[arg(long)]
    pub strict: bool,
}

/// Runs the command.
///
/// # Errors
///
/// If an input is invalid, or a part of the demonstration fails.
pub fn run_demo(global: &Global, args: &DemoArgs) -> Result<Exit, Failure> {
    let mut output = global.open_handled_output()?;
    let plan = plan(global, args)?;
    if let Log::Kafka { prefix, .. } = &plan.log
        && !plan.quiet
    {
        remark!("topics: {prefix}.*");
    }
    let report = match run(plan) {
        Ok(report) => report,
        Err(error) => return failed(error),
    };
    match global.format {
        Format::Json => output.json(&report)?,
        Format::Text => output.line(report.page().trim_end())?,
    }
    output.finish()?;
    if !report.convinces() && report.refused == 0 && !global.quiet {
        remark!(
            "tollgate: nothing was refused, so this run proves nothing: the limits are above the traffic"
        );
    }
    Ok(if report.convinces() {
        Exit::Done
    } else {
        Exit::No
    })
}

/// Runs one agent of a demonstration.
///
/// # Errors
///
/// If it fails.
pub fn run_agent(global: &Global, args: &DemoAgentArgs) -> Result<Exit, Failure> {
    let part = PlayerPart {
        agent: args.agent.part(global),
        schedule: args.schedule.clone(),
        seen: args.seen.clone(),
    };
    match play(&part) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => failed(error),
    }
}

/// Runs one process of a demonstration that holds copies.
///
/// # Errors
///
/// If it fails.
pub fn run_holder(global: &Global, args: &DemoHolderArgs) -> Result<Exit, Failure> {
    let part = HolderPart {
        agent: args.agent.part(global),
        resource: args.resource.clone(),
        domain: args.domain.clone(),
        copies: args.copies,
        strict: args.strict,
    };
    match hold(&part) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => failed(error),
    }
}

fn failed(error: anyhow::Error) -> Result<Exit, Failure> {
    if let Some(Interrupted(signal)) = error.downcast_ref::<Interrupted>() {
        return Ok(match signal {
            1 => Exit::HungUp,
            15 => Exit::Terminated,
            _ => Exit::Interrupted,
        });
    }
    let error = match error.downcast::<ReadFault>() {
        Ok(fault) => return Err(super::backtest::failure(fault)),
        Err(error) => error,
    };
    Err(Failure::Demo(format!("{error:#}")))
}

/// The Kafka properties for a fleet that runs already, if it uses Kafka.
fn of_attached(global: &Global) -> Result<BTreeMap<String, String>, Failure> {
    let kafka = Given {
        path: "log.kind",
        origin: "--attach".to_owned(),
        text: "kafka".to_owned(),
    };
    let given = cfg!(feature = "kafka").then_some(kafka);
    let config = serve::load_with(global, given.into_iter().collect())?;
    Ok(config.kafka.properties)
}

fn plan(global: &Global, args: &DemoArgs) -> Result<Plan, Failure> {
    // Without Kafka there are no properties.
    let kafka_properties = match (&args.kafka, &args.attach) {
        (Some(bootstrap), _) => kafka_args::load(global, bootstrap, None)?.kafka.properties,
        (None, Some(_)) => of_attached(global)?,
        (None, None) => Default::default(),
    };
    let base = |log, source, limits_text, limits| Plan {
        log,
        kafka_properties,
        source,
        limits_text,
        limits,
        seconds: args.seconds,
        seed: args.seed,
        quiet: global.quiet,
        tls: args.tls,
        reach: global.reach.clone(),
    };
    if let Some(url) = &args.attach {
        let attached: Attached = crate::demo::attach(url)?;
        let (log, limits, resources) = (attached.log, attached.limits, attached.resources);
        let run = format!("{:x}", std::process::id());
        return Ok(base(
            log,
            TrafficSource::Against { resources, run },
            String::new(),
            limits,
        ));
    }
    let (text, name) = match &global.limits {
        Some(path) => (read_input(path)?, input_name(path)),
        None if args.access_log.is_some() => (
            format!(
                "{ACCESS_LOG_LIMITS}[rate.{:?}]\nrate = \"2/m\"\n",
                args.resource
            ),
            "demo limits".to_owned(),
        ),
        None => (LIMITS.to_owned(), "demo limits".to_owned()),
    };
    let limits =
        Limits::parse(&text).map_err(|faults| Failure::Data(faults.in_file(&name).to_string()))?;
    let log = match &args.kafka {
        Some(bootstrap) => Log::Kafka {
            bootstrap: bootstrap.clone(),
            prefix: format!("tollgate-demo-{:08x}", rand::random::<u32>()),
        },
        None => Log::Journal,
    };
    let Some(path) = &args.access_log else {
        return Ok(base(log, TrafficSource::MadeUp, text, limits));
    };
    if limits.rate(&args.resource).is_none() {
        return Err(Failure::Data(format!(
            "{name}: resource {:?} is not configured, expected [rate.{:?}] for the access log's requests (or --resource)",
            args.resource, args.resource
        )));
    }
    let scaled = limits
        .scaled(args.speed)
        .map_err(|fault| Failure::Usage(format!("--speed {}: {name}: {fault}", args.speed)))?;
    let source = TrafficSource::AccessLog(Box::new(replayed(args, path)?));
    Ok(base(log, source, scaled.normalised_text(), scaled))
}

/// The access log, and its format.
fn replayed(args: &DemoArgs, path: &Path) -> Result<AccessLog, Failure> {
    let wanted = args.form.wanted();
    Ok(AccessLog {
        path: path.to_owned(),
        resource: args.resource.clone(),
        speed: args.speed.get(),
        wanted: wanted.map_err(|fault| Failure::Usage(format!("demo: {fault}")))?,
        spread: args.form.stamps == Stamps::Spread,
    })
}
