//! Subscribers that read nothing, or little: the bounds on what is queued for each, and for all.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_server::edge::{Bounds, Edge, listen};
use tollgate_server::feed::{self, FeedCounters, Publisher};
use tollgate_server::security::Access;
use tollgate_shared::wire::frame::Topic;
use tollgate_zmtp::{SocketType, cancel, opening, subscribe};

use crate::attacked::SOON;
use crate::peer::Peer;

struct Feed {
    address: String,
    edge: Arc<Edge>,
    counters: Arc<FeedCounters>,
    publisher: Publisher,
}

impl Feed {
    fn start(bounds: Bounds) -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = listen(any).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let edge = Arc::new(Edge::new(bounds, 1_000));
        let counters = Arc::<FeedCounters>::default();
        let publisher = feed::serve(
            (listener, Access::default()),
            Arc::clone(&edge),
            Arc::clone(&counters),
        )
        .unwrap();
        Self {
            address,
            edge,
            counters,
            publisher,
        }
    }

    fn subscriber(&self) -> Peer {
        let before = self.counters.subscriptions.load(Ordering::Relaxed);
        let mut peer = Peer::ready(&self.address, SocketType::Sub);
        peer.send(&subscribe(Topic::CONTROL.as_bytes()));
        self.until("it is subscribed", || {
            before < self.counters.subscriptions.load(Ordering::Relaxed)
        });
        peer
    }

    fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < SOON, "never: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Publishes frames of 64 KiB, each once the previous one has been handed on.
    fn publish(&self, frames: u64) {
        for _ in 0..frames {
            let before = self.counters.frames.load(Ordering::Relaxed);
            self.publisher.publish(Topic::CONTROL, vec![7; 64 << 10]);
            self.until("it is published", || {
                before < self.counters.frames.load(Ordering::Relaxed)
            });
        }
    }

    /// Frames that were dropped for a subscriber.
    fn dropped(&self) -> u64 {
        self.counters.dropped.load(Ordering::Relaxed)
    }

    fn ended(&self, reason: &str) -> u64 {
        let found = self.edge.feed.ended().find(|(name, _)| *name == reason);
        found.expect("a reason").1
    }
}

/// The topic of the resource with this number.
fn topic(number: usize) -> Topic {
    Topic::of_resource(&[0; 16], &format!("r-{number}"))
}

/// Reads everything, in a thread. Returns how many bytes came.
fn reads_all(peer: Peer) -> std::thread::JoinHandle<u64> {
    counts_all(peer, Arc::default())
}

/// The same; `all` has how many bytes came so far.
fn counts_all(mut peer: Peer, all: Arc<AtomicU64>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        while let Ok(read @ 1..) = peer.stream.read(&mut bytes) {
            all.fetch_add(read as u64, Ordering::Relaxed);
        }
        all.load(Ordering::Relaxed)
    })
}

#[test]
fn a_subscriber_that_does_not_read_costs_bounded_memory() {
    let feed = Feed::start(Bounds {
        stall: Duration::from_secs(3),
        ..Bounds::default()
    });
    let mut deaf = feed.subscriber();
    let read = Arc::<AtomicU64>::default();
    let honest = counts_all(feed.subscriber(), Arc::clone(&read));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) || feed.dropped() == 0 {
        assert!(begun.elapsed() < SOON, "frames are dropped for it");
        feed.publish(8);
        // On a busy machine it would fall behind, and lose frames as the other does.
        let published = feed.counters.bytes.load(Ordering::Relaxed);
        feed.until("the honest one has read", || {
            published <= read.load(Ordering::Relaxed)
        });
        // A MiB for the peer that does not read, and a moment's worth for the other.
        assert!(feed.edge.queued.get() <= (1 << 20) + (1 << 20));
    }
    feed.until("the deaf one is ended", || feed.ended("stalled") == 1);
    deaf.is_ended();
    let published = feed.counters.bytes.load(Ordering::Relaxed);
    feed.until("nothing waits", || feed.edge.queued.get() == 0);
    assert_eq!(feed.edge.feed.open.load(Ordering::Relaxed), 1);
    drop(feed);
    let received = honest.join().unwrap();
    assert!(published <= received, "{received} of {published}");
}

#[test]
fn a_subscriber_that_never_reads_counts_as_stalled() {
    let feed = Feed::start(Bounds {
        stall: Duration::from_secs(1),
        ..Bounds::default()
    });
    // ZMTP 3.0 has no pings: only the operating system can notice that the peer does not read.
    let mut opening = opening(SocketType::Sub).to_vec();
    opening[11] = 0;
    let mut deaf = Vec::new();
    for count in 1..=8 {
        let from = [127, 0, 0, 1];
        let mut peer = Peer::connect_from(from, 4_096, &feed.address, SocketType::Sub);
        peer.greet(&opening);
        peer.send(&subscribe(Topic::CONTROL.as_bytes()));
        feed.until("it is subscribed", || {
            feed.counters.subscriptions.load(Ordering::Relaxed) == count
        });
        deaf.push(peer);
    }
    feed.publish(2);
    feed.until("all are ended", || {
        feed.edge.feed.open.load(Ordering::Relaxed) == 0
    });
    feed.until("all are counted", || feed.ended("stalled") == 8);
    assert_eq!(
        feed.edge.feed.ended().map(|(_, count)| count).sum::<u64>(),
        8
    );
}

