//! The target of a handle, and whether this process is the one that opened it.
//!
//! What stays true: the child of a fork neither uses nor ends anything of its parent's agent.

use std::sync::Mutex;

use tollgate_agent::{Agent, Copies, Estimate, Hold, Rate};

use crate::forks::forks;

/// The kinds of targets.
pub(crate) enum TargetKind {
    Agent(Agent),
    Rate(Rate),
    Copies(Copies),
    /// Empty once it was given back. The lock is for threads that share the hold; after a fork the child never takes it,
    /// since a thread of the parent may have had it.
    Hold(Mutex<Option<Hold>>),
    /// Empty once it was settled. The lock only satisfies Rust: the thread that has taken the handle back is its only
    /// user.
    Estimate(Mutex<Option<Estimate>>),
}

impl TargetKind {
    /// The kinds' names, for faults.
    pub(crate) const AGENT: &'static str = "an agent";
    pub(crate) const RATE: &'static str = "a rate";
    pub(crate) const COPIES: &'static str = "copies";
    pub(crate) const HOLD: &'static str = "a hold";
    pub(crate) const ESTIMATE: &'static str = "an estimate";
    /// Every kind that `tg_free` takes.
    pub(crate) const FREED: &'static str = "a rate, copies, a hold or an estimate";

    /// Whether this is what a fault calls `expected`.
    pub(crate) fn is(&self, expected: &'static str) -> bool {
        let name = match self {
            Self::Agent(_) => return expected == Self::AGENT,
            Self::Rate(_) => Self::RATE,
            Self::Copies(_) => Self::COPIES,
            Self::Hold(_) => Self::HOLD,
            Self::Estimate(_) => Self::ESTIMATE,
        };
        [name, Self::FREED].contains(&expected)
    }
}

/// The target of a handle.
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

    /// Whether it is of this kind. Also true of a handle of this process's parent: only the kind is looked at.
    pub(crate) fn is(&self, expected: &'static str) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.is(expected))
    }

    /// `None` if the handle belongs to the parent.
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
            // Its threads do not exist here, and its copies are the parent's to give back.
            std::mem::forget(self.kind.take());
        }
    }
}
