//! Why a connection ended: what was found, and what is allowed.

use std::fmt;
use std::time::Duration;

use tollgate_zmtp::Violation;

use crate::security::AccessRefused;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed it, or the network did.
    Gone,
    /// This process stops.
    Stopped,
    /// The peer violates ZeroMQ's protocol, or the lengths in it.
    Violation(Violation),
    /// READY, or a hello or a topic after it, did not come in time.
    Handshake {
        /// The bound.
        allowed: Duration,
    },
    /// It was the oldest of too many of its address that are not READY.
    PendingOfAddress {
        /// The bound.
        allowed: usize,
    },
    /// It was the oldest of too many that are not READY.
    Pending {
        /// The bound.
        allowed: usize,
    },
    /// Its address has as many connections as one may have.
    ConnectionsOfAddress {
        /// The bound.
        allowed: usize,
    },
    /// A message was not complete in time.
    SlowMessage {
        /// Bytes of it that had arrived.
        found: usize,
        /// The bound.
        allowed: Duration,
    },
    /// It had the most unfinished bytes when all connections together had too many.
    Unfinished {
        /// Its bytes.
        found: usize,
        /// The bound on all.
        allowed: usize,
    },
    /// It was silent, even after a ping.
    Silent {
        /// The bound.
        allowed: Duration,
    },
    /// It took nothing of the bytes that waited for it.
    Stalled {
        /// Bytes that waited.
        found: usize,
        /// The bound.
        allowed: Duration,
    },
    /// It had the most bytes waiting when all connections together had too many.
    Backlog {
        /// Its bytes.
        found: usize,
        /// The bound on all.
        allowed: usize,
    },
    /// It subscribed to something that is not a whole topic.
    Topic {
        /// Bytes of its subscription.
        found: usize,
        /// Bytes of a topic.
        allowed: usize,
    },
    /// It subscribed to too many topics.
    Subscriptions {
        /// How many.
        found: usize,
        /// The bound.
        allowed: usize,
    },
    /// It subscribed to one topic more than its address may have.
    SubscriptionsOfAddress {
        /// The bound.
        allowed: usize,
    },
    /// It subscribed to one topic more than all may have.
    SubscriptionsOfAll {
        /// The bound.
        allowed: usize,
    },
    /// The peer does not use TLS, or its TLS was refused; the connection's detail has the reason.
    Tls,
    /// Access was refused.
    Refused(AccessRefused),
    /// Its token or certificate does not hold any more: it was revoked, changed, or has expired.
    Revoked,
    /// It sent a message that the link does not know.
    Garbage {
        /// The bytes of the message.
        found: usize,
    },
}

/// The names of the reasons, as counters have them.
pub const REASONS: [&str; 23] = [
    "gone",
    "greeting",
    "ready",
    "frame_bytes",
    "frame_parts",
    "malformed",
    "peer_error",
    "subscription",
    "subscriptions",
    "subscriptions_of_address",
    "subscriptions_of_all",
    "handshake",
    "pending_of_address",
    "pending",
    "connections_of_address",
    "slow_message",
    "unfinished",
    "silent",
    "stalled",
    "backlog",
    "tls",
    "access",
    "revoked",
];

impl Ended {
    /// The name of the reason in [`REASONS`]; `None` if this process stops, since its counters are not read any more.
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::Stopped => return None,
            Self::Gone => "gone",
            Self::Violation(violation) => violation.kind(),
            Self::Handshake { .. } => "handshake",
            Self::PendingOfAddress { .. } => "pending_of_address",
            Self::Pending { .. } => "pending",
            Self::ConnectionsOfAddress { .. } => "connections_of_address",
            Self::SlowMessage { .. } => "slow_message",
            Self::Unfinished { .. } => "unfinished",
            Self::Silent { .. } => "silent",
            Self::Stalled { .. } => "stalled",
            Self::Backlog { .. } => "backlog",
            Self::Topic { .. } => "subscription",
            Self::Subscriptions { .. } => "subscriptions",
            Self::SubscriptionsOfAddress { .. } => "subscriptions_of_address",
            Self::SubscriptionsOfAll { .. } => "subscriptions_of_all",
            Self::Garbage { .. } => "malformed",
            Self::Tls => "tls",
            Self::Refused(_) => "access",
            Self::Revoked => "revoked",
        })
    }

    /// Whether it is logged: not if the peer itself closed the connection.
    pub(super) fn is_logged(&self) -> bool {
        !matches!(self, Self::Gone | Self::Stopped)
    }

    /// The message to the peer, where it helps the peer's operator and nobody else.
    pub(super) fn told_to_peer(&self) -> Option<String> {
        match self {
            Self::Refused(refused) => Some(refused.to_string()),
            Self::Revoked | Self::Subscriptions { .. } => Some(self.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "the peer is gone"),
            Self::Stopped => write!(f, "this process stops"),
            Self::Violation(violation) => violation.fmt(f),
            Self::Handshake { allowed } => {
                write!(
                    f,
                    "no greeting, READY, and hello or topic, expected within {allowed:?}"
                )
            }
            Self::PendingOfAddress { allowed } => write!(
                f,
                "the oldest handshake of an address with more than {allowed} of them"
            ),
            Self::Pending { allowed } => {
                write!(f, "the oldest of more than {allowed} handshakes")
            }
            Self::ConnectionsOfAddress { allowed } => write!(
                f,
                "one connection more than the {allowed} that one address may have, half of all places"
            ),
            Self::SlowMessage { found, allowed } => write!(
                f,
                "an unfinished message of {found} bytes, expected its end within {allowed:?}"
            ),
            Self::Unfinished { found, allowed } => write!(
                f,
                "unfinished messages of {found} bytes, expected at most {allowed} of all connections"
            ),
            Self::Silent { allowed } => write!(f, "silence, expected a byte within {allowed:?}"),
            Self::Stalled { found, allowed } => write!(
                f,
                "{found} bytes wait for it, expected the peer to read some within {allowed:?}"
            ),
            Self::Backlog { found, allowed } => write!(
                f,
                "{found} bytes wait for it, expected at most {allowed} for all connections"
            ),
            Self::Topic { found, allowed } => write!(
                f,
                "a subscription to {found} bytes, expected a whole topic of {allowed}"
            ),
            Self::Subscriptions { found, allowed } => {
                write!(f, "{found} subscriptions, expected at most {allowed}")
            }
            Self::SubscriptionsOfAddress { allowed } => write!(
                f,
                "one subscription more than the {allowed} that connections of one address may have"
            ),
            Self::SubscriptionsOfAll { allowed } => write!(
                f,
                "one subscription more than the {allowed} that all connections may have"
            ),
            Self::Tls => write!(
                f,
                "expected TLS, and a valid certificate if the peer sends one"
            ),
            Self::Refused(refused) => refused.fmt(f),
            Self::Revoked => write!(
                f,
                "the token or certificate was revoked, has changed, or has expired"
            ),
            Self::Garbage { found } => write!(
                f,
                "a message of {found} bytes, expected a hello, append or ask of the connection's one agent"
            ),
        }
    }
}
