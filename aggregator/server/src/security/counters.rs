//! Counters of keys and tokens, and the list of unprotected listeners.

use std::sync::atomic::AtomicU64;

/// The options of listeners beyond loopback that use no TLS and require no token.
pub type Insecure = Vec<&'static str>;

/// Counters of keys and tokens.
#[derive(Debug, Default)]
pub struct WatchCounters {
    /// Certificates that replaced earlier ones.
    pub tls_reloads: AtomicU64,
    /// Changed TLS files that could not be used.
    pub tls_faults: AtomicU64,
    /// Tokens files that replaced earlier ones.
    pub tokens_reloads: AtomicU64,
    /// Changed tokens files that could not be used.
    pub tokens_faults: AtomicU64,
    /// Connections that ended because their token or certificate no longer holds.
    pub revoked: AtomicU64,
}
