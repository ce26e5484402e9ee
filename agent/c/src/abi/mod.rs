//! The functions of `tollgate.h`; the header documents each function and its arguments.
//!
//! The only module with `unsafe`. Each function has one contract: pointers are null, or point to what the header
//! states, for as long as the call lasts. So the library keeps no pointer of the caller, and handles are numbers.
//! What stays true: whatever happens below, a function returns; `guarded` turns a panic into a code.

#![allow(unsafe_code)]

mod memory;

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::answers::{ALLOWED, CallOutcome, NOT_YET};
pub use crate::answers::{TgAnswer, TgCounts};
use crate::faults::{self, CallFault};
use crate::{calls, forks};

/// Increased with each change that breaks existing programs.
const ABI: u32 = 0;

/// The library's version, a static text.
#[unsafe(no_mangle)]
pub extern "C" fn tg_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The number of the ABI: `TG_ABI` of this library's header.
#[unsafe(no_mangle)]
pub extern "C" fn tg_abi() -> u32 {
    ABI
}

/// Writes the text of the thread's last fault. Returns its length.
///
/// # Safety
///
/// `buffer` is null, or has `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_last_error(buffer: *mut c_char, capacity: usize) -> usize {
    let copy = AssertUnwindSafe(|| {
        // SAFETY: the caller's promise, above; the buffer is used until the end of this call.
        let buffer = unsafe { memory::buffer(buffer, capacity) };
        let text = |text: &str| {
            // A text without room is cut, and there is always a NUL.
            let room = buffer.len().saturating_sub(1);
            let part = text.as_bytes().iter().take(room);
            for (place, byte) in buffer.iter_mut().zip(part.chain(&[0])) {
                place.write(*byte);
            }
            text.len()
        };
        faults::last(text).unwrap_or(0)
    });
    catch_unwind(copy).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        0
    })
}

/// Opens an agent.
///
/// # Safety
///
/// `settings` is null or ends with a NUL; `agent` is null or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_open(settings: *const c_char, agent: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("agent", agent) }?;
        place.write(0);
        let settings = match settings.is_null() {
            true => None,
            // SAFETY: not null, so it ends with a NUL, as the caller promises; it is read during this call alone.
            false => Some(unsafe { memory::c_text("settings", settings) }?),
        };
        watch_forks();
        place.write(calls::open(settings)?);
        Ok(ALLOWED)
    })
}

/// Waits until the agent has received watermarks and limits: see [`tollgate_agent::Agent::ready`].
#[unsafe(no_mangle)]
pub extern "C" fn tg_ready(agent: u64, timeout_ms: u32) -> i32 {
    guarded(|| match calls::ready(agent, milliseconds(timeout_ms))? {
        true => Ok(ALLOWED),
        false => Ok(NOT_YET),
    })
}

/// An agent's counters.
///
/// # Safety
///
/// `counts` is null or a place for counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_stats(agent: u64, counts: *mut TgCounts) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("counts", counts) }?;
        place.write(TgCounts::default());
        place.write(calls::counts(agent)?);
        Ok(ALLOWED)
    })
}

/// One of an agent's counters, by its name.
///
/// # Safety
///
/// `name` is null or ends with a NUL; `count` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_count(agent: u64, name: *const c_char, count: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("count", count) }?;
        place.write(0);
        // SAFETY: the caller's promise, above; it is read during this call alone.
        let name = unsafe { memory::c_text("name", name) }?;
        place.write(calls::count(agent, name)?);
        Ok(ALLOWED)
    })
}

/// Sends what was recorded, and ends the agent.
#[unsafe(no_mangle)]
pub extern "C" fn tg_close(agent: u64, timeout_ms: u32) -> i32 {
    guarded(|| match calls::close(agent, milliseconds(timeout_ms))? {
        true => Ok(ALLOWED),
        false => Ok(NOT_YET),
    })
}

