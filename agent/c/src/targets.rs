//! What a handle stands for, and whether this process is the one that opened it.
//!
//! What stays true: in the child of a fork nothing of the parent's agent is used, or ended.

use std::sync::Mutex;

use tollgate_agent::{Agent, Copies, Estimate, Hold, Rate};

use crate::forks::forks;

/// What can be opened.
pub(crate) enum TargetKind {
    Agent(Agent),
    Rate(Rate),
    Copies(Copies),
    /// Empty once it was given back. The lock is for Rust alone: whoever has taken the handle back is its only user.
    Hold(Mutex<Option<Hold>>),
    /// Empty once it was settled.
    Estimate(Mutex<Option<Estimate>>),
}

impl TargetKind {
    /// In words, for faults.
    pub(crate) const AGENT: &'static str = "an agent";
    pub(crate) const RATE: &'static str = "a rate";
    pub(crate) const COPIES: &'static str = "copies";
    pub(crate) const HOLD: &'static str = "a hold";
    pub(crate) const ESTIMATE: &'static str = "an estimate";
}

/// What a handle stands for.
pub(crate) struct HandleTarget {
    forks: u64,
    /// `None` only while it is dropped.
    kind: Option<TargetKind>,
}

impl HandleTarget {
    pub(crate) fn new(kind: TargetKind) -> Self {
        Self {
            forks: forks(),
            kind: Some(kind),
        }
    }

    /// `None`: it is the parent's.
    #[inline]
    pub(crate) fn here(&self) -> Option<&TargetKind> {
        match self.forks == forks() {
            true => self.kind.as_ref(),
            false => None,
        }
    }
}

impl Drop for HandleTarget {
    fn drop(&mut self) {
        if self.forks != forks() {
            // Its threads are not here to end it, and what it holds is the parent's to give back.
            std::mem::forget(self.kind.take());
        }
    }
}
