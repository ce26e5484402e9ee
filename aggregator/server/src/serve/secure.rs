//! Builds each listener's requirements on its peers from the configuration.
//!
//! What stays true: files are read, and their faults reported, before any address is bound.

use std::path::Path;
use std::sync::Arc;

use tollgate_shared::keyring::Keyring;
use tollgate_tls::{ClientFiles, ServerFiles, ServerTls};

use super::watch::{Watch, warn_of_chain};
use super::{Bound, host_name};
use crate::ServeError;
use crate::config::{Config, LogKind, TlsFiles};
use crate::domains::Domains;
use crate::http::Hosts;
use crate::http::client::Client;
use crate::record_keys;
use crate::security::{Access, Handshakes, Insecure, TokenBook, WatchCounters};

/// What each listener requires, and the files that are watched for it.
pub(super) struct Secured {
    /// For HTTP.
    pub http: Access,
    /// For agents.
    pub agents: Access,
    /// For the feed.
    pub feed: Access,
    /// The client for other members.
    pub client: Client,
    /// The files that are watched.
    pub watch: Watch,
    /// The keys that sign aggregators' records.
    pub keys: Keyring,
    /// The id of the key under which domains are hashed, if they are.
    pub domain_key_id: Option<Box<str>>,
}

impl Secured {
    /// Reads the files that the configuration names.
    pub(super) fn open(config: &Config) -> Result<Self, ServeError> {
        let refused = |text: String| ServeError::Refused(text);
        let files = config.security.tls.as_ref();
        let tls = files.map(server_tls).transpose().map_err(refused)?;
        let tokens = config.security.tokens_file.as_deref();
        let tokens = tokens.map(token_book).transpose().map_err(refused)?;
        let keys = config.security.key_file.as_deref();
        let keys = keys.map(record_keyring).transpose().map_err(refused)?;
        let domains = config.domain_key_file.as_deref().map(domains).transpose();
        let domains = domains.map_err(refused)?.unwrap_or_default();
        let handshakes = match &tls {
            None => None,
            Some(_) => Some(Arc::new(Handshakes::start().map_err(|source| {
                ServeError::Io {
                    name: "TLS".to_owned(),
                    source,
                }
            })?)),
        };
        let access = |is_trusted: bool| match is_trusted {
            true => Access::default(),
            false => Access {
                tls: tls.clone().zip(handshakes.clone()),
                tokens: tokens.clone(),
            },
        };
        let trusting = config.listen.insecure;
        let client = match files {
            Some(files) if !trusting.http => member_client(config, files),
            _ => Client::default(),
        };
        Ok(Self {
            http: access(trusting.http),
            agents: access(trusting.agents),
            feed: access(trusting.feed),
            client,
            watch: Watch {
                tls: tls.clone(),
                tokens: tokens.clone(),
                insecure: insecure(config),
                counters: Arc::<WatchCounters>::default(),
            },
            keys: keys.unwrap_or_default(),
            domain_key_id: domains.key_id().map(Box::from),
        })
    }
}

fn server_tls(files: &TlsFiles) -> Result<Arc<ServerTls>, String> {
    let tls = ServerTls::load(ServerFiles {
        cert: files.cert.clone(),
        key: files.key.clone(),
        client_ca: files.client_ca.clone(),
        server_name: files.server_name.clone(),
    });
    let tls = tls.map_err(|fault| format!("listen.tls: {fault}"))?;
    warn_of_chain(&tls);
    Ok(Arc::new(tls))
}

fn token_book(path: &Path) -> Result<Arc<TokenBook>, String> {
    let book = TokenBook::load(path);
    book.map(Arc::new)
        .map_err(|fault| format!("security.tokens_file: {fault}"))
}

fn record_keyring(path: &Path) -> Result<Keyring, String> {
    record_keys::read(path).map_err(|fault| format!("security.key_file: {fault}"))
}

