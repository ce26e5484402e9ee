//! Why a call was not let through: one kind for calls about rates and about copies.
//!
//! ```text
//! Denied        a limit is reached                          429, later again
//! TooMany       more than the limits can ever grant         429, fewer at once
//! Misuse        the service's own mistake                   500, mend the service
//! Uncounted     the aggregators would not rule on it        503
//! ```
//!
//! Knows nothing of HTTP beside that table. What stays true: a caller's mistake never looks like a limit.

use tollgate_shared::wire::verdict::Why;

use crate::answer::{Cause, Denied};

/// Why a call was not let through. Nothing is counted and nothing is held.
///
/// A call that makes no sense is neither granted nor refused, and recorded nowhere: to grant it, be it with 0 copies,
/// would hide a mistake in the service's own sums, and a refusal would be counted against a domain that has done
/// nothing. [`Refused::is_caller_error`] tells the two apart:
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
    /// A limit is reached, or no aggregator is heard and the blind policy refuses.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// More at once than the limits can ever grant: trying again is of no use.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The call makes no sense.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The aggregators would not rule on copies that were asked for.
    #[error("copies are not counted: {0}")]
    Uncounted(Why),
}

impl Refused {
    /// The denial, where a limit or the blind policy refuses.
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

    /// Whether the service that calls made a mistake, and no limit is involved: a call that makes no sense, or a hit on
    /// a resource that is limited by copies. No waiting helps; such calls belong in the service's error log.
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

/// A call wants more copies at once than its limits can ever grant, whoever else calls. It is refused at
/// once, and recorded as refused; calls of fewer copies may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more copies than can ever be granted at once: expected at most {most}")]
pub struct TooMany {
    most: u64,
}

impl TooMany {
    pub(crate) const fn new(most: u64) -> Self {
        Self { most }
    }

    /// How many can be granted at once.
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
