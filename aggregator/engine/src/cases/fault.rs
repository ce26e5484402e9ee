//! Why a line of test vectors is no case: the one fault that all kinds of cases share.

/// Why a line is no case.
#[derive(Debug, thiserror::Error)]
pub enum CaseFault {
    /// It is not JSON, or not of a case's shape.
    #[error("not a case: {0}")]
    Shape(#[from] serde_json::Error),
    /// Its mode is none of those played here.
    #[error("mode {found:?}, expected \"stream\", \"reserve\", \"hold\", \"rate\" or none")]
    Mode {
        /// The mode found.
        found: String,
    },
}
