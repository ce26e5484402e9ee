//! Redis in line, a common way to limit rates: a script counts a key's hits before each call.
//!
//! The server is the machine's; the client is minimal, so that the comparison is with Redis and not
//! with a client library.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

/// How long the server may take to start listening.
const START_WITHIN: Duration = Duration::from_secs(10);

/// A fixed window of a second.
const SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) \
                      if n == 1 then redis.call('EXPIRE', KEYS[1], 1) end \
                      return n";

/// The limit of a domain per second.
const LIMIT: u64 = 100;

/// A server during a benchmark.
pub struct Redis {
    process: Child,
    address: String,
}

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// This machine has no Redis.
    Absent {
        /// The reason, for the report.
        reason: String,
    },
    /// It exists, but does not start.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl Redis {
    /// Starts a server at a port of its own, without persistence.
    ///
    /// # Errors
    ///
    /// If this machine has no Redis, or the server does not listen.
    pub fn start() -> Result<Self, StartError> {
        let failed = |error: anyhow::Error| StartError::Failed(error);
        // The port is free again at once; nothing else asks for one at this moment.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| failed(error.into()))?
            .port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = process.map_err(|error| match error.kind() {
            ErrorKind::NotFound => StartError::Absent {
                reason: "redis-server is not installed".to_owned(),
            },
            _ => failed(error.into()),
        })?;
        let redis = Self {
            process,
            address: format!("127.0.0.1:{port}"),
        };
        let end = Instant::now() + START_WITHIN;
        while TcpStream::connect(&redis.address).is_err() {
            if end <= Instant::now() {
                return Err(failed(anyhow::anyhow!("redis-server does not listen")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
        ensure!(client.digest.len() == 40, "Redis said {:?}", client.line);
        Ok(client)
    }

    /// Counts one hit of a domain. Returns whether it has room.
    pub fn hit(&mut self, domain: &str) -> anyhow::Result<bool> {
        let digest = std::mem::take(&mut self.digest);
        let sent = self.send(&["EVALSHA", &digest, "1", domain]);
        self.digest = digest;
        sent?;
        self.read_line()?;
        let count = self.line.strip_prefix(':').map(str::trim_end);
        let count: Option<u64> = count.and_then(|count| count.parse().ok());
        match count {
            Some(count) => Ok(count <= LIMIT),
            None => bail!("Redis said {:?}", self.line),
        }
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
