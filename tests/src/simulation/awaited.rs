//! Services that wait for verdicts on copies, and the checks of those verdicts.
//!
//! ```text
//! reserved, number 7 ──> log: granted 7, 2 copies ──> 2 copies in use; no more, and by no other hold's verdict
//!                   └──> log: granted 7, none     ──> refused
//! nothing for 3 s   ──> refused, and not earlier
//! ```
//!
//! Does not know which aggregator rules. What stays true: every verdict that an agent reports is in the log.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollgate_agent::{Cause, Denied, Hold, Refused, SeizeError};
use tollgate_shared::wire::verdict::{HoldStatus, Verdict};

use super::agent_holds::WAIT;
use super::copy_limits::COPIES;
use super::world::World;

/// By how much clocks may differ over the time of a wait, including rounding.
const SLACK_US: u64 = 2_000;

/// One pending wait.
pub(super) struct Awaited {
    resource: usize,
    /// The domain of a strict reserve. `None`: the wait is for a seize.
    domain: Option<usize>,
    asked_us: u64,
    comes: Pin<Box<dyn Future<Output = Result<Hold, NotHad>>>>,
}

/// Why the wait failed.
pub(super) enum NotHad {
    /// For so many copies.
    Reserve(Refused, u32),
    Seize(SeizeError),
}

impl Awaited {
    /// Starts a wait.
    pub(super) fn new(
        resource: usize,
        domain: Option<usize>,
        asked_us: u64,
        comes: impl Future<Output = Result<Hold, NotHad>> + 'static,
    ) -> Self {
        Self {
            resource,
            domain,
            asked_us,
            comes: Box::pin(comes),
        }
    }
}

/// The result of a wait.
struct Came {
    resource: usize,
    domain: Option<usize>,
    asked_us: u64,
    result: Result<Hold, NotHad>,
}

