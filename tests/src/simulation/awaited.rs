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

/// What a service waits for.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) resource: usize,
    /// The domain of a strict reserve. `None`: the wait is for a seize.
    pub(super) domain: Option<usize>,
    pub(super) asked_us: u64,
}

/// One pending wait.
pub(super) struct Awaited {
    wait: Wait,
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
        wait: Wait,
        comes: impl Future<Output = Result<Hold, NotHad>> + 'static,
    ) -> Self {
        let comes = Box::pin(comes);
        Self { wait, comes }
    }
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
        let awaited = &mut host.holding.awaited;
        awaited.retain_mut(|one| match one.comes.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                all_that_came.push((one.wait, result));
                false
            }
        });
        if all_that_came.is_empty() {
            // After its first poll a wait has queued an operation in the hold table.
            return self.schedule_flush(agent);
        }
        host.holding.changed_us = self.now_us;
        for (wait, result) in all_that_came {
            self.came(agent, wait, result);
        }
        self.schedule_flush(agent);
    }

    fn came(&mut self, agent: usize, wait: Wait, result: Result<Hold, NotHad>) {
        let (resource, waited_us) = (wait.resource, self.now_us - wait.asked_us);
        let is_over = WAIT.as_micros() as u64 <= waited_us + SLACK_US;
        let error = match result {
            Ok(hold) => return self.granted(agent, (resource, wait.domain), hold, is_over),
            Err(NotHad::Seize(SeizeError::Unknown)) if is_over => {
                return self.see("seize found nothing");
            }
            Err(NotHad::Seize(SeizeError::Refused(_)))
            | Err(NotHad::Reserve(Refused::Uncounted(_), _)) => return,
            Err(NotHad::Seize(SeizeError::TimedOut)) if is_over => return,
            Err(NotHad::Reserve(Refused::TooMany(_), wanted)) => {
                return self.never_reserved(agent, resource, wanted);
            }
            Err(NotHad::Reserve(Refused::Denied(denied), _)) => {
                return self.not_granted(agent, (resource, wait.domain), &denied, is_over);
            }
            Err(NotHad::Seize(error)) => error.to_string(),
            Err(NotHad::Reserve(error, _)) => error.to_string(),
        };
        let what = format!("agent {agent}, after {waited_us} us: {error}");
        self.violated(7, "calls make sense here", what);
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
        let is_ignored = domain.is_some() && self.watch.may_use_without_grant(name);
        if !is_granted && !is_ignored {
            let what = format!(
                "agent {agent} was given {copies} of {name}, number {:?}: the log granted {granted:?}",
                hold.number()
            );
            return self.violated(6, "what is used was granted", what);
        }
        self.see(match (is_granted, is_over) {
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
            self.see("strict copies refused by the deny list");
            return self.refused_copies(agent, resource, domain, denied);
        }
        let host = &mut self.agents[agent];
        let (name, epoch) = (COPIES[resource], host.epoch);
        match denied.cause() {
            Cause::Full => {
                host.holding.not_granted[resource] += 1;
                let reported = host.holding.not_granted[resource];
                let stated = self.log_refused(resource, epoch);
                self.see("copies not granted");
                if stated < reported {
                    let what = format!(
                        "agent {agent} was refused {name} {reported} times, by the log {stated} times"
                    );
                    self.violated(3, "who waits is refused by the log's word", what);
                }
            }
            Cause::Blind if is_over => self.see("strict copies refused at the deadline"),
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
