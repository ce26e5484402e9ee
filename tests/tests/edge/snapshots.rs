//! Peers that ask and do not read: snapshots, hellos and appends.

use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAgent, FromAggregator};
use tollgate_zmtp::{SocketType, message};

use crate::attacked::Attacked;
use crate::peer::{Hitter, Peer};

/// Some 3 MB of snapshot.
const DENIED: usize = 60_000;

fn ask(nonce: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    FromAgent::Ask {
        nonce,
        resources: vec!["api.day"],
    }
    .encode(&mut writer);
    message(&[writer.as_slice()]).to_vec()
}

fn with_denials(config: &str) -> Attacked {
    let attacked = Attacked::start(config);
    Hitter::new(&attacked.serving.agents).deny("api.day", DENIED, 4);
    attacked
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_closed() {
    let mut attacked = with_denials("[listen]\nstall_timeout = \"5s\"");
    let before = attacked.resident();
    let mut deaf = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    let mut greatest = 0;
    let mut note = |now: &Attacked| {
        greatest = greatest.max(now.metric("tollgate_connections_queued_bytes"));
    };
    for nonce in 0..2_000 {
        if !deaf.try_send(&ask(nonce)) {
            break;
        }
        if nonce % 100 == 0 {
            note(&attacked);
            attacked.denials_arrive();
        }
    }
    let grown = attacked.resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{} MiB more", grown >> 20);
    attacked.until("it is ended", |now| {
        note(now);
        now.ended("agents", "stalled") == 1
    });
    assert!(
        (1..=2 << 20).contains(&greatest),
        "{greatest} bytes waited for it"
    );
    attacked.denials_arrive();
}

#[test]
fn a_slow_reader_gets_its_whole_snapshot() {
    let mut attacked = with_denials("");
    let mut slow = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    slow.send(&ask(7));
    attacked.denials_arrive();
    let mut statements = 0;
    loop {
        match slow.answer() {
            FromAggregator::Snapshot(part) => {
                let topics = part.topics.iter();
                statements += topics.map(|topic| topic.statements.len()).sum::<usize>();
                if !part.more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(statements, DENIED);
    // A peer that closed its connection in the middle leaves no work behind.
    let mut gone = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    gone.send(&ask(8));
    drop(gone);
    attacked.denials_arrive();
    attacked.until("nothing waits", |now| {
        now.metric("tollgate_connections_queued_bytes") == 0
    });
}

#[test]
fn a_peer_that_does_not_read_is_not_read_either() {
    let mut attacked = Attacked::start("[listen]\nstall_timeout = \"2s\"");
    let mut deaf = Peer::ready(&attacked.serving.agents, SocketType::Dealer);
    let mut writer = Writer::new();
    FromAgent::Hello {
        nonce: 1,
        agent: "deaf",
        secret: EpochSecret::new([1; 32]),
        before: None,
    }
    .encode(&mut writer);
    let hellos = message(&[writer.as_slice()]).repeat(1_000);
    while deaf.try_send(&hellos) {
        assert!(attacked.metric("tollgate_connections_queued_bytes") < 1 << 20);
    }
    attacked.until("it is ended", |now| now.ended("agents", "stalled") == 1);
    attacked.has_grown_at_most(1 << 20);
    attacked.denials_arrive();
    // The log names the peer, what was found, and what is allowed.
    let lines = attacked.serving.stop();
    let line = lines
        .iter()
        .find(|line| line.contains("ended a connection"));
    let line = line.unwrap_or_else(|| panic!("{lines:?}"));
    for expected in [
        "address=127.0.0.1:",
        "agent=\"deaf\"",
        "reason=\"stalled\"",
        "bytes wait for it, expected the peer to read some within 2s",
    ] {
        assert!(line.contains(expected), "no {expected} in {line}");
    }
}
