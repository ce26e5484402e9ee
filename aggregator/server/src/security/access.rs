//! What a listener requires of its peers: TLS or not, a token or not.
//!
//! What stays true: where tokens are required, no peer is admitted without a grant for that listener.

use std::sync::Arc;

use tollgate_tls::{Certificate, ServerTls, utc};

use super::grant::{Role, TokenGrant};
use super::handshakes::Handshakes;
use super::tokens::TokenBook;

/// The port that a peer connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// The address for agents.
    Link,
    /// The denial feed.
    Feed,
}

impl PortKind {
    /// The roles that may connect.
    const fn roles(self) -> &'static [Role] {
        match self {
            Self::Link => &[Role::Agent, Role::Relay],
            Self::Feed => &[Role::Agent, Role::Relay, Role::Viewer, Role::Member],
        }
    }
}

/// Why a caller is refused. The caller gets the text as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefused {
    /// The caller showed neither a token nor a certificate.
    #[error("no token, expected one of the aggregator's tokens file (TOLLGATE_TOKEN_FILE)")]
    NoToken,
    /// The token is not in the tokens file.
    #[error(
        "the token is not in the aggregator's tokens file: it was revoked, or is another fleet's"
    )]
    Unknown,
    /// No name of the certificate is in the tokens file.
    #[error("no name of the certificate is in the aggregator's tokens file, and there is no token")]
    UnknownCertificate,
    /// The grant has expired.
    #[error("the token has expired")]
    Expired,
    /// The grant's roles do not allow this.
    #[error("the token's roles do not allow this")]
    Role,
    /// The grant is for some namespaces, and the list is not of one resource of them.
    #[error(
        "the token is for some namespaces alone, expected a list of one resource of them (--resource NAME, ?resource=NAME)"
    )]
    Namespace,
    /// The grant is for other namespaces than that of the resource.
    #[error("the token is for some namespaces alone, and the resource is not in them")]
    OtherNamespace,
    /// The grant is for some namespaces, and a code does not say to which namespace it belongs.
    #[error(
        "the token is for some namespaces alone, and cannot ask by a denial's code: ask by resource and domain, or with a \
         token for all namespaces"
    )]
    Code,
    /// The grant is for some namespaces, and the request is about all of them.
    #[error("the token is for some namespaces alone, expected one for all namespaces")]
    AllNamespaces,
    /// The grant does not cover the agent's name.
    #[error("the token is not for agents of this name")]
    Agent,
}

/// What a listener requires.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Its certificate, and the threads for its handshakes; `None`: it uses no TLS.
    pub tls: Option<(Arc<ServerTls>, Arc<Handshakes>)>,
    /// The tokens that it accepts; `None`: no token is required.
    pub tokens: Option<Arc<TokenBook>>,
}

impl Access {
    /// The grant of a caller that shows this token or certificate; `Ok(None)` where none is required.
    ///
    /// # Errors
    ///
    /// Why the caller is refused.
    pub fn grant(
        &self,
        token: Option<&[u8]>,
        certificate: Option<&Certificate>,
    ) -> Result<Option<Arc<TokenGrant>>, AccessRefused> {
        let Some(book) = &self.tokens else {
            return Ok(None);
        };
        let tokens = book.tokens();
        // If a token is shown, it counts, and the certificate does not.
        let found = match (token, certificate) {
            (Some(token), _) => tokens.of_token(token).ok_or(AccessRefused::Unknown)?,
            (None, Some(certificate)) => tokens
                .of_certificate(certificate)
                .ok_or(AccessRefused::UnknownCertificate)?,
            (None, None) => return Err(AccessRefused::NoToken),
        };
        match found.has_expired(utc::now()) {
            true => Err(AccessRefused::Expired),
            false => Ok(Some(Arc::clone(found))),
        }
    }

    /// Whether a certificate is valid now, under the CAs in force: it may have expired since its connection began, or
    /// its CA was removed.
    pub fn verifies(&self, certificate: &Certificate) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|(tls, _)| tls.verifies(certificate))
    }

    /// The grant of a connection to a port.
    ///
    /// # Errors
    ///
    /// Why the caller is refused.
    pub fn admit(
        &self,
        door: PortKind,
        token: Option<&[u8]>,
        certificate: Option<&Certificate>,
    ) -> Result<Option<Arc<TokenGrant>>, AccessRefused> {
        let grant = self.grant(token, certificate)?;
        match &grant {
            Some(grant) if !grant.roles.has_any(door.roles()) => Err(AccessRefused::Role),
            _ => Ok(grant),
        }
    }
}
