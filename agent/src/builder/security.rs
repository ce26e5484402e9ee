//! Settings of TLS and tokens: which aggregators the agent trusts, and how it authenticates itself.

use std::path::PathBuf;

use super::AgentBuilder;
use crate::error::BuildError;
#[cfg(feature = "tls")]
use crate::log_lines::LogLines;
use crate::net::Credentials;

/// The settings of TLS and tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Security {
    ca_file: Option<PathBuf>,
    server_name: Option<String>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    trusts_network: bool,
}

impl Security {
    /// Reads the settings from the environment.
    pub(super) fn from_variables(
        text: &impl Fn(&'static str) -> Result<Option<String>, BuildError>,
    ) -> Result<Self, BuildError> {
        let file = |name| Ok::<_, BuildError>(text(name)?.map(PathBuf::from));
        Ok(Self {
            ca_file: file("TOLLGATE_TLS_CA_FILE")?,
            server_name: text("TOLLGATE_TLS_SERVER_NAME")?,
            cert_file: file("TOLLGATE_TLS_CERT_FILE")?,
            key_file: file("TOLLGATE_TLS_KEY_FILE")?,
            token_file: file("TOLLGATE_TOKEN_FILE")?,
            trusts_network: match text("TOLLGATE_INSECURE")?.as_deref() {
                None => false,
                Some("trusted-network") => true,
                Some(value) => {
                    return Err(BuildError::Insecure {
                        value: value.to_owned(),
                    });
                }
            },
        })
    }
}

/// TLS and tokens.
impl AgentBuilder {
    /// The file (PEM) with the CAs that may have issued aggregators' certificates. With it, the agent speaks TLS 1.3
    /// to every aggregator, and connects to none without TLS. The agent reads it again for each connection. `system`
    /// stands for the CAs that the system trusts (or the file in `SSL_CERT_FILE`). Default: no TLS; then the agent
    /// connects only to loopback addresses. Needs the Cargo feature `tls`, as do the other files here.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().aggregator("tollgate:7401").tls_ca_file("/etc/tollgate/ca.pem");
    /// ```
    pub fn tls_ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.security.ca_file = Some(path.into());
        self
    }

    /// The one name that all aggregators' certificates are issued for, whatever their addresses. Default: the host of
    /// the first aggregator in the settings.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder()
    ///     .tls_ca_file("/etc/tollgate/ca.pem")
    ///     .tls_server_name("tollgate.internal");
    /// ```
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.security.server_name = Some(name.into());
        self
    }

    /// The agent's own certificate and private key (PEM), for aggregators that accept a certificate instead of a
    /// token. The key's file must not be readable by other users.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder()
    ///     .tls_ca_file("/etc/tollgate/ca.pem")
    ///     .tls_identity("/etc/tollgate/agent.pem", "/etc/tollgate/agent.key");
    /// ```
    pub fn tls_identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.security.cert_file = Some(cert.into());
        self.security.key_file = Some(key.into());
        self
    }

    /// The file with the token by which the agent authenticates itself to aggregators. It must not be readable by
    /// other users. The agent reads it again for each connection, and sends the token only over TLS or to loopback
    /// addresses.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder()
    ///     .tls_ca_file("/etc/tollgate/ca.pem")
    ///     .token_file("/etc/tollgate/agent.token");
    /// ```
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.security.token_file = Some(path.into());
        self
    }

    /// Declares the network to the aggregators as trusted: without a CA file the agent then connects to any address,
    /// and sends its token there. Anybody on that network can read domains' names, and have calls refused.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().aggregator("10.0.0.7:7401").trust_network();
    /// ```
    pub fn trust_network(mut self) -> Self {
        self.security.trusts_network = true;
        self
    }

    /// Reads the files: the agent's credentials, and the CAs that it trusts.
    pub(super) fn credentials(&self, aggregators: &[String]) -> Result<Credentials, BuildError> {
        let Security {
            ca_file,
            server_name,
            cert_file,
            key_file,
            token_file,
            trusts_network,
        } = self.security.clone();
        #[cfg(feature = "tls")]
        {
            let own = (cert_file, key_file);
            let tls = match ca_file {
                Some(ca) => {
                    let host = || Some(aggregators.first()?.rsplit_once(':')?.0.to_owned());
                    let name = server_name.or_else(host).ok_or(BuildError::NoServerName)?;
                    let files = tollgate_tls::ClientFiles::new(ca, Some(name), own);
                    let tls = files.and_then(tollgate_tls::ClientTls::load);
                    Some(tls.map_err(|fault| BuildError::Tls(Box::new(fault)))?)
                }
                None if own.0.is_some() || own.1.is_some() || server_name.is_some() => {
                    return Err(BuildError::NoCaFile);
                }
                None => None,
            };
            let token = token_file.map(crate::net::TokenFile::load).transpose();
            Ok(Credentials {
                tls,
                token: token.map_err(|fault| BuildError::Tls(Box::new(fault)))?,
                tls_lines: LogLines::default(),
                trusts_network,
            })
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = aggregators;
            let files = [ca_file, cert_file, key_file, token_file];
            if server_name.is_some() || files.iter().any(Option::is_some) {
                return Err(BuildError::WithoutTls);
            }
            Ok(Credentials { trusts_network })
        }
    }
}
