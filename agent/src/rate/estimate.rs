//! A cost that is known roughly before a call, and exactly after it.
//!
//! ```text
//! hit_estimated("acme", 800)     charges 800, at once
//! settle(620)                    gives 180 back, of what was charged under that stamp
//! settle(950)                    charges 150 more, at the instant of settling
//! dropped                        the 800 stay charged
//! ```
//!
//! Knows nothing of limits: aggregators rule whether there is anything to give back. What stays true: an estimate is
//! settled once at most, and one that is not settled stays charged.

use tollgate_shared::time::{Span, Timestamp};

use super::{Rate, Want};
use crate::answer::Allowed;
use crate::clock::{Mono, Reading};
use crate::recorder::Happened;
use crate::refused::{Misuse, Refused};
use crate::resource::Asking;

/// After this span an estimate can no longer be settled: aggregators remember its charge for as long.
const SETTLED_WITHIN: Span = Span::from_secs(600);

/// A call that was let through and charged by an estimate; [`Rate::hit_estimated`] returns it.
///
/// Settling it by the actual cost consumes it, so it cannot be settled twice; a refused call has no estimate. An
/// estimate that is dropped instead, as when the call fails, stays charged: settle it by 0 if the call cost nothing.
///
/// ```
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # fn ask_the_model() -> u32 { 620 }
/// let tokens = kit.agent().rate("llm.tokens");
/// let estimate = tokens.hit_estimated("acme", 800)?;
/// let used = ask_the_model();
/// estimate.settle(used)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0382
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # let tokens = kit.agent().rate("llm.tokens");
/// let estimate = tokens.hit_estimated("acme", 800).unwrap();
/// let _ = estimate.settle(620);
/// let _ = estimate.settle(620);
/// ```
#[derive(Debug)]
#[must_use = "what is dropped stays charged by its estimate"]
pub struct Estimate {
    rate: Rate,
    allowed: Allowed,
    /// The domain's name in the log.
    domain: Box<str>,
    copies: u32,
    /// The stamp of the entry.
    made: Timestamp,
    since: Mono,
}

/// The result of settling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The estimate was right.
    Exact,
    /// The estimate was too low: this much was charged in addition.
    Charged(u32),
    /// The estimate was too high: this much is given back, as far as it counted anywhere.
    TakenBack(u32),
    /// The estimate was too high, and stays charged: the resource's limits give nothing back.
    Kept,
}

/// Why an estimate was not settled. It stays charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The call was let through too long ago.
    #[error("settled {after_secs} s after the call: expected at most 600")]
    TooLate {
        /// Seconds since the call.
        after_secs: u64,
    },
}

impl Rate {
    /// May a call of `domain` proceed now that will cost about `copies`? The estimate is charged at once, and settled
    /// when the cost is known: see [`Estimate`].
    ///
    /// Costs what [`Rate::hit_n`] does, and one allocation for the domain's name.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let tokens = kit.agent().rate("llm.tokens");
    /// let estimate = tokens.hit_estimated("acme", 800)?;
    /// assert_eq!(estimate.copies(), 800);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Rate::hit_n`].
    pub fn hit_estimated(&self, domain: &str, copies: u32) -> Result<Estimate, Refused> {
        if copies == 0 {
            return Err(Misuse::NoCopies.into());
        }
        let want = self.within_most(domain, Want::all_of(copies))?;
        let domain = self.admit(domain);
        let fingerprint = self.resource.fingerprint(&domain);
        let reading = Reading::of(&self.shared.clock);
        match self.ask(fingerprint, &domain, want, Asking::Take, &reading) {
            Ok(granted) => {
                let made = reading.stamp(|| self.stamp(fingerprint, copies));
                let happened = Happened::Estimate {
                    copies,
                    unguarded: granted.unguarded,
                };
                self.record_happened(&domain, happened, made);
                Ok(Estimate {
                    rate: self.clone(),
                    allowed: granted.allowed,
                    domain: Box::from(&*domain),
                    copies,
                    made,
                    since: self.shared.clock.read(),
                })
            }
            Err(denied) => {
                self.record_refused(&domain, copies, &denied);
                Err(denied.into())
            }
        }
    }
}

impl Estimate {
    /// The answer to the call.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let estimate = kit.agent().rate("llm.tokens").hit_estimated("acme", 800)?;
    /// assert!(!estimate.allowed().blind());
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    pub const fn allowed(&self) -> Allowed {
        self.allowed
    }

    /// The copies that are charged.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let estimate = kit.agent().rate("llm.tokens").hit_estimated("acme", 800)?;
    /// assert_eq!(estimate.copies(), 800);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    pub const fn copies(&self) -> u32 {
        self.copies
    }

    /// Settles by the actual cost of the call. If it is higher, the difference is charged at this instant. If it is
    /// lower, the difference is given back where it was counted. Never waits: like a hit it is recorded, and sent in
    /// the background.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// use tollgate_agent::Settled;
    ///
    /// let estimate = kit.agent().rate("llm.tokens").hit_estimated("acme", 800)?;
    /// assert_eq!(estimate.settle(950)?, Settled::Charged(150));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SettleError::TooLate`] ten minutes after the call. Nothing changes then.
    pub fn settle(self, actual: u32) -> Result<Settled, SettleError> {
        let (estimated, made) = (self.copies, self.made);
        let (shared, resource) = (&self.rate.shared, &self.rate.resource);
        let after = shared.clock.read().since(self.since);
        if SETTLED_WITHIN <= after {
            return Err(SettleError::TooLate {
                after_secs: after.as_micros() / 1_000_000,
            });
        }
        let (happened, settled) = match actual.cmp(&estimated) {
            std::cmp::Ordering::Equal => return Ok(Settled::Exact),
            std::cmp::Ordering::Less if resource.public().keeps_estimates => {
                return Ok(Settled::Kept);
            }
            std::cmp::Ordering::Less => {
                let happened = Happened::Refund {
                    estimated,
                    actual,
                    made,
                };
                (happened, Settled::TakenBack(estimated - actual))
            }
            std::cmp::Ordering::Greater => {
                let copies = actual - estimated;
                (Happened::Charge { copies }, Settled::Charged(copies))
            }
        };
        let at = match happened {
            Happened::Charge { copies } => {
                let fingerprint = resource.fingerprint(&self.domain);
                self.rate.stamp(fingerprint, copies)
            }
            _ => shared.stamp_relaxed(),
        };
        self.rate.record_happened(&self.domain, happened, at);
        Ok(settled)
    }
}
