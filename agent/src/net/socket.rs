//! One connection to an aggregator, in ZeroMQ's wire format: whatever the peer sends is bounded.
//!
//! ```text
//! connect ──greeting, READY both ways──> messages; PING is answered; PING is sent in a silence
//! ```
//!
//! What stays true: memory grows with the bytes received, up to one message of [`LIMITS`]; a peer that breaks the
//! protocol, sends a message too slowly, sends nothing or reads nothing is given up; no input causes a panic.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tollgate_shared::log_lines::excerpt;
use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, Violation, opening_with, ping, pong};

use super::credentials::Credentials;
use super::wire::Wire;

/// A message of an aggregator has at most 1,000,000 bytes, and its topic.
const LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 4 << 10,
    frame_bytes_max: 1 << 20,
    command_bytes_max: 512,
    parts_max: 3,
};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Bytes that may wait to be sent before more is accepted.
const OUT_BYTES_MAX: usize = 1 << 20;

/// How long a message may take from its first byte to its last.
const MESSAGE_WITHIN: Duration = Duration::from_secs(5);

/// How long a peer may send nothing before it is pinged, and before it is given up. An agent greets each aggregator once a
/// second, so a link that works needs no pings.
const PING_AFTER: Duration = Duration::from_secs(2);
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long a peer may read nothing while bytes wait for it.
const STALL_MAX: Duration = Duration::from_secs(10);

/// If more than this passed between two looks, this process did not run, and the peer is not to blame. In a silence it
/// looks every [`PING_AFTER`].
const AWAY_MIN: Duration = Duration::from_secs(4);

/// Why a connection is given up. Text from a peer is cut for the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketFault {
    /// The address is invalid.
    #[error("\"{}\" is not an address, expected tcp://host:port", excerpt(.0))]
    Address(Box<str>),
    /// The name has no address.
    #[error("no address is found: {0}")]
    Name(io::Error),
    /// A fault of the network, or the peer closed the connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer's bytes break the protocol.
    #[error("{0}")]
    Violation(Violation),
    /// The peer answers a plaintext greeting by TLS.
    #[error(
        "the aggregator speaks TLS and this agent has no CA file, expected one (TOLLGATE_TLS_CA_FILE)"
    )]
    SpeaksTls,
    /// There was no connection in time, or no READY.
    #[error("not connected, or not READY, in time")]
    Late,
    /// Time ran out.
    #[error("{0}")]
    Slow(&'static str),
    /// TLS, its certificates or files.
    #[error("{}", excerpt(.0))]
    Tls(String),
    /// The peer denies this agent access, with its reason.
    #[error("refused: {}", excerpt(.0))]
    Refused(Box<str>),
    /// The network is not declared as trusted, and nothing protects what would be sent over it.
    #[error(
        "not a loopback address, and no CA file: set TOLLGATE_TLS_CA_FILE, or TOLLGATE_INSECURE=trusted-network"
    )]
    Clear,
}

impl From<Violation> for SocketFault {
    fn from(violation: Violation) -> Self {
        match violation {
            // The first byte of an alert, or of a handshake (RFC 8446, 5.1).
            Violation::Greeting {
                at: 0,
                found: 0x15 | 0x16,
                ..
            } => Self::SpeaksTls,
            violation => Self::Violation(violation),
        }
    }
}

impl SocketFault {
    /// Whether the fault is what the peer sent, and not the network.
    pub(super) fn is_violation(&self) -> bool {
        matches!(self, Self::Violation(_) | Self::Slow(_))
    }

