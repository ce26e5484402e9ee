//! The functions of `tollgate.h` in safe Rust, with arguments that are already read and checked.
//!
//! What stays true: only `ready`, `close` and `open` wait; and a handle of the parent lets calls through after a
//! fork.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_agent::{AgentBuilder, Cause, Copies, Hold, HoldFault, Rate, Refused, Stats};

use crate::answers::{self, ALLOWED, CallOutcome, ENDED, TgCounts, UNCOUNTED};
use crate::faults::CallFault;
use crate::handles::{HandleTable, Handled};
use crate::settings::ParsedSettings;
use crate::targets::{HandleTarget, TargetKind};
use crate::{counters, forks, lines};

static HANDLES: HandleTable<HandleTarget> = HandleTable::new();

/// Opens an agent; without settings, with those of the environment.
pub(crate) fn open(settings: Option<&str>) -> Result<u64, CallFault> {
    let settings = match settings {
        Some(settings) => ParsedSettings::of_text(settings)?,
        None => ParsedSettings::of_environment(AgentBuilder::from_env()?)?,
    };
    if settings.logs {
        lines::print_to_stderr();
    }
    let builder = settings.builder;
    // On a thread of its own: after a fork, the forking thread's random numbers continue in the child as in the
    // parent, so an agent made there would draw the same secret as its siblings.
    let thread = std::thread::Builder::new().spawn(move || {
        tollgate_forks::block_sigpipe();
        builder.build()
    });
    let built = thread.map_err(CallFault::NoThread)?.join();
    let agent = built.map_err(|_| CallFault::Panicked)??;
    keep(TargetKind::Agent(agent))
}

fn keep(kind: TargetKind) -> Result<u64, CallFault> {
    let handle = HANDLES.insert(HandleTarget::new(kind));
    handle.ok_or(CallFault::NoRoom)
}

/// The result of a call on a handle of the wanted kind.
enum Asked<R> {
    Here(R),
    /// The handle belongs to the parent.
    Forked,
}

/// Calls `ask` with a handle's target; `ask` returns `None` if the target is not of the expected kind.
#[inline]
fn ask<R>(
    handle: u64,
    expected: &'static str,
    ask: impl FnOnce(&TargetKind) -> Option<R>,
) -> Result<Asked<R>, CallFault> {
    let asked = HANDLES.with(handle, |target| match target.here() {
        Some(kind) => ask(kind).map(Asked::Here),
        None => target.is(expected).then_some(Asked::Forked),
    });
    asked
        .flatten()
        .ok_or(CallFault::Handle { handle, expected })
}

/// Lets a call through if its handle belongs to the parent.
fn or_forked(asked: Asked<Result<CallOutcome, CallFault>>) -> Result<CallOutcome, CallFault> {
    match asked {
        Asked::Here(outcome) => outcome,
        Asked::Forked => {
            forks::note_call();
            Ok(CallOutcome::Forked)
        }
    }
}

#[inline]
fn on_rate(
    handle: u64,
    call: impl FnOnce(&Rate) -> Result<CallOutcome, CallFault>,
) -> Result<CallOutcome, CallFault> {
    or_forked(ask(handle, TargetKind::RATE, |kind| match kind {
        TargetKind::Rate(rate) => Some(call(rate)),
        _ => None,
    })?)
}

/// A rate handle of an agent.
pub(crate) fn rate(agent: u64, resource: &str) -> Result<u64, CallFault> {
    let asked = ask(agent, TargetKind::AGENT, |kind| match kind {
        TargetKind::Agent(agent) => Some(agent.rate(resource)),
        _ => None,
    })?;
    match asked {
        Asked::Here(rate) => keep(TargetKind::Rate(rate)),
        Asked::Forked => Err(CallFault::Forked),
    }
}

/// A copies handle of an agent.
pub(crate) fn copies(agent: u64, resource: &str) -> Result<u64, CallFault> {
    let asked = ask(agent, TargetKind::AGENT, |kind| match kind {
        TargetKind::Agent(agent) => Some(agent.copies(resource)),
        _ => None,
    })?;
    match asked {
        Asked::Here(copies) => keep(TargetKind::Copies(copies)),
        Asked::Forked => Err(CallFault::Forked),
    }
}

/// One hit.
#[inline]
pub(crate) fn hit(rate: u64, domain: &str) -> Result<CallOutcome, CallFault> {
    on_rate(rate, |rate| match rate.hit(domain) {
        Ok(allowed) => Ok(CallOutcome::Allowed(allowed)),
        Err(denied) => of_hit_error(denied.into()),
    })
}

/// Several hits, all of them.
pub(crate) fn hit_n(rate: u64, domain: &str, copies: u32) -> Result<CallOutcome, CallFault> {
    on_rate(rate, |rate| match rate.hit_n(domain, copies) {
        Ok(allowed) => Ok(CallOutcome::Allowed(allowed)),
        Err(error) => of_hit_error(error),
    })
}

