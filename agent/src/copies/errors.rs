//! Why nothing was done with a hold, or seized.

use tollgate_shared::wire::verdict::{EndedBy, Why};

/// Why nothing was done with a hold. It is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldFault {
    /// No copies were named.
    #[error("0 copies: expected at least 1")]
    NoCopies,
    /// The hold has fewer.
    #[error("{asked} copies of a hold that has {held}")]
    TooMany {
        /// So many were named.
        asked: u32,
        /// So many it has.
        held: u32,
    },
    /// The hold is not on record, so that nobody else can have its copies.
    #[error("the hold is not on record")]
    Unrecorded,
    /// The hold was ended, by its age or an operator: its copies count no more, and nobody else can have
    /// them. Dropping it is all that is left to do.
    #[error("a hold that was ended {0}: expected one that counts")]
    Ended(EndedBy),
    /// The aggregators do not count the hold, so that there is nothing to give back or to pass on but by
    /// dropping it.
    #[error("a hold that is not counted ({0}): expected one that counts")]
    Uncounted(Why),
}

/// Why nothing was seized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeizeError {
    /// Nothing is staged under the id: it never was, was seized, its time is over, or an operator let it go.
    #[error("nothing is staged under this id")]
    Unknown,
    /// The aggregators would not rule on it.
    #[error("not seized: {0}")]
    Refused(Why),
    /// No verdict came in time.
    #[error("no verdict came in time")]
    TimedOut,
    /// The agent has ended, or has as many holds on record as may be.
    #[error("the agent takes no holds")]
    NoRoom,
    /// The resource is limited by rate.
    #[error("the resource is limited by rate, not by copies")]
    NotCopies,
}
