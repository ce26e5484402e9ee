//! The agent behind a C ABI: the functions of `tollgate.h`, for every language that can call C.
//!
//! ```text
//! abi        the exported functions; the only place with `unsafe`
//!  └ calls   what each function does, in safe Rust
//!     ├ targets   what a handle stands for, and whether a fork lies between
//!     ├ handles   numbers in place of pointers, so that an invalid one is an error
//!     ├ answers   the answer to a call
//!     ├ settings  an agent's settings as text
//!     ├ counters  an agent's counters by name
//!     ├ lines     the agent's log lines on standard error
//!     └ faults    negative codes, and the text of the last one
//! ```
//!
//! Knows nothing of limits. What stays true: no call panics into the caller; no number that a caller passes as a
//! handle makes a call read invalid memory; and a call that cannot be decided is let through.

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
mod counters;
mod faults;
mod forks;
mod handles;
mod lines;
mod settings;
mod targets;
