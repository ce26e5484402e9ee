//! Tollgate as tower layers: for axum, tonic, hyper, and every other tower service of HTTP; with the feature `actix`
//! the same layers are middleware of actix-web (`App::wrap`).
//!
//! ```
//! use tollgate_agent::Agent;
//! use tollgate_tower::{HoldLayer, LimitLayer, key};
//! # fn layers(agent: &Agent) {
//! // How often: 100 calls a minute of each tenant, say; the limits say it, not the service.
//! let often = LimitLayer::new(agent.rate("api.search"), key::header("x-tenant"));
//! // How many at a time: from the call to the end of the response's body.
//! let at_a_time = HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant"));
//! # let _ = (often, at_a_time);
//! # }
//! ```
//!
//! A refused call never reaches the service. The layer answers it with 429 (or 503, 500: [`HttpAnswer`]),
//! `Retry-After`, `RateLimit`, `RateLimit-Policy`, `x-tollgate-code` and a problem in JSON; a gRPC call (by its
//! content type) with HTTP 200, `grpc-status: 8` (RESOURCE_EXHAUSTED) and `grpc-retry-pushback-ms`, which is -1 where
//! waiting does not help. The answer 500
//! means that the layer does not fit the limits: a [`LimitLayer`] of a resource that is limited by copies, a [`HoldLayer`]
//! of one that is limited by rate, or whose copies are strict. A call without a domain is let through and counted
//! ([`Undecided`]); [`LimitLayer::or_domain`] sets a domain for such calls. Nothing waits. A call that is let through
//! costs no allocation here, except for copies that it holds, for header fields near a limit, and for a domain that has
//! to be written: an address, an encoded segment of a path, or a header that is not UTF-8.
//!
//! [`HttpAnswer`]: tollgate_agent::HttpAnswer

#[cfg(feature = "actix")]
pub mod actix;
mod answer;
mod body;
mod door;
mod future;
mod head;
mod held;
mod hold;
pub mod key;
mod limit;
mod subject;

pub use body::DoorBody;
pub use future::DoorFuture;
pub use head::Head;
pub use held::HeldCopies;
pub use hold::{HoldLayer, HoldService};
pub use limit::{LimitLayer, LimitService};
pub use subject::Undecided;
