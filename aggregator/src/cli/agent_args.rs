//! How an agent on the command line reaches its fleet: by flags, then the environment, then the configuration.
//!
//! Knows nothing of calls. What stays true: a flag overrides its own variable, and leaves all others in force;
//! `--aggregator` overrides TOLLGATE_KAFKA, too, because both say where hits go.

use tollgate_agent::{Agent, AgentBuilder, BuildError};
use tollgate_shared::kafka_properties::is_of_connection;

use crate::exit::{Exit, Failure};

use super::{Global, kafka_args, serve};

/// How the agent reaches the fleet.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    /// An aggregator's address for agents; may be repeated. Hits go there, unless --kafka is given [default:
    /// TOLLGATE_AGGREGATORS, or 127.0.0.1:7401]
    #[arg(long, value_name = "HOST:PORT")]
    pub aggregator: Vec<String>,
    /// Sends hits directly to Kafka [default without --aggregator: TOLLGATE_KAFKA]
    #[arg(long, value_name = "HOST:PORT")]
    pub kafka: Option<String>,
    /// The prefix of Kafka's topic names [default: tollgate]
    #[arg(long, value_name = "PREFIX", requires = "kafka")]
    pub topic_prefix: Option<String>,
}

impl AgentArgs {
    /// The addresses at which the agent looks for aggregators first, for messages.
    pub fn addresses(&self) -> String {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (self.aggregator.is_empty(), set("TOLLGATE_AGGREGATORS")) {
            (false, _) => self.aggregator.join(", "),
            (true, Some(of_environment)) => of_environment,
            (true, None) => match self.kafka.clone().or_else(|| set("TOLLGATE_KAFKA")) {
                Some(bootstrap) => format!("the addresses that Kafka at {bootstrap} has"),
                None => "127.0.0.1:7401".to_owned(),
            },
        }
    }

    /// Builds the agent that they describe.
    ///
    /// # Errors
    ///
    /// If they, the environment or a file have an invalid value.
    pub fn build(&self, global: &Global, command: &str) -> Result<Agent, Failure> {
        let failed = |error: BuildError| match error {
            BuildError::KafkaProperty(_) | BuildError::KafkaProperties { .. } => Failure::Log {
                exit: Exit::Config,
                text: format!("{command}: {error}"),
            },
            BuildError::KafkaPropertiesFile { path, source } => Failure::Input {
                name: path.display().to_string(),
                source,
            },
            // As of all other commands: see `reach::open`.
            BuildError::Tls(_) | BuildError::DomainKeyFile { .. } => Failure::Log {
                exit: Exit::NoInput,
                text: format!("{command}: {error}"),
            },
            error => Failure::Usage(format!("{command}: {error}")),
        };
        // A flag overrides its own variable. `--aggregator` also names where hits go, if `--kafka` does not.
        let overridden: &[&str] = match self.aggregator.is_empty() {
            true => &[],
            false => &["TOLLGATE_AGGREGATORS", "TOLLGATE_KAFKA"],
        };
        let mut builder = AgentBuilder::from_env_without(overridden).map_err(failed)?;
        for address in &self.aggregator {
            builder = builder.aggregator(address);
        }
        if let Some(bootstrap) = &self.kafka {
            builder = builder.kafka(bootstrap);
        }
        builder = global.reach.apply(builder);
        if let Some(key) = &global.domain_key {
            builder = builder.domain_key_file(key);
        }
        // The configuration includes the environment.
        let prefix = self.topic_prefix.as_deref();
        let config = match (&self.kafka, &global.config) {
            (Some(bootstrap), _) => Some(kafka_args::load(global, bootstrap, prefix)?),
            (None, Some(_)) => Some(serve::load_with(global, Vec::new())?),
            (None, None) => None,
        };
        if let Some(config) = config {
            builder = builder.kafka_topic_prefix(&config.kafka.topic_prefix);
            for (name, value) in config.kafka.properties {
                if is_of_connection(&name) {
                    builder = builder.kafka_property(name, value);
                }
            }
        }
        builder.build().map_err(failed)
    }
}
