//! Copies that a request holds, for work that outlives its response.

use std::fmt;
use std::sync::Arc;

use tollgate_agent::Hold;

/// The copies that a request holds, in the request's extensions. Work that continues after the response (an upgraded
/// connection, a background task) keeps a clone; the copies are given back when the last clone is dropped.
///
/// Behind several layers, these are the copies of all of them.
#[derive(Clone)]
pub struct HeldCopies(Arc<LayerHold>);

/// The copies that one layer holds, and those of the layers around it.
struct LayerHold {
    hold: Hold,
    outer: Option<HeldCopies>,
}

impl HeldCopies {
    pub(crate) fn new(hold: Hold, outer: Option<Self>) -> Self {
        Self(Arc::new(LayerHold { hold, outer }))
    }

    /// How many copies the innermost layer holds.
    pub fn copies(&self) -> u32 {
        self.0.hold.copies()
    }
}

impl fmt::Debug for HeldCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayerHold { hold, outer } = &*self.0;
        write!(f, "HeldCopies({} of {:?}", hold.copies(), hold.resource())?;
        if let Some(outer) = outer {
            write!(f, ", {outer:?}")?;
        }
        f.write_str(")")
    }
}
