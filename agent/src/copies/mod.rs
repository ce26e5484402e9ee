//! Copies: how many at a time.
//!
//! ```text
//! reserve ──> deny list, own holds ──> Hold ── drop ──> given back
//! ```
//!
//! A call decides at once, from the deny list and from what this process itself holds. The aggregators count what it
//! took afterwards, and free it even if the process dies, because a silent agent holds nothing. `holds` tracks holds
//! and reports them. Knows nothing of rates.

mod blind;
mod errors;
mod handle;
mod hold;
mod many;
mod strict;
mod too_many;
mod until;

pub use errors::{HoldFault, SeizeError};
pub use handle::Copies;
pub use hold::{Confirmation, Hold, Revoked};
pub use many::Together;
pub(crate) use many::take_together;
