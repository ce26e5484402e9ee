//! A hold: copies in use, given back when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::verdict::{EndedBy, Why};

use super::errors::HoldFault;
use super::handle::Inner;
use crate::holds::news::FullScope;
use crate::holds::notice::{HoldStanding, NoticeKind, RareNotice};
use crate::holds::table::Ticket;

/// Copies in use. Dropping it gives them back: on any thread, without waiting, and never with a panic.
/// It may be kept across awaits.
#[must_use = "its copies are given back when it is dropped"]
pub struct Hold {
    inner: Arc<Inner>,
    ticket: Ticket,
    copies: u32,
}

/// The aggregators' verdict on a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confirmation {
    /// It counts, and an in-line limiter would have granted it.
    Confirmed,
    /// It counts, but so many of its copies were too many.
    Excess {
        /// So many.
        copies: u32,
        /// The scope that was full, where it is known.
        scope: Option<FullScope>,
    },
    /// An operator or its greatest age ended it, now or earlier.
    Ended(EndedBy),
    /// It does not count.
    Uncounted(Why),
    /// There will be no verdict: the hold is not on record, or over, or the agent has ended.
    Unknown,
}

/// Why a hold is to be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// So many of its copies were too many, and the resource asks for them back (`on_excess`).
    GiveBack {
        /// So many.
        copies: u32,
        /// The scope that was full, where it is known.
        scope: Option<FullScope>,
    },
    /// An operator or its greatest age ended it, so what is still in use counts no more.
    Ended(EndedBy),
    /// It does not count.
    Uncounted(Why),
    /// The agent has ended: what it held was given back.
    AgentEnded,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("resource", &self.inner.resource.name)
            .field("number", &self.ticket.number)
            .field("copies", &self.copies)
            .finish_non_exhaustive()
    }
}

impl Hold {
    pub(super) fn new(inner: Arc<Inner>, ticket: Ticket, copies: u32) -> Self {
        Self {
            inner,
            ticket,
            copies,
        }
    }

    pub(super) fn of_nothing(inner: Arc<Inner>) -> Self {
        let ticket = Ticket::default();
        Self::new(inner, ticket, 0)
    }

