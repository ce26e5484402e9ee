//! TLS 1.3 for the link, the feed and HTTP: settings from files, and sessions over sockets that never wait.
//!
//! ```text
//! PEM files ──> ServerFiles, ClientFiles ──> rustls configuration ──> Session over a TcpStream
//!    └── read again if changed: a valid set replaces the one in force, an invalid one is a TlsFault
//! ```
//!
//! The cryptography is rustls with ring. Each configuration names the provider, and no process-wide default is
//! installed, since a service that links the agent may have another. Only TLS 1.3 is used, with session
//! tickets and without data before the handshake's end (0-RTT).
//!
//! Knows nothing of tokens, roles or messages. What stays true: a private key that others can read is refused;
//! a fault names the file, what was found, and what was expected; no fault and no `Debug` shows a key.

mod certificate;
mod client;
mod fault;
mod files;
#[cfg(test)]
mod hostile_tests;
mod server;
mod session;
pub mod utc;

pub use certificate::{Certificate, Validity};
pub use client::{ClientFiles, ClientTls, check_name};
pub use fault::{TlsFault, explain};
pub use files::{certificate_der, read_secret, read_secret_again, read_secrets};
pub use server::{Reloaded, ServerFiles, ServerTls};
pub use session::Session;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The cryptography provider of every configuration.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
