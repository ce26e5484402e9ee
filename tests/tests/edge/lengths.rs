//! Absurd lengths: a frame header that states terabytes, before READY and after it.

use tollgate_zmtp::{SocketType, opening};

use crate::attacked::Attacked;
use crate::peer::{Peer, header};

const LENGTHS: [u64; 5] = [(1 << 20) + 1, 1 << 34, 1 << 40, 1 << 46, 1 << 62];

#[test]
fn a_frame_of_terabytes_ends_its_connection_alone() {
    let mut attacked = Attacked::start("");
    let serving = &attacked.serving;
    let ports = [
        (serving.agents.clone(), SocketType::Dealer),
        (serving.feed.clone(), SocketType::Sub),
    ];
    for (address, role) in &ports {
        for length in LENGTHS {
            // Before READY: a message, and a READY of that length.
            for flags in [2, 6] {
                let mut peer = Peer::connect(address, *role);
                let greeting = &opening(*role)[..64];
                peer.send(&[greeting, &header(flags, length)].concat());
                peer.is_ended();
            }
            for flags in [2, 3, 6] {
                let mut peer = Peer::ready(address, *role);
                peer.send(&header(flags, length));
                peer.is_ended();
            }
        }
    }
    attacked.denials_arrive();
    attacked.has_grown_at_most(0);
    for port in ["agents", "feed"] {
        attacked.until("all are counted", |now| {
            // A message before READY is refused whatever its length.
            now.ended(port, "ready") == 5 && 15 <= now.ended(port, "frame_bytes")
        });
    }
}

#[test]
fn other_protocols_are_hung_up_on_at_once() {
    let mut attacked = Attacked::start("");
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01\x02\x00",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01",
    ] {
        for address in [&attacked.serving.agents, &attacked.serving.feed] {
            let mut peer = Peer::connect(address, SocketType::Dealer);
            peer.send(bytes);
            peer.is_ended();
        }
    }
    attacked.until("all are counted", |now| {
        now.ended("agents", "greeting") == 3 && now.ended("feed", "greeting") == 3
    });
}
