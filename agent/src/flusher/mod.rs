//! The flusher: the one thread that moves the cached clock on and empties the recorder.
//!
//! Calls wake nobody, so it comes by: every 100 µs (200 with what a sleep costs more) while calls are
//! made, and in steps up to a millisecond when none are.

mod packer;
mod parcel;

pub(crate) use packer::Packer;
pub(crate) use parcel::Parcel;
