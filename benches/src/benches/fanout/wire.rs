//! A subscriber's connection, without TLS or with it.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate_tls::{ClientFiles, ClientTls, Session, read_secret};
use tollgate_zmtp::Token;

use crate::harness::secured;

/// The trusted CA and the token of a subscriber with TLS.
pub struct Keys {
    tls: ClientTls,
    pub token: Token,
}

impl Keys {
    /// Loads the keys of a directory.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let ca = secured::file(dir, "ca.pem");
        let name = Some(secured::SERVER_NAME.to_owned());
        let token = read_secret(&secured::file(dir, "agents.token"))?;
        Ok(Self {
            tls: ClientTls::load(ClientFiles::new(ca, name, (None, None))?)?,
            token: Token::new(token.as_bytes()),
        })
    }
}

/// A connection.
pub struct Wire {
    stream: TcpStream,
    session: Option<Box<Session>>,
}

impl Wire {
    pub async fn connect(address: &str, keys: Option<&Keys>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut session = None;
        if let Some(keys) = keys {
            let mut begun = Box::new(keys.tls.session(secured::SERVER_NAME)?);
            begun.handshake(&stream).await?;
            session = Some(begun);
        }
        Ok(Self { stream, session })
    }

    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Reads without waiting. Only after `WouldBlock` may the caller wait for the socket.
    pub fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => session.read(&self.stream, bytes),
            None => self.stream.try_read(bytes),
        }
    }

    pub async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else {
            return self.stream.write_all(bytes).await;
        };
        loop {
            let written = match bytes {
                [] => session.flush(&self.stream).map(|()| 0),
                _ => session.write(&self.stream, &[IoSlice::new(bytes)]),
            };
            match written {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
