//! The JSON of an aggregator's HTTP interface: each answer and each request is declared here, once.
//!
//! ```text
//! GET  /v1/denials      denials      DenialsView of DenialView
//! GET  /v1/bans         bans         BansView of BanView
//! GET  /v1/pairs        pairs        PairView
//! GET  /v1/holds        holds        HoldsView of HoldView and ResourceView
//! GET  /v1/top          top          TopView of TopPair
//! GET  /v1/candidates   candidates   CandidatesView of CandidateView
//! GET  /v1/limits       limits       LimitsView
//! GET  /v1/digests      state        DigestsView of DigestView
//! GET  /v1/log, /readyz state        LogView, Readiness
//! POST /v1/amendments   amend        AmendRequest; AmendmentView or FaultView
//! ```
//!
//! The aggregator writes these types and the command line reads them. A list is generic over its rows, so that a
//! client may keep the rows as they came, and over the cursor of its next page, which only the aggregator takes apart.
//! Knows nothing of HTTP, and nothing of how an answer is put together. What stays true: fields are only ever added,
//! and a client ignores those that it does not know.

pub mod amend;
pub mod bans;
pub mod candidates;
pub mod denials;
pub mod holds;
pub mod limits;
pub mod pairs;
pub mod state;
pub mod text;
pub mod top;
