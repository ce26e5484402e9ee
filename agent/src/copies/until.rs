//! Waiting until copies can be taken, for callers that have the time.

use std::time::Duration;

use tollgate_shared::time::Span;

use super::handle::{Copies, Want};
use super::hold::Hold;
use crate::refused::{Misuse, Refused};
use crate::waiting::Backoff;

impl Copies {
    /// Waits until `copies` can be taken, at most `max_wait`, and takes them. The agent tries again at growing
    /// pauses, at last every second. Each pause is up to a quarter longer or shorter at random, so that calls that
    /// wait for one domain do not all try at once. Needs no async runtime.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let kit = TestAgent::new();
    /// use std::time::Duration;
    ///
    /// let reports = kit.agent().copies("reports");
    /// let _hold = reports.until_ready("acme", 1, Duration::from_secs(30)).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The last refusal; at once if waiting cannot help, as for more copies than a domain may have (as far as
    /// [`Copies::reserve`] knows that).
    pub async fn until_ready(
        &self,
        domain: &str,
        copies: u32,
        max_wait: Duration,
    ) -> Result<Hold, Refused> {
        if copies == 0 {
            return Err(Misuse::NoCopies.into());
        }
        let want = Want::all_of(copies);
        let shared = &self.inner.shared;
        let domain = shared.admit(domain);
        let until = shared.clock.read().plus(Span::from_std(max_wait));
        let mut backoff = Backoff::new();
        loop {
            let denied = match self.take(&domain, want) {
                Err(Refused::Denied(denied)) => denied,
                // Nothing that is given back makes room for it.
                Err(too_many @ Refused::TooMany(_)) => {
                    self.record_too_many(&domain, copies);
                    return Err(too_many);
                }
                taken => return taken,
            };
            let left = until.since(shared.clock.read());
            let wait = backoff
                .next(&denied)
                .filter(|wait| wait.at_least <= left && left != Span::ZERO);
            let Some(wait) = wait.filter(|_| !shared.has_ended()) else {
                self.record_refused(&domain, copies, &denied);
                return Err(denied.into());
            };
            let wake = shared.clock.read().plus(wait.chosen.min(left));
            while shared.clock.read() < wake && !shared.has_ended() {
                shared.timer.sleep(wake.since(shared.clock.read())).await;
            }
        }
    }
}
