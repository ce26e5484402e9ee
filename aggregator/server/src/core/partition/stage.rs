//! What a partition is doing at the moment.
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

/// What a partition is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another aggregator rules it.
    Elsewhere,
    /// It is being restored.
    Restoring {
        /// The number of the attempt; answers to earlier attempts are ignored.
        attempt: u64,
        /// It waits for limits that include this version; `None`: for the answer.
        limits: Option<u64>,
    },
    /// It reads the records that existed when following began.
    CatchingUp,
    /// It rules new records.
    Ruling,
    /// It has met an activation of a limits version that is not known yet.
    Waiting {
        /// The version.
        version: u64,
    },
    /// Too many decision records or totals are on their way to the log; it rules on when some have arrived.
    Recording,
    /// New limits rule the denials in force again, one slice per turn; until that is done, no record is ruled.
    RulingAgain,
    /// It follows the log again from where it stood; until the log reports that this begins, delivered records
    /// belong to the previous following.
    Returning,
    /// The log's beginning is gone, no snapshot covers it, and another group rules the partition: it waits for a
    /// snapshot of that group, because the remaining records alone may lack hits.
    Truncated {
        /// The first offset that the log has.
        first: u64,
        /// When to look for snapshots again.
        again: Span,
    },
    /// It cannot go on.
    Stopped {
        /// Why, for people.
        why: String,
    },
}

impl Stage {
    /// The stage's name for programs, and what it waits for, if it does.
    pub fn shown(&self) -> (&'static str, Option<String>) {
        match self {
            Self::Elsewhere => ("elsewhere", None),
            Self::Restoring { .. } => ("restoring", None),
            Self::Truncated { .. } => (
                "headless",
                Some("for a snapshot of another group: the log's beginning was removed".to_owned()),
            ),
            Self::CatchingUp | Self::Returning => ("catching_up", None),
            Self::Ruling => ("ruling", None),
            Self::RulingAgain => ("ruling_again", None),
            Self::Waiting { version } => ("waiting", Some(format!("for limits version {version}"))),
            Self::Recording => (
                "recording",
                Some("for its decision records and totals".to_owned()),
            ),
            Self::Stopped { why } => ("stopped", Some(why.clone())),
        }
    }
}
