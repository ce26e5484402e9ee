//! Silent connections: the aggregator closes them, and they keep nobody out meanwhile.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tollgate_tests::http::get_text;
use tollgate_zmtp::{SocketType, opening};

use crate::attacked::{Attacked, SOON};
use crate::peer::Peer;

fn silent(address: &str, count: usize) -> Vec<Peer> {
    let one = |_| Peer::connect(address, SocketType::Dealer);
    (0..count).map(one).collect()
}

#[test]
fn the_oldest_silent_connection_of_an_address_makes_room() {
    let mut attacked = Attacked::start("[listen]\nhandshake_timeout = \"5m\"");
    let mut held = silent(&attacked.serving.agents, 400);
    held.extend(silent(&attacked.serving.feed, 400));
    attacked.until("64 are kept", |now| {
        now.metric("tollgate_connections_pending") == 64
    });
    // A new agent from the same address is served.
    attacked.denials_arrive();
    let agents = attacked.serving.agents.clone();
    let mut another = Peer::connect(&agents, SocketType::Dealer);
    another.send(&opening(SocketType::Dealer));
    assert!(another.event().is_some());
    attacked.has_grown_at_most(0);
    attacked.until("the others are counted", |now| {
        let ended = now.ended("agents", "pending_of_address");
        // If the newcomer came last, one of its peers' connections was closed for it.
        800 - 64 <= ended + now.ended("feed", "pending_of_address")
    });
    held.clear();
}

#[test]
fn five_hundred_connections_of_one_address_are_accepted() {
    let mut attacked = Attacked::start("");
    let ports = [
        (attacked.serving.agents.clone(), SocketType::Dealer),
        (attacked.serving.feed.clone(), SocketType::Sub),
    ];
    for (address, role) in ports {
        let crowd = |_| {
            let address = address.clone();
            // All connect before the first of them waits for an answer.
            std::thread::spawn(move || {
                let mut peers: Vec<Peer> = Vec::new();
                for _ in 0..125 {
                    let mut peer = Peer::connect(&address, role);
                    peer.send(&opening(role));
                    peers.push(peer);
                }
                let ready = peers.iter_mut().map(Peer::event);
                assert!(ready.into_iter().all(|event| event.is_some()));
                peers
            })
        };
        let crowds: Vec<_> = (0..4).map(crowd).collect();
        let held: Vec<_> = crowds.into_iter().map(|one| one.join().unwrap()).collect();
        drop(held);
    }
    assert_eq!(attacked.ended("agents", "pending_of_address"), 0);
    assert_eq!(attacked.ended("feed", "pending_of_address"), 0);
    attacked.denials_arrive();
}

#[test]
fn a_peer_that_is_not_ready_in_time_is_closed() {
    let mut attacked = Attacked::start("[listen]\nhandshake_timeout = \"300ms\"");
    let mut silent = silent(&attacked.serving.agents, 8);
    // A byte of the greeting now and then is not a handshake either.
    let greeting = opening(SocketType::Sub);
    let mut trickling = Peer::connect(&attacked.serving.feed, SocketType::Sub);
    for byte in greeting.chunks(1) {
        if !trickling.try_send(byte) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    silent.iter_mut().for_each(Peer::is_ended);
    trickling.is_ended();
    attacked.until("all are counted", |now| {
        8 <= now.ended("agents", "handshake") && 1 <= now.ended("feed", "handshake")
    });
    attacked.denials_arrive();
}

#[test]
fn a_peer_that_answers_no_ping_is_closed() {
    let mut attacked =
        Attacked::start("[listen]\nping_after = \"100ms\"\nsilence_timeout = \"500ms\"");
    let mut dealer = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    let mut subscriber = Peer::ready(&attacked.serving.feed, SocketType::Sub);
    dealer.is_ended();
    subscriber.is_ended();
    attacked.until("both are counted", |now| {
        1 <= now.ended("agents", "silent") && 1 <= now.ended("feed", "silent")
    });
    attacked.denials_arrive();
}

#[test]
fn peers_are_not_blamed_for_a_pause_of_the_process() {
    let mut attacked =
        Attacked::start("[listen]\nping_after = \"100ms\"\nsilence_timeout = \"1s\"");
    let serving = &attacked.serving;
    serving.pause();
    // This is the tested fault, not a wait for something.
    std::thread::sleep(Duration::from_millis(2_200));
    serving.resume();
    attacked.denials_arrive();
    assert_eq!(attacked.ended("agents", "silent"), 0);
    assert_eq!(attacked.ended("feed", "silent"), 0);
}

#[test]
fn without_descriptors_health_and_agents_go_on() {
    let mut attacked = Attacked::start("[listen]\nhandshake_timeout = \"1s\"");
    // The limit is lowered below what the process counted on at its start, so descriptors run out.
    let limit = attacked.metric("tollgate_connections_open{port=\"agents\"}");
    assert_eq!(limit, 1, "the honest agent");
    let pid = Pid::from_raw(i32::try_from(attacked.serving.pid()).unwrap()).unwrap();
    let used = std::fs::read_dir(format!("/proc/{}/fd", attacked.serving.pid()))
        .unwrap()
        .count() as u64;
    let few = Rlimit {
        current: Some(used + 40),
        maximum: Some(used + 40),
    };
    prlimit(Some(pid), Resource::Nofile, few).unwrap();
    let mut held = silent(&attacked.serving.agents, 60);
    attacked.until("accepting has paused", |now| {
        let http = now.serving.http.clone();
        // While descriptors are exhausted, HTTP waits as well.
        let text = get_text(&*http, "/metrics").unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tollgate_accept_pauses_total "));
        line.is_some_and(|count| count != "0")
    });
    // When the handshakes time out, descriptors are free again.
    let begun = Instant::now();
    while get_text(&*attacked.serving.http, "/healthz").as_deref() != Some("ok\n") {
        assert!(begun.elapsed() < SOON, "health is not answered");
    }
    attacked.denials_arrive();
    held.clear();
}
