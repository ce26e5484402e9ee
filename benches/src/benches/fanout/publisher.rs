//! The publishing process: our feed, also with TLS and tokens, or the `zeromq` crate's PUB on a thread of its own.

use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tollgate_server::edge::{Bounds, Edge, listen};
use tollgate_server::feed::{self, FeedCounters, Publisher};
use tollgate_server::security::{Access, Handshakes, TokenBook};
use tollgate_shared::wire::frame::Topic;
use tollgate_tls::{ServerFiles, ServerTls};
use zeromq::{PubSocket, Socket as _, SocketSend as _, ZmqMessage};

use crate::harness::child::{argument, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::secured;

/// Frames that may be queued before this waits for the publisher.
const AHEAD: u64 = 4_096;

/// The result of publishing.
#[derive(Debug, Serialize, Deserialize)]
pub struct Published {
    /// When the first frame was published.
    pub first_ns: u64,
    /// The CPU time of the process.
    pub cpu_us: f64,
}

enum Sink {
    Ours(Publisher, Arc<FeedCounters>),
    Crate(mpsc::Sender<Vec<u8>>),
}

/// Publishes as each line of the input says: frames, bytes of each, frames a second.
///
/// # Errors
///
/// If a socket cannot be opened, or a line is invalid.
pub fn child(args: &[String]) -> anyhow::Result<()> {
    let kind: String = argument(args, 0, "kind")?;
    tollgate_server::edge::raise_descriptors();
    let (sink, address) = match kind.as_str() {
        "ours" => ours(Access::default())?,
        "ours-tls" => ours(access(Path::new(&argument::<String>(args, 1, "keys")?))?)?,
        "crate" => of_the_crate()?,
        other => bail!("kind {other:?}"),
    };
    send_to_parent(&address)?;
    for line in std::io::stdin().lock().lines() {
        let numbers: Vec<u32> = line?
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [frames, bytes, pace] = numbers[..] else {
            bail!("expected three numbers");
        };
        let before = cpu_us();
        let first_ns = monotonic_ns();
        let begun = Instant::now();
        let start = sink.taken();
        for number in 0..frames {
            if pace != 0 {
                let due = begun + Duration::from_secs(1) * number / pace;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let mut frame = vec![0; bytes as usize];
            frame[..8].copy_from_slice(&monotonic_ns().to_be_bytes());
            sink.publish(frame, start + u64::from(number))?;
        }
        // The queued frames are sent meanwhile.
        std::thread::sleep(Duration::from_millis(50));
        send_to_parent(&Published {
            first_ns,
            cpu_us: cpu_us() - before,
        })?;
    }
    Ok(())
}

impl Sink {
    fn taken(&self) -> u64 {
        match self {
            Self::Ours(_, counters) => counters.frames.load(Ordering::Relaxed),
            Self::Crate(_) => 0,
        }
    }

    fn publish(&self, frame: Vec<u8>, number: u64) -> anyhow::Result<()> {
        match self {
            Self::Ours(publisher, _) => {
                while self.taken() + AHEAD < number {
                    std::thread::yield_now();
                }
                publisher.publish(Topic::CONTROL, frame);
                Ok(())
            }
            Self::Crate(sender) => sender.blocking_send(frame).context("the socket's thread"),
        }
    }
}

/// The access rules of a feed with the keys of this directory.
fn access(dir: &Path) -> anyhow::Result<Access> {
    let tls = ServerTls::load(ServerFiles {
        cert: secured::file(dir, "bench.pem"),
        key: secured::file(dir, "bench.key"),
        client_ca: None,
        server_name: None,
    })?;
    Ok(Access {
        tls: Some((Arc::new(tls), Arc::new(Handshakes::start()?))),
        tokens: Some(Arc::new(TokenBook::load(&secured::file(
            dir,
            "tokens.toml",
        ))?)),
    })
}

fn ours(access: Access) -> anyhow::Result<(Sink, String)> {
    let listener = listen("127.0.0.1:0".parse()?)?;
    let address = listener.local_addr()?.to_string();
    let bounds = Bounds {
        // All connections come from one address, at once.
        pending_per_address: 100_000,
        pending: 100_000,
        ..Bounds::default()
    };
    let edge = Arc::new(Edge::new(bounds, 20_000));
    let counters = Arc::<FeedCounters>::default();
    let publisher = feed::serve((listener, access), edge, Arc::clone(&counters))?;
    Ok((Sink::Ours(publisher, counters), address))
}

fn of_the_crate() -> anyhow::Result<(Sink, String)> {
    let (sender, mut frames) = mpsc::channel::<Vec<u8>>(AHEAD as usize);
    let (bound, address) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let mut socket = PubSocket::new();
            let Ok(endpoint) = socket.bind("tcp://127.0.0.1:0").await else {
                return;
            };
            let _ = bound.send(endpoint.to_string());
            while let Some(frame) = frames.recv().await {
                let mut message = ZmqMessage::from(Topic::CONTROL.as_bytes().to_vec());
                message.push_back(frame.into());
                let _ = socket.send(message).await;
            }
        });
    });
    let address = address.recv().context("the crate's socket")?;
    let address = address.trim_start_matches("tcp://").to_owned();
    Ok((Sink::Crate(sender), address))
}

/// The CPU time of this process so far.
fn cpu_us() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 * 1e6 + clock.tv_nsec as f64 / 1e3
}
