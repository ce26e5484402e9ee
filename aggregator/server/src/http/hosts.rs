//! Host names for which requests are answered.
//!
//! ```text
//! 127.0.0.1:7400   [::1]:7400   localhost   agg-1.internal (listen.hosts)       answered
//! rebind.evil.example                                                           421
//! ```
//!
//! A page in a browser may let its own name resolve to this address, and read the answers (DNS rebinding). But
//! it cannot request another host than its own; so a request for a name that is not configured is refused. An
//! IP address is not a name, and cannot be rebound.
//!
//! Knows nothing of requests' content.

use std::collections::BTreeSet;

use axum::http::{Request, header};
use tollgate_shared::hosts::{Host, host};

/// The names for which this aggregator answers, beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: BTreeSet<String>,
    /// Answers for every host: for probes, whose answers a page may read, and with TLS.
    any: bool,
}

impl Hosts {
    /// Answers for these names, in any case.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self {
            names: names.into_iter().map(|name| name.to_lowercase()).collect(),
            any: false,
        }
    }

    /// Answers for every host.
    pub fn any() -> Self {
        Self {
            names: BTreeSet::new(),
            any: true,
        }
    }

    /// The host that a request is for, if requests for it are refused.
    pub(super) fn stranger<B>(&self, request: &Request<B>) -> Option<String> {
        if self.any {
            return None;
        }
        let mut named = request.headers().get_all(header::HOST).iter();
        let host = match (named.next(), named.next()) {
            (Some(host), None) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
            (None, _) => "(none)".to_owned(),
            (Some(_), Some(_)) => "(several)".to_owned(),
        };
        // The request line's host overrides the header, by the rules of HTTP.
        let of_line = request.uri().authority().map(ToString::to_string);
        let hosts = [Some(host), of_line];
        hosts.into_iter().flatten().find(|host| !self.allows(host))
    }

    fn allows(&self, text: &str) -> bool {
        match host(text) {
            Some(Host::Own) => true,
            Some(Host::Named(name)) => self.names.contains(&name),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_answered_and_others_are_not() {
        let hosts = Hosts::new(["Agg-1.internal".to_owned()]);
        for own in [
            "127.0.0.1",
            "127.0.0.1:7400",
            "10.1.2.3:80",
            "[::1]",
            "[fe80::1]:7400",
            "localhost",
            "LocalHost:7400",
            "localhost.",
            "agg-1.internal:7400",
            "AGG-1.INTERNAL.",
        ] {
            assert!(hosts.allows(own), "{own}");
        }
        for strange in [
            "",
            "rebind.evil.example",
            "rebind.evil.example:7400",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "agg-2.internal",
            "127.0.0.1:port",
            "[::1",
            "::1",
            "[evil]",
            "evil@127.0.0.1",
            "2130706433",
        ] {
            assert!(!hosts.allows(strange), "{strange}");
        }
    }

    #[test]
    fn a_request_is_for_one_host() {
        let hosts = Hosts::default();
        let stranger = |uri: &str, named: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in named {
                request = request.header(header::HOST, *host);
            }
            hosts.stranger(&request.body(()).unwrap())
        };
        assert_eq!(stranger("/", &["127.0.0.1:1"]), None);
        assert_eq!(stranger("/", &[]).as_deref(), Some("(none)"));
        let two = ["localhost", "localhost"];
        assert_eq!(stranger("/", &two).as_deref(), Some("(several)"));
        let line = stranger("http://evil.example/", &["localhost"]);
        assert_eq!(line.as_deref(), Some("evil.example"));
    }
}
