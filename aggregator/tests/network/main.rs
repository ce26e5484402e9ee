//! What passes between agents, gateways and aggregators, with the binary: calls, TLS, tokens.

mod gateway;
mod hit;
mod stderr;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod tls_peers;
mod tls_rotation;
mod weighted;
