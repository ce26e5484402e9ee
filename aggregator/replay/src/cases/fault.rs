//! Why a line of test vectors is no case: the one fault that all kinds of cases share.

/// Why a line is no case.
#[derive(Debug, thiserror::Error)]
pub enum CaseFault {
    /// It is not JSON, or not of a case's shape.
    #[error("not a case: {0}")]
    Shape(#[from] serde_json::Error),
    /// A part of it is not of its shape.
    #[error("not a case: {place}: {fault}")]
    Part {
        /// Which part.
        place: String,
        /// What is wrong with it.
        fault: serde_json::Error,
    },
    /// Copies are taken in the way of another mode.
    #[error("ops[{index}]: op {found:?} in a case of mode {expected:?}: expected {expected:?}")]
    Op {
        /// Which op, from 0.
        index: usize,
        /// The op found.
        found: &'static str,
        /// The one that cases of this mode have.
        expected: &'static str,
    },
    /// Its mode is none of those played here.
    #[error("mode {found:?}, expected \"stream2\", \"reserve\", \"hold\", \"rate\" or none")]
    Mode {
        /// The mode found.
        found: String,
    },
}
