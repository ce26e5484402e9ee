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

/// Copies in use. Dropping the hold gives them back: on any thread, without waiting, and never with a panic. A hold
/// may be kept across awaits.
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
    /// The hold counts, and an in-line limiter would have granted it.
    Confirmed,
    /// The hold counts, but some of its copies were too many.
    Excess {
        /// How many were too many.
        copies: u32,
        /// The scope that was full, if known.
        scope: Option<FullScope>,
    },
    /// An operator or the hold's greatest age ended it, now or earlier.
    Ended(EndedBy),
    /// The hold does not count.
    Uncounted(Why),
    /// There will be no verdict: the hold is not tracked, or is over, or the agent has ended.
    Unknown,
}

/// Why the holder should give up a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revoked {
    /// Some of its copies were too many, and the resource asks for them back (`on_excess`).
    GiveBack {
        /// How many were too many.
        copies: u32,
        /// The scope that was full, if known.
        scope: Option<FullScope>,
    },
    /// An operator or the hold's greatest age ended it: copies that are still in use no longer count.
    Ended(EndedBy),
    /// The hold does not count.
    Uncounted(Why),
    /// The agent has ended, and gave back what it held.
    AgentEnded,
}

impl Revoked {
    /// What the holder of a hold with this standing has to know; `None` if it may keep the hold.
    fn of(standing: HoldStanding) -> Option<Self> {
        match standing {
            HoldStanding::Confirmed => None,
            HoldStanding::Excess(copies, scope) => Some(Self::GiveBack {
                copies,
                scope: scope.map(FullScope::from),
            }),
            HoldStanding::Ended(by) => Some(Self::Ended(by)),
            HoldStanding::Uncounted(why) => Some(Self::Uncounted(why)),
        }
    }
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

    /// The hold's copies.
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

    /// The hold's number, which identifies it together with the resource and the agent's name and epoch. `None` if
    /// the hold is not tracked: see [`crate::Stats::holds_unrecorded`].
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

    /// Gives back this many of the hold's copies.
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
    /// [`HoldFault`], for 0 copies, for more than the hold has, and for a hold that is known not to count any more:
    /// it was ended, or is not counted. Nothing has changed then. Drop a hold that does not count.
    pub fn release(&mut self, copies: u32) -> Result<(), HoldFault> {
        self.check(copies)?;
        self.copies -= copies;
        self.note(copies, self.copies == 0, || NoticeKind::Release { copies });
        Ok(())
    }

    /// Moves this many of the hold's copies to the staging area, where they still count, for `ttl` at most. A process
    /// that presents the id to [`crate::Copies::seize`] takes them over. The copies keep their age: if the resource
    /// has a `max_age`, they are released at that age, whatever is left of `ttl`. An operator may release them
    /// earlier, by the id.
    ///
    /// The id is returned at once; the transfer itself goes through the log in the background. If the transfer never
    /// gets there, because this process dies first or too much waits for the log, nothing is staged: a seize of the
    /// id fails with [`SeizeError::Unknown`](crate::SeizeError::Unknown), and the copies are freed by the agent's
    /// next full list, or together with everything that a dead agent held. No copy is lost, and none is held twice.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let mut hold = reports.reserve("acme", 3)?;
    /// // The worker that takes the job gets two of them, and has ten minutes to seize them.
    /// let id = hold.transfer(2, Duration::from_secs(600))?;
    /// println!("job 17, copies {id}");
    /// assert_eq!(hold.copies(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Hold::release`]; and [`HoldFault::Unrecorded`] for a hold that is not tracked, or no longer tracked
    /// because the agent has ended.
    pub fn transfer(&mut self, copies: u32, ttl: Duration) -> Result<TransferId, HoldFault> {
        self.check(copies)?;
        if self.ticket.number == 0 || self.inner.shared.has_ended() {
            return Err(HoldFault::Unrecorded);
        }
        self.copies -= copies;
        let to = self.inner.shared.transfers.draw();
        let ttl = Span::from_std(ttl);
        self.note(copies, self.copies == 0, || {
            NoticeKind::Rare(Box::new(RareNotice::Transfer { copies, to, ttl }))
        });
        Ok(to)
    }

