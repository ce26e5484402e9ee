//! One message of each kind with the bytes that it has always had, and every decoder.

mod copies;
mod rates;

use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Amendment;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::frame::Frame;
use tollgate_shared::wire::heartbeat::HoldsRead;
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Member, Refusal};
use tollgate_shared::wire::notice::NoticeFrame;
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick, Total};
use tollgate_shared::wire::state_digest::StateDigest;
use tollgate_shared::wire::verdict::VerdictFrame;
use tollgate_shared::wire::{DecodeError, Writer};

/// A decoder, and the prefix of the names of the messages that it decodes.
pub struct Decoder {
    pub name: &'static str,
    pub decode: fn(&[u8]) -> Result<(), DecodeError>,
}

/// Every decoder. Lazily decoded parts are iterated as well.
pub fn decoders() -> Vec<Decoder> {
    vec![
        Decoder {
            name: "record",
            decode: |bytes| {
                match Record::decode(bytes)? {
                    Record::Hits(batch) => {
                        batch.refused().for_each(drop);
                    }
                    Record::Holds(batch) => {
                        assert_eq!(batch.ops().count(), batch.ops_len() as usize);
                    }
                    Record::Heartbeat(heartbeat) => {
                        assert_eq!(heartbeat.parts().count(), heartbeat.parts_len() as usize);
                        for part in heartbeat.parts() {
                            if let HoldsRead::List { len, .. } = part.holds {
                                assert_eq!(part.listed().count(), len as usize);
                            }
                            part.awaiting().chain(part.asked()).for_each(drop);
                        }
                    }
                    Record::Totals(totals) => totals.counted().for_each(drop),
                    _ => {}
                }
                Ok(())
            },
        },
        Decoder {
            name: "frame",
            decode: |bytes| Frame::decode(bytes).map(drop),
        },
        Decoder {
            name: "verdicts",
            decode: |bytes| VerdictFrame::decode(bytes).map(drop),
        },
        Decoder {
            name: "notices",
            decode: |bytes| NoticeFrame::decode(bytes).map(drop),
        },
        Decoder {
            name: "announced",
            decode: |bytes| Announced::decode(bytes).map(drop),
        },
        Decoder {
            name: "limits",
            decode: |bytes| LimitsDocument::decode(bytes).map(drop),
        },
        Decoder {
            name: "amendment",
            decode: |bytes| Amendment::decode(bytes).map(drop),
        },
        Decoder {
            name: "agent",
            decode: |bytes| FromAgent::decode(bytes).map(drop),
        },
        Decoder {
            name: "aggregator",
            decode: |bytes| FromAggregator::decode(bytes).map(drop),
        },
    ]
}

const fn log() -> LogId {
    LogId {
        generation: 1,
        random: 0xfeed,
    }
}

