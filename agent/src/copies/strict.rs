//! Calls that wait for the aggregators' verdict: strict reserves, and seizes.
//!
//! ```text
//! reserve ──> log ──> aggregator ──> verdict      some milliseconds, and never too much
//!    └─ at the deadline: cancel, then the policy `blind` decides
//! ```
//!
//! What stays true: a caller that stops waiting has cancelled, in whatever way it stopped.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::verdict::Why;

use super::errors::SeizeError;
use super::handle::{Copies, Want};
use super::hold::{Hold, Pending};
use crate::answer::{Cause, Denied};
use crate::clock::Mono;
use crate::holds::notice::{HoldAnswer, RareNotice};
use crate::refused::{Misuse, Refused};
use crate::resource::{Asking, NO_RESOURCE, OF_RATE, STRICT};
use crate::scope::Scope;
use crate::stats::Counters;

/// How long a seize waits at most, unless the caller sets another limit.
const SEIZE_WITHIN: Duration = Duration::from_secs(10);

/// After how many milliseconds the agent asks again for an unknown id: the id may have been faster than its transfer,
/// which goes through the log. The pause doubles each time, up to the second number.
const UNKNOWN_AGAIN_MS: (u64, u64) = (5, 160);

/// How often the agent asks again if the caller has not set how long to wait for a transfer: some hundred
/// milliseconds in all, so that a seize of a spent id fails soon.
const UNKNOWN_AGAIN_MAX: u32 = 6;

impl Copies {
    /// Takes `copies` for `domain` once the aggregators have granted them, within `deadline`: for strict resources,
    /// of which too much may never be in use.
    ///
    /// Costs a round trip through the log, some milliseconds if nothing is stalled, and a few allocations
    /// ([`Copies::reserve`] costs about a hundred nanoseconds). If a limit is known to be reached, the call is
    /// refused at once. At the deadline the reserve is cancelled, and the policy `blind` decides: `closed`, which is
    /// the default of strict resources, refuses; under another policy the copies are used without a grant, and
    /// counted ([`Stats::holds_beyond_strict`](crate::Stats::holds_beyond_strict)). Needs no async runtime.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let licences = agent.copies("licences"); // reserve = "strict"
    /// let hold = licences.reserve_confirmed("acme", 1, Duration::from_millis(200)).await?;
    /// // Never more are in use than the limit says.
    /// drop(hold);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::Denied`] if a limit is reached, or at the deadline; [`Refused::TooMany`] for more copies than any
    /// domain may have; [`Refused::Misuse`] for 0 copies and for resources that are not strict;
    /// [`Refused::Uncounted`] if the aggregators have no room, or this agent tracks as many holds as it may.
    pub async fn reserve_confirmed(
        &self,
        domain: &str,
        copies: u32,
        deadline: Duration,
    ) -> Result<Hold, Refused> {
        self.reserve_confirmed_up_to(domain, copies..=copies, deadline)
            .await
    }

