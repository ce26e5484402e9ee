//! One TLS session over a TCP connection, with reads and writes that never wait.
//!
//! ```text
//! write(pieces) ──> records ──> socket, as much as it accepts         flush: the rest
//! read(buffer)  <── plaintext <── records <── socket
//! ```
//!
//! The caller waits until the socket is readable or writable, as without TLS; [`Session::wants_write`] and
//! [`Session::has_plaintext`] return what the socket alone does not show. What stays true: the bytes buffered in a
//! session are bounded, by [`WAITING_BYTES_MAX`] outwards, and by one record and a read inwards.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};

use rustls::Connection;
use tokio::net::TcpStream;

use crate::{Certificate, explain};

/// Bytes that a session may buffer for its socket: some records, so that a burst takes few system calls.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// A session.
pub struct Session {
    tls: Connection,
    /// Bytes of plaintext that were received and not read yet.
    plaintext: usize,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(WAITING_BYTES_MAX));
        Self { tls, plaintext: 0 }
    }

    /// Completes the handshake. The caller bounds its time.
    ///
    /// # Errors
    ///
    /// Why it failed; for a fault of TLS with an explanation for operators.
    pub async fn handshake(&mut self, stream: &TcpStream) -> io::Result<()> {
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut Socket(stream)) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        stream.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !self.tls.is_handshaking() {
                return Ok(());
            }
            stream.readable().await?;
            match self.fill(stream) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads plaintext without waiting; 0 at the connection's end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while there is nothing to read; otherwise why the session is over.
    pub fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(read) => {
                    self.plaintext = self.plaintext.saturating_sub(read);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer closed the connection without TLS's closing message. Every message has its length, so
                // this is an end like any other.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            if self.fill(stream)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Writes pieces without waiting; returns how many of their bytes the session or the socket accepted.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while no more bytes are accepted; otherwise why the session is over.
    pub fn write(&mut self, stream: &TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(stream)?;
        let taken = self.tls.writer().write_vectored(pieces)?;
        match self.flush(stream) {
            Ok(()) => Ok(taken),
            // The session has buffered them, and will send them later.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && 0 < taken => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Writes the buffered bytes.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while some are left; otherwise why the session is over.
    pub fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(stream)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether bytes are buffered for the socket.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether plaintext was received and not read: the socket may have no more bytes.
    pub const fn has_plaintext(&self) -> bool {
        0 < self.plaintext
    }

    /// The certificate that the peer showed.
    pub fn peer(&self) -> Option<Certificate> {
        Certificate::of_peer(self.tls.peer_certificates())
    }

    /// Reads the available bytes of the socket; returns how many, 0 at its end.
    fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let read = self.tls.read_tls(&mut Socket(stream))?;
        match self.tls.process_new_packets() {
            Ok(state) => self.plaintext = state.plaintext_bytes_to_read(),
            Err(error) => {
                // Sends an alert to the peer, if the socket accepts it.
                let _ = self.tls.write_tls(&mut Socket(stream));
                return Err(io::Error::new(io::ErrorKind::InvalidData, explain(&error)));
            }
        }
        Ok(read)
    }
}

/// A socket whose reads and writes return `WouldBlock` instead of waiting.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
