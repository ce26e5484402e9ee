//! What the engine promises beside the rules, one promise after another.

mod amendments;
mod candidates;
mod kinds;
mod ruled;
mod slices;
#[path = "../support/mod.rs"]
mod support;
