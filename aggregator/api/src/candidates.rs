//! `GET /v1/candidates`: what candidate limits would have done, beside the limits in force.
//!
//! Knows nothing of how hits are ruled.

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// What candidates would have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidatesView {
    /// The schema's name.
    pub schema: Keyword,
    /// The limits version in force.
    pub version: u64,
    /// Since when all partitions here are counted, in log time: a process counts from when it took a partition over.
    #[serde(default)]
    pub counting_from_us: u64,
    /// The resources and patterns that have a candidate in it, by name.
    pub configured: Vec<Box<str>>,
    /// The comparisons, by partition and resource.
    pub candidates: Vec<CandidateView>,
    /// Partitions that are not counted here: they are ruled elsewhere, or not at the moment.
    pub partitions_missing: Vec<u32>,
}

/// One resource's limits and its candidate in one partition, side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateView {
    /// The resource.
    pub resource: Box<str>,
    /// The partition.
    pub partition: u32,
    /// When the log took the first record that was ruled by both.
    pub from_us: u64,
    /// When it took the last one.
    pub to_us: u64,
    /// What became of hits under both.
    #[serde(flatten)]
    pub figures: CandidateFigures,
    /// The newest of those denials, newest first.
    pub newest: Vec<CandidateDenialView>,
}

/// What became of hits under both, in one partition or several. Figures are hits unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateFigures {
    /// Hits that were let through, and ruled by both.
    pub let_through: u64,
    /// Of them, those beyond the limits in force: a denial takes time to reach agents.
    pub excess: u64,
    /// Calls that agents refused by the limits in force. Candidates do not rule on them.
    pub refused_calls: u64,
    /// Of the hits let through, those that the candidate had room for.
    pub candidate_granted: u64,
    /// Of the hits let through, those that the candidate would have refused.
    pub candidate_refused: u64,
    /// Of the hits let through, those that came too late for the candidate to decide.
    pub candidate_late: u64,
    /// Hits that the candidate would have refused and the limits in force would not.
    pub newly_refused: u64,
    /// Hits that the limits in force would have refused and the candidate would not.
    pub no_longer_refused: u64,
    /// Times that the candidate would have begun to deny a domain.
    pub candidate_denials: u64,
    /// Hits of domains beyond the cap on pairs: not ruled by the candidate.
    pub candidate_at_cap: u64,
}

impl CandidateFigures {
    /// Both together.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            let_through: self.let_through + other.let_through,
            excess: self.excess + other.excess,
            refused_calls: self.refused_calls + other.refused_calls,
            candidate_granted: self.candidate_granted + other.candidate_granted,
            candidate_refused: self.candidate_refused + other.candidate_refused,
            candidate_late: self.candidate_late + other.candidate_late,
            newly_refused: self.newly_refused + other.newly_refused,
            no_longer_refused: self.no_longer_refused + other.no_longer_refused,
            candidate_denials: self.candidate_denials + other.candidate_denials,
            candidate_at_cap: self.candidate_at_cap + other.candidate_at_cap,
        }
    }
}

/// A denial that a candidate would have begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateDenialView {
    /// The domain.
    pub domain: Box<str>,
    /// When it would have begun.
    pub at_us: u64,
    /// When it would have ended; null: never.
    pub end_us: Option<u64>,
    /// The log position of the hit that would have caused it.
    pub code: String,
}
