//! Copies of strict resources: used once an aggregator has granted them.
//!
//! ```text
//! all asked for at once ──> log ──> aggregators ──> granted, or refused      some milliseconds
//!        └─ at its deadline each is cancelled, and the blind policy decides
//! ```
//!
//! Knows nothing of HTTP. What stays true: an answer stands where its question stood; what nobody waits for any more is
//! cancelled, and what was granted to nobody is given back.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate_agent::{Copies, Hold, Refused};

/// What is asked for.
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
    /// Without the aggregators' word.
    pub blind: bool,
}

/// Asks for all of them, and waits for the last answer. In their order.
pub(crate) async fn reserve(asks: Vec<ConfirmedAsk>) -> Vec<Result<TakenHold, Refused>> {
    let mut waiting = JoinSet::new();
    for (at, ask) in asks.into_iter().enumerate() {
        waiting.spawn(async move { (at, ask.answer().await) });
    }
    // It panics where one of them has, as a call in place would have.
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
        // Who had to wait to the end was granted nothing, and has it by the blind policy.
        let blind = self.within <= began.elapsed();
        Ok(TakenHold { hold, blind })
    }
}
