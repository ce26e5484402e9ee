//! What a demonstration is to be: which log, which traffic, under which limits.
//!
//! Plain data: made from the command line, carried out elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tollgate_limits::Limits;

use super::replayed::AccessLog;
use crate::reach::ReachArgs;

/// What the log is.
#[derive(Clone, Debug)]
pub enum Log {
    /// A journal in a directory of its own, thrown away in the end.
    Journal,
    /// A Kafka that runs already; topics under a prefix of their own.
    Kafka {
        /// Its address.
        bootstrap: String,
        /// The prefix.
        prefix: String,
    },
    /// A fleet that runs already: its agents' address, and where its log is.
    Attached {
        /// Where agents go.
        agents: String,
        /// The fleet's journal, on this machine; or its Kafka.
        log: AttachedLog,
    },
}

/// The log of a fleet that runs already.
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
        /// How many partitions the topics have.
        partitions: u32,
    },
}

impl Log {
    /// What a process with an agent is told of the log; `properties` is the file that has them.
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
    /// Calls above these resources' limits, at so many a second.
    Against {
        /// Resource and rate.
        resources: Vec<(String, f64)>,
        /// Names the domains of this run.
        run: String,
    },
}

/// What is to be demonstrated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The log.
    pub log: Log,
    /// What clients of its Kafka are told beside the address.
    pub kafka_properties: BTreeMap<String, String>,
    /// The traffic.
    pub source: TrafficSource,
    /// The limits as text, already scaled where traffic is.
    pub limits_text: String,
    /// The same as the judge needs them.
    pub limits: Limits,
    /// For how long calls are made.
    pub seconds: u64,
    /// Of the traffic.
    pub seed: u64,
    /// Shows nothing while it runs.
    pub quiet: bool,
    /// Its processes speak TLS and show a token.
    pub tls: bool,
    /// How its agents reach the fleet that it is attached to.
    pub reach: ReachArgs,
}
