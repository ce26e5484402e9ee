//! What the testing kit shows of calls that were recorded.

use crate::answer::Cause;

/// A call that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The resource.
    pub resource: String,
    /// The domain, as it was limited.
    pub domain: String,
    /// The stamp, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was let through.
    Hit {
        /// How many at once.
        copies: u32,
        /// The least that was of use, where that was not all of them.
        min: Option<u32>,
    },
    /// It cost so much, as was known afterwards.
    Charge {
        /// How many copies.
        copies: u32,
    },
    /// It cost less than was estimated, and the difference was taken back.
    Refund {
        /// What was charged at first.
        estimated: u32,
        /// What it cost.
        actual: u32,
    },
    /// It was refused.
    Refused {
        /// How many were asked for.
        copies: u32,
        /// Why.
        cause: Cause,
    },
}