    /// Whether the fault is in credentials that an operator has to correct.
    pub(super) const fn is_of_credentials(&self) -> bool {
        matches!(
            self,
            Self::Tls(_) | Self::SpeaksTls | Self::Refused(_) | Self::Clear
        )
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Socket {
    wire: Wire,
    decoder: Decoder,
    /// The bytes that were read, and the range that is not yet handled.
    read: Box<[u8]>,
    unread: std::ops::Range<usize>,
    out: VecDeque<Bytes>,
    out_bytes: usize,
    pings: bool,
    is_pinged: bool,
    last_received: Instant,
    looked: Instant,
    unfinished: Option<Instant>,
    stalled: Option<Instant>,
}

impl Socket {
    /// Connects to the first of these addresses that answers, and waits for the peer's READY. The caller limits the
    /// time to `until`.
    pub(super) async fn connect(
        role: SocketType,
        addresses: &[SocketAddr],
        credentials: &Credentials,
        until: Instant,
    ) -> Result<Self, SocketFault> {
        let stream = reach(addresses, until).await?;
        stream.set_nodelay(true)?;
        let (wire, token) = credentials.secure(stream).await?;
        let now = Instant::now();
        let mut socket = Self {
            wire,
            decoder: Decoder::new(role, LIMITS),
            read: vec![0; READ_BYTES].into(),
            unread: 0..0,
            out: VecDeque::new(),
            out_bytes: 0,
            pings: false,
            is_pinged: false,
            last_received: now,
            looked: now,
            unfinished: None,
            stalled: None,
        };
        socket.send(opening_with(role, token.as_ref()));
        socket.until(|socket| socket.decoder.is_ready()).await?;
        Ok(socket)
    }

    /// Queues bytes, which are sent while the caller awaits [`Self::next`].
    pub(super) fn send(&mut self, bytes: Bytes) {
        self.out_bytes += bytes.len();
        self.out.push_back(bytes);
    }

    /// Whether [`Self::send`] may be given more.
    pub(super) fn has_room(&self) -> bool {
        self.out_bytes < OUT_BYTES_MAX
    }

    /// The next message, as its frames. Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// Why the connection is no longer usable.
    pub(super) async fn next(&mut self) -> Result<Vec<Bytes>, SocketFault> {
        loop {
            if let Some(message) = self.handle()? {
                return Ok(message);
            }
            self.exchange().await?;
        }
    }

    async fn until(&mut self, is: impl Fn(&Self) -> bool) -> Result<(), SocketFault> {
        // What follows READY is handled when the caller asks for messages.
        while !is(self) {
            self.exchange().await?;
            let event = self.next_event()?;
            if let Some(Event::Ready { pings, .. }) = event {
                self.pings = pings;
            }
        }
        Ok(())
    }

    /// Handles what was read, up to the next message.
    fn handle(&mut self) -> Result<Option<Vec<Bytes>>, SocketFault> {
        let mut completed = false;
        while !self.unread.is_empty() {
            let Some(event) = self.next_event()? else {
                break;
            };
            completed = true;
            match event {
                Event::Message(parts) => {
                    self.unfinished = None;
                    return Ok(Some(parts));
                }
                // A flood of pings is answered only as fast as the answers are sent.
                Event::Ping(context) if self.has_room() => self.send(pong(&context)),
                _ => {}
            }
        }
        self.unfinished = match self.decoder.is_between_messages() {
            true => None,
            false if completed => Some(Instant::now()),
            false => Some(self.unfinished.unwrap_or_else(Instant::now)),
        };
        Ok(None)
    }

    /// The next event of the bytes that were read.
    fn next_event(&mut self) -> Result<Option<Event>, SocketFault> {
        let mut input = self.read.get(self.unread.clone()).unwrap_or_default();
        let event = self.decoder.next(&mut input);
        self.unread.start = self.unread.end - input.len();
        event.map_err(|violation| match self.decoder.peer_error() {
            Some(reason) => SocketFault::Refused(reason.into()),
            None => violation.into(),
        })
    }

    /// Writes and reads what goes without waiting, or waits until something does.
    async fn exchange(&mut self) -> Result<(), SocketFault> {
        // A peer that sends without pause must not keep this thread from its other connections.
        tokio::task::coop::consume_budget().await;
        self.look(Instant::now())?;
        let is_empty = self.write()?;
        // The socket does not show what TLS has decrypted and nobody has read.
        if self.wire.has_plaintext() {
            return self.read();
        }
        let interest = match is_empty {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        tokio::select! {
            ready = self.wire.ready(interest) => {
                let ready = ready?;
                if ready.is_readable() || ready.is_read_closed() {
                    self.read()?;
                }
            }
            () = tokio::time::sleep(PING_AFTER) => {}
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), SocketFault> {
        match self.wire.try_read(&mut self.read) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => {
                self.unread = 0..read;
                self.last_received = Instant::now();
                self.is_pinged = false;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(SocketFault::Tls(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what the socket accepts without waiting. Returns whether nothing is left.
    fn write(&mut self) -> Result<bool, SocketFault> {
        while !self.out.is_empty() {
            let pieces: Vec<IoSlice<'_>> = self
                .out
                .iter()
                .take(16)
                .map(|one| IoSlice::new(one))
                .collect();
            match self.wire.try_write(&pieces) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(written) => {
                    self.take_off(written);
                    self.stalled = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert_with(Instant::now);
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.wire.flush()?)
    }

    fn take_off(&mut self, mut written: usize) {
        self.out_bytes = self.out_bytes.saturating_sub(written);
        while let Some(first) = self.out.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.out.pop_front();
        }
    }

    /// Checks whether the peer still reads and sends in time.
    fn look(&mut self, now: Instant) -> Result<(), SocketFault> {
        if AWAY_MIN < now.saturating_duration_since(self.looked) {
            self.last_received = now;
            self.unfinished = self.unfinished.map(|_| now);
            self.stalled = self.stalled.map(|_| now);
        }
        self.looked = now;
        let is_over = |since: Option<Instant>, allowed: Duration| {
            since.is_some_and(|since| allowed <= now.saturating_duration_since(since))
        };
        if is_over(self.unfinished, MESSAGE_WITHIN) {
            return Err(SocketFault::Slow("a message did not end within 5 s"));
        }
        if is_over(self.stalled, STALL_MAX) {
            return Err(SocketFault::Slow("the peer accepted nothing for 10 s"));
        }
        let silent = now.saturating_duration_since(self.last_received);
        if self.pings && SILENCE_MAX <= silent {
            return Err(SocketFault::Slow("nothing arrived for 10 s"));
        }
        if self.pings && PING_AFTER <= silent && !self.is_pinged {
            self.is_pinged = true;
            self.send(ping());
        }
        Ok(())
    }
}

/// A connection to the first of these addresses that answers. Each has its share of the time that is left, so that one
/// behind a firewall that drops packets does not hide the next.
async fn reach(addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, SocketFault> {
    let mut fault = SocketFault::Late;
    for (index, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let untried = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        match timeout(left / untried, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => fault = refused.into(),
            Err(_) => fault = SocketFault::Late,
        }
    }
    Err(fault)
}

#[cfg(test)]
mod tests;
