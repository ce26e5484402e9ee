//! Waiting until a hit may proceed, for callers that have the time.

use std::time::Duration;

use tollgate_shared::time::Span;

use super::{ONE, Rate};
use crate::answer::{Allowed, Denied};
use crate::clock::Reading;
use crate::resource::Asking;
use crate::waiting::Backoff;

impl Rate {
    /// Waits until one hit by `domain` may proceed, at most `max_wait`, and makes it.
    ///
    /// Tries when the denial in force ends, up to a quarter of the wait later, so that calls that wait for one domain
    /// do not all try at once; then again at growing pauses. If a denial ends after `max_wait`, the call is refused
    /// at once. Needs no async runtime.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// # let kit = TestAgent::new();
    /// use std::time::Duration;
    ///
    /// let search = kit.agent().rate("api.search");
    /// // A job that nobody waits for may wait itself.
    /// let _allowed = search.until_ready("acme", Duration::from_secs(2)).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The last [`Denied`].
    pub async fn until_ready(&self, domain: &str, max_wait: Duration) -> Result<Allowed, Denied> {
        let domain = self.admit(domain);
        let fingerprint = self.resource.fingerprint(&domain);
        let clock = &self.shared.clock;
        let until = clock.read().plus(Span::from_std(max_wait));
        let mut backoff = Backoff::new();
        loop {
            let reading = Reading::of(clock);
            // The call may have waited for an instant, so it is stamped by the clock that it waited by.
            reading.now();
            let denied = match self.ask(fingerprint, &domain, ONE, Asking::Take, &reading) {
                Ok(granted) => {
                    let at = reading.stamp(|| self.stamp(fingerprint, 1));
                    self.record_hits(&domain, ONE, granted.unguarded, at);
                    return Ok(granted.allowed);
                }
                Err(denied) => denied,
            };
            let left = until.since(clock.read());
            let wait = backoff.next(&denied);
            if wait.is_none_or(|wait| left < wait.at_least)
                || left == Span::ZERO
                || self.shared.has_ended()
            {
                self.record_refused(&domain, 1, &denied);
                return Err(denied);
            }
            if let Some(wait) = wait {
                // With a clock moved by hand a sleep may end early; then the loop sleeps again.
                let wake = clock.read().plus(wait.chosen.min(left));
                while clock.read() < wake && !self.shared.has_ended() {
                    self.shared.timer.sleep(wake.since(clock.read())).await;
                }
            }
        }
    }
}
