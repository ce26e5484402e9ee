//! The storage of pairs: ten million of them at some forty bytes each, without a long pause.
//!
//! ```text
//! names ── identity ──> index ──> handle ──> arena: a block of 32 to 128 bytes
//!                                              └── large: a state that outgrew blocks
//! alive    how many pairs there are, and a digest of them, by the half second in which they are evicted
//! ```
//!
//! A pair is found by a 128-bit keyed hash of its names; the names themselves are not kept. Knows
//! nothing of limits or records. What stays true: nothing here is ever rebuilt as a whole (segments
//! of the index split one by one, chunks of the arena are added), and no order of storage is
//! visible outside.

mod alive;
mod arena;
mod codec;
mod identity;
mod index;
mod large;
mod table;

pub(crate) use alive::{Rest, slot_of};
pub(crate) use codec::Stored;
pub(crate) use identity::{Identities, Identity, Prefix, mix};
pub(crate) use table::{FrozenTable, Hint, Opened, Table};
