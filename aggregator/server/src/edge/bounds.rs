//! What a peer may take of an aggregator: the numbers, with their reasons.
//!
//! All of them are options (`listen.*`, `feed.*`), so that a test can make them small and an operator
//! large. Knows nothing of sockets.

use std::time::Duration;

use tollgate_zmtp::PeerLimits;

/// The bounds on connections to the ports for agents and for the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections, where descriptors allow more: each takes some KiB, of the operating system's too.
    pub connections: usize,
    /// How long greeting and READY may take, from the moment the connection was accepted.
    pub handshake: Duration,
    /// Connections of one address (IPv6: one /64) that are not READY. The oldest makes room: an honest
    /// handshake takes milliseconds, so whoever is oldest is waiting for something else.
    pub pending_per_address: usize,
    /// Connections in all that are not READY. The oldest makes room.
    pub pending: usize,
    /// How long a message may take from its first byte to its last.
    pub message: Duration,
    /// Bytes of unfinished messages in all. At the bound the connection with the most ends.
    pub unfinished_bytes: usize,
    /// Bytes of appends under way to the log, of one connection. At the bound it is not read.
    pub appends_bytes_each: usize,
    /// The same of all connections of one address, so that no host fills the log faster than it is ruled. At the bound
    /// none of them is read until half of it is free.
    pub appends_bytes_of_address: usize,
    /// Bytes of appends under way to the log, in all. At the bound nobody is read.
    pub appends_bytes: usize,
    /// How long a connection may say nothing before it is pinged.
    pub ping: Duration,
    /// How long a connection may say nothing before it ends.
    pub silence: Duration,
    /// The same of a listener that understands no pings (ZMTP 3.0), and takes nothing either. Topics that say
    /// nothing for minutes are ordinary, so this is long: it is for those that went away unseen.
    pub unpinged_silence: Duration,
    /// How long a connection to which bytes wait may take none of them before it ends.
    pub stall: Duration,
    /// Bytes that wait for all connections. At the bound the connection with the most ends.
    pub queued_bytes: usize,
    /// Bytes of frames that wait for one subscriber. Frames beyond it are left out for that subscriber.
    pub subscriber_bytes: usize,
    /// Topics that one connection may subscribe to.
    pub subscriptions: usize,
    /// Topics that all connections together may subscribe to, of some 240 bytes each. Those of one address may have
    /// half of them, so that one address keeps nobody else out.
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
            ping: SECOND,
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

/// What a connection of an agent may send: a message is at most 1,000,000 bytes, behind an empty frame
/// where the peer is a REQ.
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

/// Bytes that may wait for an agent while more of a snapshot is made for it, or more of its messages
/// are read.
pub const ANSWERS_BYTES: usize = 256 << 10;
