//! Tests of what a connection of an agent may send.

use super::*;
use crate::security::{Proof, Role, Roles};
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, write_heartbeat};
use tollgate_shared::wire::hits::{Hit, write_hits};
use tollgate_shared::wire::holds::write_holds;
use tollgate_shared::wire::record::RecordPen;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SECRET: EpochSecret = EpochSecret::new([7; 32]);
const BEFORE: EpochSecret = EpochSecret::new([6; 32]);
const PARTITIONS: u32 = 4;

fn own() -> Sender<'static> {
    Sender {
        agent: "web-1",
        epoch: SECRET.epoch(),
        sequence: 1,
        sent: NOW,
    }
}

/// A domain whose pair with `r` belongs to a partition.
fn domain_of(partition: u32) -> String {
    let mut all = (0..).map(|number| format!("tenant-{number}"));
    let is_of = |one: &String| partition_of_pair("r", one, PARTITIONS) == partition;
    all.find(is_of).expect("one of endlessly many")
}

/// A batch of one hit for partition 0.
fn hits(sender: &Sender<'_>) -> Vec<u8> {
    hits_for(0, sender)
}

fn hits_for(partition: u32, sender: &Sender<'_>) -> Vec<u8> {
    let domain = domain_of(partition);
    let hit = Hit::one(0, &domain, sender.sent, 1);
    let mut writer = Writer::new();
    write_hits(
        &mut writer,
        sender,
        &["r"],
        [hit].into_iter(),
        [].into_iter(),
    );
    writer.as_slice().to_vec()
}

/// A batch of `entries` hits of one pair of partition 0.
fn many_hits(entries: usize) -> Vec<u8> {
    let domain = domain_of(0);
    let own = own();
    let hit = Hit::one(0, &domain, own.sent, 1);
    let mut writer = Writer::new();
    let hits = std::iter::repeat_n(hit, entries);
    write_hits(&mut writer, &own, &["r"], hits, [].into_iter());
    writer.as_slice().to_vec()
}

fn heartbeat(sender: &Sender<'_>, head: HeartbeatHead) -> Vec<u8> {
    let mut writer = Writer::new();
    write_heartbeat(&mut writer, sender, &[], head, &[]);
    writer.as_slice().to_vec()
}

/// Each kind of record that an agent may write.
fn batches(sender: &Sender<'_>) -> [Vec<u8>; 4] {
    let mut holds = Writer::new();
    write_holds(&mut holds, sender, &["r"], [].into_iter());
    let last = HeartbeatHead {
        last: true,
        ..HeartbeatHead::default()
    };
    [
        hits(sender),
        holds.as_slice().to_vec(),
        heartbeat(sender, HeartbeatHead::default()),
        heartbeat(sender, last),
    ]
}

fn say(session: &mut Session, message: &FromAgent<'_>) -> Admitted {
    let mut writer = Writer::new();
    message.encode(&mut writer);
    session.admit(writer.as_slice(), NOW)
}

fn hello(session: &mut Session, agent: &str, secret: EpochSecret) -> Admitted {
    let before = Some(BEFORE);
    let hello = FromAgent::Hello {
        nonce: 3,
        agent,
        secret,
        before,
    };
    say(session, &hello)
}

fn greeted() -> Session {
    let mut session = Session::new(PARTITIONS);
    let welcome = Admitted::Request(Request::Hello { nonce: 3 });
    assert_eq!(hello(&mut session, "web-1", SECRET), welcome);
    session
}

