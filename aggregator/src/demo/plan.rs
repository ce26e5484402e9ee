//! The plan of a demonstration: which log, which traffic, under which limits.
//!
//! Plain data, made from the command line and carried out elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollgate_limits::Limits;

use super::replayed::AccessLog;
use crate::reach::ReachArgs;

/// The kind of log.
#[derive(Clone, Debug)]
pub enum Log {
    /// A journal in a directory of its own, removed in the end.
    Journal,
    /// A running Kafka; the demonstration uses topics under its own prefix.
    Kafka {
        /// Its address.
        bootstrap: String,
        /// The prefix.
        prefix: String,
    },
    /// A running fleet: the address for agents, and its log.
    Attached {
        /// The address for agents.
        agents: String,
        /// The fleet's journal, on this machine; or its Kafka.
        log: AttachedLog,
    },
}

/// The log of a running fleet.
#[derive(Clone, Debug)]
pub enum AttachedLog {
    /// A journal's directory.
    Journal(PathBuf),
    /// Topics of a Kafka.
    Kafka {
        /// Its address.
        bootstrap: String,
        /// The prefix.
        prefix: String,
    },
}

impl Log {
    /// The arguments about the log for a process with an agent; `properties` is the file with Kafka's properties.
    pub fn agent_args(&self, properties: &Path) -> Vec<String> {
        let Self::Kafka { bootstrap, prefix } = self else {
            return Vec::new();
        };
        let properties = properties.display().to_string();
        let args = ["--kafka", bootstrap, "--topic-prefix", prefix];
        let mut args = args.map(str::to_owned).to_vec();
        args.extend(["--kafka-properties".to_owned(), properties]);
        args
    }
}

/// Where the traffic comes from.
#[derive(Clone, Debug)]
pub enum TrafficSource {
    /// Made-up tenants.
    MadeUp,
    /// An access log.
    AccessLog(Box<AccessLog>),
    /// Calls above these resources' limits.
    Against {
        /// Each resource and its rate in calls per second.
        resources: Vec<(String, f64)>,
        /// Names the domains of this run.
        run: String,
    },
}

/// What to demonstrate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The log.
    pub log: Log,
    /// Properties of its Kafka clients, beside the address.
    pub kafka_properties: BTreeMap<String, String>,
    /// The traffic.
    pub source: TrafficSource,
    /// The limits as text, already scaled if the traffic is.
    pub limits_text: String,
    /// The same, parsed, for the model.
    pub limits: Limits,
    /// For how long calls are made.
    pub seconds: u64,
    /// The seed of the traffic.
    pub seed: u64,
    /// Whether to show nothing while it runs.
    pub quiet: bool,
    /// Whether its processes use TLS and show a token.
    pub tls: bool,
    /// How its agents reach the fleet that the demonstration is attached to.
    pub reach: ReachArgs,
}