/// A resource that is limited by rate.
///
/// # Safety
///
/// `resource` is null or ends with a NUL; `rate` is null or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_rate(agent: u64, resource: *const c_char, rate: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("rate", rate) }?;
        place.write(0);
        // SAFETY: the caller's promise, above; it is read during this call alone.
        let resource = unsafe { memory::c_text("resource", resource) }?;
        place.write(calls::rate(agent, resource)?);
        Ok(ALLOWED)
    })
}

/// A resource that is limited by copies.
///
/// # Safety
///
/// `resource` is null or ends with a NUL; `copies` is null or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_copies(agent: u64, resource: *const c_char, copies: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("copies", copies) }?;
        place.write(0);
        // SAFETY: the caller's promise, above; it is read during this call alone.
        let resource = unsafe { memory::c_text("resource", resource) }?;
        place.write(calls::copies(agent, resource)?);
        Ok(ALLOWED)
    })
}

/// One hit.
///
/// # Safety
///
/// `domain` is null or has `domain_len` bytes; `answer` is null or a place for an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_hit(
    rate: u64,
    domain: *const c_char,
    domain_len: usize,
    answer: *mut TgAnswer,
) -> i32 {
    // SAFETY: the caller's promise, above.
    unsafe {
        answered(answer, domain, domain_len, |domain| {
            calls::hit(rate, domain)
        })
    }
}

/// Several hits, all of them.
///
/// # Safety
///
/// As [`tg_hit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_hit_n(
    rate: u64,
    domain: *const c_char,
    domain_len: usize,
    copies: u32,
    answer: *mut TgAnswer,
) -> i32 {
    let call = |domain: &str| calls::hit_n(rate, domain, copies);
    // SAFETY: the caller's promise, above.
    unsafe { answered(answer, domain, domain_len, call) }
}

/// What a hit would return, without counting it.
///
/// # Safety
///
/// As [`tg_hit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_peek(
    rate: u64,
    domain: *const c_char,
    domain_len: usize,
    answer: *mut TgAnswer,
) -> i32 {
    // SAFETY: the caller's promise, above.
    unsafe {
        answered(answer, domain, domain_len, |domain| {
            calls::peek(rate, domain)
        })
    }
}

/// Records hits that have happened.
///
/// # Safety
///
/// `domain` is null or has `domain_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_record(
    rate: u64,
    domain: *const c_char,
    domain_len: usize,
    copies: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; it is read during this call alone.
        let domain = unsafe { memory::domain(domain, domain_len) }?;
        calls::record(rate, &domain, copies).map(|()| ALLOWED)
    })
}

/// Hits whose cost is known afterwards.
///
/// # Safety
///
/// As [`tg_hit`]; `estimate` is null or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_hit_estimated(
    rate: u64,
    domain: *const c_char,
    domain_len: usize,
    copies: u32,
    estimate: *mut u64,
    answer: *mut TgAnswer,
) -> i32 {
    let call = |domain: &str| calls::hit_estimated(rate, domain, copies);
    // SAFETY: the caller's promise, above.
    unsafe { answered_with("estimate", estimate, answer, domain, domain_len, call) }
}

/// Settles an estimated call by its actual cost.
#[unsafe(no_mangle)]
pub extern "C" fn tg_settle(estimate: u64, copies: u32) -> i32 {
    guarded(|| calls::settle(estimate, copies).map(|()| ALLOWED))
}

/// Takes copies.
///
/// # Safety
///
/// As [`tg_hit`]; `hold` is null or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_reserve(
    copies: u64,
    domain: *const c_char,
    domain_len: usize,
    wanted: u32,
    hold: *mut u64,
    answer: *mut TgAnswer,
) -> i32 {
    let call = |domain: &str| calls::reserve(copies, domain, wanted);
    // SAFETY: the caller's promise, above.
    unsafe { answered_with("hold", hold, answer, domain, domain_len, call) }
}

