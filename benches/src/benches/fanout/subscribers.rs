//! The subscribing process: all subscribers, the same for every publisher.

use std::cell::RefCell;
use std::io::{BufRead as _, ErrorKind};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tollgate_shared::wire::frame::Topic;
use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, opening_with, pong, subscribe};

use super::wire::{Keys, Wire};
use crate::harness::child::{argument, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::stats::percentile;

/// How long to wait for missing frames.
const QUIET: Duration = Duration::from_millis(500);

/// The frames received since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DeliverySummary {
    /// Deliveries.
    pub count: u64,
    /// The median delivery time.
    pub p50_ns: u64,
    /// The 99th percentile of the delivery time.
    pub p99_ns: u64,
    /// When the last frame was read.
    pub last_ns: u64,
}

#[derive(Default)]
struct Came {
    delays: Vec<u64>,
    last_ns: u64,
    ready: u32,
}

/// Subscribes and reports that; then reports received frames, whenever a line says how many were
/// published.
///
/// # Errors
///
/// If a connection cannot be opened.
pub fn child(args: &[String]) -> anyhow::Result<()> {
    let address: String = argument(args, 0, "address")?;
    let subscribers: u32 = argument(args, 1, "subscribers")?;
    let among: u32 = argument(args, 2, "connections")?;
    let stalled: u32 = argument(args, 3, "stalled")?;
    let topics: u32 = argument(args, 4, "topics")?;
    let keys = args.get(5).map(|dir| Keys::load(Path::new(dir)));
    let keys = keys.transpose()?;
    tollgate_server::edge::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    local.block_on(&runtime, async {
        let came = Rc::new(RefCell::new(Came::default()));
        let mut held = Vec::new();
        for number in 0..among.max(subscribers) {
            let others = if number < subscribers && among <= subscribers {
                0
            } else {
                topics
            };
            let wire = connect(&address, keys.as_ref(), number < subscribers, others).await?;
            tokio::task::spawn_local(read(wire, Rc::clone(&came)));
        }
        for _ in 0..stalled {
            held.push(connect(&address, keys.as_ref(), true, 0).await?);
        }
        let begun = Instant::now();
        while came.borrow().ready < among.max(subscribers) {
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "not all are READY"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Wait for the publisher to process the subscriptions.
        tokio::time::sleep(Duration::from_millis(300)).await;
        came.borrow_mut().delays.clear();
        send_to_parent(&true)?;
        while let Some(line) = lines.recv().await {
            let frames: u64 = line.trim().parse().context("a number of frames")?;
            let expected = frames * u64::from(subscribers);
            send_to_parent(&all(&came, expected).await)?;
        }
        drop(held);
        Ok(())
    })
}

/// The received frames, once all have come, or no more come.
async fn all(came: &RefCell<Came>, expected: u64) -> DeliverySummary {
    let mut before = (0, Instant::now());
    loop {
        let count = came.borrow().delays.len() as u64;
        if count != before.0 {
            before = (count, Instant::now());
        }
        if expected <= count || QUIET < before.1.elapsed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut came = came.borrow_mut();
    let mut delays = std::mem::take(&mut came.delays);
    let count = delays.len() as u64;
    DeliverySummary {
        count,
        p50_ns: percentile(&mut delays, 0.5).unwrap_or(0),
        p99_ns: percentile(&mut delays, 0.99).unwrap_or(0),
        last_ns: came.last_ns,
    }
}

async fn connect(
    address: &str,
    keys: Option<&Keys>,
    is_subscriber: bool,
    others: u32,
) -> anyhow::Result<Wire> {
    let mut wire = Wire::connect(address, keys).await?;
    let token = keys.map(|keys| &keys.token);
    let mut bytes = opening_with(SocketType::Sub, token).to_vec();
    if is_subscriber {
        bytes.extend_from_slice(&subscribe(Topic::CONTROL.as_bytes()));
    }
    for number in 0..others {
        let topic = Topic::of_resource(&[0; 16], &format!("resource-{number}"));
        bytes.extend_from_slice(&subscribe(topic.as_bytes()));
    }
    wire.send(&bytes).await?;
    Ok(wire)
}

async fn read(mut wire: Wire, came: Rc<RefCell<Came>>) {
    let mut decoder = Decoder::new(SocketType::Sub, PeerLimits::default());
    loop {
        let pings = match read_once(&mut wire, &mut decoder, &came) {
            Ok(pings) => pings,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if wire.readable().await.is_err() {
                    return;
                }
                continue;
            }
            Err(_) => return,
        };
        for _ in 0..pings {
            if wire.send(&pong(b"")).await.is_err() {
                return;
            }
        }
    }
}

/// Reads into a buffer on the stack, so a waiting connection has none.
fn read_once(
    wire: &mut Wire,
    decoder: &mut Decoder,
    came: &RefCell<Came>,
) -> std::io::Result<usize> {
    let mut bytes = [0; 16 << 10];
    match wire.try_read(&mut bytes)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        read => Ok(take(decoder, &bytes[..read], came)),
    }
}

/// Records frames. Returns how many pings to answer.
fn take(decoder: &mut Decoder, mut input: &[u8], came: &RefCell<Came>) -> usize {
    let now = monotonic_ns();
    let mut pings = 0;
    let mut came = came.borrow_mut();
    while let Ok(Some(event)) = decoder.next(&mut input) {
        match event {
            Event::Ready { .. } => came.ready += 1,
            Event::Ping(_) => pings += 1,
            Event::Message(parts) => {
                let stamp = parts.last().and_then(|frame| frame.first_chunk::<8>());
                if let Some(sent) = stamp.map(|bytes| u64::from_be_bytes(*bytes)) {
                    came.delays.push(now.saturating_sub(sent));
                    came.last_ns = now;
                }
            }
            _ => {}
        }
    }
    pings
}
