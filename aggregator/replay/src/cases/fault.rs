//! Why a line of test vectors is not a case: the fault type of all kinds of cases.

/// Why a line is not a case.
#[derive(Debug, thiserror::Error)]
pub enum CaseFault {
    /// It is not JSON, or lacks the shape of a case.
    #[error("not a case: {0}")]
    Shape(#[from] serde_json::Error),
    /// A part of it has the wrong shape.
    #[error("not a case: {place}: {fault}")]
    Part {
        /// Which part.
        place: String,
        /// What is wrong with it.
        fault: serde_json::Error,
    },
    /// An op takes copies in the way of another mode.
    #[error("ops[{index}]: op {found:?} in a case of mode {expected:?}: expected {expected:?}")]
    Op {
        /// The op's index.
        index: usize,
        /// The op found.
        found: &'static str,
        /// The op that cases of this mode have.
        expected: &'static str,
    },
    /// Its mode is not among those played here.
    #[error("mode {found:?}, expected \"stream2\", \"reserve\", \"hold\", \"rate\" or none")]
    Mode {
        /// The mode found.
        found: String,
    },
}