fn domains(path: &Path) -> Result<Domains, String> {
    Domains::read_again(path).map_err(|fault| format!("security.domain_key_file: {fault}"))
}

/// The client for other members: it shows this aggregator's certificate, and trusts the CA that it trusts for
/// callers.
fn member_client(config: &Config, files: &TlsFiles) -> Client {
    let Some(ca) = &files.client_ca else {
        if config.log == LogKind::Kafka {
            tracing::warn!(
                "listen.tls.client_ca is empty: members of the fleet cannot authenticate each other, so lists and explanations \
                 cover only the partitions that this aggregator rules"
            );
        }
        return Client::default();
    };
    Client {
        tls: Some(ClientFiles {
            ca: ca.clone(),
            server_name: files.server_name.clone(),
            own: Some((files.cert.clone(), files.key.clone())),
        }),
        ..Client::default()
    }
}

/// Whether any listener uses TLS.
pub(super) fn speaks_tls(config: &Config) -> bool {
    let trusting = config.listen.insecure;
    let all_trust = trusting.http && trusting.agents && trusting.feed;
    config.security.tls.is_some() && !all_trust
}

/// Warns if agents on other machines could not reach the feed: the welcome names `listen.advertise`, and there a
/// loopback address means their own machine.
pub(super) fn warn_of_advertised(config: &Config, bound: Bound) {
    let advertised = &*config.listen.advertise;
    let is_loopback = advertised == "localhost"
        || advertised
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    if is_loopback && !bound.agents.ip().is_loopback() {
        tracing::warn!(
            agents = %bound.agents,
            advertise = advertised,
            "agents on other machines cannot reach the feed: listen.advertise (--advertise) is to be this machine's \
             name or address in their network"
        );
    }
}

/// Warns if agents on other machines expect a name for which the certificate is not valid: the host that they connect
/// to, unless the fleet's name is configured.
pub(super) fn warn_of_names(config: &Config, agents: &Access, bound: Bound) {
    let names_fleet = config.security.tls.as_ref();
    let names_fleet = names_fleet.is_some_and(|tls| tls.server_name.is_some());
    let Some((tls, _)) = agents.tls.as_ref().filter(|_| !names_fleet) else {
        return;
    };
    let advertised = &*config.listen.advertise;
    if !bound.agents.ip().is_loopback() && !tls.is_for(advertised) {
        tracing::warn!(
            cert = %tls.files().cert.display(),
            names = tls.names().join(", "),
            advertise = advertised,
            "the certificate is not for the advertised host: agents need one of its names as TOLLGATE_TLS_SERVER_NAME, or \
             refuse it; with that name as listen.tls.server_name this line is not written"
        );
    }
}

/// The listeners beyond loopback that nothing protects.
fn insecure(config: &Config) -> Insecure {
    let listen = &config.listen;
    let of = |address: std::net::SocketAddr, is_trusted: bool, name| {
        (is_trusted && !address.ip().is_loopback()).then_some(name)
    };
    let all = [
        of(listen.http, listen.insecure.http, "http"),
        of(listen.agents, listen.insecure.agents, "agents"),
        of(listen.feed, listen.insecure.feed, "feed"),
    ];
    all.into_iter().flatten().collect()
}

/// The host names for which this aggregator answers by HTTP. With TLS the certificate decides: a page cannot let
/// its own name resolve to this address, since this aggregator has no certificate for that name.
pub(super) fn hosts(config: &Config, http: &Access) -> Hosts {
    if http.tls.is_some() {
        return Hosts::any();
    }
    let own = [
        config.name.clone(),
        config.listen.advertise.clone(),
        host_name(),
    ];
    let tls = config.security.tls.as_ref();
    let of_fleet = tls.and_then(|tls| tls.server_name.clone());
    let hosts = own.into_iter().chain(of_fleet);
    Hosts::new(hosts.chain(config.listen.hosts.iter().cloned()))
}
