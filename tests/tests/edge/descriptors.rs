//! The link as a library, beside a core that answers when the test says so: connections, and appends in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tollgate_server::core::event::{Event, Peer as AgentPeer, Request};
use tollgate_server::edge::{Bounds, Edge, listen};
use tollgate_server::link::{self, Answers, LinkCounters};
use tollgate_server::security::Access;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAgent, FromAggregator};
use tollgate_zmtp::{SocketType, opening, ping};

use crate::attacked::SOON;
use crate::peer::{Hitter, Peer};

struct Link {
    address: String,
    edge: Arc<Edge>,
    counters: Arc<LinkCounters>,
    answers: Answers,
    events: mpsc::Receiver<Event>,
}

impl Link {
    fn start(bounds: Bounds, connections_max: usize) -> Self {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = listen(any).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let edge = Arc::new(Edge::new(bounds, connections_max));
        let counters = Arc::<LinkCounters>::default();
        let (sender, events) = mpsc::channel(64);
        let (shared, counting) = (Arc::clone(&edge), Arc::clone(&counters));
        let answers =
            link::serve((listener, Access::default()), 4, sender, shared, counting).unwrap();
        Self {
            address,
            edge,
            counters,
            answers,
            events,
        }
    }

    /// An agent's next request.
    fn next_request(&mut self) -> (AgentPeer, Request) {
        let begun = Instant::now();
        loop {
            match self.events.try_recv() {
                Ok(Event::Agent { peer, request }) => return (peer, request),
                Ok(_) => {}
                Err(_) => assert!(begun.elapsed() < SOON, "nothing is asked"),
            }
            std::thread::yield_now();
        }
    }

    fn answer(&mut self, peer: &AgentPeer, answer: &FromAggregator) {
        let mut writer = Writer::new();
        answer.encode(&mut writer);
        self.answers.send(peer, writer.as_slice());
        self.answers.wake();
    }

