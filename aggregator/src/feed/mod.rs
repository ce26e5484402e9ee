//! The denial feed's socket: ZeroMQ PUB, with what the crate lacks put around it.
//!
//! The crate keeps an unbounded queue for a subscriber that does not read, and drops silently for all
//! when more than 100,000 messages wait. So two guards stand here. The operating system ends a
//! connection that has taken nothing for [`STALL_MAX`] (`TCP_USER_TIMEOUT` on the listener, which
//! accepted connections inherit), and within that time no more than a bound of bytes is published: at
//! the bound frames are left out for everybody, and counted. A subscriber notices by the gap in the
//! topic's sequence and asks for a snapshot over the link.
//!
//! Knows nothing of what frames say. What stays true: publishing never waits; memory held for
//! subscribers that do not read is at most the bound, whatever they do.

mod guard;

pub use guard::Guard;

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tollgate_shared::wire::frame::Topic;
use zeromq::{PubSocket, Socket as _, SocketEvent, SocketSend as _, ZmqMessage};

/// How long a connection may take nothing before the operating system ends it.
pub const STALL_MAX: Duration = Duration::from_secs(3);

/// Frames that may wait for the socket's task. It only hands them on, so that few ever wait; the
/// crate's own ring takes 100,000.
const FRAMES_MAX: usize = 16_384;

/// How often it is looked who has come and gone while nothing is published.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the feed counts.
#[derive(Debug, Default)]
pub struct FeedCounters {
    /// Frames handed to the socket.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Frames left out at the bound.
    pub dropped: AtomicU64,
    /// Connections that are open.
    pub subscribers: AtomicU64,
}

/// Where frames go.
#[derive(Clone, Debug)]
pub struct Publisher {
    sender: mpsc::Sender<(Topic, Vec<u8>)>,
    counters: Arc<FeedCounters>,
}

impl Publisher {
    /// Publishes a frame, or leaves it out and counts that.
    pub fn publish(&self, topic: Topic, frame: Vec<u8>) {
        if self.sender.try_send((topic, frame)).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Binds a listener for agents' connections, with the limits on stalled ones that both sockets need.
///
/// # Errors
///
/// What the operating system says: taken, not allowed, not ours.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // A restart must not wait for connections of the process before it.
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALL_MAX))?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Serves the feed on a listener that is bound; `bytes_max` bounds what is published within
/// [`STALL_MAX`].
///
/// The socket has a thread and a runtime of its own, and no more than that one thread: the crate takes
/// locks on its table of subscribers both by waiting as a task and by blocking a thread. Where several
/// threads run its tasks, subscribers that leave together block all of them, while the task that has the
/// lock waits for a thread to go on. On one thread no lock is ever held while something else runs.
///
/// # Errors
///
/// Where the listener cannot be taken over.
pub async fn serve(
    listener: TcpListener,
    bytes_max: u64,
    counters: Arc<FeedCounters>,
) -> std::io::Result<Publisher> {
    let (sender, frames) = mpsc::channel(FRAMES_MAX);
    let (bound, is_bound) = oneshot::channel();
    let counting = Arc::clone(&counters);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("tollgate-feed".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let mut socket = PubSocket::new();
                let taken = socket.bind_listener(listener).await;
                let is_taken = taken.is_ok();
                let _ = bound.send(taken.map(drop).map_err(std::io::Error::other));
                if is_taken {
                    publish(socket, frames, bytes_max, counting).await;
                }
            });
        })?;
    is_bound.await.map_err(std::io::Error::other)??;
    Ok(Publisher { sender, counters })
}

async fn publish(
    mut socket: PubSocket,
    mut frames: mpsc::Receiver<(Topic, Vec<u8>)>,
    bytes_max: u64,
    counters: Arc<FeedCounters>,
) {
    let mut guard = Guard::new(bytes_max);
    let start = tokio::time::Instant::now();
    let mut events = socket.monitor();
    let mut open = HashSet::new();
    loop {
        let next = tokio::time::timeout(LOOK_EVERY, frames.recv()).await;
        while let Ok(event) = events.try_recv() {
            match event {
                SocketEvent::Accepted(_, peer) => drop(open.insert(peer)),
                SocketEvent::Disconnected(peer) => drop(open.remove(&peer)),
                _ => {}
            }
            let count = u64::try_from(open.len()).unwrap_or(u64::MAX);
            counters.subscribers.store(count, Ordering::Relaxed);
        }
        let (topic, frame) = match next {
            Ok(Some(next)) => next,
            Ok(None) => return,
            Err(_) => continue,
        };
        if !guard.admit(start.elapsed(), frame.len()) {
            counters.dropped.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        counters.frames.fetch_add(1, Ordering::Relaxed);
        counters
            .bytes
            .fetch_add(frame.len() as u64, Ordering::Relaxed);
        let mut message = ZmqMessage::from(Bytes::copy_from_slice(topic.as_bytes()));
        message.push_back(frame.into());
        // PUB never refuses: what it cannot keep it drops.
        let _ = socket.send(message).await;
    }
}

#[cfg(test)]
mod tests {
    use zeromq::{SocketRecv as _, SubSocket};

    use super::*;

    const SUBSCRIBERS: usize = 40;
    const ROUNDS: usize = 15;
    const SOON: Duration = Duration::from_secs(60);

    async fn subscriber(address: SocketAddr) -> SubSocket {
        let mut socket = SubSocket::new();
        let endpoint = format!("tcp://{address}");
        socket.connect(&endpoint).await.expect("connected");
        socket.subscribe("").await.expect("subscribed");
        socket
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn subscribers_that_leave_together_hold_up_nobody() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_addr().expect("an address");
        let publisher = serve(listener, u64::MAX, Arc::default())
            .await
            .expect("serves");
        let (over, ended) = std::sync::mpsc::channel::<()>();
        let publishing = std::thread::spawn(move || {
            // As fast as frames are taken, so that one is on its way whenever somebody leaves.
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                publisher.publish(Topic::CONTROL, vec![7; 32]);
                std::thread::yield_now();
            }
        });
        for _ in 0..ROUNDS {
            let coming = (0..SUBSCRIBERS).map(|_| tokio::spawn(subscriber(address)));
            let mut subscribers = Vec::new();
            for one in coming.collect::<Vec<_>>() {
                let one = tokio::time::timeout(SOON, one).await;
                subscribers.push(one.expect("in time").expect("no panic"));
            }
            drop(subscribers);
        }
        let mut last = subscriber(address).await;
        let heard = tokio::time::timeout(SOON, last.recv()).await;
        assert!(heard.expect("in time").is_ok());
        drop(over);
        publishing.join().expect("no panic");
    }

    #[tokio::test]
    async fn those_who_listen_are_counted_until_they_leave() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let address = listener.local_addr().expect("an address");
        let counters = Arc::<FeedCounters>::default();
        let publisher = serve(listener, 1 << 20, Arc::clone(&counters)).await;
        let publisher = publisher.expect("serves");
        let until = async |count: u64| {
            let begun = tokio::time::Instant::now();
            while counters.subscribers.load(Ordering::Relaxed) != count {
                assert!(begun.elapsed() < SOON, "never {count}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let mut three = vec![subscriber(address).await];
        three.push(subscriber(address).await);
        three.push(subscriber(address).await);
        until(3).await;
        three.truncate(1);
        until(1).await;
        drop(publisher);
    }
}