    /// Takes as many copies as the aggregators grant, at least the start of `copies`. Costs what
    /// [`Copies::reserve_confirmed`] does: one round trip through the log, however many are granted. With the kill
    /// switch on, all of `copies` are used. At the deadline, if the policy `blind` lets the call through, only the
    /// start is used: copies without a grant are no more than the call needs.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let licences = agent.copies("licences");
    /// let wait = Duration::from_millis(200);
    /// let hold = licences.reserve_confirmed_up_to("acme", 1..=5, wait).await?;
    /// println!("{} were free", hold.copies());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Copies::reserve_confirmed`]; [`Misuse::NoCopies`] also if the start is 0; and [`Misuse::MinAboveMax`].
    pub async fn reserve_confirmed_up_to(
        &self,
        domain: &str,
        copies: RangeInclusive<u32>,
        deadline: Duration,
    ) -> Result<Hold, Refused> {
        let (min, copies) = copies.into_inner();
        if min == 0 {
            return Err(Misuse::NoCopies.into());
        }
        if copies < min {
            let max = copies;
            return Err(Misuse::MinAboveMax { min, max }.into());
        }
        let (resource, shared) = self.parts();
        let deadline = Span::from_std(deadline);
        let until = shared.clock.read().plus(deadline);
        let domain = shared.admit(domain);
        let fingerprint = resource.fingerprint(&domain);
        self.check_strict()?;
        let want = Want { max: copies, min };
        if let Some(denied) = self.look(fingerprint, &domain)
            && !self.lets_all_through()
        {
            return Err(self.refuse(&domain, want, denied));
        }
        loop {
            let (answer, verdict) = oneshot::channel();
            let rare = RareNotice::Reserve {
                domain: (*domain).into(),
                copies,
                min,
                answer,
            };
            let at = shared.clock.cached_wall();
            let Some(ticket) = shared.hold_table.begin(resource, fingerprint, at, rare) else {
                // The aggregators would answer, but this agent cannot ask for more holds than it may track.
                if resource.id != NO_RESOURCE && !shared.has_ended() && !self.lets_all_through() {
                    return Err(Refused::Uncounted(Why::AtCapacity));
                }
                break;
            };
            let pending = Pending::new(Arc::clone(&self.inner), ticket);
            match self.verdict(verdict, until).await {
                Some(HoldAnswer::Granted { domain, copies }) => {
                    return Ok(pending.granted(&domain, copies));
                }
                Some(HoldAnswer::Full(_)) if self.lets_all_through() => {
                    Counters::add(&shared.counters.kill_switch_grants, 1);
                    drop(pending);
                    let taken = self.take_anyhow(fingerprint, &domain, copies);
                    return taken.ok_or(Refused::Uncounted(Why::AtCapacity));
                }
                Some(HoldAnswer::Full(by)) => {
                    let denied = Denied::of_full(Scope::from(&by));
                    return Err(self.refuse(&domain, want, denied));
                }
                Some(HoldAnswer::Refused(why)) => return Err(Refused::Uncounted(why)),
                // The reserve was lost on its way, and there is time for another.
                Some(HoldAnswer::Lost) => {}
                None => break,
            }
        }
        self.beyond(fingerprint, &domain, min)
    }

    /// Whether the resource is strict, as far as the agent knows.
    fn check_strict(&self) -> Result<(), Misuse> {
        let resource = &self.inner.resource;
        match resource.flags() {
            flags if flags & OF_RATE != 0 => Err(Misuse::NotCopies),
            flags if flags & STRICT == 0 && resource.is_known_as_copies() => {
                Err(Misuse::Optimistic)
            }
            _ => Ok(()),
        }
    }

    /// Decides after the deadline, without a verdict.
    fn beyond(&self, fingerprint: u64, domain: &str, copies: u32) -> Result<Hold, Refused> {
        let (resource, shared) = self.parts();
        // A resource of which the agent does not know the limits is closed.
        let known = resource.is_known_as_copies();
        let passes = if known || self.lets_all_through() {
            self.pass_blind(fingerprint, copies, Asking::Take)
        } else {
            Err(Denied::by_policy(Cause::Blind, Span::MAX))
        };
        let taken = match passes {
            Ok(()) => self.take_anyhow(fingerprint, domain, copies),
            Err(denied) => {
                self.record_refused(domain, copies, &denied);
                return Err(denied.into());
            }
        };
        if taken.is_some() {
            Counters::add(&shared.counters.holds_beyond_strict, u64::from(copies));
        }
        taken.ok_or(Refused::Uncounted(Why::AtCapacity))
    }

    /// Takes over the copies that [`Hold::transfer`] staged under an id, in this process or another, and waits for
    /// the verdict, ten seconds at most. The copies count all the while, for the domain that they were taken for. If
    /// the id is unknown, the agent asks again for some hundred milliseconds, since the id may have been faster than
    /// its transfer; [`Copies::seize_within`] asks for longer.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// // The id came with the job, from the process that took the copies.
    /// # let text = "";
    /// let id = text.parse()?;
    /// let _hold = agent.copies("reports").seize(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SeizeError`]. If no verdict comes in time, or the future is dropped, the seize is given up, and the copies
    /// with it if it was on its way: they are free then, and the id is spent.
    pub async fn seize(&self, id: TransferId) -> Result<Hold, SeizeError> {
        self.seize_asking(id, SEIZE_WITHIN, UNKNOWN_AGAIN_MAX).await
    }