impl World {
    /// Polls the waits of an agent.
    pub(super) fn look_for_awaited(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let Some(process) = host.process.as_ref().filter(|_| host.holding.awaits()) else {
            return;
        };
        process.wake();
        let mut context = Context::from_waker(Waker::noop());
        let mut all_that_came = Vec::new();
        host.holding
            .awaited
            .retain_mut(|one| match one.comes.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    all_that_came.push(Came {
                        resource: one.resource,
                        domain: one.domain,
                        asked_us: one.asked_us,
                        result,
                    });
                    false
                }
            });
        if all_that_came.is_empty() {
            // After its first poll a wait has queued an operation in the hold table.
            return self.schedule_flush(agent);
        }
        host.holding.changed_us = self.now_us;
        for came in all_that_came {
            self.came(agent, came);
        }
        self.schedule_flush(agent);
    }

    fn came(&mut self, agent: usize, came: Came) {
        let (resource, waited_us) = (came.resource, self.now_us - came.asked_us);
        let is_over = WAIT.as_micros() as u64 <= waited_us + SLACK_US;
        match came.result {
            Ok(hold) => self.granted(agent, (resource, came.domain), hold, is_over),
            Err(NotHad::Seize(SeizeError::Unknown)) if is_over => {
                self.watch.cover.see("seize found nothing");
            }
            Err(NotHad::Seize(SeizeError::Refused(_))) => {}
            Err(NotHad::Seize(SeizeError::TimedOut)) if is_over => {}
            Err(NotHad::Reserve(Refused::TooMany(_), wanted)) => {
                self.never_reserved(agent, resource, wanted);
            }
            Err(NotHad::Reserve(Refused::Denied(denied), _)) => {
                self.not_granted(agent, (resource, came.domain), &denied, is_over);
            }
            Err(NotHad::Reserve(Refused::Uncounted(_), _)) => {}
            Err(NotHad::Seize(error)) => {
                let what = format!("agent {agent}, after {waited_us} us: {error}");
                self.violated(7, "calls make sense here", what);
            }
            Err(NotHad::Reserve(error, _)) => {
                let what = format!("agent {agent}, after {waited_us} us: {error}");
                self.violated(7, "calls make sense here", what);
            }
        }
    }

    /// Law 6: the log granted at least this many copies to this very hold. Or denials of the resource are ignored:
    /// then all copies are used, even if the verdict refused them or did not arrive in time.
    fn granted(
        &mut self,
        agent: usize,
        (resource, domain): (usize, Option<usize>),
        hold: Hold,
        is_over: bool,
    ) {
        let (name, epoch) = (COPIES[resource], self.agents[agent].epoch);
        let copies = hold.copies();
        let granted =
            { hold.number() }.and_then(|number| self.log_granted(resource, epoch, number));
        let is_granted = granted.is_some_and(|granted| copies <= granted);
        let is_ignored = domain.is_some() && self.watch.ever_ignored.contains(name);
        if !is_granted && !is_ignored {
            let what = format!(
                "agent {agent} was given {copies} of {name}, number {:?}: the log granted {granted:?}",
                hold.number()
            );
            return self.violated(6, "what is used was granted", what);
        }
        self.watch.cover.see(match (is_granted, is_over) {
            (true, _) => "copies granted before use",
            (false, true) => "strict copies used at the deadline",
            (false, false) => "strict copies used although refused",
        });
        self.uses(agent, (resource, domain), hold);
    }

    /// Law 3, for strict reserves: refused by the deny list at the time of the call, by a verdict in the log, or
    /// because no verdict arrived in time.
    fn not_granted(
        &mut self,
        agent: usize,
        (resource, domain): (usize, Option<usize>),
        denied: &Denied,
        is_over: bool,
    ) {
        if let (Some(_), Some(domain)) = (denied.code(), domain) {
            self.watch
                .cover
                .see("strict copies refused by the deny list");
            return self.refused_copies(agent, resource, domain, denied);
        }
        let host = &mut self.agents[agent];
        let (name, epoch) = (COPIES[resource], host.epoch);
        match denied.cause() {
            Cause::Full => {
                host.holding.not_granted[resource] += 1;
                let reported = host.holding.not_granted[resource];
                let stated = self.log_refused(resource, epoch);
                self.watch.cover.see("copies not granted");
                if stated < reported {
                    let what = format!(
                        "agent {agent} was refused {name} {reported} times, by the log {stated} times"
                    );
                    self.violated(3, "who waits is refused by the log's word", what);
                }
            }
            Cause::Blind if is_over => self
                .watch
                .cover
                .see("strict copies refused at the deadline"),
            other => {
                let what =
                    format!("agent {agent}: {name} refused by {other:?}, before the deadline");
                self.violated(3, "nobody refuses by policy here", what);
            }
        }
    }

    /// All that the log ever stated to an epoch about its holds of a resource.
    fn statuses_of(&self, resource: usize, epoch: u128) -> impl Iterator<Item = &HoldStatus> {
        let all = self.watch.ruled.iter().chain(&self.watch.past);
        let all = all.flat_map(|ruled| ruled.verdicts.values().flatten());
        let is_it = move |one: &&Verdict| one.epoch == epoch && *one.resource == *COPIES[resource];
        all.filter(is_it).filter_map(|one| one.status.as_ref())
    }

    /// The greatest number of copies that the log ever granted to a hold of this number and epoch.
    fn log_granted(&self, resource: usize, epoch: u128, of: u64) -> Option<u32> {
        let all = self.statuses_of(resource, epoch);
        all.filter(|one| one.number == of)
            .map(|one| one.copies)
            .max()
    }

    /// How many reserves of an epoch were granted nothing by the log.
    fn log_refused(&self, resource: usize, epoch: u128) -> u64 {
        let all = self.statuses_of(resource, epoch);
        let refused = all.filter(|one| one.copies == 0 && one.scope.is_some());
        refused
            .map(|one| one.number)
            .collect::<BTreeSet<u64>>()
            .len() as u64
    }
}