/// What a hit would return, without counting it.
pub(crate) fn peek(rate: u64, domain: &str) -> Result<CallOutcome, CallFault> {
    on_rate(rate, |rate| match rate.peek(domain) {
        Ok(allowed) => Ok(CallOutcome::Allowed(allowed)),
        Err(denied) => of_hit_error(denied.into()),
    })
}

/// Records hits that have happened.
pub(crate) fn record(rate: u64, domain: &str, copies: u32) -> Result<(), CallFault> {
    let asked = ask(rate, TargetKind::RATE, |kind| match kind {
        TargetKind::Rate(rate) => {
            rate.record(domain, copies);
            Some(())
        }
        _ => None,
    })?;
    match asked {
        Asked::Here(()) => Ok(()),
        Asked::Forked => Err(CallFault::Forked),
    }
}

/// Hits by estimate, and the handle to settle them; 0 if there is nothing to settle.
pub(crate) fn hit_estimated(
    rate: u64,
    domain: &str,
    copies: u32,
) -> Result<(CallOutcome, u64), CallFault> {
    let mut estimated = None;
    let outcome = on_rate(rate, |rate| match rate.hit_estimated(domain, copies) {
        Ok(estimate) => {
            let allowed = estimate.allowed();
            estimated = Some(estimate);
            Ok(CallOutcome::Allowed(allowed))
        }
        Err(error) => of_hit_error(error),
    })?;
    let Some(estimate) = estimated else {
        return Ok((outcome, 0));
    };
    match keep(TargetKind::Estimate(Mutex::new(Some(estimate)))) {
        Ok(handle) => Ok((outcome, handle)),
        // The estimate stays charged.
        Err(_) => Ok((CallOutcome::Unheld(copies), 0)),
    }
}

fn of_hit_error(error: Refused) -> Result<CallOutcome, CallFault> {
    match error {
        Refused::Misuse(misuse) => Err(misuse.into()),
        // A mistake of the service, like copies of a rate: nobody is refused for it.
        Refused::Denied(denied) if denied.cause() == Cause::NotRate => Err(CallFault::NotRate),
        refused => Ok(CallOutcome::Hit(refused)),
    }
}

/// Settles an estimate, which ends its handle.
pub(crate) fn settle(estimate: u64, copies: u32) -> Result<(), CallFault> {
    if estimate == 0 {
        return Ok(());
    }
    let target = take(estimate, TargetKind::ESTIMATE)?;
    if let Some(TargetKind::Estimate(cell)) = target.value().here() {
        let estimate = cell.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(estimate) = estimate {
            estimate.settle(copies)?;
        }
    }
    Ok(())
}

/// Takes a handle of the expected kind back. [`CallFault::Forked`] if it belonged to the parent; it is freed here.
fn take(handle: u64, expected: &'static str) -> Result<Arc<Handled<HandleTarget>>, CallFault> {
    let asked = ask(handle, expected, |kind| kind.is(expected).then_some(()))?;
    // Another call may have been faster: a handle is freed once.
    let target = HANDLES.remove(handle);
    let target = target.ok_or(CallFault::Handle { handle, expected })?;
    match asked {
        Asked::Here(()) => Ok(target),
        Asked::Forked => Err(CallFault::Forked),
    }
}

/// Takes copies; the hold's handle is 0 if there is nothing to give back.
pub(crate) fn reserve(
    copies: u64,
    domain: &str,
    wanted: u32,
) -> Result<(CallOutcome, u64), CallFault> {
    let asked = ask(copies, TargetKind::COPIES, |kind| match kind {
        TargetKind::Copies(copies) => Some(reserve_of(copies, domain, wanted)),
        _ => None,
    })?;
    match asked {
        Asked::Here(outcome) => outcome,
        Asked::Forked => {
            forks::note_call();
            Ok((CallOutcome::Forked, 0))
        }
    }
}

fn reserve_of(copies: &Copies, domain: &str, wanted: u32) -> Result<(CallOutcome, u64), CallFault> {
    match copies.reserve(domain, wanted) {
        Ok(hold) => {
            let (held, blind) = (hold.copies(), copies.blind());
            let recorded = hold.number().is_some();
            // Without a handle the hold is given back at once, and the call goes on uncounted.
            match keep(TargetKind::Hold(Mutex::new(Some(hold)))) {
                Ok(handle) => {
                    let outcome = CallOutcome::Held {
                        copies: held,
                        blind,
                        recorded,
                    };
                    Ok((outcome, handle))
                }
                Err(_) => Ok((CallOutcome::Unheld(held), 0)),
            }
        }
        Err(Refused::Misuse(misuse)) => Err(misuse.into()),
        Err(refused) => Ok((CallOutcome::Reserve(refused), 0)),
    }
}

