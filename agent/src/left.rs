//! What a pair near its limit has left, as this process counts it.

use tollgate_shared::time::Span;
use tollgate_shared::wire::statement::Cause;

/// What a pair near its limit has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    pub(crate) limit: u64,
    pub(crate) window: Span,
    /// Until there is more. [`Span::ZERO`]: there may be more already; [`Span::MAX`]: unknown.
    pub(crate) more_in: Span,
    pub(crate) cause: Cause,
}
