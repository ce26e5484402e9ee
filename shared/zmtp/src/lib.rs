//! ZeroMQ's wire protocol for peers that are not trusted: ZMTP 3 with the NULL mechanism, without I/O.
//!
//! ```text
//! connection   greeting (64 bytes), READY, then messages and commands
//! frame        [flags][length: 1 or 8 bytes][body]    flags: 1 more, 2 long, 4 command
//! message      frames, all but the last with `more`
//! command      one frame: [length of the name][name][data]
//! ```
//!
//! ```
//! use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, message, opening};
//!
//! let mut router = Decoder::new(SocketType::Router, PeerLimits::default());
//! let mut bytes = opening(SocketType::Dealer).to_vec();
//! bytes.extend_from_slice(&message(&[b"hello"]));
//! let mut input = &bytes[..];
//! assert!(matches!(router.next(&mut input), Ok(Some(Event::Ready { .. }))));
//! let Ok(Some(Event::Message(parts))) = router.next(&mut input) else { panic!() };
//! assert_eq!(parts[0], "hello");
//! ```
//!
//! [`Decoder`] turns the bytes of a connection into [`Event`]s, or into a [`Violation`], after which
//! the caller has to close the connection. Sockets, clocks and queues belong to the caller, which
//! calls [`Decoder::next`] with the bytes that it has read, in pieces of any size.
//!
//! What stays true: an announced length is compared with its bound before anything is kept, and memory
//! grows with the bytes received, never with an announced length. Identities of peers are ignored: the
//! caller identifies a connection by its own number.

mod command;
mod decode;
mod encode;
mod subscriptions;
mod token;

pub use command::PING_CONTEXT_BYTES_MAX;
pub use decode::{Decoder, Event};
pub use encode::{cancel, error, message, opening, opening_with, ping, pong, subscribe};
pub use subscriptions::Subscriptions;
pub use token::{TOKEN_PROPERTY, Token};

/// Number of bytes of a greeting.
pub const GREETING_BYTES: usize = 64;

/// The type of a socket, which determines its possible peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Sends to a ROUTER, without waiting for answers.
    Dealer,
    /// Answers DEALERs (and REQs).
    Router,
    /// Publishes to SUBs (and XSUBs).
    Pub,
    /// Follows a PUB (or an XPUB).
    Sub,
}

impl SocketType {
    /// Its name in READY.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dealer => "DEALER",
            Self::Router => "ROUTER",
            Self::Pub => "PUB",
            Self::Sub => "SUB",
        }
    }

    /// The names of the types that its peers may have.
    pub const fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Dealer => &["ROUTER", "REP"],
            Self::Router => &["DEALER", "REQ"],
            Self::Pub => &["SUB", "XSUB"],
            Self::Sub => &["PUB", "XPUB"],
        }
    }
}

/// Bounds on what a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Bytes of its READY.
    pub ready_bytes_max: usize,
    /// Bytes of a frame of a message.
    pub frame_bytes_max: usize,
    /// Bytes of a command after READY, such as SUBSCRIBE.
    pub command_bytes_max: usize,
    /// Frames of a message.
    pub parts_max: usize,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            ready_bytes_max: 4 << 10,
            frame_bytes_max: 1 << 20,
            command_bytes_max: 512,
            parts_max: 3,
        }
    }
}

/// A fault of a peer that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It does not speak ZMTP 3.
    #[error("greeting: byte {at} is {found:#04x}, expected {expected}")]
    Greeting {
        /// The offset in the greeting.
        at: usize,
        /// The byte found there.
        found: u8,
        /// The byte that is expected there.
        expected: &'static str,
    },
    /// It uses another mechanism than NULL.
    #[error("greeting: another mechanism, expected NULL")]
    Mechanism,
    /// Its first frame after the greeting is not a READY.
    #[error("the first frame is not the command READY")]
    NotReady,
    /// Its READY names no socket type, or one that may not be a peer of this one.
    #[error("socket type: expected one of {expected:?}")]
    PeerType {
        /// The names that are expected.
        expected: &'static [&'static str],
    },
    /// A frame announces more bytes than are allowed.
    #[error("a frame of {found} bytes, expected at most {allowed}")]
    FrameTooLong {
        /// The announced length.
        found: u64,
        /// The bound.
        allowed: usize,
    },
    /// A message has more frames than are allowed.
    #[error("a message of more than {allowed} frames")]
    TooManyParts {
        /// The bound.
        allowed: usize,
    },
    /// Flags that do not exist, or a command of several frames.
    #[error("flags {found:#04x} of a frame, expected 0 to 4, or 6")]
    Flags {
        /// The flags.
        found: u8,
    },
    /// A command that cannot be read.
    #[error("command {name}: {wrong}")]
    Command {
        /// The command.
        name: &'static str,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// A message to a publisher that is not a subscription.
    #[error("a message to a publisher that neither subscribes (1) nor cancels (0)")]
    NotASubscription,
    /// The peer sent the command ERROR.
    #[error("the peer sent the command ERROR")]
    PeerError,
}

impl Violation {
    /// A name of the kind, for counters.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Greeting { .. } | Self::Mechanism => "greeting",
            Self::NotReady | Self::PeerType { .. } => "ready",
            Self::FrameTooLong { .. } => "frame_bytes",
            Self::TooManyParts { .. } => "frame_parts",
            Self::Flags { .. } | Self::Command { .. } => "malformed",
            Self::NotASubscription => "subscription",
            Self::PeerError => "peer_error",
        }
    }
}
