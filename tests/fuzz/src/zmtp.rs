//! A connection's bytes: in one piece and in small pieces they decode to the same, and the result can be sent.

use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, Violation};
use tollgate_zmtp::{cancel, message, opening, opening_with, ping, pong, subscribe};

use crate::{Memory, choice};

/// An event keeps its bytes, a frame of one byte costs what `Bytes` and its allocation do; and a body that
/// comes in pieces is moved while it grows.
const MEMORY: Memory = Memory {
    base: 16 << 10,
    per_byte: 256,
};

const ROLES: [SocketType; 4] = [
    SocketType::Dealer,
    SocketType::Router,
    SocketType::Pub,
    SocketType::Sub,
];

const LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 256,
    frame_bytes_max: 2048,
    command_bytes_max: 128,
    parts_max: 3,
};

/// What incomplete messages may keep: the frames of a message and one more, each with its overhead.
const HELD_MAX: usize = 4 * (2048 + 96);

/// `[role, and whether the handshake is done already][bytes per piece][bytes…]`
pub fn run(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    let (piece, bytes) = choice(bytes);
    let role = ROLES[usize::from(mode & 3)];
    let opening = match mode & 4 {
        0 => Vec::new(),
        _ => opening(peer_of(role)).to_vec(),
    };
    let bytes = [&opening[..], bytes].concat();
    let whole = MEMORY.holds(bytes.len(), || read(role, [&bytes[..]]));
    let pieces = bytes.chunks(usize::from(piece % 64) + 1);
    assert_eq!(whole, read(role, pieces), "pieces change nothing");
    let (events, violation) = whole;
    if violation.is_none() {
        encoded_again(role, &events);
    }
}

fn read<'a>(
    role: SocketType,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Option<Violation>) {
    let mut decoder = Decoder::new(role, LIMITS);
    let mut events = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(violation) => {
                    assert_eq!(decoder.next(&mut piece), Err(violation), "it stays broken");
                    assert_eq!(decoder.held(), 0, "and keeps nothing");
                    return (events, Some(violation));
                }
            }
            assert!(decoder.held() <= HELD_MAX);
        }
        assert!(piece.is_empty(), "everything is taken");
        assert!(decoder.held() <= HELD_MAX);
    }
    (events, None)
}

/// Decoded events, encoded by this side, decode to the same events.
fn encoded_again(role: SocketType, events: &[Event]) {
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for event in events {
        let said = match event {
            Event::Ready { token, .. } => {
                // A READY of the greatest length might not fit once the peer's type has a longer
                // name.
                let token = token.clone().filter(|token| token.as_bytes().len() <= 128);
                expected.push(Event::Ready {
                    pings: true,
                    token: token.clone(),
                });
                bytes.extend_from_slice(&opening_with(peer_of(role), token.as_ref()));
                continue;
            }
            Event::Message(parts) => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
                message(&parts)
            }
            Event::Subscribe(topic) => subscribe(topic),
            Event::Cancel(topic) => cancel(topic),
            // A PONG answers contexts; this side pings without one.
            Event::Ping(context) => {
                assert!(pong(context).len() <= 2 + 5 + context.len());
                continue;
            }
            Event::Pong => pong(b""),
        };
        bytes.extend_from_slice(&said);
        expected.push(event.clone());
    }
    let (found, violation) = read(role, [&bytes[..]]);
    assert_eq!((found, violation), (expected, None));
}

fn peer_of(role: SocketType) -> SocketType {
    match role {
        SocketType::Dealer => SocketType::Router,
        SocketType::Router => SocketType::Dealer,
        SocketType::Pub => SocketType::Sub,
        SocketType::Sub => SocketType::Pub,
    }
}

/// Whole conversations with each role.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |mode: u8, said: &[&[u8]]| [&[mode, 3][..], &said.concat()].concat();
    let long = message(&[&[7; 300], b"", b"end"]);
    vec![
        seed(0, &[&opening(SocketType::Router), &message(&[b"one"])]),
        seed(1, &[&opening(SocketType::Dealer), &long, &ping()]),
        seed(
            5,
            &[&message(&[b"a", b"b", b"c"]), &pong(b"context"), &ping()],
        ),
        seed(
            6,
            &[
                &subscribe(b"rtopic"),
                &cancel(b"rtopic"),
                b"\x04\x0f\x09SUBSCRIBEtopic",
            ],
        ),
        seed(6, &[b"\x04\x0c\x06CANCELtopic", &ping(), &subscribe(b"")]),
        seed(
            7,
            &[
                &message(&[b"topic", b"frame"]),
                b"\x06\0\0\0\0\0\0\0\x07\x04PING\0\0",
            ],
        ),
    ]
}
