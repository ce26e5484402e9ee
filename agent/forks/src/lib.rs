//! What an agent in a process of another language needs of the C library: notices forks, and blocks SIGPIPE.
//!
//! The child of fork(2) has none of the threads of its parent's agent. By the C library each fork is noticed: uWSGI, for
//! one, forks without the interpreter of Python. Knows nothing of agents. What stays true: nothing here changes what the
//! process does with a signal, and no thread but the calling one and those that it starts.

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

/// Blocks SIGPIPE in this thread and those that it starts: a connection that an aggregator has closed would end the
/// host otherwise, unless the host ignores the signal, as programs in Rust do. Writing fails with an error then.
///
/// ```
/// std::thread::spawn(tollgate_forks::block_sigpipe);
/// ```
#[allow(unsafe_code)]
pub fn block_sigpipe() {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the place is for a set, which the function fills.
    if unsafe { libc::sigemptyset(set.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: the set was filled above, and the signal exists.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: the set was filled above; the mask before it is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}
