//! The state of the process that answers: `GET /v1/digests`, `/v1/log` and `/readyz`; and why it does not answer.
//!
//! Knows nothing of other processes of a fleet.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// Whether the process is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The schema's name.
    pub schema: Keyword,
    /// Yes or no.
    pub ready: bool,
    /// What is missing; empty if nothing is.
    pub why: Vec<String>,
}

/// The states of all partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestsView {
    /// The schema's name.
    pub schema: Keyword,
    /// The limits version in force at the end of the limits stream.
    pub limits_version: u64,
    /// The partitions that this process rules.
    pub partitions: Vec<DigestView>,
}

/// The state of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestView {
    /// The partition.
    pub partition: u32,
    /// `restoring`, `headless`, `catching_up`, `waiting`, `recording`, `ruling_again`, `ruling` or
    /// `stopped`. While it is `restoring`, its digest is not yet verified against the log.
    pub stage: Keyword,
    /// The reason, if it is stopped or waiting.
    pub why: Option<String>,
    /// Its log's generation.
    pub generation: u32,
    /// Its log's random part, in hexadecimal.
    pub log_random: String,
    /// All records below this offset have been ruled.
    pub offset: u64,
    /// The append time of the last of them.
    pub appended_us: u64,
    /// The limits version in force in it.
    pub version: u64,
    /// The digest of its state, in hexadecimal.
    pub digest: String,
}

/// Where the log is and which address agents use, for commands on the same machine or the same Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogView {
    /// The schema's name.
    pub schema: Keyword,
    /// `journal` or `kafka`.
    pub kind: Keyword,
    /// A journal's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Kafka's brokers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap: Vec<String>,
    /// What the names of Kafka's topics begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_prefix: Option<String>,
    /// Partitions of the log.
    pub partitions: u32,
    /// The address that agents need.
    pub agents: String,
}

/// Why an aggregator does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultView {
    /// The schema's name.
    pub schema: Keyword,
    /// For people.
    pub error: String,
    /// For programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
