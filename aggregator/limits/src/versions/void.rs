//! Why a push does not become a version.

/// Why a push is void.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// Another version was in force.
    #[error("it expected version {expected}, and {found} is in force")]
    Conflict {
        /// The version that the pusher expected to be in force.
        expected: u64,
        /// The version in force.
        found: u64,
    },
    /// The text cannot be read.
    #[error("its document has faults: {0}")]
    Faults(String),
    /// The text is of a later format or rule set. Other builds rule by it, so it is no void push.
    #[error("its document needs a later build: {0}")]
    Newer(String),
    /// It makes a change that is not possible.
    #[error("its change is not possible: {0}")]
    Change(String),
    /// There is no document to amend.
    #[error("there are no limits yet that it could change")]
    Nothing,
    /// It would have number 0.
    #[error("offset 0 is not a version")]
    Zero,
}
