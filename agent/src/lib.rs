//! The rate limiter that a service links: it decides calls in the process, and never waits.
//!
//! ```no_run
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tollgate_agent::Agent;
//!
//! let agent = Agent::from_env()?; // fails on bad settings, never on the network
//! let search = agent.rate("api.search"); // cheap to clone, kept in a service's state
//! agent.ready(Duration::from_millis(500)).await; // optional: start with the deny list
//! match search.hit("acme") {
//!     Ok(_) => { /* proceed */ }
//!     Err(denied) => println!("come back in {:?}", denied.retry_after()),
//! }
//! agent.shutdown(Duration::from_secs(2)).await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Agent::copies`] limits how many things run at a time: [`Copies::reserve`] takes copies, and dropping the hold
//! gives them back.
//!
//! A call looks into a deny list in memory, and writes a few words into a buffer of its thread. A flusher sends the
//! buffers to the fleet's log. Aggregators replay the limits over the log, and announce which domains are denied. The
//! listener receives these announcements and updates the deny list. When all of that is unreachable, calls pass at
//! the same speed, and the agent counts what it drops: see [`Agent::stats`].
//!
//! The agent logs with `tracing`. A subscriber that panics on one of the agent's threads ends the agent, which is blind
//! from then on ([`Stats::threads_panicked`]). `tracing_subscriber::fmt` panics if it can write neither to its writer
//! nor to the standard error, unless it is built with `log_internal_errors(false)`.
//!
//! What stays true: no call waits; no panic of the agent reaches the service's threads; everything is bounded.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod admitted;
mod agent;
mod agent_inner;
mod answer;
#[cfg(feature = "axum")]
mod axum;
mod batch;
mod blind;
mod builder;
mod callback;
mod clock;
mod copies;
mod courier;
mod deny;
mod descriptors;
mod error;
mod events;
mod feed_liveness;
mod flusher;
mod guard;
mod headers;
mod holds;
mod http;
mod left;
mod listener;
mod log_lines;
#[cfg(feature = "metrics")]
mod metrics;
mod most;
mod net;
mod rate;
mod recorder;
mod refused;
mod resource;
mod room;
mod scope;
mod shared;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod stats;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod timer;
mod urgency;
mod waiting;

pub use agent::{Agent, Flushed, KillSwitch};
pub use answer::{Allowed, Cause, Denied, Room};
pub use builder::AgentBuilder;
pub use copies::{Confirmation, Copies, Hold, HoldFault, Revoked, SeizeError, Together};
pub use descriptors::{Applied, Descriptors};
pub use error::BuildError;
pub use events::{Change, Near, StatementEvent};
pub use headers::Headers;
pub use holds::news::{FullScope, HoldChange, HoldNews};
pub use http::HttpAnswer;
pub use rate::{Estimate, Rate, SettleError, Settled};
pub use refused::{Misuse, Refused, TooMany};
pub use scope::Scope;
pub use stats::Stats;
pub use tollgate_shared::descriptors::{DescriptorRule, Matched};
pub use tollgate_shared::holdings::{TransferId, TransferIdFault};
pub use tollgate_shared::log_position::{Code, LogPosition};
pub use tollgate_shared::wire::verdict::{EndedBy, Why};
