//! `GET /v1/bans`: who is banned, where, and for how long.
//!
//! Knows nothing of how bans are set.

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// The bans in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BansView<Row = BanView, Next = String> {
    /// The schema's name.
    pub schema: Keyword,
    /// The bans, by resource, those of every resource first; of each resource networks, addresses, and names.
    pub bans: Vec<Row>,
    /// Where the next page begins, if there may be more.
    pub next: Option<Next>,
}

/// One ban.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BanView {
    /// The resource; null: every resource.
    pub resource: Option<Box<str>>,
    /// The domain, the address or the network that is banned.
    pub domain: Box<str>,
    /// When it ends by log time; null: never.
    pub end_us: Option<u64>,
    /// The remaining time; null: without end.
    pub remaining_us: Option<u64>,
    /// The version of the limits that the ban is: `tollgate audit` prints the act, with its author and the reason.
    pub version: u64,
    /// Whether it reaches no caller: its resource limits addresses by wider networks than it bans.
    #[serde(default)]
    pub reaches_nobody: bool,
}
