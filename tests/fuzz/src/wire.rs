//! Log records, link messages, frames of the feed and the limits log: decoded, encoded and decoded again, a
//! message is the same; the position of a fault is within the message.

use std::fmt::Debug;

use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::frame::Frame;
use tollgate_shared::wire::heartbeat::{
    Heartbeat, HeartbeatHead, Holds, HoldsRead, Listed, Part, write_heartbeat,
};
use tollgate_shared::wire::hits::{Hit, HitBatch, Refused, Sender, write_hits};
use tollgate_shared::wire::holds::{HoldBatch, HoldOp, write_holds};
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::link::{Answered, FromAgent, FromAggregator};
use tollgate_shared::wire::member::MemberRecord;
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick, Total, authentic};
use tollgate_shared::wire::state_digest::StateDigest;
use tollgate_shared::wire::verdict::VerdictFrame;
use tollgate_shared::wire::{DecodeError, Writer};

use crate::{Memory, choice};

/// Records borrow their content: only the names of resources allocate, a slice for a byte at least.
const BORROWED: Memory = Memory {
    base: 256,
    per_byte: 24,
};

/// Lists are owned and grow by doubling; the largest element (a statement) has some 200 bytes of memory and
/// at least 12 on the wire.
const OWNED: Memory = Memory {
    base: 4096,
    per_byte: 64,
};

/// `[bytes of one record…]`
pub fn record(bytes: &[u8]) {
    let key = MacKey::derive(b"fuzz");
    let _ = authentic(bytes, 3, &key);
    let decoded = BORROWED.holds(bytes.len(), || Record::decode(bytes));
    let Some(record) = within(bytes, decoded) else {
        return;
    };
    let Some(seen) = Seen::of(&record) else {
        return;
    };
    let written = seen.written(&key);
    match Record::decode(&written) {
        Ok(again) => assert_eq!(Seen::of(&again).as_ref(), Some(&seen)),
        Err(fault) => panic!("what was written cannot be read: {fault}"),
    }
    assert!(
        authentic(&written, 3, &key),
        "what an owner writes has its tag"
    );
}

