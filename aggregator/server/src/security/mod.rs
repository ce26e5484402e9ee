//! Who may do what: tokens, roles, and the certificates of the listeners.
//!
//! ```text
//! tokens file ──> Tokens ──┐                       ┌──> link, feed: a grant a connection
//! listen.tls  ──> TLS ─────┴──> Access (a listener)┴──> HTTP: a grant a request
//!        └────── checked twice a second (`serve`); connections end if their token or certificate no longer holds
//! ```
//!
//! A listener on loopback requires nothing of its callers as long as neither is configured. Knows nothing of what is
//! sent over a connection; the engine knows nothing of grants. What stays true: only hashes of tokens are kept; no
//! secret is in a log line, a `Debug` or an answer.

mod access;
mod counters;
mod grant;
mod handshakes;
mod hearing;
mod tokens;

pub use access::{Access, AccessRefused, PortKind};
pub use counters::{Insecure, WatchCounters};
pub use grant::{Proof, Role, Roles, TokenGrant};
pub use handshakes::Handshakes;
pub use hearing::{GrantScope, Hearing};
pub use tokens::{TOKEN_PREFIX, TokenBook, Tokens, TokensFault, hash_of};
