//! Incomplete messages: frames that trickle, messages without a last part, unlimited subscriptions.

use tollgate_shared::wire::frame::Topic;
use tollgate_zmtp::{SocketType, cancel, subscribe};

use crate::attacked::Attacked;
use crate::peer::{Peer, header};

#[test]
fn unfinished_messages_of_all_take_no_more_than_their_bound() {
    let mut attacked = Attacked::start("[listen]\nunfinished_max = \"8MiB\"");
    let part = vec![7; (1 << 20) - 1];
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..24 {
        let mut peer = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
        // A connection that was closed already takes no more.
        if peer.try_send(&header(2, 1 << 20)) {
            peer.try_send(&part);
        }
        peers.push(peer);
    }
    attacked.until("some are ended for the bytes of all", |now| {
        16 <= now.ended("agents", "unfinished")
    });
    assert!(attacked.metric("tollgate_connections_unfinished_bytes") <= 8 << 20);
    attacked.has_grown_at_most(8 << 20);
    attacked.denials_arrive();
}

#[test]
fn a_message_that_does_not_end_in_time_ends_its_connection() {
    let mut attacked = Attacked::start("[listen]\nmessage_timeout = \"300ms\"");
    let mut frame = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    frame.send(&header(2, 1_000));
    // The parts of a message count together.
    let mut parts = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    parts.send(&[1, 1, 7]);
    frame.is_ended();
    parts.is_ended();
    attacked.until("both are counted", |now| {
        now.ended("agents", "slow_message") == 2
    });
    attacked.denials_arrive();
}

#[test]
fn endless_parts_end_their_connection() {
    let mut attacked = Attacked::start("");
    let mut peer = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    let parts = [1, 1, b'x'].repeat(50_000);
    while peer.try_send(&parts) {}
    let mut feed = Peer::ready(&attacked.serving.feed, SocketType::Sub);
    while feed.try_send(&parts) {}
    attacked.until("both are counted", |now| {
        now.ended("agents", "frame_parts") == 1 && now.ended("feed", "subscription") == 1
    });
    attacked.has_grown_at_most(0);
    attacked.denials_arrive();
}

#[test]
fn subscriptions_are_whole_topics_and_not_without_number() {
    let mut attacked = Attacked::start("[feed]\nsubscriptions_max = 1000");
    let feed = attacked.serving.feed.clone();
    for wrong in [&b""[..], b"r", &[b'r'; 34], &[0xff; 33], &[7; 400]] {
        let mut peer = Peer::ready(&feed, SocketType::Sub);
        peer.send(&subscribe(wrong));
        peer.is_ended();
    }
    // A frame of 200 MiB is refused by its length.
    let mut peer = Peer::ready(&feed, SocketType::Sub);
    peer.send(&header(2, 200 << 20));
    peer.is_ended();
    let topic = |n: u32| Topic::of_resource(&[0; 16], &format!("r-{n}"));
    let mut many = Peer::ready(&feed, SocketType::Sub);
    for n in 0..1_000 {
        many.send(&subscribe(topic(n).as_bytes()));
        // Subscribing twice counts once.
        many.send(&subscribe(topic(0).as_bytes()));
    }
    attacked.until("a thousand are in force", |now| {
        1_000 <= now.metric("tollgate_feed_subscriptions")
    });
    many.send(&subscribe(topic(1_000).as_bytes()));
    many.is_ended();
    attacked.until("all are counted, and gone", |now| {
        now.ended("feed", "subscription") == 5
            && now.ended("feed", "frame_bytes") == 1
            && now.ended("feed", "subscriptions") == 1
            && now.metric("tollgate_feed_subscriptions") < 10
    });
    attacked.has_grown_at_most(0);
    attacked.denials_arrive();
}

#[test]
fn endless_subscribing_and_cancelling_delays_no_frame() {
    let mut attacked = Attacked::start("[feed]\nsubscriptions_max = 1000");
    let feed = attacked.serving.feed.clone();
    let topic = Topic::of_resource(&[0; 16], "r");
    let both = [subscribe(topic.as_bytes()), cancel(topic.as_bytes())].concat();
    let flood = both.repeat(1_000);
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let floods = (0..8).map(|_| {
        let (feed, flood) = (feed.clone(), flood.clone());
        let over = std::sync::Arc::clone(&over);
        std::thread::spawn(move || {
            let mut peer = Peer::ready(&feed, SocketType::Sub);
            let within = std::time::Duration::from_millis(100);
            peer.stream.set_write_timeout(Some(within)).unwrap();
            // The server does not read further, so the flood stops at its socket.
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                peer.try_send(&flood);
            }
        })
    });
    let floods: Vec<_> = floods.collect();
    for _ in 0..10 {
        attacked.denials_arrive();
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    floods.into_iter().for_each(|one| one.join().unwrap());
    attacked.has_grown_at_most(4 << 20);
}
