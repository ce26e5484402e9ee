//! Promises of the wire formats: what was written can be read; bytes never change between releases;
//! anything else is refused with a position, without a panic and without much memory.

#[path = "wire/evolving.rs"]
mod evolving;
#[path = "wire/strategies.rs"]
mod strategies;
mod support;

use proptest::prelude::*;
use strategies::*;
use support::{Decoder, decoders, golden};
use tollgate_shared::descriptors::DescriptorRule;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Watermark};
use tollgate_shared::wire::hits::{Hit, HitKind, Refused, Sender, write_hits};
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::link::{
    FromAgent, FromAggregator, Member, Refusal, Snapshot, TopicSnapshot,
};
use tollgate_shared::wire::notice::{Notice, NoticeFrame};
use tollgate_shared::wire::public::{
    AddressPrefixes, BlindPolicy, CLOSED_BYTES_MAX, Kind, NETWORKS_MAX, OnExcess, Public,
    PublicAllowed, PublicBucket, PublicCopies, PublicGroup, PublicNetwork, PublicNetworks,
    PublicQuota, PublicTier, QuotaUnit, Reserving,
};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick, Total, authentic};
use tollgate_shared::wire::state_digest::StateDigest;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};
use tollgate_shared::wire::{FieldFault, MESSAGE_BYTES_MAX, Writer};

#[test]
fn golden_bytes_are_read_and_written_for_ever() {
    for (name, bytes, expected) in golden() {
        assert_eq!(
            hex(&bytes),
            expected,
            "{name}: these bytes stand in logs; a change needs a new version byte"
        );
    }
}

#[test]
fn totals_of_earlier_builds_are_read() {
    let counted = [Total::guarded(1_000, 3)];
    let bytes = RecordPen::new(&MacKey::UNPROTECTED, 0).totals("r", (2, 500), &counted);
    let nil = bytes.iter().position(|byte| *byte == 0xc0).expect("nil");
    let mut earlier = bytes.clone();
    // The record totalled before, 490.
    earlier.splice(nil..=nil, [0xcd, 0x01, 0xea]);
    let Ok(Record::Totals(read)) = Record::decode(&earlier) else {
        panic!("{:?}", Record::decode(&earlier));
    };
    assert_eq!((read.source_partition, read.source_offset), (2, 500));
    assert_eq!(read.counted().collect::<Vec<_>>(), counted);
}

