//! A real Kafka for tests. Without one, its trials are ignored, with the reason.
//!
//! A target with such trials has `harness = false` in `Cargo.toml`, because the built-in harness
//! cannot ignore a test at run time, and this `main`:
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
//! Knows of `deploy/kafka/local` its options, its output line and its exit codes, but not how it
//! runs Kafka. What stays true: a trial without a broker never counts as passed, and no broker
//! outlives the process that started it.

mod local;
mod proxy;
mod trial;

pub use local::{LocalKafka, Paused, StartError};
pub use proxy::Proxy;
pub use trial::{Trials, run};
