//! The gateway: an agent behind HTTP and gRPC, for web servers and services in any language on the same machine.
//!
//! ```text
//! nginx, Caddy, Traefik, HAProxy, Envoy ── ANY /v1/authorize/{resource} ──┐
//! a service in any language ────────────── POST /v1/decide ───────────────┤
//! Envoy, and products built on it ──────── gRPC: rate limits, ext_authz ──┴─> agent ──> 200, 429 or 503
//! ```
//!
//! [`authorize`] answers web servers, by status and headers; [`decide`] answers in JSON; [`grpc`] answers Envoy;
//! [`subject`] finds the domain of a request. Knows nothing of limits and aggregators: the agent does.
//!
//! What stays true: an answer never waits for an aggregator, unless a service asks for strict copies; a request that
//! cannot be decided (no domain, a resource that is limited by copies) is let through, counted, and reported in
//! `x-tollgate-undecided`; only this machine is answered.

mod authorize;
mod body;
mod browsers;
mod confirmed;
mod connections;
mod decide;
mod described;
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
