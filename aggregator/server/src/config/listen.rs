//! The addresses to listen on, and what each listener requires of its peers.
//!
//! ```text
//! loopback            nothing, or whatever is configured
//! anywhere else       listen.tls.cert, listen.tls.key and security.tokens_file
//!                     or listen.insecure.NAME = "trusted-network": no TLS and no tokens on that listener
//! listen.probe        health and readiness, anywhere, without either
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;

use super::hosts::{address_of, host_of, is_address, is_host};
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
    /// Health and readiness, for orchestrators' probes; `None` unless configured.
    pub probe: Option<SocketAddr>,
    /// Whether this listener shows metrics as well.
    pub probe_metrics: bool,
    /// The host under which agents reach the feed.
    pub advertise: String,
    /// Host names for which HTTP requests are answered, beside addresses, `localhost`, the machine's name, the
    /// aggregator's and the advertised one.
    pub hosts: Vec<String>,
    /// The listeners that use no TLS and require no token, whatever else is configured.
    pub insecure: Trusting,
}

/// Which listeners trust their network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trusting {
    /// The listener for HTTP.
    pub http: bool,
    /// The listener for agents.
    pub agents: bool,
    /// The listener of the feed.
    pub feed: bool,
}

/// Certificates, tokens and record keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The listeners' certificate; `None`: they use no TLS.
    pub tls: Option<TlsFiles>,
    /// The tokens file; `None`: no caller needs a token.
    pub tokens_file: Option<PathBuf>,
    /// The keys with which aggregators sign their records in the log; `None`: the records have checksums only.
    pub key_file: Option<PathBuf>,
}

/// Files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with the intermediate certificates up to the CA.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CAs whose certificates may replace a token.
    pub client_ca: Option<PathBuf>,
    /// The name for which all certificates of the fleet are issued.
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
                let useless = [
                    ("listen.tls.client_ca", client_ca.is_some()),
                    ("listen.tls.server_name", server_name.is_some()),
                ];
                for (path, _) in useless.into_iter().filter(|(_, stated)| *stated) {
                    source.refuse(path, "listen.tls.cert and listen.tls.key beside it");
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

    /// Whether it suffices for a listener beyond loopback.
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
        // Agents present what they have to both: a certificate authority and a token, or neither.
        let path = match insecure.agents {
            true => "listen.insecure.agents",
            false => "listen.insecure.feed",
        };
        let is_half = security.tls.is_some() && insecure.agents != insecure.feed;
        if is_half
            && !source.is_refused("listen.insecure.agents")
            && !source.is_refused("listen.insecure.feed")
        {
            source.refuse(
                path,
                "the same of listen.insecure.agents and listen.insecure.feed: an agent uses TLS at both addresses, or at neither",
            );
        }
        let mut address = |path, port: u16, trusted: bool| {
            let default = SocketAddr::from(([127, 0, 0, 1], port));
            let address = read_address(source, path).unwrap_or(default);
            if !address.ip().is_loopback() && !trusted && !security.is_whole() {
                source.refuse(
                    path,
                    "a loopback address; or listen.tls.cert, listen.tls.key and security.tokens_file (`tollgate keys` \
                     makes them); or \"trusted-network\" for this listener in [listen.insecure]",
                );
            }
            address
        };
        let (http, agents, feed) = (
            address("listen.http", 7400, insecure.http),
            address("listen.agents", 7401, insecure.agents),
            address("listen.feed", 7402, insecure.feed),
        );
        let probe = read_address(source, PROBE);
        let probe_metrics = source.truth("listen.probe_metrics").unwrap_or(false);
        if probe_metrics && probe.is_none() && !source.is_refused(PROBE) {
            source.refuse("listen.probe_metrics", "listen.probe beside it");
        }
        Self {
            http,
            agents,
            feed,
            hosts,
            insecure,
            probe,
            probe_metrics,
            advertise: source.text(
                "listen.advertise",
                "a host's name or address, without a port",
                "127.0.0.1".to_owned(),
                host_of,
            ),
        }
    }
}

/// The one address that may be empty.
const PROBE: &str = "listen.probe";

const ADDRESS: &str = "an address such as \"127.0.0.1:7400\", or the name of one and a port, such as \"localhost:7400\"";

/// The address of an option; `None` if it is not stated, or invalid.
fn read_address(source: &mut ConfigSource, path: &'static str) -> Option<SocketAddr> {
    let may_be_empty = path == PROBE;
    let stated = source.text(path, ADDRESS, None, |text| match text {
        "" if may_be_empty => Some(None),
        text => is_address(text).then(|| Some(text.to_owned())),
    });
    let address = address_of(&stated?);
    if address.is_none() {
        source.refuse(
            path,
            "a name that resolves to an address, which this one does not; or an address such as \"127.0.0.1:7400\"",
        );
    }
    address
}

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
