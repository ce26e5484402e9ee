//! A connection's bytes, with TLS or without; functions here only wait for the socket to be ready.

use std::io::{self, IoSlice};

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

#[cfg(feature = "tls")]
use super::socket::SocketFault;

/// A socket, and the TLS session over it.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    #[cfg(feature = "tls")]
    session: Option<tollgate_tls::Session>,
}

impl Wire {
    /// A connection without TLS.
    pub(super) const fn plain(stream: TcpStream) -> Self {
        Self {
            stream,
            #[cfg(feature = "tls")]
            session: None,
        }
    }

    /// A connection with TLS, after the handshake.
    #[cfg(feature = "tls")]
    pub(super) async fn secured(
        stream: TcpStream,
        mut session: tollgate_tls::Session,
    ) -> Result<Self, SocketFault> {
        session.handshake(&stream).await.map_err(tls_or_io)?;
        Ok(Self {
            stream,
            session: Some(session),
        })
    }

    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        self.stream.ready(interest).await
    }

    /// Reads what is available; 0 at the end.
    pub(super) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.read(&self.stream, buffer);
        }
        self.stream.try_read(buffer)
    }

    /// Writes as much of these pieces as the socket accepts.
    pub(super) fn try_write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.write(&self.stream, pieces);
        }
        self.stream.try_write_vectored(pieces)
    }

    /// Writes what the session has buffered. Returns whether nothing is left in it.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return match session.flush(&self.stream) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            };
        }
        Ok(true)
    }

    /// Whether there is something to read that the socket does not show.
    pub(super) fn has_plaintext(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.has_plaintext();
        }
        false
    }
}

/// Distinguishes faults of TLS from faults of the network.
#[cfg(feature = "tls")]
fn tls_or_io(error: io::Error) -> SocketFault {
    match error.kind() {
        io::ErrorKind::InvalidData => SocketFault::Tls(error.to_string()),
        // A peer without TLS closes the connection, or waits until it is given up.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => SocketFault::Tls(
            "TLS: the peer closed the connection during the handshake; it may not speak TLS"
                .to_owned(),
        ),
        _ => error.into(),
    }
}
