//! The denial feed's port: ZeroMQ PUB, to peers that subscribe to whole topics.
//!
//! ```text
//! core ──> frame ──encoded once──> queues of its topic's subscribers ──> sockets
//! ```
//!
//! A subscriber that does not read has a queue of its own, up to a bound; frames beyond it are dropped for
//! that subscriber alone, and counted. The subscriber notices the gap in the topic's sequence and asks for a
//! snapshot over the link. Knows nothing of what frames mean.
//!
//! What stays true: publishing never waits; a frame is one piece of memory for all its subscribers; the cost
//! of a frame grows with its subscribers, and not with other topics and connections.

mod port;
mod shares;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tollgate_shared::wire::frame::Topic;
use tollgate_zmtp::message;

use crate::core::topics::Subscribed;
use crate::edge::{Connection, Edge, Queued};
use crate::security::Access;
use port::FeedPort;

/// Frames that may wait for the feed's thread, which only passes them on.
const FRAMES_MAX: usize = 16_384;

/// Bytes of frames that may wait for the feed's thread.
const FRAMES_BYTES_MAX: usize = 64 << 20;

/// Frames that are queued for subscribers before their queues are written out: so, many frames for one
/// subscriber cost one system call.
const FRAMES_AT_ONCE: usize = 256;

/// The feed's counters.
#[derive(Debug, Default)]
pub struct FeedCounters {
    /// Frames that were published.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Frames that were dropped for a subscriber at its bound, summed over subscribers.
    pub dropped: AtomicU64,
    /// Frames that no subscriber gets, because too many waited for the feed's thread.
    pub unpublished: AtomicU64,
    /// Frames that were queued for a subscriber, summed over subscribers.
    pub deliveries: AtomicU64,
    /// Subscriptions to topics that are in force.
    pub subscriptions: AtomicU64,
}

/// Passes frames to the feed's thread.
#[derive(Clone, Debug)]
pub struct Publisher {
    sender: mpsc::Sender<(Topic, Vec<u8>)>,
    waiting: Arc<AtomicUsize>,
    counters: Arc<FeedCounters>,
    subscribed: Subscribed,
}

impl Publisher {
    /// The topics that have subscribers.
    pub fn subscribed(&self) -> Subscribed {
        self.subscribed.clone()
    }

    /// Publishes a frame, or drops it and counts that.
    pub fn publish(&self, topic: Topic, frame: Vec<u8>) {
        let bytes = frame.len();
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        if FRAMES_BYTES_MAX < before + bytes || self.sender.try_send((topic, frame)).is_err() {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.counters.unpublished.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Serves the feed on a listener that is bound.
///
/// The feed has its own thread for publishing and for all its connections: most frames go from it to the
/// sockets without waking another thread.
///
/// # Errors
///
/// If the listener or a thread cannot be set up.
pub fn serve(
    (listener, access): (TcpListener, Access),
    edge: Arc<Edge>,
    counters: Arc<FeedCounters>,
) -> std::io::Result<Publisher> {
    let (sender, frames) = mpsc::channel(FRAMES_MAX);
    let waiting = Arc::<AtomicUsize>::default();
    let port = FeedPort::new(Arc::clone(&edge), Arc::clone(&counters));
    let asked = port.clone();
    let subscribed = Subscribed::asked(move |count, list| asked.subscribed(count, list));
    let feed = Feed {
        edge: Arc::clone(&edge),
        port: port.clone(),
        counters: Arc::clone(&counters),
        waiting: Arc::clone(&waiting),
        touched: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    {
        let _within = runtime.enter();
        crate::edge::serve(listener, edge, access, port)?;
    }
    std::thread::Builder::new()
        .name("tollgate-feed".to_owned())
        .spawn(move || runtime.block_on(feed.publish(frames)))?;
    Ok(Publisher {
        sender,
        waiting,
        counters,
        subscribed,
    })
}

struct Feed {
    edge: Arc<Edge>,
    port: FeedPort,
    counters: Arc<FeedCounters>,
    waiting: Arc<AtomicUsize>,
    /// Connections with frames to be written out.
    touched: Vec<Arc<Connection>>,
}

impl Feed {
    async fn publish(mut self, mut frames: mpsc::Receiver<(Topic, Vec<u8>)>) {
        let mut next = Vec::with_capacity(FRAMES_AT_ONCE);
        while 0 < frames.recv_many(&mut next, FRAMES_AT_ONCE).await {
            for (topic, frame) in next.drain(..) {
                self.hand_on(&topic, &frame);
            }
            for connection in self.touched.drain(..) {
                connection.write_out(&self.edge);
            }
            // Connecting, disconnecting and subscribing run on the same thread.
            tokio::task::yield_now().await;
        }
    }

    fn hand_on(&mut self, topic: &Topic, frame: &[u8]) {
        self.waiting.fetch_sub(frame.len(), Ordering::Relaxed);
        let count = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        count(&self.counters.frames, 1);
        count(&self.counters.bytes, frame.len() as u64);
        let (mut queued, mut dropped) = (0, 0);
        let room = self.edge.bounds.subscriber_bytes;
        let mut bytes = None;
        let (edge, touched) = (&self.edge, &mut self.touched);
        self.port.for_subscribers(topic, |connection| {
            let bytes = bytes.get_or_insert_with(|| message(&[topic.as_bytes(), frame]));
            match connection.queue(edge, bytes.clone(), room) {
                Queued::First => {
                    queued += 1;
                    touched.push(Arc::clone(connection));
                }
                Queued::Behind => queued += 1,
                Queued::LeftOut => dropped += 1,
            }
        });
        count(&self.counters.deliveries, queued);
        count(&self.counters.dropped, dropped);
    }
}

#[cfg(test)]
mod tests;