/// Everything in a record, lazily decoded parts included.
#[derive(Debug, PartialEq)]
enum Seen<'a> {
    Genesis(LogId),
    Hits(Sender<'a>, Vec<&'a str>, Vec<Hit<'a>>, Vec<Refused<'a>>),
    Holds(Sender<'a>, Vec<&'a str>, Vec<HoldOp<'a>>),
    Heartbeat(Sender<'a>, Vec<&'a str>, HeartbeatHead, Vec<SeenPart<'a>>),
    Tick(Tick<'a>),
    Totals(&'a str, (u32, u64), Vec<Total>),
    LimitsActivation(LimitsActivation),
    StateDigest(StateDigest<'a>),
}

/// A part of a heartbeat: resource, awaited and asked numbers, and the holds.
#[derive(Debug, PartialEq)]
struct SeenPart<'a> {
    resource: u32,
    awaiting: Vec<u64>,
    asked: Vec<u64>,
    digest: Option<Holdings>,
    range: (u64, u64),
    listed: Vec<Listed<'a>>,
}

impl<'a> Seen<'a> {
    /// `None` means an unknown kind.
    fn of(record: &Record<'a>) -> Option<Self> {
        Some(match record {
            Record::Genesis(log) => Self::Genesis(*log),
            Record::Hits(batch) => Self::hits(batch),
            Record::Holds(batch) => Self::holds(batch),
            Record::Heartbeat(heartbeat) => Self::heartbeat(heartbeat),
            Record::Tick(tick) => Self::Tick(*tick),
            Record::Totals(totals) => Self::Totals(
                totals.resource,
                (totals.source_partition, totals.source_offset),
                in_order(totals.counted().collect())?,
            ),
            Record::LimitsActivation(activation) => Self::LimitsActivation(*activation),
            Record::StateDigest(state_digest) => Self::StateDigest(*state_digest),
            Record::Unknown { .. } => return None,
        })
    }

    fn hits(batch: &HitBatch<'a>) -> Self {
        let hits: Vec<_> = batch.hits().to_vec();
        let refused: Vec<_> = batch.refused().collect();
        let named = hits.iter().map(|hit| hit.resource);
        let named = named.chain(refused.iter().map(|refused| refused.resource));
        named.for_each(|index| assert!(!batch.resource(index).is_empty()));
        Self::Hits(batch.sender, batch.resources().to_vec(), hits, refused)
    }

    fn holds(batch: &HoldBatch<'a>) -> Self {
        let ops: Vec<_> = batch.ops().collect();
        assert_eq!(ops.len(), batch.ops_len() as usize);
        Self::Holds(batch.sender, batch.resources().to_vec(), ops)
    }

    fn heartbeat(heartbeat: &Heartbeat<'a>) -> Self {
        let parts: Vec<_> = heartbeat.parts().collect();
        assert_eq!(parts.len(), heartbeat.parts_len() as usize);
        let parts = parts.iter().map(|part| {
            let listed: Vec<_> = part.listed().collect();
            let (digest, range) = match part.holds {
                HoldsRead::Digest(digest) => (Some(digest), (0, 0)),
                HoldsRead::List {
                    from, upto, len, ..
                } => {
                    assert_eq!(listed.len(), len as usize);
                    (None, (from, upto))
                }
            };
            SeenPart {
                resource: part.resource,
                awaiting: part.awaiting().collect(),
                asked: part.asked().collect(),
                digest,
                range,
                listed,
            }
        });
        Self::Heartbeat(
            heartbeat.sender,
            heartbeat.resources().to_vec(),
            heartbeat.head,
            parts.collect(),
        )
    }

    fn written(&self, key: &MacKey) -> Vec<u8> {
        let pen = RecordPen::new(key, 3);
        let mut writer = Writer::new();
        match self {
            Self::Genesis(log) => return pen.genesis(*log),
            Self::Tick(tick) => return pen.tick(tick),
            Self::Totals(resource, source, counted) => {
                return pen.totals(resource, *source, counted);
            }
            Self::LimitsActivation(activation) => return pen.limits_activation(activation),
            Self::StateDigest(state_digest) => return pen.state_digest(state_digest),
            Self::Hits(sender, resources, hits, refused) => write_hits(
                &mut writer,
                sender,
                resources,
                hits.iter().copied(),
                refused.iter().copied(),
            ),
            Self::Holds(sender, resources, ops) => {
                write_holds(&mut writer, sender, resources, ops.iter().copied());
            }
            Self::Heartbeat(sender, resources, head, parts) => {
                let parts: Vec<Part<'_>> = parts.iter().map(SeenPart::part).collect();
                write_heartbeat(&mut writer, sender, resources, *head, &parts);
            }
        }
        writer.as_slice().to_vec()
    }
}

impl<'a> SeenPart<'a> {
    fn part(&self) -> Part<'_> {
        Part {
            resource: self.resource,
            awaiting: &self.awaiting,
            asked: &self.asked,
            holds: match self.digest {
                Some(digest) => Holds::Digest(digest),
                None => Holds::List {
                    from: self.range.0,
                    upto: self.range.1,
                    listed: &self.listed,
                },
            },
        }
    }
}

/// Totals if they are in the order that their writer requires; other orders can be read, but are never
/// written.
fn in_order(counted: Vec<Total>) -> Option<Vec<Total>> {
    let ordered = counted.is_sorted_by_key(|total| total.ms);
    // Without an entry the first millisecond has no meaning, and is not kept.
    (ordered && !counted.is_empty()).then_some(counted)
}

/// `[sending side][bytes of one message…]`
pub fn link(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    let _ = Answered::of(bytes);
    if mode & 1 == 0 {
        let decoded = OWNED.holds(bytes.len(), || FromAgent::decode(bytes));
        let Some(message) = within(bytes, decoded) else {
            return;
        };
        let written = written(|writer| message.encode(writer));
        same(FromAgent::decode(&written), &message);
    } else {
        let decoded = OWNED.holds(bytes.len(), || FromAggregator::decode(bytes));
        let Some(message) = within(bytes, decoded) else {
            return;
        };
        let written = written(|writer| message.encode(writer));
        same(FromAggregator::decode(&written), &message);
    }
}

/// `[kind of message][bytes…]`
pub fn feed(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    let len = bytes.len();
    match mode & 3 {
        0 => again(
            bytes,
            || OWNED.holds(len, || Frame::decode(bytes)),
            |frame, writer| {
                frame.encode(writer);
                Frame::decode(writer.as_slice())
            },
        ),
        1 => again(
            bytes,
            || OWNED.holds(len, || VerdictFrame::decode(bytes)),
            |frame, writer| {
                frame.encode(writer);
                VerdictFrame::decode(writer.as_slice())
            },
        ),
        2 => again(
            bytes,
            || OWNED.holds(len, || Announced::decode(bytes)),
            |announced, writer| {
                announced.encode(writer);
                Announced::decode(writer.as_slice())
            },
        ),
        _ => again(
            bytes,
            || OWNED.holds(len, || MemberRecord::decode(bytes)),
            |member, _| MemberRecord::decode(&member.encode()),
        ),
    }
}

/// `[kind of message][bytes…]`
pub fn limits_log(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    if mode & 1 == 0 {
        let decoded = BORROWED.holds(bytes.len(), || LimitsDocument::decode(bytes));
        let Some(document) = within(bytes, decoded) else {
            return;
        };
        let written = written(|writer| document.encode(writer));
        same(LimitsDocument::decode(&written), &document);
    } else {
        let decoded = OWNED.holds(bytes.len(), || Amendment::decode(bytes));
        let Some(amendment) = within(bytes, decoded) else {
            return;
        };
        let written = written(|writer| amendment.encode(writer));
        same(Amendment::decode(&written), &amendment);
    }
}

fn again<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl FnOnce() -> Result<T, DecodeError>,
    rewrite: impl FnOnce(&T, &mut Writer) -> Result<T, DecodeError>,
) {
    if let Some(read) = within(bytes, decode()) {
        same(rewrite(&read, &mut Writer::new()), &read);
    }
}

/// What was decoded. Asserts that a fault is within the message, and has a text.
fn within<T>(bytes: &[u8], decoded: Result<T, DecodeError>) -> Option<T> {
    match decoded {
        Ok(value) => Some(value),
        Err(fault) => {
            assert!(fault.at <= bytes.len(), "{fault} of {} bytes", bytes.len());
            assert!(!fault.field.is_empty() && !fault.fault.to_string().is_empty());
            None
        }
    }
}

fn same<T: Debug + PartialEq>(again: Result<T, DecodeError>, first: &T) {
    match again {
        Ok(again) => assert_eq!(&again, first),
        Err(fault) => panic!("what was written cannot be read: {fault}"),
    }
}

fn written(encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    encode(&mut writer);
    writer.as_slice().to_vec()
}

/// The encoding of each kind of message, which must never change.
macro_rules! golden {
    ($name:literal) => {
        bytes_of(include_str!(concat!(
            "../../../shared/tests/support/golden/",
            $name,
            ".hex"
        )))
    };
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.filter_map(byte).collect()
}

fn behind(mode: u8, messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let seed = |bytes: Vec<u8>| [&[mode][..], &bytes].concat();
    messages.into_iter().map(seed).collect()
}

/// A record of each kind.
pub fn record_seeds() -> Vec<Vec<u8>> {
    vec![
        golden!("genesis"),
        golden!("hits"),
        golden!("calls"),
        golden!("holds"),
        golden!("heartbeat"),
        golden!("last-heartbeat"),
        golden!("tick"),
        golden!("totals"),
        golden!("pointer"),
        golden!("state-digest"),
    ]
}

/// A message of each kind.
pub fn link_seeds() -> Vec<Vec<u8>> {
    let of_agents = [
        golden!("hello"),
        golden!("arrays/hello"),
        golden!("append"),
        golden!("ask"),
    ];
    let mut seeds = behind(0, of_agents);
    seeds.extend(behind(
        1,
        [
            golden!("welcome"),
            golden!("arrays/welcome"),
            golden!("arrays/snapshot"),
            golden!("appended"),
            golden!("refused"),
            golden!("snapshot"),
            golden!("snapshot-copies"),
        ],
    ));
    seeds
}

/// A frame of each kind.
pub fn feed_seeds() -> Vec<Vec<u8>> {
    let member = MemberRecord {
        instance: 5,
        group: "a".into(),
        agents: "h:1".into(),
        http: "h:2".into(),
        partitions: vec![0, 7, 1_023],
    };
    let mut seeds = behind(0, [golden!("frame")]);
    seeds.extend(behind(1, [golden!("verdicts")]));
    seeds.extend(behind(2, [golden!("announced")]));
    seeds.extend(behind(3, [member.encode()]));
    seeds
}

/// A chunk, and an amendment of each kind.
pub fn limits_log_seeds() -> Vec<Vec<u8>> {
    let name = || Box::<str>::from("api");
    let acts = [
        Act::Reset {
            resource: name(),
            domain: name(),
        },
        Act::Pardon {
            resource: name(),
            domain: name(),
        },
        Act::Refund {
            resource: name(),
            domain: name(),
            hits: 3,
        },
        Act::Ban {
            resource: None,
            domain: name(),
            until: Timestamp::MAX,
        },
        Act::Ban {
            resource: Some(name()),
            domain: name(),
            until: Timestamp::from_micros(1),
        },
        Act::Unban {
            resource: None,
            domain: name(),
        },
        Act::ReleaseHold {
            resource: name(),
            agent: name(),
            epoch: 1,
            number: 2,
        },
        Act::ReleaseHolds {
            resource: name(),
            domain: None,
            agent: Some(name()),
        },
        Act::ReleaseTransfer {
            resource: name(),
            transfer: TransferId(7),
        },
        Act::Switch {
            namespace: "*".into(),
            ignore_configured: Some(true),
            allow_unconfigured: None,
        },
    ];
    let amendments = acts.map(|act| {
        written(|writer| {
            let (push, expected) = (7, 9);
            let amendment = Amendment {
                push,
                expected,
                who: "ann",
                why: "a test",
                act,
            };
            amendment.encode(writer);
        })
    });
    let mut seeds = behind(0, [golden!("limits")]);
    seeds.extend(behind(1, amendments));
    seeds
}
