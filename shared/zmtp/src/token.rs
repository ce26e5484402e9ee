//! The token that a READY may show, so that the peer knows who connects.
//!
//! ```text
//! READY  Socket-Type: DEALER  X-Tollgate-Token: tg1_…
//! ```
//!
//! ZMTP has properties of applications begin with `X-`; peers that do not know one ignore it. Knows nothing of
//! what a token allows. What stays true: `Debug` does not show it.

use std::fmt;

/// The name of the property.
pub const TOKEN_PROPERTY: &str = "X-Tollgate-Token";

/// A token, which is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Its bytes, for whoever compares or sends it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
