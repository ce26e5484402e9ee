//! The testing kit's view of recorded calls.

use crate::answer::Cause;

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The resource.
    pub resource: String,
    /// The domain, by the name under which it was limited.
    pub domain: String,
    /// The stamp, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// The result of the call.
    pub outcome: Outcome,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call was let through.
    Hit {
        /// How many copies were granted.
        copies: u32,
        /// The least number of copies that was useful, if less than all.
        min: Option<u32>,
    },
    /// The call charged a cost that was known only afterwards.
    Charge {
        /// How many copies.
        copies: u32,
    },
    /// The cost was lower than the estimate, and the difference was given back.
    Refund {
        /// The estimate that was charged first.
        estimated: u32,
        /// The actual cost.
        actual: u32,
    },
    /// The call was refused.
    Refused {
        /// How many copies the call asked for.
        copies: u32,
        /// The cause of the refusal.
        cause: Cause,
    },
}
