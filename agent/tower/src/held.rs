//! Copies that a request holds, for work that outlives its response.

use std::fmt;
use std::sync::Arc;

use tollgate_agent::Hold;

/// The copies that a request holds, in the request's extensions. Work that continues after the response (an upgraded
/// connection, a background task) keeps a clone; the copies are given back when the last clone is dropped.
#[derive(Clone)]
pub struct HeldCopies(Arc<Hold>);

impl HeldCopies {
    pub(crate) fn new(hold: Hold) -> Self {
        Self(Arc::new(hold))
    }

    /// How many copies these are.
    pub fn copies(&self) -> u32 {
        self.0.copies()
    }
}

impl fmt::Debug for HeldCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "HeldCopies({} of {:?})",
            self.copies(),
            self.0.resource()
        )
    }
}
