//! What a listener asks of those who connect: TLS or not, a token or not.
//!
//! What stays true: where tokens are asked for, nobody is let in without a grant for that listener.

use std::sync::Arc;

use tollgate_tls::{Certificate, ServerTls, utc};

use super::grant::{Role, TokenGrant};
use super::handshakes::Handshakes;
use super::tokens::TokenBook;

/// What somebody connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// The address for agents.
    Link,
    /// The denial feed.
    Feed,
}

impl PortKind {
    /// Who may come in.
    const fn roles(self) -> &'static [Role] {
        match self {
            Self::Link => &[Role::Agent, Role::Relay],
            Self::Feed => &[Role::Agent, Role::Relay, Role::Viewer, Role::Member],
        }
    }
}

/// Why somebody is not let in. The texts go to the caller, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefused {
    /// Neither a token nor a certificate that stands for one.
    #[error("no token, expected one of the aggregator's tokens file (TOLLGATE_TOKEN_FILE)")]
    NoToken,
    /// It is not in the tokens file.
    #[error(
        "the token is not in the aggregator's tokens file: it was revoked, or is another fleet's"
    )]
    Unknown,
    /// The names of the certificate are not in the tokens file.
    #[error("no name of the certificate is in the aggregator's tokens file, and there is no token")]
    UnknownCertificate,
    /// It is over.
    #[error("the token has expired")]
    Expired,
    /// It does not allow this.
    #[error("the token's roles do not allow this")]
    Role,
    /// It is for some namespaces, and what is asked for is not, or not only, of one.
    #[error(
        "the token is for some namespaces alone, expected a list of one resource of them (--resource NAME, ?resource=NAME)"
    )]
    Namespace,
    /// The agent's name is not one that the token is for.
    #[error("the token is not for agents of this name")]
    Agent,
}

/// What a listener asks for.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Its certificate, and who makes its handshakes; `None`: it speaks without TLS.
    pub tls: Option<(Arc<ServerTls>, Arc<Handshakes>)>,
    /// Its tokens; `None`: nobody is asked for one.
    pub tokens: Option<Arc<TokenBook>>,
}

impl Access {
    /// What a caller may do that shows this; `Ok(None)` where nobody is asked.
    ///
    /// # Errors
    ///
    /// Why it is not let in.
    pub fn grant(
        &self,
        token: Option<&[u8]>,
        certificate: Option<&Certificate>,
    ) -> Result<Option<Arc<TokenGrant>>, AccessRefused> {
        let Some(book) = &self.tokens else {
            return Ok(None);
        };
        let tokens = book.tokens();
        // A token that is shown counts, and not the certificate beside it.
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

    /// The same of a connection to a door.
    ///
    /// # Errors
    ///
    /// Why it is not let in.
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
