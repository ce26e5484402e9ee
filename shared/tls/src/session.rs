//! One TLS session over a TCP connection whose reading and writing never wait.
//!
//! ```text
//! write(pieces) ──> records ──> socket, as far as it takes them       flush: what it did not take before
//! read(buffer)  <── plaintext <── records <── socket
//! ```
//!
//! The caller waits for the socket to become readable or writable, as without TLS; [`Session::wants_write`] and
//! [`Session::has_plaintext`] say what the socket alone does not show. What stays true: what waits in the session is
//! bounded, by [`WAITING_BYTES_MAX`] outwards and by one record and a read inwards.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};

use rustls::Connection;
use tokio::net::TcpStream;

use crate::{Certificate, explain};

/// Bytes that may wait in a session for its socket: some records, so that a burst takes few system calls.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// A session.
pub struct Session {
    tls: Connection,
    /// Bytes of plaintext that have come and have not been read.
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
    /// Why it failed, in words for an operator where TLS is the reason.
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
    /// `WouldBlock` while there is nothing; else why the session is over.
    pub fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(read) => {
                    self.plaintext = self.plaintext.saturating_sub(read);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer is gone without a word: to whoever reads that is an end like another, since every
                // message has its length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            if self.fill(stream)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Writes pieces without waiting; how many of their bytes were taken, by the session or the socket.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while nothing more is taken; else why the session is over.
    pub fn write(&mut self, stream: &TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(stream)?;
        let taken = self.tls.writer().write_vectored(pieces)?;
        match self.flush(stream) {
            Ok(()) => Ok(taken),
            // They are the session's now, and go out by and by.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && 0 < taken => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Writes what waits in the session.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while something is left; else why the session is over.
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

    /// Whether something waits in the session for the socket.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Whether plaintext has come that was not read: the socket may have nothing more.
    pub const fn has_plaintext(&self) -> bool {
        0 < self.plaintext
    }

    /// The certificate that the peer showed.
    pub fn peer(&self) -> Option<Certificate> {
        Certificate::of_peer(self.tls.peer_certificates())
    }

    /// Takes what the socket has; how many bytes, 0 at its end.
    fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let read = self.tls.read_tls(&mut Socket(stream))?;
        match self.tls.process_new_packets() {
            Ok(state) => self.plaintext = state.plaintext_bytes_to_read(),
            Err(error) => {
                // The peer is told by an alert, if it takes one.
                let _ = self.tls.write_tls(&mut Socket(stream));
                return Err(io::Error::new(io::ErrorKind::InvalidData, explain(&error)));
            }
        }
        Ok(read)
    }
}

/// A socket that says `WouldBlock` instead of waiting.
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
