//! The written rules, one after another, as the model implements them.

mod copies_clauses;
mod log_batches;
mod log_statements;
mod stream_clauses;
#[path = "../support/mod.rs"]
mod support;
