//! The codec with input of any kind: any pieces, any corruption, any announced length.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use bytes::Bytes;
use proptest::prelude::*;
use tollgate_zmtp::{
    Decoder, Event, PeerLimits, SocketType, Token, Violation, cancel, error, message, opening,
    opening_with, ping, pong, subscribe,
};

const LIMITS: PeerLimits = PeerLimits {
    ready_bytes_max: 4 << 10,
    frame_bytes_max: 1 << 20,
    command_bytes_max: 512,
    parts_max: 3,
};

/// A decoder's events for these pieces of bytes, up to the first violation.
fn decode<'a>(
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
        }
        assert!(piece.is_empty(), "everything is taken");
    }
    (events, None)
}

fn opened(behind: &[u8]) -> Vec<u8> {
    [&opening(SocketType::Dealer)[..], behind].concat()
}

fn header(flags: u8, length: u64) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes()].concat()
}

/// The violation of a DEALER's bytes.
fn violation(bytes: &[u8]) -> Option<Violation> {
    decode(SocketType::Router, [bytes]).1
}

/// Bytes that a peer may send, and the event that must be read from them.
fn said(role: SocketType) -> BoxedStrategy<(Bytes, Event)> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from);
    let pings = bytes(17).prop_map(|context| {
        let head = [&[4, 7 + context.len() as u8, 4][..], b"PING\0\0"].concat();
        let frame = [&head[..], &context[..]].concat().into();
        (frame, Event::Ping(context))
    });
    let quiet = Just((pong(b""), Event::Pong));
    if role == SocketType::Pub {
        let subscribes = bytes(40).prop_map(|topic| (subscribe(&topic), Event::Subscribe(topic)));
        let cancels = bytes(40).prop_map(|topic| (cancel(&topic), Event::Cancel(topic)));
        let commands = bytes(40).prop_map(|topic| {
            let head = [4, 10 + topic.len() as u8, 9];
            let frame = [&head[..], b"SUBSCRIBE", &topic[..]].concat();
            (frame.into(), Event::Subscribe(topic))
        });
        return prop_oneof![subscribes, cancels, commands, pings, quiet].boxed();
    }
    let frames = prop::collection::vec(bytes(700), 1..=3);
    let messages = frames.prop_map(|frames| {
        let parts: Vec<&[u8]> = frames.iter().map(AsRef::as_ref).collect();
        (message(&parts), Event::Message(frames))
    });
    prop_oneof![4 => messages, 1 => pings, 1 => quiet].boxed()
}

fn conversation(role: SocketType, peer: SocketType) -> BoxedStrategy<(Vec<u8>, Vec<Event>)> {
    let all = prop::collection::vec(said(role), 0..8);
    all.prop_map(move |all| {
        let mut bytes = opening(peer).to_vec();
        let mut events = vec![Event::Ready {
            pings: true,
            token: None,
        }];
        for (frame, event) in all {
            bytes.extend_from_slice(&frame);
            events.push(event);
        }
        (bytes, events)
    })
    .boxed()
}

