//! Other limiters beside which ours is measured, each a server in a process of its own.
//!
//! ```text
//! redis        a script in line                      Debian's redis-server
//! ratelimit    envoyproxy/ratelimit with Redis       go install github.com/envoyproxy/ratelimit/src/service_cmd@latest
//! gubernator   one node of gubernator                go install github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.13.0
//! ```
//!
//! Programs are found in the search path. A peer that this machine lacks is reported as absent, and the benchmark runs
//! without it. No peer refuses what a benchmark offers: a domain may 100/s at Redis and gubernator, 1,000,000/s at
//! ratelimit.

pub mod gubernator;
pub mod ratelimit;
pub mod redis;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tonic::transport::Channel;

/// How long a server may take to listen.
const START_WITHIN: Duration = Duration::from_secs(10);

/// A limiter's servers during a benchmark.
pub trait Peer {
    /// Where they are asked.
    fn address(&self) -> String;

    /// Their process ids: the limiter's, and of what it stores in.
    fn ids(&self) -> Vec<u32>;
}

/// One connection to a peer.
pub trait PeerClient {
    /// Counts one hit of a domain. Returns whether it has room.
    ///
    /// # Errors
    ///
    /// If the peer has gone, or answers something unexpected.
    fn hit(&mut self, domain: &str) -> anyhow::Result<bool>;
}

/// Why there is no server.
#[derive(Debug)]
pub enum StartError {
    /// This machine lacks a program.
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

/// A process that ends with its handle.
pub struct Server(Child);

impl Server {
    /// Starts the first of these programs that this machine has; `what` is its name for people.
    fn start(
        what: &str,
        programs: &[&str],
        mut set: impl FnMut(&mut Command),
    ) -> Result<Self, StartError> {
        for program in programs {
            let mut command = Command::new(program);
            set(&mut command);
            let process = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            match process {
                Ok(process) => return Ok(Self(process)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(StartError::Failed(error.into())),
            }
        }
        Err(StartError::Absent {
            reason: format!("{what} is not installed"),
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A loopback address without a listener a moment ago.
///
/// # Errors
///
/// If no address is to be had.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Connects to a gRPC server, which may still be starting.
///
/// # Errors
///
/// If it does not listen.
pub async fn grpc_channel(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    let until = Instant::now() + START_WITHIN;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) if until < Instant::now() => {
                return Err(error).with_context(|| format!("{address} does not listen"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
