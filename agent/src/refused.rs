//! Why a call was not let through: one type for calls about rates and about copies.
//!
//! ```text
//! Denied        a limit is reached                          429, later again
//! TooMany       more than the limits can ever grant         429, fewer at once
//! Misuse        the service's own mistake                   500, fix the service
//! Uncounted     the aggregators would not rule on it        503
//! ```
//!
//! Knows nothing of HTTP except this table. What stays true: a caller's mistake never looks like a limit.

use tollgate_shared::wire::verdict::Why;

use crate::answer::{Cause, Denied};

/// Why a call was not let through. Nothing is counted against a limit, and no copies are held.
///
/// A call that makes no sense is neither granted nor refused, and not recorded. Granting it, be it with 0 copies,
/// would hide a mistake in the service's own arithmetic; a refusal would be counted against a domain that has done
/// nothing. [`Refused::is_caller_error`] tells the two cases apart:
///
/// ```
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # kit.deny("llm.tokens", "acme", std::time::Duration::from_secs(5));
/// let tokens = kit.agent().rate("llm.tokens");
/// let no_copies = tokens.hit_n("globex", 0).unwrap_err();
/// assert!(no_copies.is_caller_error(), "mend the service");
/// let limited = tokens.hit_n("acme", 10).unwrap_err();
/// assert!(!limited.is_caller_error(), "the domain has to wait");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A limit is reached, or the agent is blind and the policy `blind` refuses.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// More at once than the limits can ever grant: trying again does not help.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The call makes no sense.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The aggregators did not rule on the copies.
    #[error("copies are not counted: {0}")]
    Uncounted(Why),
}

impl Refused {
    /// The denial, if a limit or the policy `blind` refused the call.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.full("reports", "acme");
    /// let refused = kit.agent().copies("reports").reserve("acme", 1).unwrap_err();
    /// let denied = refused.denied().expect("a limit is reached");
    /// println!("{}: {denied}", denied.scope());
    /// ```
    pub const fn denied(&self) -> Option<&Denied> {
        match self {
            Self::Denied(denied) => Some(denied),
            Self::TooMany(_) | Self::Misuse(_) | Self::Uncounted(_) => None,
        }
    }

    /// Whether the calling service made a mistake, and no limit is involved: a call that makes no sense, or a hit on
    /// a resource that is limited by copies. Waiting does not help; such calls belong in the service's error log.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// assert!(reports.reserve("acme", 0).unwrap_err().is_caller_error());
    /// ```
    pub const fn is_caller_error(&self) -> bool {
        match self {
            Self::Denied(denied) => matches!(denied.cause(), Cause::NotRate),
            Self::Misuse(_) => true,
            Self::TooMany(_) | Self::Uncounted(_) => false,
        }
    }
}

/// A call wants more copies at once than its limits can ever grant, even if nobody else calls. It is refused at once,
/// and recorded as refused; calls of fewer copies may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more copies than can ever be granted at once: expected at most {most}")]
pub struct TooMany {
    most: u64,
}

impl TooMany {
    pub(crate) const fn new(most: u64) -> Self {
        Self { most }
    }

    /// How many copies can be granted at once.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.most_at_once("llm.tokens", 1_000);
    /// use tollgate_agent::Refused;
    ///
    /// let tokens = kit.agent().rate("llm.tokens");
    /// let refused = tokens.hit_n("acme", 5_000).unwrap_err();
    /// assert!(matches!(refused, Refused::TooMany(too_many) if too_many.most() == 1_000));
    /// ```
    pub const fn most(&self) -> u64 {
        self.most
    }
}

/// A call that makes no sense, whatever is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The call asks for 0 copies.
    #[error("0 copies: expected at least 1")]
    NoCopies,
    /// The minimum is above the maximum.
    #[error("{min} to {max} copies: expected a minimum that is not above the maximum")]
    MinAboveMax {
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// The resource is limited by rate.
    #[error("the resource is limited by rate, not by copies")]
    NotCopies,
    /// Copies of the resource may be used only once the aggregators have granted them: see
    /// [`Copies::reserve_confirmed`](crate::Copies::reserve_confirmed). Returned only once the agent knows the
    /// resource's limits ([`Agent::ready`](crate::Agent::ready)); before that, the agent does not know that the
    /// resource is strict, and [`Copies::reserve`](crate::Copies::reserve) lets the call through.
    #[error("the resource is strict: expected `reserve_confirmed`")]
    Strict,
    /// The resource is not strict: its aggregators send no grant to wait for.
    #[error("the resource is optimistic: expected `reserve`")]
    Optimistic,
}
