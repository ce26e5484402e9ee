//! Messages that evolve: this release reads what the one before wrote, and what a later one may write.

use rmp::decode::{Bytes, read_map_len, read_str_len};
use rmp::encode;
use tollgate_shared::wire::named;
use tollgate_shared::wire::verdict::VerdictFrame;
use tollgate_shared::wire::{DecodeError, Reader};

use super::*;

mod lists;

/// A map of named fields, each with its encoded value.
#[derive(Clone, Debug)]
struct Map(Vec<(String, Vec<u8>)>);

impl Map {
    /// The map of a message, after its version byte and kind.
    fn of(message: &[u8]) -> Self {
        let mut head = Bytes::new(&message[2..]);
        let len = read_map_len(&mut head).expect("a map");
        let mut rest = head.remaining_slice();
        let fields = (0..len).map(|_| {
            let mut key = Bytes::new(rest);
            let len = read_str_len(&mut key).expect("a name") as usize;
            let (name, behind) = key.remaining_slice().split_at(len);
            let name = std::str::from_utf8(name).expect("UTF-8").to_owned();
            // To read a single value, a version byte is put before it.
            let message = [&[1], behind].concat();
            let mut reader = Reader::of_message(&message).expect("a message");
            let value = reader.value("value").expect("a value").to_vec();
            rest = &behind[value.len()..];
            (name, value)
        });
        Self(fields.collect())
    }

    fn with(&self, name: &str, value: &[u8]) -> Self {
        let mut fields = self.0.clone();
        fields.retain(|(other, _)| other != name);
        fields.push((name.to_owned(), value.to_vec()));
        Self(fields)
    }

