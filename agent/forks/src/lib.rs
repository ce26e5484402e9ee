//! Notices forks: the child of fork(2) has none of the threads of its parent's agent.
//!
//! By the C library, so that each fork is noticed: uWSGI, for one, forks without the interpreter of Python. Knows nothing of
//! agents.

use std::sync::atomic::{AtomicBool, Ordering};

/// Calls `act` in the child of each fork from now on.
///
/// It may only do what is allowed after a fork, like changing atomics: another thread may have held any lock. It has to
/// stay in memory. Two threads that watch at once may both register it: then it is called twice, and a lock here, which
/// would prevent that, could stay locked for ever in a child.
///
/// ```
/// use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
///
/// static WATCHING: AtomicBool = AtomicBool::new(false);
/// static FORKS: AtomicU64 = AtomicU64::new(0);
/// extern "C" fn note_fork() {
///     FORKS.fetch_add(1, Ordering::Relaxed);
/// }
/// tollgate_forks::watch(&WATCHING, note_fork);
/// assert!(WATCHING.load(Ordering::Relaxed));
/// ```
pub fn watch(watching: &AtomicBool, act: extern "C" fn()) {
    if !watching.load(Ordering::Acquire) {
        watching.store(in_each_child(act), Ordering::Release);
    }
}

#[allow(unsafe_code)]
fn in_each_child(act: extern "C" fn()) -> bool {
    // SAFETY: the function takes nothing and can be called at any time, as every safe function. If a library that has
    // it is unloaded, glibc removes it from the list.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(act)) };
    failed == 0
}
