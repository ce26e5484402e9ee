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

    /// The next request, which is an append: whose, and its id.
    fn next_append(&mut self) -> (AgentPeer, u64) {
        match self.next_request() {
            (peer, Request::Append { id, .. }) => (peer, id),
            (_, other) => panic!("{other:?}"),
        }
    }

    /// The append with this id; those that come before it are `under_way` from then on.
    fn append_of(&mut self, id: u64, under_way: &mut Vec<(AgentPeer, u64)>) -> AgentPeer {
        loop {
            match self.next_append() {
                (peer, found) if found == id => return peer,
                other => under_way.push(other),
            }
        }
    }

    fn answer_append(&mut self, peer: &AgentPeer, id: u64, partition: u32, offset: u64) {
        let appended = FromAggregator::Appended {
            id,
            partition,
            offset,
        };
        self.answer(peer, &appended);
    }

    /// Answers this number of appends to partition 0: those under way, and those that come.
    fn answer_appends(&mut self, mut under_way: Vec<(AgentPeer, u64)>, count: u64) {
        for offset in 0..count {
            let (peer, id) = under_way.pop().unwrap_or_else(|| self.next_append());
            self.answer_append(&peer, id, 0, offset);
        }
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

/// Domains of one partition, 0, with names so long that a record of them has more than 100 kB.
fn long_domains() -> Vec<String> {
    let of_first = |one: &String| partition_of_pair("api.search", one, 4) == 0;
    let domains = (0..).map(|n| format!("{n:0>200}")).filter(of_first);
    domains.take(500).collect()
}

fn send_append(hitter: &mut Hitter, id: u64, partition: u32, record: &[u8]) {
    hitter.peer.send_message(&FromAgent::Append {
        id,
        partition,
        record,
    });
}

fn await_appended(hitter: &mut Hitter, count: u64) {
    for _ in 0..count {
        let answer = hitter.peer.answer();
        assert!(matches!(answer, FromAggregator::Appended { .. }));
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
    let partition = partition_of_pair("api.search", "acme", 4);
    let record = greedy.record("api.search", &long_domains());
    assert!((100_000..128 << 10).contains(&record.len()));
    let sends = std::thread::spawn(move || {
        (0..40).for_each(|id| send_append(&mut greedy, id, 0, &record));
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
        send_append(&mut modest, id, partition, &small);
        let peer = link.append_of(id, &mut under_way);
        link.answer_append(&peer, id, partition, 7);
        await_appended(&mut modest, 1);
        let bytes = link.counters.appends_bytes.load(Ordering::Relaxed);
        assert!(bytes < 2 << 20, "{bytes}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Once answers come, everything is read.
    link.answer_appends(under_way, 40);
    let mut greedy = sends.join().unwrap();
    await_appended(&mut greedy, 40);
    assert_eq!(link.counters.appends_bytes.load(Ordering::Relaxed), 0);
}

/// How many records each of several connections sends.
const EACH: u64 = 5;

#[test]
fn appends_of_one_address_hold_up_no_other() {
    let mut link = Link::start(Bounds::default(), 100);
    let domains = long_domains();
    let mut modest = link.welcome_from([127, 0, 0, 2]);
    let mut greedy: Vec<Hitter> = (0..6).map(|_| link.welcome()).collect();
    let record = greedy[0].record("api.search", &domains);
    for one in &mut greedy {
        (1..=EACH).for_each(|id| send_append(one, id, 0, &record));
    }
    // Nothing is answered: some twenty records reach the bound, and one more was being read.
    link.until("the address waits", |link| {
        1 == link.counters.addresses_held.load(Ordering::Relaxed)
    });
    let small = modest.record("api.search", &domains[..1]);
    send_append(&mut modest, 100, 0, &small);
    let mut under_way = Vec::new();
    link.append_of(100, &mut under_way);
    assert!((15..28).contains(&under_way.len()), "{}", under_way.len());
    // Once answers come, everything is read.
    link.answer_appends(under_way, greedy.len() as u64 * EACH);
    for one in &mut greedy {
        await_appended(one, EACH);
    }
}

#[test]
fn what_the_core_never_got_is_not_under_way_after_its_connection() {
    let mut link = Link::start(Bounds::default(), 100);
    let mut agent = link.welcome();
    let partition = partition_of_pair("api.search", "acme", 4);
    let mut send = |id| {
        let record = agent.record("api.search", &["acme".to_owned()]);
        send_append(&mut agent, id, partition, &record);
    };
    send(0);
    let (peer, _) = link.next_append();
    let bytes = |link: &Link| link.counters.appends_bytes.load(Ordering::Relaxed);
    let each = bytes(&link);
    // The core has room for 64, and takes none; records differ by some bytes.
    (1..=200).for_each(&mut send);
    link.until("more waits than the core has room for", |link| {
        65 * each + each / 2 < bytes(link)
    });
    drop(agent);
    let begun = Instant::now();
    while 0 < link.edge.agents.open.load(Ordering::Relaxed) {
        assert!(begun.elapsed() < SOON, "the end is not noticed");
        link.answer_append(&peer, 0, partition, 0);
        std::thread::sleep(Duration::from_millis(2));
    }
    // What the core got is answered, if to nobody.
    while let Ok(event) = link.events.try_recv() {
        if let Event::Agent { request, .. } = event
            && let Request::Append { id, .. } = request
        {
            link.answer_append(&peer, id, partition, id);
        }
    }
    // The connection counts as closed a moment before its memory is given back.
    link.until("nothing is under way", |link| bytes(link) == 0);
}