    fn without(&self, name: &str) -> Self {
        let mut fields = self.0.clone();
        fields.retain(|(other, _)| other != name);
        Self(fields)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::write_map_len(&mut bytes, self.0.len() as u32).expect("memory");
        for (name, value) in &self.0 {
            encode::write_str(&mut bytes, name).expect("memory");
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// The message of this kind.
    fn message(&self, kind: u8) -> Vec<u8> {
        [&[1, kind], &*self.bytes()].concat()
    }
}

/// Values that a later release may add: one of each type, nested as deeply as allowed.
fn later_values() -> Vec<Vec<u8>> {
    let text = [&[0xdb, 0, 1, 0x11, 0x70][..], &[b'x'; 70_000]].concat();
    let nested = [&[0x91; 8][..], &[0x81, 0xa1, b'a', 0xc0]].concat();
    let plain: [&[u8]; 6] = [
        &[0xc0],
        &[0xc3],
        &[0xd1, 0xff, 0x00],
        &[0xc4, 2, 0xff, 0xfe],
        &[0xcb, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ];
    let plain = plain.iter().map(|value| value.to_vec());
    plain.chain([text, nested]).collect()
}

fn golden_bytes(name: &str) -> Vec<u8> {
    let found = golden().into_iter().find(|(other, ..)| *other == name);
    found.expect("a golden message").1
}

fn hello_of(bytes: &[u8]) -> Result<FromAgent<'_>, DecodeError> {
    FromAgent::decode(bytes)
}

fn public_of(map: &Map) -> Result<Public, DecodeError> {
    named::read_message(&map.message(0), 0, "public limits")
}

fn all_public() -> Public {
    let FromAggregator::Snapshot(snapshot) =
        FromAggregator::decode(&golden_bytes("aggregator/snapshot")).expect("a snapshot")
    else {
        panic!("a snapshot");
    };
    snapshot.topics[0].public.clone()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}

#[test]
fn verdicts_of_an_earlier_build_are_refused_by_name() {
    let before = bytes(include_str!("../support/golden/arrays/verdicts.hex"));
    let error = VerdictFrame::decode(&before).expect_err("another form");
    assert_eq!(error.field, "hold status");
}

#[test]
fn messages_from_before_fields_had_names_are_read() {
    let hello = bytes(include_str!("../support/golden/arrays/hello.hex"));
    assert_eq!(hello_of(&hello), hello_of(&golden_bytes("agent/hello")));
    assert!(hello_of(&hello).is_ok());
    for (before, now) in [
        (
            include_str!("../support/golden/arrays/welcome.hex"),
            "aggregator/welcome",
        ),
        (
            include_str!("../support/golden/arrays/snapshot.hex"),
            "aggregator/snapshot",
        ),
        (
            include_str!("../support/golden/arrays/snapshot-copies.hex"),
            "aggregator/snapshot of copies",
        ),
    ] {
        let read = FromAggregator::decode(&bytes(before));
        assert!(read.is_ok(), "{now}: {read:?}");
        assert_eq!(read, FromAggregator::decode(&golden_bytes(now)), "{now}");
    }
}

#[test]
fn fields_of_a_later_release_are_skipped() {
    let hello = golden_bytes("agent/hello");
    let welcome = golden_bytes("aggregator/welcome");
    let public = all_public();
    let written = named::message(0, &public);
    for value in later_values() {
        let later = |message: &[u8]| Map::of(message).with("later", &value);
        assert_eq!(hello_of(&later(&hello).message(1)), hello_of(&hello));
        assert_eq!(
            FromAggregator::decode(&later(&welcome).message(65)),
            FromAggregator::decode(&welcome)
        );
        assert_eq!(public_of(&later(&written)), Ok(public.clone()));
    }
    // In any order.
    let mut turned = Map::of(&welcome);
    turned.0.reverse();
    assert_eq!(
        FromAggregator::decode(&turned.message(65)),
        FromAggregator::decode(&welcome)
    );
}

#[test]
fn fields_of_parts_of_a_later_release_are_skipped() {
    // {"limit": 5, "window": 1, "later": nil}
    let tier = [
        &[0x93 - 0x10, 0xa5][..],
        b"limit",
        &[5, 0xa6],
        b"window",
        &[1, 0xa5],
        b"later",
        &[0xc0],
    ]
    .concat();
    let tiers = [&[0x91][..], &tier].concat();
    let read = public_of(&Map(Vec::new()).with("tiers", &tiers)).expect("public limits");
    let window = Span::from_micros(1);
    assert_eq!(*read.tiers, [PublicTier { limit: 5, window }]);
}

#[test]
fn each_field_may_be_missing_but_those_that_always_were() {
    let hello = golden_bytes("agent/hello");
    let missing = |message: &[u8], name: &str| Map::of(message).without(name);
    for name in ["nonce", "agent", "secret"] {
        let message = missing(&hello, name).message(1);
        let error = hello_of(&message).expect_err(name);
        assert_eq!(
            error.to_string(),
            format!("byte 2: hello: missing field `{name}`")
        );
    }
    let welcome = golden_bytes("aggregator/welcome");
    for (name, _) in &Map::of(&welcome).0 {
        let read = FromAggregator::decode(&missing(&welcome, name).message(65));
        let may = ["feeds", "members"].contains(&&**name);
        assert_eq!(read.is_ok(), may, "{name}: {read:?}");
    }
    let written = named::message(0, &all_public());
    let fields = Map::of(&written);
    // All but `refused`, `copies`, `descriptors`, `closed`, `limits_of`, `networks` and `allowed`, which have their defaults.
    assert_eq!(fields.0.len(), 15);
    for (name, _) in &fields.0 {
        let read = public_of(&fields.without(name)).expect(name);
        let again = Map::of(&named::message(0, &read));
        assert!(
            again
                .0
                .iter()
                .all(|(other, _)| other != name || other == "version" || other == "kind")
        );
    }
    assert_eq!(public_of(&Map(Vec::new())), Ok(Public::default()));
}

#[test]
fn an_unknown_choice_of_a_later_release_is_accepted() {
    let text = |text: &str| {
        let mut bytes = Vec::new();
        encode::write_str(&mut bytes, text).expect("memory");
        bytes
    };
    let written = named::message(0, &all_public());
    let fields = Map::of(&written);
    let read = public_of(&fields.with("kind", &text("capacity"))).expect("public limits");
    assert_eq!(read.kind, Kind::Unconfigured);
    let policy = Map(vec![("policy".to_owned(), text("queue"))]);
    let read = public_of(&fields.with("blind", &policy.bytes())).expect("public limits");
    assert_eq!(read.blind, BlindPolicy::Open);
    let quota = |unit: &str| {
        let limit = ("limit".to_owned(), vec![7]);
        Map(vec![limit, ("unit".to_owned(), text(unit))]).bytes()
    };
    let quotas = [&[0x92][..], &quota("fortnight"), &quota("week")].concat();
    let read = public_of(&fields.with("quotas", &quotas)).expect("public limits");
    let (limit, unit) = (7, QuotaUnit::Week);
    assert_eq!(*read.quotas, [PublicQuota { limit, unit }]);
}

#[test]
fn errors_say_where_what_and_what_was_expected() {
    let welcome = Map::of(&golden_bytes("aggregator/welcome"));
    let fault = |name: &str, value: &[u8]| {
        let message = welcome.with(name, value).message(65);
        let error = FromAggregator::decode(&message).expect_err(name);
        error.to_string()
    };
    assert_eq!(
        fault("feeds", &[0x92, 0xa1, b'a', 0xa0]),
        "byte 2: welcome: feeds[1]: invalid length 0, expected a text of 1 to 256 bytes"
    );
    assert_eq!(
        fault("feeds", &[&[0xdc, 0, 17][..], &[0xa1; 34]].concat()),
        "byte 2: welcome: feeds: invalid length 17, expected at most 16 elements"
    );
    assert_eq!(
        fault("instance", &[0xc4, 3, 1, 2, 3]),
        "byte 2: welcome: instance: invalid length 3, expected 16 bytes"
    );
    assert_eq!(
        fault("partitions", &[0xcd, 0x04, 0x01]),
        "byte 2: partitions: outside its range, expected 0 to 1024"
    );
    // The value found may be long; the fault quotes only a part of it.
    let text = [&[0xda, 0xff, 0xff][..], &[0x1b; 0xffff]].concat();
    assert_eq!(
        fault("nonce", &text),
        "byte 2: welcome: nonce: found a value of type Str16, expected one of the field's type"
    );
    let error_text = fault("feeds", &text);
    assert!(
        error_text.starts_with("byte 2: welcome: feeds: invalid type: string"),
        "{error_text}"
    );
    assert!(
        error_text.len() < 2_000 && !error_text.contains('\u{1b}'),
        "{error_text}"
    );
    let error = public_of(&Map(Vec::new()).with("addresses", b"\x82\xa2v4\x21\xa2v6\x40"));
    assert_eq!(
        error.expect_err("33 bits").to_string(),
        "byte 2: public limits: addresses.v4: invalid value: integer `33`, expected 0 to 32 bits"
    );
}

#[test]
fn an_announced_length_takes_no_memory() {
    let welcome = Map::of(&golden_bytes("aggregator/welcome"));
    let huge: [&[u8]; 6] = [
        &[0xdd, 0xff, 0xff, 0xff, 0xff],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
        &[0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0xc6, 0xff, 0xff, 0xff, 0xff],
        &[0x92, 0xdd, 0x00, 0x0f, 0xff, 0xff],
        &[0xc7, 0x00, 0x01],
    ];
    for (value, name) in huge
        .iter()
        .flat_map(|value| [(value, "feeds"), (value, "later")])
    {
        let message = welcome.with(name, value).message(65);
        let cost = allocation_counter::measure(|| {
            FromAggregator::decode(&message).expect_err("it is not there");
        });
        assert_eq!(cost.count_total, 0, "{name}: {value:02x?}");
    }
    // As many elements as announced, nested 100,000 deep: an error, not a stack overflow.
    let deep = [&[0x91; 100_000][..], &[0xc0]].concat();
    let message = welcome.with("later", &deep).message(65);
    let error = FromAggregator::decode(&message).expect_err("too deep");
    let error_text = error.to_string();
    assert!(
        error_text.starts_with("byte 2: welcome: later[0][0]")
            && error_text.ends_with("]: depth limit exceeded"),
        "{error_text}"
    );
}