#[test]
fn one_address_takes_at_most_half_of_all_topics() {
    let feed = Feed::start(Bounds {
        subscriptions: 100,
        subscriptions_all: 400,
        ..Bounds::default()
    });
    let of = |address: u8, topics: std::ops::Range<usize>| {
        let from = [127, 0, 0, address];
        let mut peer = Peer::connect_from(from, 64 << 10, &feed.address, SocketType::Sub);
        peer.greet(&opening(SocketType::Sub));
        topics.for_each(|number| peer.send(&subscribe(topic(number).as_bytes())));
        peer
    };
    let have = |count: u64| {
        feed.until("they are subscribed", || {
            feed.counters.subscriptions.load(Ordering::Relaxed) == count
        });
    };
    // The honest one has the longest queue, which is no reason to close it.
    let mut honest = of(2, 0..90);
    have(90);
    let mut kept = Vec::new();
    for crowd in 1..=4 {
        kept.push(of(1, 1_000..1_050));
        have(90 + 50 * crowd);
    }
    for ended in 1..=6 {
        of(1, 2_000..2_001).is_ended();
        feed.until("it is counted", || {
            feed.ended("subscriptions_of_address") == ended
        });
    }
    let newcomer = of(3, 90..100);
    have(90 + 200 + 10);
    // When the total bound is reached, new subscribers are closed, and no existing one.
    kept.push(of(4, 0..100));
    have(400);
    of(3, 0..1).is_ended();
    feed.until("it is counted", || feed.ended("subscriptions_of_all") == 1);
    assert_eq!(
        feed.edge.feed.ended().map(|(_, count)| count).sum::<u64>(),
        7
    );
    feed.publisher.publish(topic(7), vec![7; 32]);
    assert!(honest.message().is_some());
    // A subscriber that leaves makes room.
    drop(newcomer);
    have(390);
    kept.push(of(1, 0..0));
    kept.push(of(5, 0..10));
    have(400);
}

#[test]
fn a_slow_reader_keeps_its_connection_and_misses_frames() {
    let feed = Feed::start(Bounds {
        stall: Duration::from_secs(2),
        ..Bounds::default()
    });
    let mut slow = feed.subscriber();
    let over = Arc::new(AtomicBool::new(false));
    let reading = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let mut bytes = vec![0; 32 << 10];
            let mut all = 0;
            // Much slower than the feed, but never idle.
            while !over.load(Ordering::Relaxed) {
                all += slow.stream.read(&mut bytes).expect("it goes on");
                std::thread::sleep(Duration::from_millis(20));
            }
            all
        }
    });
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) || feed.dropped() == 0 {
        assert!(begun.elapsed() < SOON, "frames are dropped for it");
        feed.publish(16);
        assert!(feed.edge.queued.get() <= (1 << 20) + 4_096);
    }
    over.store(true, Ordering::Relaxed);
    let read = reading.join().unwrap() as u64;
    assert_eq!(feed.ended("stalled"), 0);
    let published = feed.counters.bytes.load(Ordering::Relaxed);
    assert!(0 < read && read < published, "{read} of {published}");
}

#[test]
fn the_largest_backlog_is_dropped_first() {
    let feed = Feed::start(Bounds {
        queued_bytes: 4 << 20,
        ..Bounds::default()
    });
    let deaf: Vec<Peer> = (0..16).map(|_| feed.subscriber()).collect();
    feed.publish(64);
    feed.until("some are ended for the bytes of all", || {
        0 < feed.ended("backlog")
    });
    assert!(feed.edge.queued.get() <= 4 << 20);
    feed.until("no more than fit are left", || {
        feed.edge.feed.open.load(Ordering::Relaxed) <= 12
    });
    // A subscriber that reads receives everything.
    let honest = reads_all(feed.subscriber());
    feed.publish(16);
    feed.until("everything is sent", || feed.edge.queued.get() == 0);
    drop((deaf, feed));
    assert!(16 * (64 << 10) <= honest.join().unwrap());
}

#[test]
fn pings_without_end_are_answered_only_as_far_as_answers_are_read() {
    let feed = Feed::start(Bounds {
        stall: Duration::from_secs(1),
        ..Bounds::default()
    });
    let mut deaf = feed.subscriber();
    let pings = b"\x04\x17\x04PING\0\0contextcontext..".repeat(1_000);
    while deaf.try_send(&pings) {
        assert!(feed.edge.queued.get() <= 4 << 20);
    }
    feed.until("it is ended", || feed.ended("stalled") == 1);
}

#[test]
fn subscriptions_without_end_are_not_read() {
    let feed = Feed::start(Bounds {
        subscriptions: 100,
        ..Bounds::default()
    });
    let mut churning = Peer::ready(&feed.address, SocketType::Sub);
    let topic = topic(0);
    let both = [subscribe(topic.as_bytes()), cancel(topic.as_bytes())].concat();
    // The server reads two hundred of them a second, so all would take half an hour; writing stops
    // at the sockets' bound.
    let within = Duration::from_secs(2);
    churning.stream.set_write_timeout(Some(within)).unwrap();
    assert!(!churning.try_send(&both.repeat(200_000)));
    let honest = reads_all(feed.subscriber());
    feed.publish(16);
    feed.until("everything is sent", || feed.edge.queued.get() == 0);
    drop((churning, feed));
    assert!(16 * (64 << 10) <= honest.join().unwrap());
}
