//! Copies of strict resources: used once an aggregator has granted them.
//!
//! ```text
//! all requested at once ──> log ──> aggregators ──> granted, or refused      some milliseconds
//!        └─ at its deadline each is cancelled, and the policy `blind` decides
//! ```
//!
//! Knows nothing of HTTP. What stays true: answers are in the order of the requests; a request that nobody waits for
//! is cancelled, and copies that were granted too late are given back.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate_agent::{Copies, Hold, Refused};

/// A request for copies.
#[derive(Debug)]
pub(crate) struct ConfirmedAsk {
    pub resource: Copies,
    pub domain: String,
    pub copies: u32,
    pub within: Duration,
}

/// Copies that were taken.
#[derive(Debug)]
pub(crate) struct TakenHold {
    pub hold: Hold,
    /// Whether they were taken without a grant of the aggregators.
    pub blind: bool,
}

/// Requests all of them, and waits for the last answer. The answers are in the order of the requests.
pub(crate) async fn reserve(asks: Vec<ConfirmedAsk>) -> Vec<Result<TakenHold, Refused>> {
    let mut waiting = JoinSet::new();
    for (at, ask) in asks.into_iter().enumerate() {
        waiting.spawn(async move { (at, ask.answer().await) });
    }
    // If one of them panics, this panics, as a direct call would.
    let mut answers = waiting.join_all().await;
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

impl ConfirmedAsk {
    async fn answer(self) -> Result<TakenHold, Refused> {
        let began = Instant::now();
        let asked = self
            .resource
            .reserve_confirmed(&self.domain, self.copies, self.within);
        let hold = asked.await?;
        // A call that waited until its deadline has no grant: the policy `blind` let it through.
        let blind = self.within <= began.elapsed();
        Ok(TakenHold { hold, blind })
    }
}
