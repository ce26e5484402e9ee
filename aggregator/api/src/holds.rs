//! `GET /v1/holds`: which agents hold which copies, the oldest hold first.
//!
//! Knows nothing of how holds are ruled.

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// The holds of all resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldsView<Row = HoldView, Next = String> {
    /// The schema's name.
    pub schema: Keyword,
    /// The holds, the oldest first.
    pub holds: Vec<Row>,
    /// Whether there are more holds, or may be.
    pub more: bool,
    /// The position after which to go on, where there may be more: that of the last hold that was looked at.
    pub next: Option<Next>,
    /// The copy-limited resources that ever had a hold, by name.
    pub resources: Vec<ResourceView>,
    /// Partitions without an answer: no aggregator that was asked rules them at the moment.
    pub partitions_missing: Vec<u32>,
}

/// A resource's copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceView {
    /// Its name.
    pub resource: Box<str>,
    /// The partition that rules it.
    pub partition: u32,
    /// Copies that are held or staged.
    pub copies: u64,
    /// Of them, those that were in use before they were granted.
    pub optimistic: u64,
    /// The global limit; null: unbounded.
    pub global: Option<u64>,
    /// The number of holds, including those of gone agents, and of staged transfers.
    pub holds: u64,
}

/// One hold, or copies that are staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The groups that it was taken under.
    pub groups: Vec<Box<str>>,
    /// `held`; `lost`: its agent is gone and it does not count; `staged`: without a holder until it is seized.
    pub state: Keyword,
    /// The agent's name; null where it is staged.
    pub agent: Option<Box<str>>,
    /// The agent's epoch, in hexadecimal; null where it is staged.
    pub epoch: Option<String>,
    /// The number that the epoch gave to the hold; null where it is staged.
    pub number: Option<u64>,
    /// The transfer under which it is staged; null where it is held.
    pub transfer: Option<String>,
    /// Copies.
    pub copies: u32,
    /// When they were taken.
    pub start_us: u64,
    /// The time since then, by log time.
    pub age_us: u64,
    /// When staged copies are released, at the end of their transfer or at their greatest age; null where they are
    /// held.
    pub end_us: Option<u64>,
    /// Whether it was granted before use.
    pub strict: bool,
    /// Whether it was seized from the staging area.
    pub seized: bool,
    /// The partition.
    pub partition: u32,
}