/// Gives a hold's copies back, and frees its handle.
pub(crate) fn release(hold: u64) -> Result<(), CallFault> {
    if hold == 0 {
        return Ok(());
    }
    let target = take(hold, TargetKind::HOLD)?;
    if let Some(TargetKind::Hold(cell)) = target.value().here() {
        drop(cell.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
    Ok(())
}

/// Gives some of a hold's copies back. Returns [`ALLOWED`], or why the hold does not count any more.
pub(crate) fn release_n(hold: u64, copies: u32) -> Result<i32, CallFault> {
    if hold == 0 {
        return Ok(ALLOWED);
    }
    match on_hold(hold, |hold| hold.release(copies))? {
        Ok(()) => Ok(ALLOWED),
        Err(HoldFault::Ended(_)) => Ok(ENDED),
        Err(HoldFault::Uncounted(_)) => Ok(UNCOUNTED),
        Err(fault) => Err(CallFault::Release(fault)),
    }
}

/// Why a hold's holder should give up how many of its copies; [`ALLOWED`] and 0 if it may keep them.
pub(crate) fn revoked(hold: u64) -> Result<(i32, u32), CallFault> {
    match hold {
        0 => Ok((ALLOWED, 0)),
        _ => on_hold(hold, |hold| answers::of_hold(hold)),
    }
}

fn on_hold<R>(handle: u64, call: impl FnOnce(&mut Hold) -> R) -> Result<R, CallFault> {
    let asked = ask(handle, TargetKind::HOLD, |kind| match kind {
        // Empty if another thread has just given it back.
        TargetKind::Hold(cell) => {
            let mut hold = cell.lock().unwrap_or_else(PoisonError::into_inner);
            hold.as_mut().map(call)
        }
        _ => None,
    })?;
    match asked {
        Asked::Here(result) => Ok(result),
        Asked::Forked => Err(CallFault::Forked),
    }
}

/// Frees any handle except an agent's.
pub(crate) fn free(handle: u64) -> Result<(), CallFault> {
    if handle == 0 {
        return Ok(());
    }
    match take(handle, TargetKind::FREED) {
        Ok(_) | Err(CallFault::Forked) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Waits until the agent is ready. Returns whether it is.
pub(crate) fn ready(agent: u64, timeout: Duration) -> Result<bool, CallFault> {
    match agent_of(agent)? {
        Asked::Here(agent) => block_on(agent.ready(timeout)),
        Asked::Forked => Err(CallFault::Forked),
    }
}

fn agent_of(handle: u64) -> Result<Asked<tollgate_agent::Agent>, CallFault> {
    ask(handle, TargetKind::AGENT, |kind| match kind {
        TargetKind::Agent(agent) => Some(agent.clone()),
        _ => None,
    })
}

/// An agent's counters.
pub(crate) fn counts(agent: u64) -> Result<TgCounts, CallFault> {
    let of_process = TgCounts {
        calls_forked: forks::calls_forked(),
        handles_live: HANDLES.live(),
        ..TgCounts::default()
    };
    let Asked::Here(agent) = agent_of(agent)? else {
        return Ok(of_process);
    };
    let stats = agent.stats();
    let blind = stats.blind_for.map(|blind| blind.as_millis().max(1));
    Ok(TgCounts {
        hits_accepted: stats.hits_accepted,
        hits_dropped: stats.hits_dropped(),
        hits_acknowledged: stats.hits_acknowledged,
        refused_accepted: stats.refused_accepted,
        denials_live: stats.denials_live,
        holds_live: stats.holds_live,
        blind_for_ms: blind.map_or(0, |blind| u64::try_from(blind).unwrap_or(u64::MAX)),
        ..of_process
    })
}

/// One of an agent's counters, by its name.
pub(crate) fn count(agent: u64, name: &str) -> Result<u64, CallFault> {
    let of = counters::named(name).ok_or_else(|| {
        let name = name.to_owned();
        CallFault::Counter { name }
    })?;
    match agent_of(agent)? {
        Asked::Here(agent) => Ok(of(&agent.stats())),
        Asked::Forked => Ok(of(&Stats::default())),
    }
}

/// Sends what was recorded, within the given time, and ends the agent and its handle. Returns whether all calls that
/// were let through have been sent.
pub(crate) fn close(handle: u64, timeout: Duration) -> Result<bool, CallFault> {
    let agent = agent_of(handle)?;
    match (take(handle, TargetKind::AGENT), agent) {
        (Ok(_), Asked::Here(agent)) => {
            let dropped = agent.stats().hits_dropped();
            let flushed = block_on(agent.shutdown(timeout))?;
            Ok(flushed.dropped <= dropped)
        }
        // The agent continues in the parent.
        (Ok(_) | Err(CallFault::Forked), _) => Ok(true),
        (Err(fault), _) => Err(fault),
    }
}

fn block_on<F: Future>(future: F) -> Result<F::Output, CallFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    Ok(runtime.map_err(CallFault::NoThread)?.block_on(future))
}
