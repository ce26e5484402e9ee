//! The settings of the agent of each child process: its name, and how it reaches the fleet.
//!
//! Knows nothing of what the process does with it. What stays true: all processes build their agents alike.

use std::path::PathBuf;

use tollgate_agent::{Agent, AgentBuilder};

use crate::reach::ReachArgs;

/// The agent of a process.
#[derive(Clone, Debug)]
pub struct AgentPart {
    /// Its name.
    pub name: String,
    /// The aggregator's address for agents.
    pub aggregator: String,
    /// Kafka, if hits and holds go to it directly.
    pub kafka: Option<KafkaPart>,
    /// The CA that it trusts, and the certificate or token that it shows.
    pub reach: ReachArgs,
}

/// The Kafka that the agent writes to.
#[derive(Clone, Debug)]
pub struct KafkaPart {
    /// Its address.
    pub bootstrap: String,
    /// The prefix of its topics.
    pub prefix: String,
    /// The properties file of its clients.
    pub properties: Option<PathBuf>,
}

impl AgentPart {
    /// A builder with all these settings.
    pub fn builder(&self) -> AgentBuilder {
        let builder = Agent::builder()
            .name(&self.name)
            .aggregator(&self.aggregator);
        let builder = self.reach.apply(builder);
        let Some(kafka) = &self.kafka else {
            return builder;
        };
        let builder = builder
            .kafka(&kafka.bootstrap)
            .kafka_topic_prefix(&kafka.prefix);
        match &kafka.properties {
            Some(file) => builder.kafka_properties_file(file),
            None => builder,
        }
    }
}
