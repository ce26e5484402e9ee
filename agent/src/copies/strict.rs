//! Calls that wait for the aggregators' word: strict reserves, and seizes.
//!
//! ```text
//! reserve ──> log ──> aggregator ──> verdict      some milliseconds, and never too much
//!    └─ at the deadline: cancel, and what the blind policy says
//! ```
//!
//! What stays true: whoever stops waiting has cancelled, by whatever way it stopped.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::verdict::Why;

use super::errors::SeizeError;
use super::handle::{Copies, Inner};
use super::hold::{Hold, Pending};
use crate::answer::{Cause, Denied};
use crate::clock::Mono;
use crate::holds::notice::{HoldAnswer, RareNotice};
use crate::refused::{Misuse, Refused};
use crate::resource::{Asking, OF_RATE, STRICT};
use crate::scope::Scope;
use crate::stats::Counters;

/// How long a seize waits at most, unless it is told otherwise.
const SEIZE_WITHIN: Duration = Duration::from_secs(10);

/// How soon an id that nobody knows is asked for again: it may have come faster than its transfer, whose
/// agent sends it through the log. Each time twice as late, up to the second of these.
const UNKNOWN_AGAIN_MS: (u64, u64) = (5, 160);

/// How often it is asked for again by those who have not said how long they would wait for a transfer: some
/// hundred milliseconds in all, so that an id that is spent is told so before long.
const UNKNOWN_AGAIN_MAX: u32 = 6;

impl Copies {
    /// Takes `copies` for `domain` once the aggregators have granted them, within `deadline`: for
    /// resources that are strict, and of which too much may never be in use.
    ///
    /// Costs a round trip through the log, some milliseconds where nothing is stalled, and a few
    /// allocations, where [`Copies::reserve`] costs about a hundred nanoseconds; a limit that is known
    /// to be reached refuses at once. At the deadline the reserve is cancelled, and the blind policy
    /// decides: `closed`, which is the default of strict resources, refuses; under another one the copies
    /// are used without having been granted, and counted
    /// ([`Stats::holds_beyond_strict`](crate::Stats::holds_beyond_strict)). Needs no runtime of any kind.
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
    /// [`Refused::Denied`] where a limit is reached, or the deadline; [`Refused::Misuse`] of
    /// no copies and of resources that are not strict; [`Refused::Uncounted`] where the
    /// aggregators have no room.
    pub async fn reserve_confirmed(
        &self,
        domain: &str,
        copies: u32,
        deadline: Duration,
    ) -> Result<Hold, Refused> {
        self.reserve_confirmed_up_to(domain, copies..=copies, deadline)
            .await
    }

    /// Takes as many copies as the aggregators grant, at least the start of `copies`; see
    /// [`Copies::reserve_confirmed`], of which it has the cost: one round trip through the log, whatever is
    /// granted. By the kill switch all of `copies` are used, and at the deadline, where the blind policy lets
    /// through, the start alone: what nobody has granted is no more than is of use.
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
    /// As [`Copies::reserve_confirmed`]; [`Misuse::NoCopies`] also where the start is 0, and
    /// [`Misuse::MinAboveMax`].
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
        let Inner { resource, shared } = &*self.inner;
        let deadline = Span::from_std(deadline);
        let until = shared.clock.read().plus(deadline);
        let domain = shared.admit(domain);
        let fingerprint = resource.fingerprint(&domain);
        self.check_strict()?;
        if let Some(denied) = self.look(fingerprint, &domain)
            && !self.lets_all_through()
        {
            self.record_refused(&domain, copies, &denied);
            return Err(denied.into());
        }
        loop {
            let (answer, verdict) = oneshot::channel();
            let seldom = RareNotice::Reserve {
                domain: (*domain).into(),
                copies,
                min,
                answer,
            };
            let at = shared.clock.cached_wall();
            let Some(ticket) = shared.desk.begin(resource, fingerprint, at, seldom) else {
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
                    let denied = Denied::of_full(by.as_ref().map_or(Scope::Pair, Scope::from));
                    self.record_refused(&domain, copies, &denied);
                    return Err(denied.into());
                }
                Some(HoldAnswer::Refused(why)) => return Err(Refused::Uncounted(why)),
                // Lost on its way: there is time for another.
                Some(HoldAnswer::Lost) => {}
                None => break,
            }
        }
        self.beyond(fingerprint, &domain, min)
    }

    /// The resource is strict, as far as is known.
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

    /// Nobody has said anything in time.
    fn beyond(&self, fingerprint: u64, domain: &str, copies: u32) -> Result<Hold, Refused> {
        let Inner { resource, shared } = &*self.inner;
        // What is not known to be otherwise is closed.
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

    /// Takes over what was staged under an id by [`Hold::transfer`], in this process or another, and
    /// waits for the verdict, ten seconds at most: the hold's copies count all the while, for the
    /// domain that they were taken for. An id that is not known is asked for again for some hundred
    /// milliseconds, since it may have come faster than its transfer; [`Copies::seize_within`] asks for longer.
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
    /// [`SeizeError`]; where no verdict came in time it is given up.
    pub async fn seize(&self, id: TransferId) -> Result<Hold, SeizeError> {
        self.seize_asking(id, SEIZE_WITHIN, UNKNOWN_AGAIN_MAX).await
    }

    /// [`Copies::seize`], waiting so long at most, for the transfer as well as for the verdict: an id that is
    /// not known is asked for again until then, six times a second. One that is spent, or was never to be, is
    /// told so only then.
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

    /// Seizes; an id that is not known is asked for again so often at most.
    async fn seize_asking(
        &self,
        id: TransferId,
        max_wait: Duration,
        again_max: u32,
    ) -> Result<Hold, SeizeError> {
        let Inner { resource, shared } = &*self.inner;
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
            let seldom = RareNotice::Seize { from: id, answer };
            let ticket = shared.desk.begin(resource, shard, at, seldom);
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
                    // Whoever asked with no time left would claim it and give it up at once.
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

    /// The verdict, if it comes in time.
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
                        // It may have come with the deadline.
                        return verdict.try_recv().ok();
                    }
                }
            }
        }
    }
}
