//! The agent behind a C ABI: what `tollgate.h` declares, for every language that can call C.
//!
//! ```text
//! abi        the exported functions; the only place with `unsafe`
//!  └ calls   what each function does, in safe Rust
//!     ├ targets   what a handle stands for, and whether a fork lies between
//!     ├ handles   numbers in place of pointers, so that one that is not valid is an error
//!     ├ answers   what the caller is told of a call
//!     ├ settings  an agent's settings as text
//!     └ faults    codes below zero, and the text of the last one
//! ```
//!
//! Knows nothing of limits. What stays true: no call panics into the caller, no number that a caller passes as a
//! handle makes it read memory that is not there, and a call that could not be asked lets through.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod abi;
mod answers;
mod calls;
mod faults;
mod forks;
mod handles;
mod settings;
mod targets;
