//! Copies that a request holds, for whoever outlives its response.

use std::fmt;
use std::sync::Arc;

use tollgate_agent::Hold;

/// The copies that a request holds. It stands among the request's extensions: whoever goes on working when the
/// response has been sent (an upgraded connection, a task in the background) keeps a clone, and they are given back
/// when the last clone is gone.
#[derive(Clone)]
pub struct HeldCopies(Arc<Hold>);

impl HeldCopies {
    pub(crate) fn new(hold: Hold) -> Self {
        Self(Arc::new(hold))
    }

    /// How many they are.
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