/// Appends a record; returns the fault, if it was refused.
fn append(session: &mut Session, partition: u32, record: &[u8]) -> Option<BatchFault> {
    let id = 7;
    let append = FromAgent::Append {
        id,
        partition,
        record,
    };
    match say(session, &append) {
        Admitted::Request(Request::Append { id: 7, .. }) => None,
        Admitted::Refused { answer, fault } => {
            let text = fault.to_string().into();
            let reason = fault.reason();
            assert_eq!(answer, FromAggregator::Refused { id, reason, text });
            Some(fault)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_may_write_batches_and_nothing_else() {
    let mut session = greeted();
    let kind = |found| Some(BatchFault::Kind(found));
    for batch in batches(&own()) {
        assert_eq!(append(&mut session, 0, &batch), None);
    }
    let partition = BatchFault::Partition {
        found: 4,
        partitions: 4,
    };
    assert_eq!(append(&mut session, 4, &hits(&own())), Some(partition));
    let genesis = RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(LogId::default());
    assert_eq!(append(&mut session, 0, &genesis), kind(1));
    // A skippable kind of a later build is still not an agent's.
    assert_eq!(append(&mut session, 0, &[1, 0x85]), kind(0x85));
    assert_eq!(append(&mut session, 0, &[1, 99]), kind(99));
}

#[test]
fn a_hit_goes_to_the_partition_of_its_pair() {
    let mut session = greeted();
    for expected in 0..PARTITIONS {
        let batch = hits_for(expected, &own());
        for found in 0..PARTITIONS {
            let fault = (found != expected).then(|| BatchFault::Misrouted {
                resource: "r".into(),
                domain: domain_of(expected).into(),
                found,
                expected,
            });
            assert_eq!(append(&mut session, found, &batch), fault);
        }
    }
}

#[test]
fn a_batch_that_would_hold_others_up_is_refused() {
    let mut session = greeted();
    let entry = many_hits(2).len() - many_hits(1).len();
    let fits = many_hits(BATCH_BYTES_MAX / entry - 16);
    assert!(BATCH_BYTES_MAX / 2 < fits.len(), "{}", fits.len());
    assert_eq!(append(&mut session, 0, &fits), None);
    let long = many_hits(BATCH_BYTES_MAX / entry + 1);
    let found = long.len();
    assert_eq!(
        append(&mut session, 0, &long),
        Some(BatchFault::Size { found })
    );
}

#[test]
fn garbage_is_refused_with_the_place_of_the_fault() {
    let mut session = greeted();
    let mut cut = hits(&own());
    cut.truncate(cut.len() - 1);
    for record in [&cut[..], &[]] {
        let fault = append(&mut session, 0, record).expect("refused");
        assert!(fault.to_string().starts_with("byte "), "{fault}");
    }
    for message in [&b"\x01\x63nothing"[..], &[]] {
        assert_eq!(session.admit(message, NOW), Admitted::Garbage);
    }
}

#[test]
fn nothing_is_appended_before_a_hello() {
    let mut session = Session::new(4);
    for batch in batches(&own()) {
        assert_eq!(append(&mut session, 0, &batch), Some(BatchFault::NoHello));
    }
    assert_eq!((session.agent(), session.epoch()), (None, None));
}

#[test]
fn knowing_an_epoch_alone_gives_no_right_to_it() {
    let mut session = greeted();
    let others = [
        Sender {
            agent: "web-2",
            ..own()
        },
        Sender { epoch: 2, ..own() },
    ];
    for batch in others.iter().flat_map(batches) {
        let fault = append(&mut session, 0, &batch);
        assert!(
            matches!(fault, Some(BatchFault::NotItsOwn { .. })),
            "{fault:?}"
        );
    }
}

#[test]
fn a_connection_speaks_for_one_epoch_as_long_as_it_lasts() {
    let mut session = greeted();
    assert_eq!(
        hello(&mut session, "web-1", SECRET),
        Admitted::Request(Request::Hello { nonce: 3 })
    );
    assert_eq!(hello(&mut session, "web-2", SECRET), Admitted::Garbage);
    assert_eq!(hello(&mut session, "web-1", BEFORE), Admitted::Garbage);
    assert_eq!(session.agent(), Some("web-1"));
    assert_eq!(append(&mut session, 0, &hits(&own())), None);
}

#[test]
fn an_epoch_is_ended_by_a_successor_that_shows_its_secret() {
    let mut session = greeted();
    let replacing = |epoch| {
        let head = HeartbeatHead {
            replaces: Some(epoch),
            ..HeartbeatHead::default()
        };
        heartbeat(&own(), head)
    };
    assert_eq!(append(&mut session, 0, &replacing(BEFORE.epoch())), None);
    let fault = Some(BatchFault::Replaces(1));
    assert_eq!(append(&mut session, 0, &replacing(1)), fault);
}

#[test]
fn sequences_that_were_never_reached_are_refused() {
    let mut session = greeted();
    let mut send = |partition, sequence| {
        let batch = hits_for(partition, &Sender { sequence, ..own() });
        append(&mut session, partition, &batch)
    };
    for found in [0, SEQUENCE_MAX + 1, 1 << 62, u64::MAX] {
        assert_eq!(send(0, found), Some(BatchFault::Sequence(found)));
    }
    assert_eq!(send(0, 1_000), None);
    assert_eq!(send(0, 900), None, "sent again");
    let later = 1_000 + (1 << 40);
    assert_eq!(
        send(0, later),
        None,
        "it sent to another aggregator meanwhile"
    );
    assert_eq!(send(1, SEQUENCE_MAX), None);
}

#[test]
fn a_stamp_of_a_clock_that_was_never_set_is_refused() {
    let mut session = greeted();
    let mut send = |sent| append(&mut session, 0, &hits(&Sender { sent, ..own() }));
    let day = SENT_APART_MAX.as_micros() as i64;
    for within in [-day, -3_600_000_000, 0, 3_600_000_000, day] {
        assert_eq!(send(NOW.saturating_offset(within)), None);
    }
    let fault = send(NOW.saturating_offset(day + 1)).expect("refused");
    assert!(fault.to_string().contains("ahead of"), "{fault}");
    let fault = send(NOW.saturating_offset(-day - 1)).expect("refused");
    assert!(fault.to_string().contains("behind"), "{fault}");
    for sent in [Timestamp::ZERO, Timestamp::MAX] {
        assert!(matches!(send(sent), Some(BatchFault::Sent { .. })));
    }
}

#[test]
fn a_question_is_answered_as_far_as_the_token_covers_it() {
    let mut session = greeted();
    session.set_grant(Some(Arc::new(TokenGrant {
        name: "edge".into(),
        proof: Proof::Token([7; 32]),
        roles: Roles::new([Role::Agent]),
        agents: None,
        namespaces: Some(["edge".into()].into()),
        expires: None,
    })));
    let mut ask = |resources: &[&'static str]| {
        let resources = resources.to_vec();
        say(
            &mut session,
            &FromAgent::Ask {
                nonce: 3,
                resources,
            },
        )
    };
    let of = |resources: &[&str]| Request::Ask {
        nonce: 3,
        resources: resources.iter().map(|name| (*name).into()).collect(),
    };
    let rules = "~descriptors.edge";
    let covered = ["edge.search", rules];
    assert_eq!(ask(&covered), Admitted::Request(of(&covered)));
    for outside in ["api.search", "~descriptors.api"] {
        let fault = BatchFault::Namespace(outside.into());
        let request = of(&[rules]);
        let asked = ask(&[outside, rules]);
        assert_eq!(asked, Admitted::InPart { request, fault });
    }
}