#[test]
fn every_cut_of_a_message_is_refused_with_its_place() {
    for (name, bytes, _) in golden() {
        let Decoder { decode, .. } = decoders()
            .into_iter()
            .find(|d| name.starts_with(d.name))
            .expect("a decoder");
        decode(&bytes).expect("whole");
        for cut in 0..bytes.len() {
            let error = decode(&bytes[..cut]).expect_err("cut");
            assert!(error.at <= cut, "{name} cut at {cut}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        // A byte after a tagged record shifts the tag, so its error may be another one.
        assert!(decode(&longer).is_err(), "{name}: a byte behind the end");
    }
}

#[test]
fn other_versions_and_oversized_messages_are_refused() {
    for Decoder { decode, .. } in decoders() {
        let error = decode(&[9, 1, 0x90]).expect_err("version");
        assert_eq!(
            (error.at, error.fault),
            (0, FieldFault::Version { found: 9 })
        );
        let error = decode(&vec![1; MESSAGE_BYTES_MAX + 1]).expect_err("size");
        assert_eq!(
            error.fault,
            FieldFault::Oversized {
                bytes: MESSAGE_BYTES_MAX + 1
            }
        );
        let error = decode(&[]).expect_err("nothing");
        assert_eq!(error.fault, FieldFault::Truncated);
    }
}

#[test]
fn an_array_of_impossible_length_costs_nothing() {
    // array32 of 2^32 - 1 elements where hits are expected.
    let mut bytes = golden()
        .into_iter()
        .find(|(name, ..)| *name == "record/hits")
        .expect("hits")
        .1;
    let head = bytes
        .iter()
        .rposition(|b| *b == 0x92)
        .expect("the array of hits");
    bytes.splice(head..=head, [0xdd, 0xff, 0xff, 0xff, 0xff]);
    let error = Record::decode(&bytes).expect_err("too many");
    assert_eq!((error.field, error.fault), ("hits", FieldFault::Truncated));
}

#[test]
fn an_unknown_kind_says_whether_it_may_be_skipped() {
    assert!(matches!(
        Record::decode(&[1, 0x85, 0xc0]),
        Ok(Record::Unknown {
            kind: 0x85,
            skippable: true
        })
    ));
    assert!(matches!(
        Record::decode(&[1, 0x45]),
        Ok(Record::Unknown {
            kind: 0x45,
            skippable: false
        })
    ));
}

#[test]
fn a_forged_or_moved_record_is_not_authentic() {
    let key = MacKey::derive(b"fleet");
    let log = LogId {
        generation: 1,
        random: 2,
    };
    let tick = RecordPen::new(&key, 3).tick(&Tick {
        log,
        aggregator: "agg-1",
        instance: 4,
        number: 5,
    });
    assert!(authentic(&tick, 3, &key));
    assert!(!authentic(&tick, 4, &key), "copied into another partition");
    assert!(!authentic(&tick, 3, &MacKey::UNPROTECTED), "another key");
    for index in 0..tick.len() {
        let mut altered = tick.clone();
        altered[index] ^= 1;
        // A changed kind may make it a record that needs no tag; such a record is no longer a tick.
        let still_tick = matches!(Record::decode(&altered), Ok(Record::Tick(_)));
        assert!(
            !(still_tick && authentic(&altered, 3, &key)),
            "byte {index}"
        );
    }
}

#[test]
fn errors_say_where_and_what() {
    let mut writer = Writer::new();
    let sender = Sender {
        agent: "a",
        epoch: 1,
        sequence: 1,
        sent: Timestamp::from_micros(9),
    };
    let hit = Hit::one(7, "d", Timestamp::ZERO, 1);
    write_hits(
        &mut writer,
        &sender,
        &["r"],
        [hit].into_iter(),
        std::iter::empty(),
    );
    let error = Record::decode(writer.as_slice()).expect_err("no such resource");
    assert_eq!(
        error.to_string(),
        "byte 30: resource index: outside its range, expected an index into the batch's resources"
    );
}

/// As earlier builds wrote it, from the log in `tests/frozen`.
#[test]
fn limits_of_an_earlier_build_are_read_from_one_record() {
    let text = "version = 1\nrules = 1\n";
    let earlier = |count: &str| {
        let head = format!(
            "010999c410{}0500{count}00c420{}",
            "00".repeat(15),
            "cd".repeat(32)
        );
        let tail = "a36f7073a5666972737406c416";
        let hex = head
            + tail
            + &text
                .bytes()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
            .collect::<Vec<u8>>()
    };
    let one = earlier("01");
    let document = LimitsDocument::decode(&one).expect("one record");
    assert_eq!(
        (document.push, document.who, document.text),
        (5, "ops", text)
    );
    let error = LimitsDocument::decode(&earlier("02")).expect_err("one of two");
    assert_eq!(error.field, "index");
}

/// A denial of `*` denies everybody: an agent that could record calls of it could have everybody
/// refused.
#[test]
fn calls_without_a_domain_are_never_recorded() {
    let sender = Sender {
        agent: "a",
        epoch: 1,
        sequence: 1,
        sent: Timestamp::from_micros(9),
    };
    let refused = Refused {
        resource: 0,
        domain: "*",
        calls: 1,
        copies: 1,
        first: Timestamp::ZERO,
        last: Timestamp::ZERO,
        cause: Cause::Global,
        position: None,
    };
    let hit = Hit::one(0, "*", Timestamp::ZERO, 1);
    for (hits, refused) in [(vec![hit], vec![]), (vec![], vec![refused])] {
        let mut writer = Writer::new();
        let (hits, refused) = (hits.into_iter(), refused.into_iter());
        write_hits(&mut writer, &sender, &["r"], hits, refused);
        let error = Record::decode(writer.as_slice()).expect_err("of everybody");
        assert_eq!(error.fault, FieldFault::Everybody, "{error}");
    }
}

/// Agents keep a denial of everybody under the name `*`.
#[test]
fn a_statement_about_a_pair_is_never_about_everybody() {
    let fault_of = |scope: Scope| {
        let statement = Statement {
            scope,
            position: LogPosition::default(),
            kind: StatementKind::Lifted,
        };
        let frame = Frame {
            instance: 1,
            sequence: 1,
            sent: Span::ZERO,
            resource: "r".into(),
            watermarks: Vec::new(),
            statements: vec![StatementNotice {
                partition: 0,
                remaining: Span::ZERO,
                statement,
            }],
        };
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        Frame::decode(writer.as_slice()).err().map(|e| e.field)
    };
    assert_eq!(fault_of(Scope::Pair("acme".into())), None);
    assert_eq!(fault_of(Scope::Resource), None);
    assert_eq!(fault_of(Scope::Group("*".into())), None);
    assert_eq!(fault_of(Scope::Pair("*".into())), Some("domain"));
    assert_eq!(fault_of(Scope::Pair("".into())), Some("domain"));
    assert_eq!(fault_of(Scope::Group("".into())), Some("scope name"));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

proptest! {
    #[test]
    fn a_batch_of_hits_reads_back_equal(
        agent in a_name(), epoch: u128, sequence: u64, sent in 0u64..1 << 60,
        resources in prop::collection::vec(a_name(), 1..4),
        hits in prop::collection::vec((any::<prop::sample::Index>(), a_name(), 0u64..1 << 60, 1u32.., some_calls()), 0..20),
        refused in prop::collection::vec((any::<prop::sample::Index>(), a_name(), any::<u64>(), 0u64..1 << 60, a_cause(), prop::option::of(a_log_position())), 0..5),
    ) {
        let sender = Sender { agent: &agent, epoch, sequence, sent: Timestamp::from_micros(sent) };
        let names: Vec<&str> = resources.iter().map(String::as_str).collect();
        let hits: Vec<Hit<'_>> = hits.iter().map(|(resource, domain, at, copies, calls)| {
            let resource = resource.index(names.len()) as u32;
            calls.of(Hit::one(resource, domain, Timestamp::from_micros(*at), *copies))
        }).collect();
        let refused: Vec<Refused<'_>> = refused.iter().map(|(resource, domain, calls, at, cause, position)| Refused {
            resource: resource.index(names.len()) as u32,
            domain,
            calls: *calls,
            copies: *calls,
            first: Timestamp::from_micros(*at),
            last: Timestamp::from_micros(*at),
            cause: *cause,
            position: *position,
        }).collect();
        let mut writer = Writer::new();
        write_hits(&mut writer, &sender, &names, hits.iter().copied(), refused.iter().copied());
        let Record::Hits(batch) = Record::decode(writer.as_slice()).expect("a record") else { panic!("hits") };
        prop_assert_eq!(batch.sender, sender);
        prop_assert_eq!(batch.resources(), &names[..]);
        prop_assert_eq!(batch.hits(), &hits[..]);
        prop_assert_eq!(batch.refused().collect::<Vec<_>>(), refused);
    }

    #[test]
    fn records_of_aggregators_read_back_equal(
        generation: u32, random: u64, owner in a_name(), instance: u128, number: u64,
        digest: [u8; 32], resource in a_name(), source: (u32, u64),
        first in 0u64..1 << 50, counted in prop::collection::vec((0u64..1000, 1u32.., any::<bool>()), 0..20), partition: u32,
    ) {
        let key = MacKey::derive(b"fleet");
        let pen = || RecordPen::new(&key, partition);
        let log = LogId { generation, random };

        let bytes = pen().genesis(log);
        prop_assert!(authentic(&bytes, partition, &key));
        prop_assert!(matches!(Record::decode(&bytes), Ok(Record::Genesis(read)) if read == log));

        let tick = Tick { log, aggregator: &owner, instance, number };
        let bytes = pen().tick(&tick);
        prop_assert!(matches!(Record::decode(&bytes), Ok(Record::Tick(read)) if read == tick));

        let activation = LimitsActivation { version: number, digest };
        let bytes = pen().limits_activation(&activation);
        prop_assert!(matches!(Record::decode(&bytes), Ok(Record::LimitsActivation(read)) if read == activation));

        let state_digest = StateDigest {
            offset: number, rules: generation, form: partition, digest: instance, group: &resource, aggregator: &owner, instance,
        };
        let bytes = pen().state_digest(&state_digest);
        prop_assert!(authentic(&bytes, partition, &key) && !authentic(&bytes, partition ^ 1, &key));
        prop_assert!(matches!(Record::decode(&bytes), Ok(Record::StateDigest(read)) if read == state_digest));

        let mut at = first;
        let counted: Vec<Total> = counted.into_iter().map(|(later, copies, unguarded)| {
            at += later;
            Total { ms: at, copies, unguarded }
        }).collect();
        let bytes = pen().totals(&resource, source, &counted);
        let Record::Totals(read) = Record::decode(&bytes).expect("totals") else { panic!("totals") };
        prop_assert_eq!((read.resource, read.source_partition, read.source_offset),
            (resource.as_str(), source.0, source.1));
        prop_assert_eq!(read.counted().collect::<Vec<_>>(), counted);
    }

    #[test]
    fn frames_and_snapshots_read_back_equal(
        instance: u128, sequence: u64, sent: u64, resource in a_name(), more: bool, public in a_public(),
        watermarks in prop::collection::vec(a_watermark(), 0..4), statements in prop::collection::vec(a_statement_notice(), 0..6),
    ) {
        let mut writer = Writer::new();
        let frame = Frame {
            instance, sequence, sent: Span::from_micros(sent), resource: resource.clone().into(),
            watermarks: watermarks.clone(), statements: statements.clone(),
        };
        frame.encode(&mut writer);
        prop_assert_eq!(Frame::decode(writer.as_slice()), Ok(frame));
        let topic = TopicSnapshot { resource: resource.into(), sequence, public, statements };
        let snapshot = FromAggregator::Snapshot(Snapshot {
            nonce: sent, part: sequence as u32, more, instance, clock: Span::from_micros(sent), watermarks, control_sequence: sequence,
            topics: vec![topic],
        });
        snapshot.encode(&mut writer);
        prop_assert_eq!(FromAggregator::decode(writer.as_slice()), Ok(snapshot));
    }

    #[test]
    fn notices_read_back_equal(
        instance: u128, sequence: u64, sent: u64, resource in a_name(), domain in a_name(), partition: u32,
        cause in a_cause(), spans: (u64, u64, u64), counts: (u64, u64), since: u64, n in 0usize..5,
    ) {
        let notice = Notice {
            partition, domain: domain.into(), cause, left: counts.0, limit: counts.1,
            window: Span::from_micros(spans.0), more_in: Span::from_micros(spans.1),
            near_for: Span::from_micros(spans.2), since: Timestamp::from_micros(since),
        };
        let frame = NoticeFrame {
            instance, sequence, sent: Span::from_micros(sent), resource: resource.into(),
            notices: vec![notice; n],
        };
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        prop_assert_eq!(NoticeFrame::decode(writer.as_slice()), Ok(frame));
    }

    #[test]
    fn other_messages_read_back_equal(
        nonce: u64, agent in a_name(), epoch: u128, partition: u32, record: Vec<u8>, never: bool,
        resources in prop::collection::vec(a_name(), 0..5), statement in a_statement(),
        who in a_name(), digest: [u8; 32],
    ) {
        let mut writer = Writer::new();
        for message in [
            FromAgent::Hello {
                nonce,
                agent: &agent,
                secret: EpochSecret::new(digest),
                before: never.then_some(EpochSecret::new([7; 32])),
            },
            FromAgent::Append { id: nonce, partition, record: &record },
            FromAgent::Ask { nonce, resources: resources.iter().map(String::as_str).collect() },
        ] {
            message.encode(&mut writer);
            prop_assert_eq!(FromAgent::decode(writer.as_slice()), Ok(message));
        }
        let reason = if never { Refusal::Never } else { Refusal::NotNow };
        for message in [
            FromAggregator::Welcome {
                nonce, instance: epoch, partitions: partition % 1_025,
                feeds: resources.iter().map(|r| r.as_str().into()).collect(), clock: Span::from_micros(nonce),
                members: resources.iter().map(|r| Member { instance: epoch, address: r.as_str().into() }).collect(),
                limits: nonce,
            },
            FromAggregator::Appended { id: nonce, partition, offset: nonce },
            FromAggregator::Refused { id: nonce, reason, text: who.as_str().into() },
        ] {
            message.encode(&mut writer);
            prop_assert_eq!(FromAggregator::decode(writer.as_slice()), Ok(message));
        }
        let log = LogId { generation: partition, random: nonce };
        let announced = Announced { log, partition, resource: agent.as_str().into(), statement };
        announced.encode(&mut writer);
        prop_assert_eq!(Announced::decode(writer.as_slice()), Ok(announced));
        let document = LimitsDocument {
            push: epoch, expected: nonce, who: &who, why: "",
            at: Timestamp::from_micros(nonce), text: &agent,
        };
        document.encode(&mut writer);
        prop_assert_eq!(LimitsDocument::decode(writer.as_slice()), Ok(document));
    }

    #[test]
    fn decoding_allocates_a_small_multiple_of_its_input_at_most(
        which: prop::sample::Index, at: prop::sample::Index, head in prop::sample::select(vec![
            vec![0xdd, 0xff, 0xff, 0xff, 0xff], vec![0xdc, 0xff, 0xff], vec![0xdb, 0xff, 0xff, 0xff, 0xff],
            vec![0xc6, 0xff, 0xff, 0xff, 0xff],
        ]),
    ) {
        // Replaces a length by one that announces more than there is.
        let golden = golden();
        let mut bytes = golden[which.index(golden.len())].1.clone();
        let at = at.index(bytes.len());
        bytes.splice(at..=at, head);
        for Decoder { decode, .. } in decoders() {
            let mut outcome = Ok(());
            let used = allocation_counter::measure(|| outcome = decode(&bytes));
            prop_assert!(used.bytes_max <= 32 * bytes.len() as u64, "{} bytes for {}", used.bytes_max, bytes.len());
        }
    }

    #[test]
    fn random_bytes_are_refused_quietly(mut bytes: Vec<u8>, kind: u8, versioned: bool) {
        if versioned {
            bytes.splice(0..0, [1, kind]);
        }
        for Decoder { decode, .. } in decoders() {
            if let Err(error) = decode(&bytes) {
                prop_assert!(error.at <= bytes.len());
            }
        }
    }

    #[test]
    fn altered_messages_are_read_or_refused_but_never_panic(at: prop::sample::Index, which: prop::sample::Index, value: u8) {
        let golden = golden();
        let mut bytes = golden[which.index(golden.len())].1.clone();
        let at = at.index(bytes.len());
        bytes[at] = value;
        for Decoder { decode, .. } in decoders() {
            if let Err(error) = decode(&bytes) {
                prop_assert!(error.at <= bytes.len());
            }
        }
    }
}
