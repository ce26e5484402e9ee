//! What a partition is about at the moment.
//!
//! ```text
//!             CaughtUp
//! CatchingUp ──────────> Ruling ──> ready once the first own tick has come back
//!     ^  │ a version that is not known yet
//!     │  v
//!     │ Waiting ── the version comes ──> Returning ── Following ──┐
//!     └───────────────────────────────────────────────────────────┘
//! Ruling, CatchingUp ── new limits ──> RulingAgain ── the last slice is done ──> Returning
//! Elsewhere, Restoring: see `assignment`
//! any of them ── an unknown kind that may not be skipped, damage ──> Stopped
//! ```

use tollgate_shared::time::Span;

/// What a partition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another rules it.
    Elsewhere,
    /// It is being restored.
    Restoring {
        /// Which attempt it is; answers to earlier ones are of no use.
        attempt: u64,
        /// It waits for limits that include this version; nothing: for the answer.
        limits: Option<u64>,
    },
    /// It reads what was there when following began.
    CatchingUp,
    /// It rules what comes.
    Ruling,
    /// It has met a pointer to a limits version that is not known yet.
    Waiting {
        /// The version.
        version: u64,
    },
    /// The log does not have the evidence or the totals of so much that it rules on when some are there.
    Recording,
    /// New limits rule the denials in force again, a slice a turn; until then no record is ruled.
    RulingAgain,
    /// It follows again from where it stood; until the log says that this begins, what is delivered is
    /// of the old following.
    Returning,
    /// The log's beginning is gone, no snapshot has what stood there, and another group rules it: a
    /// snapshot of that one is waited for, because what is ruled from the rest alone may be too little.
    Headless {
        /// The first offset that the log has.
        first: u64,
        /// When snapshots are looked at again.
        again: Span,
    },
    /// It cannot go on.
    Stopped {
        /// Why, for people.
        why: String,
    },
}

impl Stage {
    /// The stage as programs know it, and for what it waits, if it does.
    pub fn shown(&self) -> (&'static str, Option<String>) {
        match self {
            Self::Elsewhere => ("elsewhere", None),
            Self::Restoring { .. } => ("restoring", None),
            Self::Headless { .. } => (
                "headless",
                Some("for a snapshot of another group: the log's beginning is gone".to_owned()),
            ),
            Self::CatchingUp | Self::Returning => ("catching_up", None),
            Self::Ruling => ("ruling", None),
            Self::RulingAgain => ("ruling_again", None),
            Self::Waiting { version } => ("waiting", Some(format!("for limits version {version}"))),
            Self::Recording => ("recording", Some("for its evidence and totals".to_owned())),
            Self::Stopped { why } => ("stopped", Some(why.clone())),
        }
    }
}