    /// The copies that it has.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let hold = reports.reserve("acme", 3)?;
    /// assert_eq!(hold.copies(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// The resource's name.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let hold = reports.reserve("acme", 1)?;
    /// assert_eq!(hold.resource(), "reports");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resource(&self) -> &str {
        &self.inner.resource.name
    }

    /// Its number: with the resource and the agent's name and epoch it is known everywhere. None where
    /// it is not on record: see [`crate::Stats::holds_unrecorded`].
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let hold = reports.reserve("acme", 1)?;
    /// println!("hold {:?} in `tollgate holds list`", hold.number());
    /// # assert!(hold.number().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn number(&self) -> Option<u64> {
        (self.ticket.number != 0).then_some(self.ticket.number)
    }

    /// Gives back so many of its copies.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let mut hold = reports.reserve("acme", 3)?;
    /// hold.release(1)?;
    /// assert_eq!(hold.copies(), 2);
    /// assert!(hold.release(5).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`HoldFault`], and nothing has changed, for none, for more than it has, and of a hold that is known
    /// to count no more: it was ended, or is not counted. Drop that.
    pub fn release(&mut self, copies: u32) -> Result<(), HoldFault> {
        self.check(copies)?;
        self.copies -= copies;
        self.tell(copies, self.copies == 0, || NoticeKind::Release { copies });
        Ok(())
    }

    /// Moves so many of its copies to the staging area, where they still count, for `ttl` at most:
    /// whoever brings the id, in whatever process, has them ([`crate::Copies::seize`]). They grow no
    /// younger: where the resource has a `max_age`, they are let go at that age, whatever is left of `ttl`. An
    /// operator may let them go before, by the id.
    ///
    /// The id is had at once, and the transfer itself goes through the log in the background. One that never
    /// gets there, because this process dies before, or more waits for the log than may, stages nothing: whoever
    /// brings the id is told that nobody knows it, and the copies come back with the agent's next list, or as
    /// all that a dead agent held. None is lost, and none is in two hands.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let mut hold = reports.reserve("acme", 3)?;
    /// // Whoever works off the queue has two of them, and ten minutes to take them over.
    /// let id = hold.transfer(2, Duration::from_secs(600))?;
    /// println!("job 17, copies {id}");
    /// assert_eq!(hold.copies(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Hold::release`]; and [`HoldFault::Unrecorded`] of a hold that is not on record, or not any
    /// more because the agent has ended.
    pub fn transfer(&mut self, copies: u32, ttl: Duration) -> Result<TransferId, HoldFault> {
        self.check(copies)?;
        if self.ticket.number == 0 || self.inner.shared.has_ended() {
            return Err(HoldFault::Unrecorded);
        }
        self.copies -= copies;
        let to = self.inner.shared.transfers.draw();
        let ttl = Span::from_std(ttl);
        self.tell(copies, self.copies == 0, || {
            NoticeKind::Seldom(Box::new(RareNotice::Transfer { copies, to, ttl }))
        });
        Ok(to)
    }

    /// Whether so many of its copies can be given away.
    fn check(&self, copies: u32) -> Result<(), HoldFault> {
        let held = self.copies;
        if copies == 0 {
            return Err(HoldFault::NoCopies);
        }
        if held < copies {
            return Err(HoldFault::TooMany {
                asked: copies,
                held,
            });
        }
        match self.inner.shared.struck.why(self.ticket.number) {
            Some(HoldStanding::Ended(by)) => Err(HoldFault::Ended(by)),
            Some(HoldStanding::Uncounted(_, why)) => Err(HoldFault::Uncounted(why)),
            Some(HoldStanding::Confirmed | HoldStanding::Excess(..)) | None => Ok(()),
        }
    }

    /// Waits for the aggregators' verdict on the hold; without end while no aggregator can be heard.
    ///
    /// Copies that are given back or handed over are first those that were too many; once they are gone,
    /// the rest is confirmed. Seized copies are confirmed as well: an excess of theirs was told to the
    /// process that staged them. The exception is an agent that was gone and came back to a limit that was
    /// reached meanwhile. Needs no runtime of any kind.
    ///
    /// ```
    /// use tollgate_agent::{Confirmation, Hold};
    ///
    /// async fn is_too_much(hold: &Hold) -> bool {
    ///     matches!(hold.confirmed().await, Confirmation::Excess { .. })
    /// }
    /// ```
    pub async fn confirmed(&self) -> Confirmation {
        match self.ask(|answer| RareNotice::Confirm { answer }).await {
            None => Confirmation::Unknown,
            Some(HoldStanding::Confirmed) => Confirmation::Confirmed,
            Some(HoldStanding::Excess(copies, scope)) => Confirmation::Excess {
                copies,
                scope: scope.map(FullScope::from),
            },
            Some(HoldStanding::Ended(by)) => Confirmation::Ended(by),
            Some(HoldStanding::Uncounted(_, why)) => Confirmation::Uncounted(why),
        }
    }

    /// Waits until the hold is to be given up; perhaps for ever, and always for a hold that is not on record
    /// or has no copies left. A second call answers again, until the copies that were too many are given
    /// back. [`crate::AgentBuilder::on_hold`] reports the same for all holds.
    ///
    /// ```no_run
    /// # async fn work() {}
    /// # async fn example(hold: tollgate_agent::Hold) {
    /// tokio::select! {
    ///     () = work() => {}
    ///     why = hold.revoked() => println!("ends early: {why:?}"),
    /// }
    /// # }
    /// ```
    pub async fn revoked(&self) -> Revoked {
        if self.ticket.number == 0 || self.copies == 0 {
            return std::future::pending().await;
        }
        match self.ask(|answer| RareNotice::Watch { answer }).await {
            None | Some(HoldStanding::Confirmed) => Revoked::AgentEnded,
            Some(HoldStanding::Excess(copies, scope)) => Revoked::GiveBack {
                copies,
                scope: scope.map(FullScope::from),
            },
            Some(HoldStanding::Ended(by)) => Revoked::Ended(by),
            Some(HoldStanding::Uncounted(_, why)) => Revoked::Uncounted(why),
        }
    }

    async fn ask(
        &self,
        question: impl FnOnce(oneshot::Sender<HoldStanding>) -> RareNotice,
    ) -> Option<HoldStanding> {
        if self.ticket.number == 0 || self.copies == 0 {
            return None;
        }
        let (answer, word) = oneshot::channel();
        self.tell(0, false, || NoticeKind::Seldom(Box::new(question(answer))));
        word.await.ok()
    }

    #[inline]
    fn tell(&self, less: u32, over: bool, what: impl FnOnce() -> NoticeKind) {
        let shared = &self.inner.shared;
        shared
            .desk
            .tell(self.ticket, shared.clock.cached_wall(), less, over, what);
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        let copies = self.copies;
        if copies != 0 {
            self.tell(copies, true, || NoticeKind::Release { copies });
        }
    }
}

/// A hold whose verdict is awaited; dropped before it came, it is cancelled.
pub(super) struct Pending {
    inner: Arc<Inner>,
    ticket: Ticket,
    over: bool,
}

impl Pending {
    pub(super) fn new(inner: Arc<Inner>, ticket: Ticket) -> Self {
        Self {
            inner,
            ticket,
            over: false,
        }
    }

    /// Its copies are granted.
    pub(super) fn granted(mut self, domain: &str, copies: u32) -> Hold {
        self.over = true;
        let inner = Arc::clone(&self.inner);
        inner
            .shared
            .desk
            .sum(&inner.resource, &mut self.ticket, domain, copies);
        Hold::new(inner, self.ticket, copies)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            let shared = &self.inner.shared;
            let at = shared.clock.cached_wall();
            shared
                .desk
                .tell(self.ticket, at, 0, true, || NoticeKind::Cancel);
        }
    }
}