    fn until(&self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is(self) {
            assert!(begun.elapsed() < SOON, "never: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn welcome(&mut self) -> Hitter {
        self.welcome_from([127, 0, 0, 1])
    }

    fn welcome_from(&mut self, from: [u8; 4]) -> Hitter {
        let address = self.address.clone();
        let hitter = std::thread::spawn(move || Hitter::from(from, &address));
        let (peer, request) = self.next_request();
        let Request::Hello { nonce } = request else {
            panic!("{request:?}");
        };
        let welcome = FromAggregator::Welcome {
            nonce,
            instance: 1,
            partitions: 4,
            feeds: Vec::new(),
            clock: tollgate_shared::time::Span::ZERO,
            members: Vec::new(),
            limits: 0,
        };
        self.answer(&peer, &welcome);
        hitter.join().unwrap()
    }
}

#[test]
fn accepting_pauses_while_all_descriptors_are_taken() {
    let mut link = Link::start(Bounds::default(), 4);
    let hosts = [1, 1, 2, 2].map(|host| [127, 0, 0, host]);
    let peers = hosts.map(|from| link.welcome_from(from));
    let from = [127, 0, 0, 3];
    let mut fifth = Peer::connect_from(from, 1 << 20, &link.address, SocketType::Dealer);
    fifth.send(&opening(SocketType::Dealer));
    link.until("accepting pauses", |link| {
        0 < link.edge.paused.load(Ordering::Relaxed)
    });
    link.until("all four are through", |link| {
        link.edge.agents.open.load(Ordering::Relaxed) == 4
    });
    drop(peers);
    // It waited in the operating system, and is accepted now.
    assert!(fifth.event().is_some());
}

#[test]
fn an_address_has_half_of_the_descriptors_at_most() {
    let mut link = Link::start(Bounds::default(), 8);
    let agent = link.welcome();
    let ready = |link: &Link| Peer::ready(&link.address, SocketType::Dealer);
    let mut silent: Vec<Peer> = (0..20).map(|_| ready(&link)).collect();
    let ended = |link: &Link| {
        let mut reasons = link.edge.agents.ended();
        reasons
            .find(|(reason, _)| *reason == "connections_of_address")
            .map_or(0, |(_, count)| count)
    };
    link.until("all but three made room", |link| ended(link) == 17);
    silent.drain(..17).for_each(|mut one| one.is_ended());
    // Agents connect within their address's bound; a fifth connection of that address is refused.
    let more = [(); 3].map(|()| link.welcome());
    silent.iter_mut().for_each(Peer::is_ended);
    let mut fifth = Peer::connect(&link.address, SocketType::Dealer);
    fifth.is_ended();
    link.until("it is counted", |link| ended(link) == 21);
    // Another address can connect.
    let other = link.welcome_from([127, 0, 0, 2]);
    drop((agent, more, other));
}

#[test]
fn a_peer_that_only_sends_pings_is_closed() {
    let bounds = Bounds {
        handshake: Duration::from_millis(500),
        ..Bounds::default()
    };
    let mut link = Link::start(bounds, 100);
    let agent = link.welcome();
    let mut pinging = Peer::ready(&link.address, SocketType::Dealer);
    while pinging.try_send(&ping()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    link.until("it is counted", |link| {
        let mut reasons = link.edge.agents.ended();
        reasons.any(|reason| reason == ("handshake", 1))
    });
    assert_eq!(link.edge.agents.open.load(Ordering::Relaxed), 1);
    drop(agent);
}

#[test]
fn appends_under_way_stop_the_reading_of_their_connection_alone() {
    let mut link = Link::start(Bounds::default(), 100);
    let mut greedy = link.welcome();
    let mut modest = link.welcome();
    let of_first = |one: &String| partition_of_pair("api.search", one, 4) == 0;
    let domains = (0..).map(|n| format!("{n:0>200}")).filter(of_first);
    let domains: Vec<String> = domains.take(500).collect();
    let partition = partition_of_pair("api.search", "acme", 4);
    let record = greedy.record("api.search", &domains);
    assert!((100_000..128 << 10).contains(&record.len()));
    let sends = std::thread::spawn(move || {
        for id in 0..40 {
            greedy.peer.send_message(&FromAgent::Append {
                id,
                partition: 0,
                record: &record,
            });
        }
        greedy
    });
    // The log answers nothing: appends in flight stay below the bound plus one record.
    let mut under_way = Vec::new();
    link.until("it is not read any more", |link| {
        1 << 20 <= link.counters.appends_bytes.load(Ordering::Relaxed)
    });
    // Another agent goes on, and meanwhile the first gets nothing more in flight.
    for id in 100..120 {
        let small = modest.record("api.search", &["acme".to_owned()]);
        modest.peer.send_message(&FromAgent::Append {
            id,
            partition,
            record: &small,
        });
        loop {
            match link.next_request() {
                (peer, Request::Append { id: found, .. }) if found == id => {
                    let appended = FromAggregator::Appended {
                        id,
                        partition,
                        offset: 7,
                    };
                    link.answer(&peer, &appended);
                    break;
                }
                (peer, Request::Append { id, .. }) => under_way.push((peer, id)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            modest.peer.answer(),
            FromAggregator::Appended { .. }
        ));
        let bytes = link.counters.appends_bytes.load(Ordering::Relaxed);
        assert!(bytes < 2 << 20, "{bytes}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Once answers come, everything is read.
    let mut answered = 0;
    while answered < 40 {
        let (peer, id) = match under_way.pop() {
            Some(one) => one,
            None => match link.next_request() {
                (peer, Request::Append { id, .. }) => (peer, id),
                (_, other) => panic!("{other:?}"),
            },
        };
        let partition = 0;
        let offset = answered;
        link.answer(
            &peer,
            &FromAggregator::Appended {
                id,
                partition,
                offset,
            },
        );
        answered += 1;
    }
    let mut greedy = sends.join().unwrap();
    for _ in 0..40 {
        assert!(matches!(
            greedy.peer.answer(),
            FromAggregator::Appended { .. }
        ));
    }
    assert_eq!(link.counters.appends_bytes.load(Ordering::Relaxed), 0);
}

/// How many records each of several connections sends.
const EACH: usize = 5;

#[test]
fn appends_of_one_address_hold_up_no_other() {
    let mut link = Link::start(Bounds::default(), 100);
    let of_first = |one: &String| partition_of_pair("api.search", one, 4) == 0;
    let domains = (0..).map(|n| format!("{n:0>200}")).filter(of_first);
    let domains: Vec<String> = domains.take(500).collect();
    let mut modest = link.welcome_from([127, 0, 0, 2]);
    let mut greedy: Vec<Hitter> = (0..6).map(|_| link.welcome()).collect();
    let record = greedy[0].record("api.search", &domains);
    for one in &mut greedy {
        for id in 1..=EACH as u64 {
            one.peer.send_message(&FromAgent::Append {
                id,
                partition: 0,
                record: &record,
            });
        }
    }
    // Nothing is answered: some twenty records reach the bound, and one more was being read.
    link.until("the address waits", |link| {
        1 == link.counters.addresses_held.load(Ordering::Relaxed)
    });
    let small = modest.record("api.search", &domains[..1]);
    modest.peer.send_message(&FromAgent::Append {
        id: 100,
        partition: 0,
        record: &small,
    });
    let mut under_way = Vec::new();
    loop {
        match link.next_request() {
            (_, Request::Append { id: 100, .. }) => break,
            (peer, Request::Append { id, .. }) => under_way.push((peer, id)),
            other => panic!("{other:?}"),
        }
    }
    assert!((15..28).contains(&under_way.len()), "{}", under_way.len());
    // Once answers come, everything is read.
    let mut answered = 0;
    while answered < greedy.len() * EACH {
        let (peer, id) = match under_way.pop() {
            Some(one) => one,
            None => match link.next_request() {
                (peer, Request::Append { id, .. }) => (peer, id),
                (_, other) => panic!("{other:?}"),
            },
        };
        let (partition, offset) = (0, answered as u64);
        let appended = FromAggregator::Appended {
            id,
            partition,
            offset,
        };
        link.answer(&peer, &appended);
        answered += 1;
    }
    for one in &mut greedy {
        for _ in 0..EACH {
            let answer = one.peer.answer();
            assert!(matches!(answer, FromAggregator::Appended { .. }));
        }
    }
}