    /// Like [`Copies::seize`], but waits this long at most, for the transfer as well as for the verdict: while the id
    /// is unknown, the agent asks again until then, six times a second. If the id is spent, or nothing was ever
    /// staged, the call fails only at the end of `max_wait`.
    ///
    /// ```no_run
    /// # async fn example(agent: tollgate_agent::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// # let id = "".parse()?;
    /// // The job may have come much faster than the transfer.
    /// let _hold = agent.copies("reports").seize_within(id, Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Copies::seize`].
    pub async fn seize_within(
        &self,
        id: TransferId,
        max_wait: Duration,
    ) -> Result<Hold, SeizeError> {
        self.seize_asking(id, max_wait, u32::MAX).await
    }

    /// Seizes; asks again for an unknown id at most this often.
    async fn seize_asking(
        &self,
        id: TransferId,
        max_wait: Duration,
        again_max: u32,
    ) -> Result<Hold, SeizeError> {
        let (resource, shared) = self.parts();
        if resource.flags() & OF_RATE != 0 {
            return Err(SeizeError::NotCopies);
        }
        let until = shared.clock.read().plus(Span::from_std(max_wait));
        let (mut pause_ms, pause_ms_max) = UNKNOWN_AGAIN_MS;
        let mut again = 0;
        loop {
            let (answer, verdict) = oneshot::channel();
            let at = shared.clock.cached_wall();
            let shard = resource.fingerprint(&id.to_string());
            let rare = RareNotice::Seize { from: id, answer };
            let ticket = shared.hold_table.begin(resource, shard, at, rare);
            let pending = Pending::new(Arc::clone(&self.inner), ticket.ok_or(SeizeError::NoRoom)?);
            match self.verdict(verdict, until).await {
                Some(HoldAnswer::Granted { domain, copies }) => {
                    return Ok(pending.granted(&domain, copies));
                }
                Some(HoldAnswer::Full(_) | HoldAnswer::Refused(Why::UnknownTransfer)) => {
                    drop(pending);
                    let left = until.since(shared.clock.read());
                    let pause = Span::from_millis(pause_ms).min(left);
                    if again_max <= again || left == Span::ZERO {
                        return Err(SeizeError::Unknown);
                    }
                    again = again.saturating_add(1);
                    pause_ms = pause_ms.saturating_mul(2).min(pause_ms_max);
                    let wake = shared.clock.read().plus(pause);
                    while shared.clock.read() < wake && !shared.has_ended() {
                        shared.timer.sleep(wake.since(shared.clock.read())).await;
                    }
                    // A request with no time left would claim the copies and give them up at once.
                    if until <= shared.clock.read() {
                        return Err(SeizeError::Unknown);
                    }
                }
                Some(HoldAnswer::Refused(why)) => return Err(SeizeError::Refused(why)),
                Some(HoldAnswer::Lost) => {}
                None if shared.has_ended() => return Err(SeizeError::NoRoom),
                None => return Err(SeizeError::TimedOut),
            }
        }
    }

    /// The verdict, if it arrives in time.
    async fn verdict(
        &self,
        mut verdict: oneshot::Receiver<HoldAnswer>,
        until: Mono,
    ) -> Option<HoldAnswer> {
        let shared = &self.inner.shared;
        loop {
            let left = until.since(shared.clock.read());
            tokio::select! {
                biased;
                answer = &mut verdict => return answer.ok(),
                () = shared.timer.sleep(left) => {
                    if until <= shared.clock.read() || shared.has_ended() {
                        // The verdict may have arrived at the deadline.
                        return verdict.try_recv().ok();
                    }
                }
            }
        }
    }
}
