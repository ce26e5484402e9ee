//! Bounds on what a peer may take of an aggregator: the numbers, with their reasons.
//!
//! All of them are options (`listen.*`, `feed.*`), so that a test can lower them and an operator can raise
//! them. Knows nothing of sockets.

use std::time::Duration;

use tollgate_zmtp::PeerLimits;

/// The bounds on connections to the ports for agents and for the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections, if there are enough descriptors: each takes some KiB, including memory of the operating system.
    pub connections: usize,
    /// How long greeting and READY may take, from the moment at which the connection was accepted.
    pub handshake: Duration,
    /// Connections of one address (IPv6: one /64) that are not READY. At the bound the oldest ends: an honest
    /// handshake takes milliseconds, so the oldest connection is not doing one.
    pub pending_per_address: usize,
    /// Connections in all that are not READY. At the bound the oldest ends.
    pub pending: usize,
    /// How long a message may take from its first byte to its last.
    pub message: Duration,
    /// Bytes of unfinished messages in all. At the bound the connection with the most ends.
    pub unfinished_bytes: usize,
    /// Bytes of appends under way to the log, of one connection. At the bound it is not read.
    pub appends_bytes_each: usize,
    /// The same of all connections of one address, so that no host fills the log faster than it is ruled. At the
    /// bound none of them is read until half of it is free.
    pub appends_bytes_of_address: usize,
    /// Bytes of appends under way to the log, in all. At the bound no connection is read.
    pub appends_bytes: usize,
    /// How long a connection may be silent before it is pinged.
    pub ping: Duration,
    /// How long a connection may be silent before it ends.
    pub silence: Duration,
    /// The same for a subscriber that understands no pings (ZMTP 3.0) and takes nothing either. Topics without frames
    /// for minutes are normal, so this is long: it ends connections whose peers disappeared.
    pub unpinged_silence: Duration,
    /// How long a peer for which bytes wait may take none of them before its connection ends.
    pub stall: Duration,
    /// Bytes that wait for all connections. At the bound the connection with the most ends.
    pub queued_bytes: usize,
    /// Bytes of frames that wait for one subscriber. Frames beyond it are dropped for that subscriber.
    pub subscriber_bytes: usize,
    /// Topics that one connection may subscribe to.
    pub subscriptions: usize,
    /// Topics that all connections together may subscribe to, about 240 bytes each. The connections of one address
    /// may have half of them, so that one address cannot keep all others out.
    pub subscriptions_all: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        const SECOND: Duration = Duration::from_secs(1);
        Self {
            connections: 20_000,
            handshake: 10 * SECOND,
            pending_per_address: 64,
            pending: 1_024,
            message: 5 * SECOND,
            unfinished_bytes: 64 << 20,
            appends_bytes_each: 1 << 20,
            appends_bytes_of_address: 2 << 20,
            appends_bytes: 64 << 20,
            ping: 2 * SECOND,
            silence: 10 * SECOND,
            unpinged_silence: 600 * SECOND,
            stall: 10 * SECOND,
            queued_bytes: 256 << 20,
            subscriber_bytes: 1 << 20,
            subscriptions: 20_100,
            subscriptions_all: 2_000_000,
        }
    }
}

/// What an agent's connection may send: a message has at most 1,000,000 bytes, and follows an empty frame if the
/// peer is a REQ socket.
pub const LINK_LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 4 << 10,
    frame_bytes_max: 1 << 20,
    command_bytes_max: 512,
    parts_max: 3,
};

/// What a subscriber may send: topics, which have 33 bytes, and pings.
pub const FEED_LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 4 << 10,
    frame_bytes_max: 512,
    command_bytes_max: 512,
    parts_max: 1,
};

/// Bytes that may wait for an agent while more parts of a snapshot are made for it, or more of its messages
/// are read.
pub const ANSWERS_BYTES: usize = 256 << 10;
