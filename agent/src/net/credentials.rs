//! How an agent shows who it is, and whom it believes.
//!
//! ```text
//! loopback            nothing is needed
//! anywhere else       a CA file: TLS, to peers whose certificate is for the one server name
//!                     or `trusted-network`: said by whoever runs the agent
//! ```
//!
//! Files are read again when a connection is made, so that whoever rotates them restarts nothing. What stays true:
//! an agent that was given a CA speaks to nobody without TLS; a token is never sent over a network in the clear
//! unless that was said to be trusted; what cannot be read any more replaces nothing.

use std::net::IpAddr;

use tokio::net::TcpStream;
use tollgate_zmtp::Token;

use super::socket::SocketFault;
use super::wire::Wire;
#[cfg(feature = "tls")]
use crate::log_lines::LogLines;

/// What an agent has to show and believes.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// The CAs, the name, and the agent's own certificate.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<tollgate_tls::ClientTls>,
    /// The file with the token, and what stood there last.
    #[cfg(feature = "tls")]
    pub(crate) token: Option<TokenFile>,
    /// Of changed files for TLS that cannot be used.
    #[cfg(feature = "tls")]
    pub(crate) tls_lines: LogLines,
    /// Whether the network was said to be trusted.
    pub(crate) trusts_network: bool,
}

/// A file with a token.
#[cfg(feature = "tls")]
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: std::path::PathBuf,
    last: std::sync::Mutex<Token>,
    lines: LogLines,
}

#[cfg(feature = "tls")]
impl TokenFile {
    /// Reads the file.
    pub(crate) fn load(path: std::path::PathBuf) -> Result<Self, tollgate_tls::TlsFault> {
        let token = tollgate_tls::read_secret(&path)?;
        Ok(Self {
            path,
            last: std::sync::Mutex::new(Token::new(token.as_bytes())),
            lines: LogLines::default(),
        })
    }

    fn token(&self) -> Token {
        let mut last = self
            .last
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        match tollgate_tls::read_secret(&self.path) {
            Ok(token) => *last = Token::new(token.as_bytes()),
            // For each connection, and a peer may end them.
            Err(fault) => {
                if let Some(unsaid) = self.lines.may() {
                    tracing::warn!(%fault, unsaid, "the token that was read before is shown");
                }
            }
        }
        last.clone()
    }
}

impl Credentials {
    /// Makes a connection ready to be spoken over, and says which token is to be shown on it.
    pub(super) async fn secure(
        &self,
        stream: TcpStream,
    ) -> Result<(Wire, Option<Token>), SocketFault> {
        let peer = stream.peer_addr()?.ip();
        #[cfg(feature = "tls")]
        {
            let token = self.token.as_ref().map(TokenFile::token);
            if let Some(tls) = &self.tls {
                if let Err(fault) = tls.refresh()
                    && let Some(unsaid) = self.tls_lines.may()
                {
                    tracing::warn!(%fault, unsaid, "changed files for TLS cannot be used; those before them are");
                }
                let session = tls.session(&peer.to_string());
                let session = session.map_err(|fault| SocketFault::Tls(fault.to_string()))?;
                return Ok((Wire::secured(stream, session).await?, token));
            }
            self.check_clear(peer)?;
            Ok((Wire::plain(stream), token))
        }
        #[cfg(not(feature = "tls"))]
        {
            self.check_clear(peer)?;
            Ok((Wire::plain(stream), None))
        }
    }

    /// Whether a peer may be spoken to without TLS.
    fn check_clear(&self, peer: IpAddr) -> Result<(), SocketFault> {
        match peer.to_canonical().is_loopback() || self.trusts_network {
            true => Ok(()),
            false => Err(SocketFault::Clear),
        }
    }
}
