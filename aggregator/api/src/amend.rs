//! `POST /v1/amendments`: what an operator asks for, and what became of it.
//!
//! Knows nothing of what an act needs: the aggregator checks that.

use serde::{Deserialize, Serialize};
use tollgate_shared::object::objects;

use crate::text::Keyword;

/// A request: the act, and the fields that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AmendRequest {
    /// `lift`, `reset`, `refund`, `ban`, `unban`, `release`, `switch` or `set`.
    pub act: String,
    /// The resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// For a refund: how many hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// For a ban: its end; `None`: until it is lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_us: Option<u64>,
    /// For a ban, in place of its end: how long it lasts from now on, by the aggregator's clock or
    /// by log time, whichever is later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_us: Option<u64>,
    /// For holds: the agent's name. Without it, with a domain, copies staged for the domain are released as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// For one hold: its agent's epoch, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// For one hold: its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// For staged copies: the id of their transfer, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
    /// For a switch: the namespace; `*`: all that have no switches of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// For a switch; `None`: as the document states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_configured: Option<bool>,
    /// For a switch; `None`: as the document states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unconfigured: Option<bool>,
    /// For a domain's own limits: its rate. Fields that are missing stay as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// For a domain's own limits: its hard limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard: Option<String>,
    /// For a domain's own limits: how many copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Removes the own limits of a domain.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
    /// For own limits of many domains: a row for each, instead of one domain; at most 8,192.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    pub rows: Vec<AmendRow>,
    /// The author.
    pub who: String,
    /// The reason.
    pub why: String,
    /// The version that has to be in force; `None`: any version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
    /// Only report what would be done.
    pub dry_run: bool,
}

/// One domain's own limits among many. Fields that are missing stay as they were; a row without any removes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmendRow {
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Its hard limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<String>,
    /// How many copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmendmentView {
    /// The schema's name.
    pub schema: Keyword,
    /// What was done.
    pub amendment: String,
    /// The amendment's number among the versions; of a dry run the version in force.
    pub version: u64,
    /// The version that was in force before.
    pub expected: u64,
    /// False for a dry run.
    pub done: bool,
    /// Whether all partitions that this process rules have activated it.
    pub in_force: bool,
}