/// Name, bytes as written by this build, bytes as they have always been (hexadecimal).
pub fn golden() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let key = MacKey::derive(b"golden");
    let pen = || RecordPen::new(&key, 3);
    let encoded = |encode: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        encode(&mut writer);
        writer.as_slice().to_vec()
    };
    vec![
        (
            "record/genesis",
            pen().genesis(log()),
            include_str!("golden/genesis.hex").trim(),
        ),
        (
            "record/hits",
            encoded(&rates::hits),
            include_str!("golden/hits.hex").trim(),
        ),
        (
            "record/calls",
            encoded(&rates::calls),
            include_str!("golden/calls.hex").trim(),
        ),
        (
            "record/holds",
            encoded(&copies::holds),
            include_str!("golden/holds.hex").trim(),
        ),
        (
            "record/heartbeat",
            encoded(&copies::heartbeat),
            include_str!("golden/heartbeat.hex").trim(),
        ),
        (
            "record/last heartbeat",
            encoded(&copies::last_heartbeat),
            include_str!("golden/last-heartbeat.hex").trim(),
        ),
        (
            "verdicts",
            encoded(&copies::verdicts),
            include_str!("golden/verdicts.hex").trim(),
        ),
        (
            "aggregator/snapshot of copies",
            encoded(&copies::snapshot),
            include_str!("golden/snapshot-copies.hex").trim(),
        ),
        (
            "record/tick",
            pen().tick(&Tick {
                log: log(),
                aggregator: "agg-1",
                instance: 9,
                number: 4,
            }),
            include_str!("golden/tick.hex").trim(),
        ),
        (
            "record/totals",
            pen().totals(
                "api.search",
                (2, 500),
                &[
                    Total::guarded(1000, 3),
                    Total {
                        ms: 1002,
                        copies: 1,
                        unguarded: true,
                    },
                ],
            ),
            include_str!("golden/totals.hex").trim(),
        ),
        (
            "record/pointer",
            pen().limits_activation(&LimitsActivation {
                version: 7,
                digest: [0xab; 32],
            }),
            include_str!("golden/pointer.hex").trim(),
        ),
        (
            "record/state digest",
            pen().state_digest(&StateDigest {
                offset: 500,
                rules: 1,
                form: 1,
                digest: 0x0102_0304,
                group: "b",
                aggregator: "agg-1",
                instance: 9,
            }),
            include_str!("golden/state-digest.hex").trim(),
        ),
        (
            "frame",
            encoded(&rates::frame),
            include_str!("golden/frame.hex").trim(),
        ),
        (
            "notices",
            encoded(&rates::notices),
            include_str!("golden/notices.hex").trim(),
        ),
        (
            "announced",
            encoded(&rates::announced),
            include_str!("golden/announced.hex").trim(),
        ),
        (
            "limits",
            encoded(&limits),
            include_str!("golden/limits.hex").trim(),
        ),
        (
            "agent/hello",
            encoded(&|w| {
                FromAgent::Hello {
                    nonce: 1,
                    agent: "web-1",
                    secret: EpochSecret::new([2; 32]),
                    before: None,
                }
                .encode(w)
            }),
            include_str!("golden/hello.hex").trim(),
        ),
        (
            "agent/append",
            encoded(&|w| {
                FromAgent::Append {
                    id: 1,
                    partition: 3,
                    record: b"xyz",
                }
                .encode(w)
            }),
            include_str!("golden/append.hex").trim(),
        ),
        (
            "agent/ask",
            encoded(&|w| {
                FromAgent::Ask {
                    nonce: 1,
                    resources: vec!["api.search"],
                }
                .encode(w)
            }),
            include_str!("golden/ask.hex").trim(),
        ),
        (
            "aggregator/welcome",
            encoded(&welcome),
            include_str!("golden/welcome.hex").trim(),
        ),
        (
            "aggregator/appended",
            encoded(&|w| {
                FromAggregator::Appended {
                    id: 1,
                    partition: 3,
                    offset: 300,
                }
                .encode(w)
            }),
            include_str!("golden/appended.hex").trim(),
        ),
        (
            "aggregator/refused",
            encoded(&|w| {
                FromAggregator::Refused {
                    id: 1,
                    reason: Refusal::NotNow,
                    text: "full".into(),
                }
                .encode(w)
            }),
            include_str!("golden/refused.hex").trim(),
        ),
        (
            "aggregator/snapshot",
            encoded(&rates::snapshot),
            include_str!("golden/snapshot.hex").trim(),
        ),
    ]
}

fn limits(writer: &mut Writer) {
    LimitsDocument {
        push: 5,
        expected: 0,
        who: "ops",
        why: "first",
        at: Timestamp::from_micros(6),
        text: "version = 1\nrules = 1\n",
    }
    .encode(writer);
}

fn welcome(writer: &mut Writer) {
    FromAggregator::Welcome {
        nonce: 1,
        instance: 9,
        partitions: 16,
        feeds: vec!["tcp://127.0.0.1:7402".into()],
        clock: Span::from_millis(77),
        members: vec![Member {
            instance: 10,
            address: "127.0.0.1:7411".into(),
        }],
        limits: 0,
    }
    .encode(writer);
}
