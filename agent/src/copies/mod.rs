//! Copies: how many at a time.
//!
//! ```text
//! reserve, drop ──> desk ── words ──> keeper of holdings ── operations, beats ──> courier
//!                                              ^── verdicts ── listener
//! ```
//!
//! A call decides at once, from the deny list and from what this process itself holds; what it took is
//! counted by the aggregators afterwards, and given back even when the process dies, because an agent
//! that is silent holds nothing. Knows nothing of rates.

mod blind;
mod desk;
mod errors;
mod handle;
mod hold;
mod holdings;
mod many;
mod news;
mod strict;
mod struck;
mod told;
mod until;

pub(crate) use desk::{Desk, HOLDS_MAX};
pub use errors::{HoldFault, SeizeError};
pub use handle::Copies;
pub use hold::{Confirmation, Hold, Revoked};
pub(crate) use holdings::{BeatCargo, HoldsCargo, Keeper, Origin};
pub use many::Together;
pub(crate) use many::take_together;
pub(crate) use news::OnHold;
pub use news::{FullScope, HoldChange, HoldNews};
pub(crate) use struck::Struck;
pub(crate) use told::Told;
