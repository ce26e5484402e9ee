//! A layer's decision on a request, for any library that serves it.

use tollgate_agent::Headers;

use crate::answer::LayerRefusal;
use crate::head::Head;
use crate::held::HeldCopies;

/// A layer's decision.
pub(crate) enum LayerDecision {
    /// The response gets these headers, and its body holds these copies.
    LetThrough {
        headers: Option<Headers>,
        held: Option<HeldCopies>,
    },
    /// The service is not called.
    Refused(LayerRefusal),
}

/// A layer, as services use it.
pub(crate) trait DecidingLayer {
    /// Decides, and records what it decided.
    fn decide(&self, head: Head<'_>) -> LayerDecision;
}