/// Gives all copies of a hold back.
#[unsafe(no_mangle)]
pub extern "C" fn tg_release(hold: u64) -> i32 {
    guarded(|| calls::release(hold).map(|()| ALLOWED))
}

/// Gives some copies of a hold back.
#[unsafe(no_mangle)]
pub extern "C" fn tg_release_n(hold: u64, copies: u32) -> i32 {
    guarded(|| calls::release_n(hold, copies))
}

/// Whether a hold, or some of its copies, should be given up.
///
/// # Safety
///
/// `copies` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tg_revoked(hold: u64, copies: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise, above; the place is used until the end of this call.
        let place = unsafe { memory::place("copies", copies) }?;
        place.write(0);
        let (code, copies) = calls::revoked(hold)?;
        place.write(copies);
        Ok(code)
    })
}

/// Frees a handle.
#[unsafe(no_mangle)]
pub extern "C" fn tg_free(handle: u64) -> i32 {
    guarded(|| calls::free(handle).map(|()| ALLOWED))
}

/// Runs a call about a domain, and writes its answer.
///
/// # Safety
///
/// As [`tg_hit`].
#[inline]
unsafe fn answered(
    answer: *mut TgAnswer,
    domain: *const c_char,
    domain_len: usize,
    call: impl FnOnce(&str) -> Result<CallOutcome, CallFault>,
) -> i32 {
    let code = guarded(|| {
        // SAFETY: the caller's promise; the answer is used until the end of this closure.
        let answer = unsafe { memory::answer(answer) }?;
        // SAFETY: the caller's promise; it is read during this call alone.
        let domain = unsafe { memory::domain(domain, domain_len) }?;
        let outcome = call(&domain)?;
        if let Some(answer) = answer {
            answer.put(&outcome);
        }
        Ok(outcome.code())
    });
    if code < ALLOWED {
        // SAFETY: the caller's promise; the closure above, which used the answer before, has ended.
        let answer = unsafe { memory::answer(answer) };
        if let Ok(Some(answer)) = answer {
            answer.put_fault(code);
        }
    }
    code
}

/// The same with a place for a handle, which becomes 0 if the call returns no handle, for whatever reason: a handle of
/// an earlier call that stayed there would be freed in place of this one's.
///
/// # Safety
///
/// As [`tg_reserve`].
unsafe fn answered_with(
    what: &'static str,
    place: *mut u64,
    answer: *mut TgAnswer,
    domain: *const c_char,
    domain_len: usize,
    call: impl FnOnce(&str) -> Result<(CallOutcome, u64), CallFault>,
) -> i32 {
    // SAFETY: the caller's promise; the place is used until the end of this statement.
    if let Ok(place) = unsafe { memory::place(what, place) } {
        place.write(0);
    }
    let call = |domain: &str| {
        // SAFETY: the caller's promise; the place is used until the end of this closure, and is not the answer's.
        let place = unsafe { memory::place(what, place) }?;
        let (outcome, handle) = call(domain)?;
        place.write(handle);
        Ok(outcome)
    };
    // SAFETY: the caller's promise.
    unsafe { answered(answer, domain, domain_len, call) }
}

/// Runs a call, and returns a code even if it panics.
#[inline]
fn guarded(call: impl FnOnce() -> Result<i32, CallFault>) -> i32 {
    // A panic leaves the agent usable: its own locks ignore poisoning.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => code,
        Ok(Err(fault)) => fault.remember(),
        Err(payload) => {
            // Dropping the payload may panic again.
            std::mem::forget(payload);
            CallFault::Panicked.remember()
        }
    }
}

const fn milliseconds(timeout_ms: u32) -> Duration {
    Duration::from_millis(timeout_ms as u64)
}

/// Counts forks from now on. The shared library is never unloaded (see build.rs).
fn watch_forks() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        forks::note_fork();
    }
    tollgate_forks::watch(&WATCHING, in_child);
}

#[cfg(test)]
mod tests;
