//! A real Kafka for tests, and trials that are ignored, with the reason, where there can be none.
//!
//! A target of such trials has `harness = false` in `Cargo.toml`, because the built-in harness
//! cannot ignore a test at run time, and this for its `main`:
//!
//! ```no_run
//! use tollgate_tests::{kafka, kafka::LocalKafka, trials};
//!
//! fn a_promise(kafka: &LocalKafka) {
//!     let topic = kafka.fresh_name("promise");
//!     assert_ne!(topic, kafka.bootstrap());
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     kafka::run(trials![a_promise])
//! }
//! ```
//!
//! Knows `deploy/kafka/local` by its options, its line and its exit codes, and nothing of how that
//! runs Kafka. What stays true: a trial that had no broker never counts as passed, and no broker
//! outlives the process that asked for it.

mod local;
mod proxy;
mod trial;

pub use local::{LocalKafka, Paused, StartError};
pub use proxy::Proxy;
pub use trial::{Trials, run};