fn any_conversation() -> BoxedStrategy<(SocketType, Vec<u8>, Vec<Event>)> {
    use SocketType::{Dealer, Pub, Router, Sub};
    let pairs = [(Router, Dealer), (Dealer, Router), (Pub, Sub), (Sub, Pub)];
    let pairs = prop::sample::select(pairs.to_vec());
    pairs
        .prop_flat_map(|(role, peer)| {
            conversation(role, peer).prop_map(move |(bytes, events)| (role, bytes, events))
        })
        .boxed()
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_events(
        (role, bytes, events) in any_conversation(),
        sizes in prop::collection::vec(1..200usize, 1..20),
    ) {
        let mut rest = &bytes[..];
        let mut sizes = sizes.iter().cycle();
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let size = *sizes.next().unwrap();
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        prop_assert_eq!(decode(role, pieces), (events, None));
    }

    #[test]
    fn any_corruption_is_read_or_refused_and_never_panics(
        (role, mut bytes, _) in any_conversation(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let (whole, violation) = decode(role, [&bytes[..]]);
        let (apart, same) = decode(role, bytes.chunks(1));
        prop_assert_eq!((whole, violation), (apart, same));
    }

    #[test]
    fn random_bytes_are_refused_or_incomplete(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (events, _) = decode(SocketType::Router, [&bytes[..]]);
        prop_assert!(events.is_empty());
    }

    /// Measured in bytes that were really allocated, while a frame arrives.
    #[test]
    fn memory_grows_with_what_was_received(announced in 1..=(1u64 << 20), received in 0..8_192usize) {
        let start = opened(&header(2, announced));
        let body = vec![7; received.min(announced as usize - 1)];
        let memory = allocation_counter::measure(|| {
            let mut decoder = Decoder::new(SocketType::Router, LIMITS);
            let mut events = 0;
            for mut piece in std::iter::once(&start[..]).chain(body.chunks(100)) {
                while let Ok(Some(_)) = decoder.next(&mut piece) {
                    events += 1;
                }
            }
            assert_eq!(events, 1, "READY alone");
            assert!(!decoder.is_between_messages());
            assert!(decoder.held() <= 2 * body.len() + 256, "{}", decoder.held());
        });
        // In addition to the body: greeting, READY, and the body before it was moved to larger
        // memory.
        let allowed = 3 * body.len() as u64 + 1_024;
        prop_assert!(memory.bytes_max <= allowed, "{} of {allowed}", memory.bytes_max);
    }
}

#[test]
fn a_length_that_is_announced_is_refused_before_anything() {
    for length in [(1 << 20) + 1, 1 << 34, 1 << 40, 1 << 46, 1 << 62, u64::MAX] {
        let too_long = |found, allowed| Some(Violation::FrameTooLong { found, allowed });
        let memory = allocation_counter::measure(|| {
            let after = violation(&opened(&header(2, length)));
            assert_eq!(after, too_long(length, 1 << 20));
            // Before READY only a command is allowed.
            let greeting = &opening(SocketType::Dealer)[..64];
            let before = violation(&[greeting, &header(6, length)].concat());
            assert_eq!(before, too_long(length, 4 << 10));
            // And a message of any length is refused.
            let early = violation(&[greeting, &header(2, length)].concat());
            assert_eq!(early, Some(Violation::NotReady));
        });
        assert!(memory.bytes_max < 4_096, "{}", memory.bytes_max);
    }
    assert_eq!(violation(&opened(&header(2, 1 << 20))), None);
    let command = violation(&opened(&header(6, 513)));
    assert!(matches!(
        command,
        Some(Violation::FrameTooLong { allowed: 512, .. })
    ));
}

#[test]
fn a_message_of_endless_parts_is_refused_at_its_fourth() {
    let three = [1, 1, b'x'].repeat(3);
    assert_eq!(violation(&opened(&three)), None);
    let four = [1, 1, b'x'].repeat(4);
    let refused = Some(Violation::TooManyParts { allowed: 3 });
    assert_eq!(violation(&opened(&four)), refused);
    // A command between the frames of a message does not count as one of them.
    let between = [&three[..], &ping()[..]].concat();
    assert_eq!(violation(&opened(&between)), None);
}

#[test]
fn other_protocols_are_refused_at_their_first_wrong_byte() {
    let at = |bytes: &[u8]| match violation(bytes) {
        Some(Violation::Greeting { at, .. }) => at,
        other => panic!("{other:?}"),
    };
    assert_eq!(at(b"G"), 0);
    assert_eq!(at(b"\xff\0\0\0\0\0\0\0\0\0"), 9);
    // A ZMTP 2 peer continues with the type of its socket, and waits.
    assert_eq!(at(b"\xff\0\0\0\0\0\0\0\0\x7f\x01\x05"), 10);
    let mut curve = opening(SocketType::Dealer).to_vec();
    curve[12..17].copy_from_slice(b"CURVE");
    assert_eq!(violation(&curve), Some(Violation::Mechanism));
}

#[test]
fn a_peer_of_the_wrong_type_is_refused() {
    let wrong = violation(&opening(SocketType::Sub));
    let expected = SocketType::Router.peers();
    assert_eq!(wrong, Some(Violation::PeerType { expected }));
    let says = wrong.map(|violation| violation.to_string());
    assert_eq!(
        says.as_deref(),
        Some(r#"socket type: expected one of ["DEALER", "REQ"]"#)
    );
    let greeting = &opening(SocketType::Dealer)[..64];
    let cut = [greeting, b"\x04\x0c\x05READY\x0bSocke"].concat();
    assert!(matches!(violation(&cut), Some(Violation::Command { .. })));
}

#[test]
fn a_publisher_reads_nothing_but_subscriptions() {
    let read = |behind: &[u8]| {
        let bytes = [&opening(SocketType::Sub)[..], behind].concat();
        decode(SocketType::Pub, [&bytes[..]]).1
    };
    assert_eq!(read(&subscribe(b"topic")), None);
    let refused = Some(Violation::NotASubscription);
    assert_eq!(read(&message(&[b"\x02topic"])), refused);
    assert_eq!(read(&message(&[b""])), refused);
    assert_eq!(read(&[1, 1, 1]), refused, "of several frames");
    let elsewhere = opened(b"\x04\x0b\x09SUBSCRIBEx");
    assert!(matches!(
        violation(&elsewhere),
        Some(Violation::Command { .. })
    ));
}

#[test]
fn older_peers_are_known_to_understand_no_ping() {
    let mut bytes = opening(SocketType::Dealer).to_vec();
    bytes[11] = 0;
    let (events, violation) = decode(SocketType::Router, [&bytes[..]]);
    let ready = Event::Ready {
        pings: false,
        token: None,
    };
    assert_eq!((&events[..], violation), (&[ready][..], None));
}

#[test]
fn commands_of_a_later_version_are_skipped() {
    let later = [&b"\x04\x08\x05LATERxx"[..], &message(&[b"on"])[..]].concat();
    let (events, violation) = decode(SocketType::Router, [&opened(&later)[..]]);
    assert_eq!(violation, None);
    assert_eq!(events.last(), Some(&Event::Message(vec!["on".into()])));
    let error = violation_of_error();
    assert_eq!(error, Some(Violation::PeerError));
}

fn violation_of_error() -> Option<Violation> {
    violation(&opened(b"\x04\x0a\x05ERROR\x03bad"))
}

#[test]
fn a_token_in_ready_is_read_and_never_shown() {
    let token = Token::new(b"tg1_secret");
    let bytes = opening_with(SocketType::Dealer, Some(&token));
    let (events, violation) = decode(SocketType::Router, bytes.chunks(5));
    let ready = Event::Ready {
        pings: true,
        token: Some(token.clone()),
    };
    assert_eq!((&events[..], violation), (&[ready][..], None));
    assert!(!format!("{events:?}").contains("secret"));
    assert_eq!(token.as_bytes(), b"tg1_secret");
}

#[test]
fn the_reason_of_a_refusal_reaches_the_peer() {
    for (reason, kept) in [
        ("no such token", "no such token"),
        (&"é".repeat(200), &"é".repeat(127)),
    ] {
        let mut decoder = Decoder::new(SocketType::Router, PeerLimits::default());
        let bytes = opened(&error(reason));
        let mut input = &bytes[..];
        assert!(matches!(
            decoder.next(&mut input),
            Ok(Some(Event::Ready { .. }))
        ));
        assert_eq!(decoder.next(&mut input), Err(Violation::PeerError));
        assert_eq!(decoder.peer_error(), Some(kept));
    }
    // In place of its READY.
    let mut decoder = Decoder::new(SocketType::Router, PeerLimits::default());
    let bytes = [&opened(b"")[..64], b"\x04\x0a\x05ERROR\x03bad"].concat();
    assert_eq!(decoder.next(&mut &bytes[..]), Err(Violation::PeerError));
    assert_eq!(decoder.peer_error(), Some("bad"));
}
