//! The gateway: an agent that answers whoever is not Rust, over HTTP and gRPC, on the same machine.
//!
//! ```text
//! nginx, Caddy, Traefik, HAProxy, Envoy ── ANY /v1/authorize/{resource} ──┐
//! a service in any language ────────────── POST /v1/decide ───────────────┤
//! Envoy, and what is built on it ───────── gRPC: rate limits, ext_authz ──┴─> agent ──> 200, 429 or 503
//! ```
//!
//! [`authorize`] answers for a request that a web server holds, by status and headers; [`decide`] answers in JSON;
//! [`grpc`] answers Envoy; [`subject`] finds on whose behalf a request is made. Knows nothing of limits and
//! aggregators: the agent does.
//!
//! What stays true: an answer never waits for an aggregator, but where a service asks for strict copies; a request that
//! cannot be decided (no domain, a resource that is limited by copies) is let through, counted, and told in
//! `x-tollgate-undecided`; nobody but this machine is answered.

mod authorize;
mod browsers;
mod confirmed;
mod connections;
mod decide;
mod grpc;
mod kept;
mod listen;
mod openapi;
mod patient;
mod server;
mod state;
pub mod subject;

pub use listen::{Listen, ListenError};
pub use server::Gateway;
pub use state::{Settings, Undecided};
