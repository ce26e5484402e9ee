//! The agent's lock-free parts under loom, which tries every order of steps, and every value that a load may see,
//! within a bound on preemptions.
//!
//! ```text
//! filter    a denial in the filter is never called surely not denied, whatever the writer does beside it
//! stretch   no call counts as guarded in a time without watermarks
//! doubts    a doubt about limits is taken, or is still there to be taken
//! recorder  what threads recorded is drained or counted as dropped, until the end and after it
//! ```
//!
//! The sources are the agent's own, built with loom's atomics, locks and threads by [`sync`]. Rings are a list behind
//! a lock here, since the project of `rtrb` checks its own. This is a crate of its own, because loom's types only
//! work within a model, and the agent's unit tests are not in one. The exact deny list is a `DashMap` with locks of
//! its own, and is not tried here.
//!
//! Each model takes a moment with two preemptions, which the test command tries; LOOM_MAX_PREEMPTIONS=N tries more.
//! What stays true: nothing here is a copy of the agent's code.

// The sources' own unit tests are not in a model, and loom's types panic outside of one: there is nothing here for
// `cargo test --lib`. The agent runs them.
#![cfg(not(test))]
// The agent uses the parts of its sources that no model uses.
#![allow(dead_code, unreachable_pub)]

#[path = "../../src/resource/doubts.rs"]
mod doubts;
#[path = "../../src/flusher/ending.rs"]
mod ending;
#[path = "../../src/deny/filter.rs"]
mod filter;
#[path = "../../src/recorder/mod.rs"]
mod recorder;
#[path = "../../src/guard/stretch.rs"]
mod stretch;

pub mod models;
mod sync;

mod resource {
    //! The part of a resource that an event of the recorder needs.

    /// A resource's number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ResourceId(pub u32);
}
