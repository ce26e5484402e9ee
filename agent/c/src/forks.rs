//! Counts the forks between this process and the first one, and calls since. A child has none of the threads of an agent
//! that its parent opened.
//!
//! Knows nothing of how a fork is noticed. What stays true: the number changes in the child alone.

use std::sync::atomic::{AtomicU64, Ordering};

/// Incremented in the child of each fork.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Calls on handles of a parent, let through without a decision.
static CALLS_FORKED: AtomicU64 = AtomicU64::new(0);

/// Calls that returned a negative code.
static CALLS_FAILED: AtomicU64 = AtomicU64::new(0);

/// The number of this process.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Called in the child of a fork. It only changes three atomics, since a fork handler may do little else.
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    CALLS_FORKED.store(0, Ordering::Relaxed);
    CALLS_FAILED.store(0, Ordering::Relaxed);
}

/// Counts a call on a handle of the parent.
pub(crate) fn note_call() {
    CALLS_FORKED.fetch_add(1, Ordering::Relaxed);
}

/// Calls that were counted by [`note_call`].
pub(crate) fn calls_forked() -> u64 {
    CALLS_FORKED.load(Ordering::Relaxed)
}

/// Counts a call that returned a negative code.
pub(crate) fn note_failed() {
    CALLS_FAILED.fetch_add(1, Ordering::Relaxed);
}

/// Calls that were counted by [`note_failed`].
pub(crate) fn calls_failed() -> u64 {
    CALLS_FAILED.load(Ordering::Relaxed)
}
