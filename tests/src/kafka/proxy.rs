//! A proxy before a broker that can make it look fenced: for some time its answers name no broker.
//!
//! ```text
//! client ──▶ proxy ──▶ broker        the broker tells clients the proxy's address (`advertised.listeners`)
//!        ◀──       ◀──  metadata: brokers [1] becomes [] while fenced
//! ```
//!
//! A broker that was suspended for longer than its session answers like that until its cluster takes it
//! back, which no test can cause at will. Knows of Kafka's protocol the framing, and the beginning of
//! metadata answers (KIP-482's flexible versions, 9 and later). What stays true: everything else passes
//! unchanged.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The protocol's number for metadata requests, and the first version that is understood here.
const METADATA: (i16, i16) = (3, 9);

/// A proxy before a broker; connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    upstream: OnceLock<String>,
    is_fenced: AtomicBool,
    is_over: AtomicBool,
    answers_changed: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Listens at a port that the system chooses; leads to no broker yet.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Self {
            address: listener.local_addr()?,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&proxy.shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // A client whose connection is refused tries again.
                let _ = connect(&shared, client);
            }
        });
        Ok(proxy)
    }

    /// The address for clients: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Connects clients to this broker from now on.
    pub fn lead_to(&self, broker: &str) {
        // Set once, by the code that starts the broker.
        let _ = self.shared.upstream.set(broker.to_owned());
    }

    /// Makes the broker look fenced, to clients that must reconnect.
    pub fn fence(&self) {
        self.shared.is_fenced.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Ends that. Returns how many answers named no broker.
    #[must_use]
    pub fn unfence(&self) -> u64 {
        self.shared.is_fenced.store(false, Ordering::SeqCst);
        self.shared.answers_changed.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        let connections = self.shared.connections.lock();
        for one in connections
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            let _ = one.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    let Some(upstream) = shared.upstream.get() else {
        return Ok(());
    };
    let broker = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    broker.set_nodelay(true)?;
    let mut connections = shared
        .connections
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    connections.extend([client.try_clone()?, broker.try_clone()?]);
    drop(connections);
    let requests = Arc::new(Mutex::new(HashMap::<i32, i16>::new()));
    let (from_client, to_broker) = (client.try_clone()?, broker.try_clone()?);
    let pending_requests = Arc::clone(&requests);
    thread::spawn(move || {
        pass(from_client, to_broker, |frame| {
            if let (Some(api), Some(version), Some(correlation)) =
                (i16_at(frame, 0), i16_at(frame, 2), i32_at(frame, 4))
                && api == METADATA.0
            {
                let mut requests = pending_requests
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                requests.insert(correlation, version);
            }
        });
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        pass(broker, client, |frame| {
            let correlation = i32_at(frame, 0).unwrap_or_default();
            let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
            let version = requests.remove(&correlation);
            drop(requests);
            if version.is_some_and(|version| METADATA.1 <= version)
                && shared.is_fenced.load(Ordering::SeqCst)
                && without_brokers(frame).is_some()
            {
                shared.answers_changed.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    Ok(())
}

/// Passes frames on, calling `look` for each, until either side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut Vec<u8>)) {
    let mut one = || -> std::io::Result<()> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap_or(0)];
        from.read_exact(&mut frame)?;
        look(&mut frame);
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        to.write_all(&length.to_be_bytes())?;
        to.write_all(&frame)
    };
    while one().is_ok() {}
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Removes the brokers from a metadata answer; `None` if the frame is not one.
///
/// correlation i32, tags, throttle i32, brokers: compact array of (id i32, host, port i32, rack, tags)
fn without_brokers(frame: &mut Vec<u8>) -> Option<()> {
    let begin = {
        let mut at = 4;
        skip_tags(frame, &mut at)?;
        at + 4
    };
    let mut at = begin;
    let brokers = varint(frame, &mut at)?.checked_sub(1)?;
    for _ in 0..brokers {
        at += 4;
        skip_string(frame, &mut at)?;
        at += 4;
        skip_string(frame, &mut at)?;
        skip_tags(frame, &mut at)?;
    }
    frame.get(begin..at)?;
    // The stated length of a compact array is one too high.
    frame.splice(begin..at, [1]);
    Some(())
}

fn skip_string(frame: &[u8], at: &mut usize) -> Option<()> {
    // This length is one too high, too; 0 stands for null.
    *at += varint(frame, at)?.saturating_sub(1);
    Some(())
}

fn skip_tags(frame: &[u8], at: &mut usize) -> Option<()> {
    for _ in 0..varint(frame, at)? {
        varint(frame, at)?;
        *at += varint(frame, at)?;
    }
    Some(())
}

fn varint(frame: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = *frame.get(*at)?;
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn i16_at(frame: &[u8], at: usize) -> Option<i16> {
    let bytes = frame.get(at..at + 2)?;
    bytes.try_into().ok().map(i16::from_be_bytes)
}

fn i32_at(frame: &[u8], at: usize) -> Option<i32> {
    let bytes = frame.get(at..at + 4)?;
    bytes.try_into().ok().map(i32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_removes_brokers_and_nothing_else() {
        // Correlation 7, no tags, no throttle; one broker, 1 at `h:9092`, no rack, no tags; the rest.
        let mut frame = vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2, b'h'];
        frame.extend([0, 0, 0x23, 0x84, 0, 0, 0xAA, 0xBB]);
        assert_eq!(without_brokers(&mut frame), Some(()));
        assert_eq!(frame, [0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0xAA, 0xBB]);
        let mut short = vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 9, 1];
        assert_eq!(without_brokers(&mut short), None);
        assert_eq!(short.len(), 11, "it is left alone");
    }
}
