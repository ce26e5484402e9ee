//! Redis in line, a common way to limit rates: a script counts a key's hits before each call.
//!
//! The server is the machine's; the client is minimal, so that the comparison is with Redis and not
//! with a client library.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::{Peer, PeerClient, START_WITHIN, Server, StartError, free_address};

/// A fixed window of a second.
const SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) \
                      if n == 1 then redis.call('EXPIRE', KEYS[1], 1) end \
                      return n";

/// The limit of a domain per second.
const LIMIT: u64 = 100;

/// A server during a benchmark.
pub struct Redis {
    server: Server,
    address: SocketAddr,
}

impl Redis {
    /// Starts a server at a port of its own, without persistence.
    ///
    /// # Errors
    ///
    /// If this machine has no Redis, or the server does not listen.
    pub fn start() -> Result<Self, StartError> {
        let address = free_address()?;
        let server = Server::start("redis-server", &["redis-server"], |command| {
            command
                .args(["--bind", "127.0.0.1", "--port"])
                .arg(address.port().to_string())
                .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
                .current_dir(std::env::temp_dir());
        })?;
        let end = Instant::now() + START_WITHIN;
        while TcpStream::connect(address).is_err() {
            if end <= Instant::now() {
                return Err(anyhow::anyhow!("redis-server does not listen").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { server, address })
    }
}

impl Peer for Redis {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn ids(&self) -> Vec<u32> {
        vec![self.server.id()]
    }
}

/// One connection.
pub struct ScriptClient {
    stream: BufReader<TcpStream>,
    digest: String,
    line: String,
    request: Vec<u8>,
}

impl ScriptClient {
    /// Connects, and loads the script.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or answers something unexpected.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream: BufReader::new(stream),
            digest: String::new(),
            line: String::new(),
            request: Vec::new(),
        };
        client.send(&["SCRIPT", "LOAD", SCRIPT])?;
        // A bulk reply: its length, then its content.
        client.read_line()?;
        client.read_line()?;
        client.digest = client.line.trim_end().to_owned();
        ensure!(
            client.digest.len() == 40,
            "Redis answered {:?}",
            client.line
        );
        Ok(client)
    }

    fn send(&mut self, words: &[&str]) -> anyhow::Result<()> {
        self.request.clear();
        write!(self.request, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.request, "${}\r\n{word}\r\n", word.len())?;
        }
        let stream = self.stream.get_mut();
        stream.write_all(&self.request).context("asking Redis")
    }

    fn read_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        let read = self.stream.read_line(&mut self.line)?;
        ensure!(0 < read, "Redis has gone");
        Ok(())
    }
}

impl PeerClient for ScriptClient {
    fn hit(&mut self, domain: &str) -> anyhow::Result<bool> {
        let digest = std::mem::take(&mut self.digest);
        let sent = self.send(&["EVALSHA", &digest, "1", domain]);
        self.digest = digest;
        sent?;
        self.read_line()?;
        let count = self.line.strip_prefix(':').map(str::trim_end);
        let count: Option<u64> = count.and_then(|count| count.parse().ok());
        match count {
            Some(count) => Ok(count <= LIMIT),
            None => bail!("Redis answered {:?}", self.line),
        }
    }
}
