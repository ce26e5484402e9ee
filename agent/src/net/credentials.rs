//! How an agent authenticates itself, and which aggregators it trusts.
//!
//! ```text
//! loopback            nothing is needed
//! anywhere else       a CA file: TLS, to peers whose certificate is for the one server name
//!                     or the setting `trusted-network`
//! ```
//!
//! Files are read again for each connection, so that an operator can rotate them without a restart. What stays true:
//! an agent with a CA file never connects without TLS; a token is never sent over a network in the clear unless the
//! network is declared as trusted; a file that can no longer be read replaces nothing.

use std::net::IpAddr;

use tokio::net::TcpStream;
use tollgate_zmtp::Token;

use super::socket::SocketFault;
use super::wire::Wire;
#[cfg(feature = "tls")]
use crate::log_lines::LogLines;

/// The agent's own credentials, and the CAs that it trusts.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// The CAs, the server name, and the agent's own certificate.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<tollgate_tls::ClientTls>,
    /// The file with the token, and its last content.
    #[cfg(feature = "tls")]
    pub(crate) token: Option<TokenFile>,
    /// Log lines about changed files for TLS that cannot be used.
    #[cfg(feature = "tls")]
    pub(crate) tls_lines: LogLines,
    /// Whether the network is declared as trusted.
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
        let token = tollgate_tls::read_secret_again(&path)?;
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
        match tollgate_tls::read_secret_again(&self.path) {
            Ok(token) => *last = Token::new(token.as_bytes()),
            // Limited, because this runs for each connection, and a peer may close connections.
            Err(fault) => {
                if let Some(unsaid) = self.lines.may() {
                    tracing::warn!(%fault, unsaid, "the token file cannot be used; the agent still presents the previous token");
                }
            }
        }
        last.clone()
    }
}

impl Credentials {
    /// Secures a connection, and returns the token to send on it.
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
                    tracing::warn!(%fault, unsaid, "changed files for TLS cannot be used; the previous ones stay in use");
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

    /// Whether the agent may connect to a peer without TLS.
    fn check_clear(&self, peer: IpAddr) -> Result<(), SocketFault> {
        match peer.to_canonical().is_loopback() || self.trusts_network {
            true => Ok(()),
            false => Err(SocketFault::Clear),
        }
    }
}

#[cfg(all(test, unix, feature = "tls"))]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_pipe_in_place_of_the_token_holds_nothing_up() {
        let name = format!("tollgate-token-{:032x}", rand::random::<u128>());
        let path = std::env::temp_dir().join(name);
        let make_pipe = || {
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
        };
        make_pipe();
        assert!(TokenFile::load(path.clone()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "tg1_a").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let file = TokenFile::load(path.clone()).unwrap();
        std::fs::remove_file(&path).unwrap();
        make_pipe();
        assert_eq!(file.token().as_bytes(), b"tg1_a");
        std::fs::remove_file(&path).unwrap();
    }
}
