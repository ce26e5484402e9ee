//! A client for aggregators' HTTP: for the command line, and for members among themselves.
//!
//! ```text
//! http://127.0.0.1:7400   as it stands
//! with a CA file          https, whatever the scheme says; the certificate has to be for the server name, or for the
//!                         URL's host if none was set
//! with a token            Authorization: Bearer, only by https or to loopback
//! ```
//!
//! Files are read each time a client is opened, so that rotating them needs no restart. Knows nothing of requests'
//! content. What stays true: a token is not sent over a network in the clear, unless the network is configured as
//! trusted.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use tollgate_tls::{ClientFiles, ClientTls, TlsFault, read_secret};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::{WithBody, WithoutBody};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error, RequestBuilder};

/// How aggregators are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The CAs, the expected name and the own certificate; `None`: HTTP only.
    pub tls: Option<ClientFiles>,
    /// The file with the token; `None`: no token is sent.
    pub token_file: Option<PathBuf>,
    /// Whether a token may be sent over a network in the clear.
    pub trusts_network: bool,
}

/// Why no request can be sent.
#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    /// A file cannot be used.
    #[error("{0}")]
    File(#[from] TlsFault),
    /// The URL is invalid.
    #[error(
        "{0:?}: expected a URL such as http://127.0.0.1:7400 or https://tollgate.internal:7400"
    )]
    Url(String),
    /// The URL is https, and no CA is configured to verify the certificate.
    #[error(
        "{0}: https needs the file of the CA that issued the aggregator's certificate (--ca, TOLLGATE_TLS_CA_FILE)"
    )]
    NoCa(String),
    /// The token would be sent over the network in the clear.
    #[error(
        "{0}: a token is not sent over a network without TLS, expected a CA file (--ca, TOLLGATE_TLS_CA_FILE), or TOLLGATE_INSECURE=trusted-network"
    )]
    Clear(String),
}

/// A client of one aggregator.
pub struct Opened {
    agent: Agent,
    base: String,
    bearer: Option<String>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Prepares requests to the aggregator at a URL. HTTP statuses are answers, not errors.
    ///
    /// # Errors
    ///
    /// If the URL or a file cannot be used.
    pub fn open(&self, url: &str, within: Option<Duration>) -> Result<Opened, ClientFault> {
        let wrong = || ClientFault::Url(url.to_owned());
        let url = url.trim_end_matches('/');
        let (scheme, authority) = url.split_once("://").ok_or_else(wrong)?;
        let is_secure = self.tls.is_some();
        match scheme {
            "https" if !is_secure => return Err(ClientFault::NoCa(url.to_owned())),
            "http" | "https" => {}
            _ => return Err(wrong()),
        }
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?.to_owned();
        let bearer = self.bearer(url, &host)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A proxy of the environment is for other hosts than aggregators: it would read the token.
            .proxy(None)
            .timeout_global(within);
        let Some(files) = &self.tls else {
            let agent = config.build().new_agent();
            let base = url.to_owned();
            return Ok(Opened {
                agent,
                base,
                bearer,
            });
        };
        let (host_and_port, path) = match authority.split_once('/') {
            Some((before, path)) => (before, format!("/{path}")),
            None => (authority, String::new()),
        };
        let port = uri.port_u16().unwrap_or(443);
        let name = files.server_name.as_deref().unwrap_or(&host);
        let connects_to = match uri.port() {
            Some(_) => host_and_port.to_owned(),
            None => format!("{host_and_port}:{port}"),
        };
        let config = config.tls_config(tls_config(files)?).build();
        let agent = Agent::with_parts(config, DefaultConnector::new(), Fixed(connects_to));
        let base = format!("https://{name}:{port}{path}");
        Ok(Opened {
            agent,
            base,
            bearer,
        })
    }

    fn bearer(&self, url: &str, host: &str) -> Result<Option<String>, ClientFault> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback =
            bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if self.tls.is_none() && !is_loopback && !self.trusts_network {
            return Err(ClientFault::Clear(url.to_owned()));
        }
        Ok(Some(format!("Bearer {}", read_secret(path)?)))
    }
}

impl Opened {
    /// A request for a path, which begins with a slash.
    pub fn get(&self, path: &str) -> RequestBuilder<WithoutBody> {
        let request = self.agent.get(format!("{}{path}", self.base));
        match &self.bearer {
            Some(bearer) => request.header("Authorization", bearer),
            None => request,
        }
    }

    /// The same with a body.
    pub fn post(&self, path: &str) -> RequestBuilder<WithBody> {
        let request = self.agent.post(format!("{}{path}", self.base));
        match &self.bearer {
            Some(bearer) => request.header("Authorization", bearer),
            None => request,
        }
    }
}

fn tls_config(files: &ClientFiles) -> Result<TlsConfig, ClientFault> {
    // `ClientTls` reports all faults of the files in the words that agents use.
    ClientTls::load(files.clone())?;
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| TlsFault::Read {
            path: path.clone(),
            source,
        })
    };
    let certificates = |bytes: &[u8]| -> Vec<_> {
        let items = parse_pem(bytes).filter_map(Result::ok);
        items
            .filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            })
            .collect()
    };
    let roots = certificates(&read(&files.ca)?);
    let own = match &files.own {
        None => None,
        Some((cert, key)) => {
            let chain = certificates(&read(cert)?);
            let mut items = parse_pem(&read(key)?)
                .filter_map(Result::ok)
                .collect::<Vec<_>>()
                .into_iter();
            let key = items.find_map(|item| match item {
                PemItem::PrivateKey(key) => Some(key),
                _ => None,
            });
            key.map(|key| ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(own)
        .unversioned_rustls_crypto_provider(tollgate_tls::provider())
        .build())
}

/// A resolver for the address to connect to, whatever name the certificate has to be for.
#[derive(Debug)]
struct Fixed(String);

impl Resolver for Fixed {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        // The array has no room for more.
        for address in self.0.to_socket_addrs()?.take(8) {
            addresses.push(address);
        }
        match addresses.is_empty() {
            true => Err(Error::HostNotFound),
            false => Ok(addresses),
        }
    }
}

/// The message of a failed request, with advice if TLS is the cause.
pub fn explained(error: &Error) -> String {
    let within = match error {
        Error::Rustls(error) => Some(error),
        Error::Io(io) => io.get_ref().and_then(|inner| inner.downcast_ref()),
        // A port that speaks TLS answers a request by HTTP with an alert.
        Error::Protocol(fault) if fault.to_string().starts_with("http parse fail") => {
            return NOT_HTTP.to_owned();
        }
        _ => None,
    };
    within.map_or_else(|| error.to_string(), tollgate_tls::explain)
}

const NOT_HTTP: &str = "the answer is not HTTP: a port that speaks TLS needs https:// and the file of the CA that issued \
                        the aggregator's certificate (--ca, TOLLGATE_TLS_CA_FILE)";
