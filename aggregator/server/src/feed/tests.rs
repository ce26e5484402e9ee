//! The feed's port with subscribers of the `zeromq` crate.

use std::net::SocketAddr;
use std::time::Duration;

use zeromq::{Socket as _, SocketRecv as _, SubSocket};

use super::*;
use crate::edge::{Bounds, listen};

const SUBSCRIBERS: usize = 40;
const ROUNDS: usize = 15;
const SOON: Duration = Duration::from_secs(60);

async fn subscriber(address: SocketAddr) -> SubSocket {
    let mut socket = SubSocket::new();
    let endpoint = format!("tcp://{address}");
    socket.connect(&endpoint).await.expect("connected");
    let control = Topic::CONTROL;
    socket
        .subscribe(control.as_text())
        .await
        .expect("subscribed");
    socket
}

fn served() -> (SocketAddr, Publisher, Arc<Edge>) {
    let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let address = listener.local_addr().expect("an address");
    let edge = Arc::new(Edge::new(Bounds::default(), 1_000));
    let publisher = serve(
        (listener, Access::default()),
        Arc::clone(&edge),
        Arc::default(),
    );
    (address, publisher.expect("serves"), edge)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_that_leave_together_delay_no_frame() {
    let (address, publisher, _edge) = served();
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let publishing = std::thread::spawn(move || {
        // Publishes as fast as frames are taken, so that one is on its way whenever a subscriber leaves.
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
    let received = tokio::time::timeout(SOON, last.recv()).await;
    assert!(received.expect("in time").is_ok());
    drop(over);
    publishing.join().expect("no panic");
}

#[tokio::test]
async fn subscribers_are_counted_until_they_leave() {
    let (address, publisher, edge) = served();
    let until = async |count: u64| {
        let begun = tokio::time::Instant::now();
        while edge.feed.open.load(Ordering::Relaxed) != count {
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
