//! How a command reaches aggregators: which CAs it trusts, and which credentials it shows.
//!
//! ```text
//! --ca FILE          https, whatever the URL's scheme, and TLS to the feed; without it: http, and only loopback
//! --token-file FILE  shown to aggregators that require a token
//! ```
//!
//! It is set once per process, since all requests to aggregators use the same.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tollgate_agent::AgentBuilder;
use tollgate_server::http::client::{Client, ClientFault, Opened, explained};
use tollgate_tls::ClientFiles;

use crate::exit::{Exit, Failure};

/// Whom commands believe, and what they show.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Reaching aggregators")]
pub struct ReachArgs {
    /// The CAs (PEM) that are trusted to issue aggregators' certificates, or `system` for those that this system
    /// trusts; enables TLS for all connections
    #[arg(long, global = true, env = "TOLLGATE_TLS_CA_FILE", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// The name that aggregators' certificates must contain [default: the host of the URL or address]
    #[arg(
        long,
        global = true,
        env = "TOLLGATE_TLS_SERVER_NAME",
        value_name = "NAME"
    )]
    pub server_name: Option<String>,
    /// The client certificate (PEM), for aggregators that accept one in place of a token
    #[arg(
        long,
        global = true,
        env = "TOLLGATE_TLS_CERT_FILE",
        value_name = "FILE"
    )]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(
        long,
        global = true,
        env = "TOLLGATE_TLS_KEY_FILE",
        value_name = "FILE"
    )]
    pub tls_key: Option<PathBuf>,
    /// A file with the token to present to aggregators
    #[arg(long, global = true, env = "TOLLGATE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

static CLIENT: OnceLock<Client> = OnceLock::new();

impl ReachArgs {
    /// Sets this for all later requests to aggregators.
    ///
    /// # Errors
    ///
    /// If flags or variables contradict each other.
    pub fn set(&self) -> Result<(), Failure> {
        // A second call would have the same command line.
        let _ = CLIENT.set(Client {
            tls: self.tls_files()?,
            token_file: self.token_file.clone(),
            trusts_network: trusts_network(),
        });
        Ok(())
    }

    /// The files for TLS; `None` without a CA.
    ///
    /// # Errors
    ///
    /// If they contradict each other.
    pub fn tls_files(&self) -> Result<Option<ClientFiles>, Failure> {
        let Some(ca) = &self.ca else {
            return Ok(None);
        };
        let own = (self.tls_cert.clone(), self.tls_key.clone());
        let files = ClientFiles::new(ca.clone(), self.server_name.clone(), own);
        let files = files.map_err(|fault| Failure::Usage(fault.to_string()))?;
        Ok(Some(files))
    }

    /// The environment variables with which another process reaches them in the same way.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let name = self.server_name.as_ref().map(OsString::from);
        let file = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let all = [
            ("TOLLGATE_TLS_CA_FILE", file(&self.ca)),
            ("TOLLGATE_TLS_SERVER_NAME", name),
            ("TOLLGATE_TLS_CERT_FILE", file(&self.tls_cert)),
            ("TOLLGATE_TLS_KEY_FILE", file(&self.tls_key)),
            ("TOLLGATE_TOKEN_FILE", file(&self.token_file)),
        ];
        let stated = all.into_iter();
        stated
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// An agent that reaches them in the same way.
    pub fn apply(&self, mut builder: AgentBuilder) -> AgentBuilder {
        if let Some(ca) = &self.ca {
            builder = builder.tls_ca_file(ca);
            // Without a CA these have no use, and may be meant for commands' URLs.
            if let Some(name) = &self.server_name {
                builder = builder.tls_server_name(name);
            }
            if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
                builder = builder.tls_identity(cert, key);
            }
        }
        if let Some(token) = &self.token_file {
            builder = builder.token_file(token);
        }
        match trusts_network() {
            true => builder.trust_network(),
            false => builder,
        }
    }
}

/// Whether the environment states that the network is trusted.
pub fn trusts_network() -> bool {
    std::env::var_os("TOLLGATE_INSECURE").is_some_and(|value| value == "trusted-network")
}

/// Opens a client for the aggregator at a URL.
///
/// # Errors
///
/// If the URL or a file cannot be used.
pub fn open(url: &str, within: Option<Duration>) -> Result<Opened, Failure> {
    let client = CLIENT.get().cloned().unwrap_or_default();
    client.open(url, within).map_err(|fault| match fault {
        ClientFault::File(fault) => Failure::Log {
            exit: Exit::NoInput,
            text: fault.to_string(),
        },
        fault => Failure::Usage(fault.to_string()),
    })
}

/// The failure if no aggregator answers at a URL.
pub fn unavailable(url: &str) -> impl Fn(ureq::Error) -> Failure {
    move |error| Failure::Unavailable(format!("{url}: {}", explained(&error)))
}

/// The failure if an aggregator refuses the caller, with its message.
pub fn not_authorised(url: &str, error: &str) -> Failure {
    Failure::Log {
        exit: Exit::NotAuthorised,
        text: format!("{url}: {error}"),
    }
}
