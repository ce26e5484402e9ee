//! The addresses, and what each asks of those who connect.
//!
//! ```text
//! loopback            nothing, or whatever is configured
//! anywhere else       listen.tls.cert, listen.tls.key and security.tokens_file
//!                     or listen.insecure.NAME = "trusted-network": no TLS and no tokens on that listener
//! listen.probe        health and readiness, anywhere, without either
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use super::hosts::{address_of, host_of, is_host};
use super::source::ConfigSource;

/// The addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// HTTP.
    pub http: SocketAddr,
    /// The one address that agents need.
    pub agents: SocketAddr,
    /// The denial feed.
    pub feed: SocketAddr,
    /// Health and readiness for whoever looks after the process; none unless stated.
    pub probe: Option<SocketAddr>,
    /// Whether metrics are seen there, too.
    pub probe_metrics: bool,
    /// The host under which agents reach the feed.
    pub advertise: String,
    /// Names under which HTTP is answered, beside addresses, `localhost`, the host's, the aggregator's and
    /// the advertised one.
    pub hosts: Vec<String>,
    /// The listeners that speak without TLS and ask for no token, whatever is configured.
    pub insecure: Trusting,
}

/// The listeners whose network is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trusting {
    /// That for HTTP.
    pub http: bool,
    /// That for agents.
    pub agents: bool,
    /// That of the feed.
    pub feed: bool,
}

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The listeners' certificate; `None`: they speak without TLS.
    pub tls: Option<TlsFiles>,
    /// The tokens; `None`: nobody is asked for one.
    pub tokens_file: Option<PathBuf>,
    /// The keys under which aggregators sign their records in the log; `None`: they have none.
    pub key_file: Option<PathBuf>,
}

/// Files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and the CA.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CAs whose certificates may stand for a token.
    pub client_ca: Option<PathBuf>,
    /// The name that all certificates of the fleet are for.
    pub server_name: Option<String>,
}

impl Security {
    pub(super) fn read(source: &mut ConfigSource) -> Self {
        let file = |source: &mut ConfigSource, path| source.file(path);
        let cert = file(source, "listen.tls.cert");
        let key = file(source, "listen.tls.key");
        let client_ca = file(source, "listen.tls.client_ca");
        let server_name = source.text(
            "listen.tls.server_name",
            "a host's name, or empty",
            None,
            |text| match text {
                "" => Some(None),
                name => is_host(name).then(|| Some(name.to_owned())),
            },
        );
        let tls = match (cert, key) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert,
                key,
                client_ca,
                server_name,
            }),
            (None, None) => {
                if client_ca.is_some() {
                    source.refuse(
                        "listen.tls.client_ca",
                        "listen.tls.cert and listen.tls.key beside it",
                    );
                }
                None
            }
            (Some(_), None) => {
                source.refuse("listen.tls.cert", "listen.tls.key beside it");
                None
            }
            (None, Some(_)) => {
                source.refuse("listen.tls.key", "listen.tls.cert beside it");
                None
            }
        };
        Self {
            tls,
            tokens_file: source.file("security.tokens_file"),
            key_file: source.file("security.key_file"),
        }
    }

    /// Whether it is enough beyond loopback.
    const fn is_whole(&self) -> bool {
        self.tls.is_some() && self.tokens_file.is_some()
    }
}

impl Listen {
    pub(super) fn read(source: &mut ConfigSource, security: &Security) -> Self {
        let hosts = source.list(
            "listen.hosts",
            "a list of hosts' names without a port, such as [\"tollgate.internal\"]",
            Vec::new(),
            is_host,
        );
        let insecure = Trusting {
            http: is_trusted(source, "listen.insecure.http"),
            agents: is_trusted(source, "listen.insecure.agents"),
            feed: is_trusted(source, "listen.insecure.feed"),
        };
        let mut address = |path, port: u16, trusted: bool| {
            let default = SocketAddr::from(([127, 0, 0, 1], port));
            let address = source.text(path, ADDRESS, default, address_of);
            if !address.ip().is_loopback() && !trusted && !security.is_whole() {
                source.refuse(
                    path,
                    "a loopback address; or listen.tls.cert, listen.tls.key and security.tokens_file (`tollgate keys` \
                     makes them); or \"trusted-network\" for this listener in [listen.insecure]",
                );
            }
            address
        };
        Self {
            http: address("listen.http", 7400, insecure.http),
            agents: address("listen.agents", 7401, insecure.agents),
            feed: address("listen.feed", 7402, insecure.feed),
            hosts,
            insecure,
            probe: source.text("listen.probe", ADDRESS, None, |text| match text {
                "" => Some(None),
                text => address_of(text).map(Some),
            }),
            probe_metrics: source.truth("listen.probe_metrics").unwrap_or(false),
            advertise: source.text(
                "listen.advertise",
                "a host's name or address, without a port",
                "127.0.0.1".to_owned(),
                host_of,
            ),
        }
    }
}

const ADDRESS: &str = "an address such as \"127.0.0.1:7400\", or the name of one and a port, such as \"localhost:7400\"";

fn is_trusted(source: &mut ConfigSource, path: &'static str) -> bool {
    source.text(
        path,
        "\"trusted-network\", or empty",
        false,
        |text| match text {
            "" => Some(false),
            "trusted-network" => Some(true),
            _ => None,
        },
    )
}
