//! The token that a READY may contain, by which the peer identifies the connecting side.
//!
//! ```text
//! READY  Socket-Type: DEALER  X-Tollgate-Token: tg1_…
//! ```
//!
//! In ZMTP, names of an application's own properties begin with `X-`; peers ignore unknown ones. Knows nothing
//! of what a token allows. What stays true: `Debug` does not show it.

use std::fmt;

/// The name of the property.
pub const TOKEN_PROPERTY: &str = "X-Tollgate-Token";

/// A token, which is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl Token {
    /// A token with these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Its bytes, to compare or send them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
