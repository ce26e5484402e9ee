//! A connection's bytes, with TLS or without; the only waiting here is for the socket to be ready.
//!
//! What stays true: once a session has begun, every byte goes through it.

use std::io::{self, IoSlice};
use std::sync::{Mutex, MutexGuard, OnceLock};

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tollgate_tls::{Certificate, Session};

/// A socket, and the TLS session over it, if any.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    session: OnceLock<Mutex<Session>>,
}

impl Wire {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            session: OnceLock::new(),
        }
    }

    /// Makes the handshake of a session; from then on everything goes through it.
    pub(super) async fn begin(&self, mut session: Session) -> io::Result<()> {
        session.handshake(&self.stream).await?;
        let _ = self.session.set(Mutex::new(session));
        Ok(())
    }

    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        let session = self.session.get()?.lock();
        Some(session.unwrap_or_else(|broken| broken.into_inner()))
    }

    /// Reads what is available; 0 at the end.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.session() {
            Some(mut session) => session.read(&self.stream, buffer),
            None => self.stream.try_read(buffer),
        }
    }

    /// Writes as much of these pieces as is taken.
    pub(super) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.session() {
            Some(mut session) => session.write(&self.stream, pieces),
            None => self.stream.try_write_vectored(pieces),
        }
    }

    /// Writes what the session has buffered; returns whether its buffer is empty.
    pub(super) fn flush(&self) -> io::Result<bool> {
        let Some(mut session) = self.session() else {
            return Ok(true);
        };
        match session.flush(&self.stream) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the session has decrypted bytes, which the socket does not show.
    pub(super) fn has_plaintext(&self) -> bool {
        self.session()
            .is_some_and(|session| session.has_plaintext())
    }

    /// The certificate that the peer showed.
    pub(super) fn peer(&self) -> Option<Certificate> {
        self.session()?.peer()
    }

    /// Waits for the socket.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.stream.ready(interest).await
    }
}
