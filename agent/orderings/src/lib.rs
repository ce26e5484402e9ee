//! The agent's lock-free parts under loom, which tries every order of steps, and every value that a load may
//! see, within a bound on preemptions.
//!
//! ```text
//! filter    a denial that is in is never called surely out, whatever the writer does beside it
//! stretch   no call is taken for guarded in a time without news
//! doubts    a doubt about limits is taken, or is there to be taken
//! recorder  what threads recorded is drained or counted as dropped, until the end and beyond it
//! ```
//!
//! The sources are the agent's own, built with loom's atomics, locks and threads by [`sync`]; rings are a
//! list behind a lock here, since those of `rtrb` are checked by their own project. A crate of its own,
//! because loom's types work within a model alone, and the agent's unit tests are not in one. The exact deny
//! list is a `DashMap`, whose locks are its own, and is not tried here.
//!
//! Each model takes a moment with two preemptions, which the test command tries; LOOM_MAX_PREEMPTIONS=N tries
//! more. What stays true: nothing here is a copy of what the agent does.

// The sources' own unit tests stand in no model, and loom's types panic outside of one: there is nothing here for
// `cargo test --lib`. The agent runs them.
#![cfg(not(test))]
// What a model does not use of the agent's sources is used by the agent.
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
    //! As much of a resource as an event of the recorder names.

    /// A resource's number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ResourceId(pub u32);
}
