//! The connection of `tollgate feed tail` to a feed that requires TLS or a token.
//!
//! ```text
//! connect ──(TLS,) greeting, READY with the token──> READY ── topics ──> messages; PING answered
//! ```
//!
//! The ZeroMQ library's socket, which is used for other feeds, supports neither. Knows nothing of frames. What
//! stays true: with a CA, nothing is sent without TLS; a token is sent in the clear only to loopback, or over a
//! network that is configured as trusted.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_shared::escape::escaped;
use tollgate_tls::{ClientTls, Session, read_secret};
use tollgate_zmtp::{
    Decoder, Event, PeerLimits, SocketType, Token, Violation, opening_with, pong, subscribe,
};

use crate::exit::{Exit, Failure};
use crate::reach::{self, ReachArgs};

/// The lengths to which an aggregator's feed keeps.
const LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 4 << 10,
    frame_bytes_max: 1 << 20,
    command_bytes_max: 512,
    parts_max: 3,
};

/// How long connecting may take, from the name's lookup to READY.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Why the feed ended.
#[derive(Debug, thiserror::Error)]
enum FeedOver {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Violation(#[from] Violation),
    #[error("{0}")]
    Refused(Box<str>),
}

/// A connection to a feed.
pub(super) struct SecuredFeed {
    address: String,
    stream: TcpStream,
    session: Option<Session>,
    decoder: Decoder,
    read: Box<[u8]>,
    /// The range of `read` that has not been handled.
    unread: Range<usize>,
}

impl SecuredFeed {
    /// Connects, and subscribes to topics.
    ///
    /// # Errors
    ///
    /// If the feed does not answer in time, a file cannot be used, or the aggregator refuses the caller.
    pub(super) async fn connect(
        address: &str,
        reach: &ReachArgs,
        topics: impl Iterator<Item = &[u8]>,
    ) -> Result<Self, Failure> {
        let late = |_| Failure::Unavailable(format!("{address}: no answer within 10 s"));
        let opening = timeout(CONNECT_WITHIN, Self::open(address, reach)).await;
        let mut feed = opening.map_err(late)??;
        for topic in topics {
            let sent = feed.send(&subscribe(topic)).await;
            sent.map_err(|error| feed.failure(error.into()))?;
        }
        Ok(feed)
    }

    async fn open(address: &str, reach: &ReachArgs) -> Result<Self, Failure> {
        let unavailable = |error: io::Error| Failure::Unavailable(format!("{address}: {error}"));
        let of_file = |fault: tollgate_tls::TlsFault| Failure::Log {
            exit: Exit::NoInput,
            text: fault.to_string(),
        };
        let tls = reach.tls_files()?.map(ClientTls::load).transpose();
        let tls = tls.map_err(of_file)?;
        let token = reach.token_file.as_deref().map(read_secret).transpose();
        let token = token
            .map_err(of_file)?
            .map(|text| Token::new(text.as_bytes()));
        let stream = TcpStream::connect(address).await.map_err(unavailable)?;
        let peer = stream.peer_addr().map_err(unavailable)?.ip();
        let is_loopback = peer.to_canonical().is_loopback();
        if token.is_some() && tls.is_none() && !is_loopback && !reach::trusts_network() {
            return Err(Failure::Usage(format!(
                "{address}: a token is not sent over a network without TLS, expected a CA file (--ca, \
                 TOLLGATE_TLS_CA_FILE), or TOLLGATE_INSECURE=trusted-network"
            )));
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let session = match tls {
            None => None,
            Some(tls) => {
                let session = tls.session(host);
                let mut session = session.map_err(|fault| Failure::Usage(fault.to_string()))?;
                session.handshake(&stream).await.map_err(unavailable)?;
                Some(session)
            }
        };
        let mut feed = Self {
            address: address.to_owned(),
            stream,
            session,
            decoder: Decoder::new(SocketType::Sub, LIMITS),
            read: vec![0; READ_BYTES].into(),
            unread: 0..0,
        };
        let begun = feed.begin(token.as_ref()).await;
        begun.map_err(|over| feed.failure(over))?;
        Ok(feed)
    }

    /// Sends the greeting with the token, and waits until the peer is ready. Later messages are read by `next`.
    async fn begin(&mut self, token: Option<&Token>) -> Result<(), FeedOver> {
        self.send(&opening_with(SocketType::Sub, token)).await?;
        while !self.decoder.is_ready() {
            if self.unread.is_empty() {
                self.fill().await?;
            }
            self.event()?;
        }
        Ok(())
    }

    /// The next message, as its frames.
    ///
    /// # Errors
    ///
    /// If the feed has ended.
    pub(super) async fn next(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let next = self.message().await;
        next.map_err(|over| self.failure(over))
    }

    async fn message(&mut self) -> Result<Vec<Vec<u8>>, FeedOver> {
        loop {
            if self.unread.is_empty() {
                self.fill().await?;
            }
            match self.event()? {
                Some(Event::Message(parts)) => {
                    return Ok(parts.iter().map(|part| part.to_vec()).collect());
                }
                Some(Event::Ping(context)) => self.send(&pong(&context)).await?,
                _ => {}
            }
        }
    }

    /// The next event of what was read, if a complete one has arrived.
    fn event(&mut self) -> Result<Option<Event>, FeedOver> {
        let mut input = self.read.get(self.unread.clone()).unwrap_or_default();
        let event = self.decoder.next(&mut input);
        self.unread.start = self.unread.end - input.len();
        event.map_err(|violation| match self.decoder.peer_error() {
            Some(reason) => FeedOver::Refused(reason.into()),
            None => violation.into(),
        })
    }

    async fn fill(&mut self) -> io::Result<()> {
        loop {
            let read = match &mut self.session {
                Some(session) => session.read(&self.stream, &mut self.read),
                None => self.stream.try_read(&mut self.read),
            };
            match read {
                Ok(0) => return Err(io::Error::other("the aggregator closed the connection")),
                Ok(read) => {
                    self.unread = 0..read;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.readable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let written = match &mut self.session {
                Some(session) if bytes.is_empty() => session.flush(&self.stream).map(|()| 0),
                Some(session) => session.write(&self.stream, &[IoSlice::new(bytes)]),
                None if bytes.is_empty() => Ok(0),
                None => self.stream.try_write(bytes),
            };
            match written {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn failure(&self, over: FeedOver) -> Failure {
        match over {
            FeedOver::Refused(reason) => {
                reach::not_authorised(&self.address, &escaped(&reason).to_string())
            }
            over => Failure::Unavailable(format!("{}: {over}", self.address)),
        }
    }
}
