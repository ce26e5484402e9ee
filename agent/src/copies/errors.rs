//! Errors of operations on a hold, and of a seize.

use tollgate_shared::wire::verdict::{EndedBy, Why};

/// Why an operation on a hold failed. The hold is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldFault {
    /// The call names 0 copies.
    #[error("0 copies: expected at least 1")]
    NoCopies,
    /// The hold has fewer copies.
    #[error("{asked} copies of a hold that has {held}")]
    TooMany {
        /// The copies that the call names.
        asked: u32,
        /// The copies of the hold.
        held: u32,
    },
    /// The hold is not tracked, so its copies cannot be passed on.
    #[error("the hold is not tracked")]
    Unrecorded,
    /// The hold was ended, by its age or an operator: its copies no longer count, and cannot be passed on. All that
    /// remains is to drop it.
    #[error("a hold that was ended {0}: expected one that counts")]
    Ended(EndedBy),
    /// The aggregators do not count the hold, so there is nothing to give back or pass on. All that remains is to
    /// drop it.
    #[error("a hold that is not counted ({0}): expected one that counts")]
    Uncounted(Why),
}

/// Why a seize failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeizeError {
    /// Nothing is staged under the id: it was never staged, it was seized (also by a seize that was given up), its time
    /// is over, an operator released it, or the limits do not name the resource: nothing is kept of it then.
    #[error("nothing is staged under this id")]
    Unknown,
    /// The aggregators did not rule on the seize.
    #[error("not seized: {0}")]
    Refused(Why),
    /// No verdict came in time. Where the aggregators got the seize, it was granted and its copies were given back at
    /// once, so asking again fails with [`SeizeError::Unknown`]: take new copies then.
    #[error("no verdict arrived in time")]
    TimedOut,
    /// The agent has ended, or tracks as many holds as it may.
    #[error("the agent has ended, or tracks as many holds as allowed")]
    NoRoom,
    /// The resource is limited by rate.
    #[error("the resource is limited by rate, not by copies")]
    NotCopies,
}
