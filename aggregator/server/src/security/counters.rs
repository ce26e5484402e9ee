//! What is counted of keys and tokens, and which listeners nothing protects.

use std::sync::atomic::AtomicU64;

/// Listeners beyond loopback that speak without TLS and ask for no token, by their options.
pub type Insecure = Vec<&'static str>;

/// What is counted of keys and tokens.
#[derive(Debug, Default)]
pub struct WatchCounters {
    /// Certificates that replaced those before them.
    pub tls_reloads: AtomicU64,
    /// Changed files for TLS that could not be used.
    pub tls_faults: AtomicU64,
    /// Tokens files that replaced those before them.
    pub tokens_reloads: AtomicU64,
    /// Changed tokens files that could not be used.
    pub tokens_faults: AtomicU64,
    /// Connections that ended because what they rested on no longer holds.
    pub revoked: AtomicU64,
}
