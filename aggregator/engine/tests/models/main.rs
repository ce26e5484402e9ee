//! The engine beside the independent model, over random limits: its rules for one pair, and whole logs.

mod log_model;
mod rules_model;
#[path = "../support/mod.rs"]
mod support;
