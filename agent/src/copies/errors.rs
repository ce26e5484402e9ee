//! What calls about copies can be told, beside being let through.

use tollgate_shared::time::Span;
use tollgate_shared::wire::verdict::{EndedBy, Why};

use crate::answer::{Cause, Denied};

/// Why copies were not reserved. Nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// A limit is reached, or nobody is heard and the blind policy says so.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The call makes no sense.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The aggregators would not rule on it.
    #[error("copies are not counted: {0}")]
    Uncounted(Why),
}

/// A call that makes no sense, whatever is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// No copies were asked for.
    #[error("0 copies: expected at least 1")]
    NoCopies,
    /// The least is above the most.
    #[error("{min} to {max} copies: expected the least not to be above the most")]
    MinAboveMax {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The resource is limited by rate.
    #[error("the resource is limited by rate, not by copies")]
    NotCopies,
    /// Copies of the resource are used only once they are granted: see
    /// [`Copies::reserve_confirmed`](crate::Copies::reserve_confirmed). Told once the resource has been
    /// joined ([`Agent::ready`](crate::Agent::ready)); before, nobody here knows that it is strict, and
    /// [`Copies::reserve`](crate::Copies::reserve) lets through.
    #[error("the resource is strict: its copies are had by `reserve_confirmed`")]
    Strict,
    /// The resource is not strict: nobody would wait with the copies.
    #[error("the resource is optimistic: its copies are had by `reserve`")]
    Optimistic,
}

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

impl From<ReserveError> for Denied {
    /// For handlers that answer with [`Denied`]: what is not a denial is told as one of a resource
    /// that is not configured for the call, which does not end by itself.
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Denied(denied) => denied,
            ReserveError::Misuse(_) | ReserveError::Uncounted(_) => {
                Self::by_policy(Cause::Unconfigured, Span::MAX)
            }
        }
    }
}
