//! Checks the files of keys and tokens twice a second, if there are any, and acts on changes.
//!
//! ```text
//! each half second   certificates' files ── valid ──> next handshakes    invalid ──> counted, logged, not used
//!                    tokens file ────────── valid ──> connections whose grant is gone, changed or expired end
//! each hour          a line for each listener that anybody on its network can use
//! ```
//!
//! It has its own thread, because files on a network file system can be slow. The thread ends with the edge, up to a minute
//! later if there are no files.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tollgate_tls::{Reloaded, ServerTls, utc};

use crate::edge::{Basis, Edge, Ended};
use crate::security::{Insecure, TokenBook, WatchCounters};

/// How often files are checked: a connection whose token is revoked ends within two seconds, of which two checks that
/// find the same content take one.
const EVERY: Duration = Duration::from_millis(500);

/// How often the thread looks whether it is still needed, if there are no such files.
const EVERY_OF_NOTHING: Duration = Duration::from_secs(60);

/// How often an unprotected listener is logged.
const INSECURE_EVERY: Duration = Duration::from_secs(3_600);

/// What is watched.
#[derive(Debug)]
pub struct Watch {
    /// The listeners' certificates.
    pub tls: Option<Arc<ServerTls>>,
    /// The tokens.
    pub tokens: Option<Arc<TokenBook>>,
    /// The listeners that nothing protects.
    pub insecure: Insecure,
    /// The counters.
    pub counters: Arc<WatchCounters>,
}

impl Watch {
    /// Starts to watch, until the edge is gone.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub fn start(self, edge: &Arc<Edge>) -> std::io::Result<()> {
        let edge = Arc::downgrade(edge);
        std::thread::Builder::new()
            .name("tollgate-keys".to_owned())
            .spawn(move || self.run(&edge))?;
        Ok(())
    }

    fn run(&self, edge: &Weak<Edge>) {
        let every = match (&self.tls, &self.tokens) {
            (None, None) => EVERY_OF_NOTHING,
            _ => EVERY,
        };
        let mut warned: Option<Instant> = None;
        loop {
            if warned.is_none_or(|at| INSECURE_EVERY <= at.elapsed()) {
                warned = Some(Instant::now());
                self.name_insecure();
            }
            std::thread::sleep(every);
            let Some(edge) = edge.upgrade() else {
                return;
            };
            self.look(&edge);
        }
    }

    fn name_insecure(&self) {
        for listener in &self.insecure {
            tracing::warn!(
                listener,
                "trusted-network: no TLS and no tokens; any process that reaches this address can read domains' names, have calls \
                 refused, and, by HTTP, change what is in force"
            );
        }
    }

    fn look(&self, edge: &Edge) {
        let mut client_ca_changed = false;
        if let Some(tls) = &self.tls {
            match tls.reload() {
                Ok(Reloaded::No) => {}
                Ok(Reloaded::Yes { client_ca }) => {
                    client_ca_changed = client_ca;
                    self.counters.tls_reloads.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(client_ca, "certificates were replaced");
                    warn_of_chain(tls);
                }
                Err(fault) => {
                    self.counters.tls_faults.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(%fault, "changed files for TLS cannot be used; those before them stay in force");
                }
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.reload() {
                Ok(false) => {}
                Ok(true) => {
                    self.counters.tokens_reloads.fetch_add(1, Ordering::Relaxed);
                    let count = tokens.tokens().len();
                    tracing::info!(tokens = count, "the tokens file was read again");
                }
                Err(fault) => {
                    self.counters.tokens_faults.fetch_add(1, Ordering::Relaxed);
                    tracing::error!(%fault, "the changed tokens file cannot be used; the tokens before it stay in force");
                }
            }
        }
        self.revoke(edge, client_ca_changed);
    }

    fn revoke(&self, edge: &Edge, client_ca_changed: bool) {
        let Some(book) = &self.tokens else {
            return;
        };
        let (tokens, now) = (book.tokens(), utc::now());
        let is_over = |basis: &Basis| {
            let certificate = basis.certificate.as_ref();
            let is_certificate_over = certificate.is_some_and(|certificate| {
                let verifies = |tls: &Arc<ServerTls>| tls.verifies(certificate);
                certificate.not_after() < now
                    || client_ca_changed && !self.tls.as_ref().is_some_and(verifies)
            });
            let grant = &basis.grant;
            is_certificate_over || grant.has_expired(now) || !tokens.still_has(grant)
        };
        let ended = edge.end_where(is_over, Ended::Revoked);
        self.counters
            .revoked
            .fetch_add(ended as u64, Ordering::Relaxed);
    }
}

/// Warns if members of the fleet, and agents that trust the same CAs, would refuse the certificate in force.
pub(super) fn warn_of_chain(tls: &ServerTls) {
    if let Some(fault) = tls.chain_fault() {
        tracing::warn!(%fault, "listen.tls: the certificate is not under listen.tls.client_ca");
    }
}
