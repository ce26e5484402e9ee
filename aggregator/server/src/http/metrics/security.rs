//! Metrics of certificates, tokens, and unprotected listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Label;
use tollgate_tls::{ServerTls, utc};

use super::Metrics;
use crate::security::{Insecure, TokenBook, WatchCounters};

/// Sources of the metrics on keys and tokens.
#[derive(Debug)]
pub struct SecurityMetrics {
    counters: Arc<WatchCounters>,
    tls: Option<Arc<ServerTls>>,
    tokens: Option<Arc<TokenBook>>,
    insecure: Insecure,
}

impl SecurityMetrics {
    /// Reads these counters, this certificate, these tokens, and these listeners.
    pub fn new(
        counters: Arc<WatchCounters>,
        (tls, tokens): (Option<Arc<ServerTls>>, Option<Arc<TokenBook>>),
        insecure: Insecure,
    ) -> Self {
        Self {
            counters,
            tls,
            tokens,
            insecure,
        }
    }
}

impl Metrics {
    pub(super) fn render_security(&self) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counted = &self.security.counters;
        let rows = [
            (
                "tollgate_http_unauthorised_total",
                "Requests that were refused for want of a token, or of a role.",
                of(&self.http.unauthorised),
            ),
            (
                "tollgate_http_tls_failed_total",
                "Connections for HTTP whose TLS handshake failed.",
                of(&self.http.tls_failed),
            ),
            (
                "tollgate_tls_reloads_total",
                "Times that changed certificates, keys or CAs replaced those before them.",
                of(&counted.tls_reloads),
            ),
            (
                "tollgate_tls_faults_total",
                "Times that changed files for TLS could not be used, and those before them stayed in force.",
                of(&counted.tls_faults),
            ),
            (
                "tollgate_tokens_reloads_total",
                "Times that a changed tokens file replaced the one before it.",
                of(&counted.tokens_reloads),
            ),
            (
                "tollgate_tokens_faults_total",
                "Times that a changed tokens file could not be used, and the one before it stayed in force.",
                of(&counted.tokens_faults),
            ),
            (
                "tollgate_connections_revoked_total",
                "Connections that ended because their token or certificate was revoked, changed, or is over.",
                of(&counted.revoked),
            ),
            (
                "tollgate_feed_topics_left_out_total",
                "Topics that agents asked for under tokens with namespaces, and for which there was no room: those agents \
                 receive nothing of them.",
                self.edge.hearing.left_out(),
            ),
        ];
        for (name, help, value) in rows {
            self.counter(name, help, value, Vec::new());
        }
        self.render_key_files();
        for listener in ["http", "agents", "feed"] {
            let is_insecure = self.security.insecure.contains(&listener);
            self.gauge(
                "tollgate_listener_insecure",
                "1 where a listener beyond loopback speaks without TLS and asks for no token.",
                f64::from(u8::from(is_insecure)),
                vec![Label::from_static_parts("listener", listener)],
            );
        }
    }

    fn render_key_files(&self) {
        if let Some(tls) = &self.security.tls {
            let left = tls.not_after().saturating_sub(utc::now());
            self.gauge(
                "tollgate_tls_certificate_expires_seconds",
                "How long the listeners' certificate is still valid.",
                left as f64,
                Vec::new(),
            );
        }
        let behind = [
            (
                "tollgate_tls_files_behind",
                "1 where the files for TLS on disk cannot be used, so that those before them are in force.",
                { self.security.tls.as_ref() }.is_some_and(|tls| tls.is_behind()),
            ),
            (
                "tollgate_tokens_file_behind",
                "1 where the tokens file on disk cannot be used, so that the tokens before it are in force.",
                { self.security.tokens.as_ref() }.is_some_and(|tokens| tokens.is_behind()),
            ),
        ];
        for (name, help, is_behind) in behind {
            self.gauge(name, help, f64::from(u8::from(is_behind)), Vec::new());
        }
    }
}