    /// Whether the aggregators are known to have ended the hold, without an act of its holder: it reached the resource's
    /// `max_age`, or an operator ended it. Drop it then. See [`Hold::revoked`] to wait for it.
    ///
    /// ```
    /// # use tollgate_agent::testing::{Ruling, TestAgent};
    /// # let kit = TestAgent::new();
    /// # let reports = kit.agent().copies("reports");
    /// let hold = reports.reserve("acme", 1)?;
    /// assert!(!hold.is_over());
    /// # kit.rule("reports", hold.number().expect("it is tracked"), Ruling::Ended);
    /// // An operator has ended it.
    /// assert!(hold.is_over());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_over(&self) -> bool {
        let standing = self.inner.shared.revoked.why(self.ticket.number);
        matches!(standing, Some(HoldStanding::Ended(_)))
    }

    /// Whether this many of the hold's copies can be given away.
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
        match self.inner.shared.revoked.why(self.ticket.number) {
            Some(HoldStanding::Ended(by)) => Err(HoldFault::Ended(by)),
            Some(HoldStanding::Uncounted(why)) => Err(HoldFault::Uncounted(why)),
            Some(HoldStanding::Confirmed | HoldStanding::Excess(..)) | None => Ok(()),
        }
    }

    /// Waits for the aggregators' verdict on the hold; without end while the agent reaches no aggregator.
    ///
    /// If some copies were too many, those are the first to be given back or transferred; after that the rest is
    /// confirmed. Seized copies are confirmed as well: an excess of theirs was reported to the process that staged
    /// them. The exception is an agent that was gone, and returned when its limit had been reached meanwhile. Needs
    /// no async runtime.
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
            Some(HoldStanding::Uncounted(why)) => Confirmation::Uncounted(why),
        }
    }

    /// Waits until the holder should give up the hold, or some of its copies. That may never happen, and never does for
    /// a hold that is not tracked or has no copies left. A further call returns again, until the copies that were too
    /// many are given back. [`Hold::revoked_now`] does not wait; [`crate::AgentBuilder::on_hold`] reports the same for
    /// all holds.
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
        let standing = self.ask(|answer| RareNotice::Watch { answer }).await;
        standing
            .and_then(Revoked::of)
            .unwrap_or(Revoked::AgentEnded)
    }

    /// What [`Hold::revoked`] waits for, if the agent knows of it now; `None` if the holder may keep the hold. Work that
    /// goes on in steps can ask before each step. Copies that were given back meanwhile no longer count as too many,
    /// from the next call on.
    ///
    /// Never waits. A call reads three numbers in memory while the agent has no hold that was revoked, and none with
    /// copies that were too many; otherwise it takes up to three locks, and no thread waits while it has one of them.
    /// While the agent asks the aggregators whether copies are still too many, as after it was cut off, the answer is
    /// `None`.
    ///
    /// ```
    /// use tollgate_agent::testing::{Ruling, TestAgent};
    /// use tollgate_agent::{Revoked, Scope};
    ///
    /// # let kit = TestAgent::new();
    /// # kit.give_back_excess("reports");
    /// # let reports = kit.agent().copies("reports");
    /// let mut hold = reports.reserve("acme", 3)?;
    /// assert_eq!(hold.revoked_now(), None);
    /// # let number = hold.number().expect("it is tracked");
    /// # kit.rule("reports", number, Ruling::Excess(2, Scope::Pair));
    /// // The limit of the domain was full, and the resource has `on_excess = "give-back"`.
    /// if let Some(Revoked::GiveBack { copies, .. }) = hold.revoked_now() {
    ///     hold.release(copies)?;
    /// }
    /// assert_eq!((hold.copies(), hold.revoked_now()), (1, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoked_now(&self) -> Option<Revoked> {
        if self.ticket.number == 0 || self.copies == 0 {
            return None;
        }
        let shared = &self.inner.shared;
        if let Some(standing) = shared.revoked.why(self.ticket.number) {
            return Revoked::of(standing);
        }
        if shared.has_ended() {
            return Some(Revoked::AgentEnded);
        }
        let excess = &shared.revoked.excess;
        let standing = excess.standing(self.ticket.number, self.copies)?;
        Revoked::of(standing).filter(|_| self.inner.resource.gives_back())
    }

    async fn ask(
        &self,
        question: impl FnOnce(oneshot::Sender<HoldStanding>) -> RareNotice,
    ) -> Option<HoldStanding> {
        if self.ticket.number == 0 || self.copies == 0 {
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        self.note(0, false, || NoticeKind::Rare(Box::new(question(answer))));
        receiver.await.ok()
    }

    #[inline]
    fn note(&self, less: u32, over: bool, what: impl FnOnce() -> NoticeKind) {
        let shared = &self.inner.shared;
        shared
            .hold_table
            .note(self.ticket, shared.clock.cached_wall(), less, over, what);
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        let copies = self.copies;
        if copies != 0 {
            self.note(copies, true, || NoticeKind::Release { copies });
        }
    }
}

/// A hold whose verdict is awaited. Dropping it before the verdict cancels it.
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

    /// The copies are granted.
    pub(super) fn granted(mut self, domain: &str, copies: u32) -> Hold {
        self.over = true;
        let inner = Arc::clone(&self.inner);
        inner
            .shared
            .hold_table
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
                .hold_table
                .note(self.ticket, at, 0, true, || NoticeKind::Cancel);
        }
    }
}
