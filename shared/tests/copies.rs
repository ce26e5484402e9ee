//! Promises of messages about copies: operations, heartbeats and verdicts are read as they were
//! written, and malformed ones are refused with a position.

use proptest::prelude::*;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::heartbeat::{
    Heartbeat, HeartbeatHead, Holds, HoldsRead, Listed, Part, PartRead, write_heartbeat,
};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, Op, write_holds};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{
    EndedBy, HoldReason, HoldStatus, SeizedCopies, Verdict, VerdictFrame, Why,
};
use tollgate_shared::wire::{DecodeError, FieldFault, Writer};

const SENDER: Sender<'_> = Sender {
    agent: "web-1",
    epoch: 2,
    sequence: 3,
    sent: Timestamp::from_micros(1_000),
};

fn listed(number: u64) -> Listed<'static> {
    Listed {
        number,
        domain: "acme",
        copies: 1,
        start: Timestamp::from_micros(900),
        strict: false,
        seized: None,
    }
}

/// The fault of a heartbeat with one part, if it has one.
fn fault_of(part: Part<'_>) -> Option<(&'static str, String)> {
    let mut writer = Writer::new();
    let head = HeartbeatHead::default();
    write_heartbeat(&mut writer, &SENDER, &["r"], head, &[part]);
    let found: Result<Record<'_>, DecodeError> = Record::decode(writer.as_slice());
    found
        .err()
        .map(|error| (error.field, error.fault.to_string()))
}

fn list<'a>(from: u64, upto: u64, listed: &'a [Listed<'a>]) -> Part<'a> {
    Part {
        resource: 0,
        awaiting: &[],
        asked: &[],
        holds: Holds::List { from, upto, listed },
    }
}

#[test]
fn a_list_is_in_order_and_within_its_bounds() {
    let fault = |from, upto, numbers: &[u64]| {
        let listed: Vec<Listed<'_>> = numbers.iter().copied().map(listed).collect();
        fault_of(list(from, upto, &listed)).map(|(field, _)| field)
    };
    assert_eq!(fault(5, 9, &[5, 9]), None);
    assert_eq!(fault(5, 9, &[]), None);
    assert_eq!(fault(5, 9, &[4]), Some("hold number"));
    assert_eq!(fault(5, 9, &[10]), Some("hold number"));
    assert_eq!(fault(5, 9, &[6, 6]), Some("hold number"));
    assert_eq!(fault(9, 5, &[]), Some("upto"));
    assert_eq!(fault(0, u64::MAX, &[u64::MAX]), None);
    assert_eq!(fault(0, u64::MAX, &[u64::MAX, 0]), Some("hold number"));
}

#[test]
fn awaited_and_asked_numbers_rise() {
    let of = |awaiting, asked| Part {
        awaiting,
        asked,
        ..list(0, 9, &[])
    };
    assert_eq!(fault_of(of(&[1, 2], &[3])), None);
    for part in [of(&[2, 1], &[]), of(&[], &[3, 3])] {
        let (_, fault) = fault_of(part).expect("out of order");
        assert_eq!(fault, "outside its range, expected rising numbers");
    }
}

#[test]
fn only_what_was_seized_may_be_listed_without_copies() {
    let empty = Listed {
        copies: 0,
        ..listed(1)
    };
    let seized = Listed {
        seized: Some(TransferId(1)),
        ..empty
    };
    let fault = fault_of(list(0, 9, &[empty])).map(|(field, _)| field);
    assert_eq!(fault, Some("copies"));
    assert_eq!(fault_of(list(0, 9, &[seized])), None);
}

#[test]
fn operations_without_copies_or_with_too_many_at_least_are_refused() {
    let field_of = |action| {
        let mut writer = Writer::new();
        let op = HoldOp {
            resource: 0,
            number: 1,
            at: SENDER.sent,
            action,
        };
        write_holds(&mut writer, &SENDER, &["r"], [op].into_iter());
        Record::decode(writer.as_slice()).err().map(|e| e.field)
    };
    let domain = "acme";
    let reserve = |copies, min| HoldAction::Reserve {
        domain,
        copies,
        min,
    };
    assert_eq!(field_of(reserve(2, 2)), None);
    assert_eq!(field_of(reserve(2, 3)), Some("min"));
    assert_eq!(field_of(reserve(2, 0)), Some("min"));
    assert_eq!(field_of(reserve(0, 0)), Some("copies"));
    assert_eq!(
        field_of(HoldAction::Hold { domain, copies: 0 }),
        Some("copies")
    );
    assert_eq!(field_of(HoldAction::Release { copies: 0 }), Some("copies"));
    let empty = HoldAction::Hold {
        domain: "",
        copies: 1,
    };
    assert_eq!(field_of(empty), Some("domain"));
}

/// A denial of `*` denies everybody: an agent that could hold copies as `*` could close the resource for all.
#[test]
fn nobody_takes_copies_as_everybody() {
    let domain = "*";
    for action in [
        HoldAction::Hold { domain, copies: 1 },
        HoldAction::Reserve {
            domain,
            copies: 1,
            min: 1,
        },
    ] {
        let mut writer = Writer::new();
        let op = HoldOp {
            resource: 0,
            number: 1,
            at: SENDER.sent,
            action,
        };
        write_holds(&mut writer, &SENDER, &["r"], [op].into_iter());
        let error = Record::decode(writer.as_slice()).expect_err("of everybody");
        assert_eq!(error.fault, FieldFault::Everybody, "{error}");
    }
    let held = Listed {
        domain,
        ..listed(5)
    };
    let (field, fault) = fault_of(list(0, 9, &[held])).expect("of everybody");
    assert_eq!(
        (field, fault),
        ("domain", FieldFault::Everybody.to_string())
    );
}

fn a_name() -> impl Strategy<Value = String> {
    "[a-zé.:0-9]{1,20}"
}

/// An operation as numbers: its kind, and all its possible fields.
type OpDraft = (u8, String, u32, u32, u128, u64);

fn action((kind, domain, copies, min, transfer, ttl): &OpDraft) -> HoldAction<'_> {
    let copies = *copies;
    match kind % 6 {
        0 => HoldAction::Reserve {
            domain,
            copies,
            min: (*min).clamp(1, copies),
        },
        1 => HoldAction::Hold { domain, copies },
        2 => HoldAction::Release { copies },
        3 => HoldAction::Transfer {
            copies,
            to: TransferId(*transfer),
            ttl: Span::from_micros(*ttl),
        },
        4 => HoldAction::Seize {
            from: TransferId(*transfer),
        },
        _ => HoldAction::Cancel,
    }
}

fn a_scope() -> impl Strategy<Value = Option<Scope>> {
    prop_oneof![
        Just(None),
        Just(Some(Scope::Resource)),
        a_name().prop_map(|name| Some(Scope::Pair(name.into()))),
        a_name().prop_map(|name| Some(Scope::Group(name.into()))),
    ]
}

fn a_reason() -> impl Strategy<Value = HoldReason> {
    let by = prop::sample::select(vec![EndedBy::Age, EndedBy::Operator, EndedBy::Earlier]);
    let why = prop::sample::select(vec![
        Why::UnknownHold,
        Why::TooManyCopies,
        Why::UnknownTransfer,
        Why::TransferExists,
        Why::HoldExists,
        Why::EpochOver,
        Why::AtCapacity,
        Why::Unconfigured,
        Why::Misrouted,
    ]);
    let op = prop::option::of(prop::sample::select(vec![
        Op::Reserve,
        Op::Hold,
        Op::Release,
        Op::Transfer,
        Op::Seize,
        Op::Cancel,
    ]));
    prop_oneof![
        by.prop_map(HoldReason::Ended),
        (op, why).prop_map(|(op, why)| HoldReason::Refused(op, why)),
    ]
}

fn a_status() -> impl Strategy<Value = HoldStatus> {
    let seized = (a_name(), any::<u64>()).prop_map(|(domain, start)| SeizedCopies {
        domain: domain.into(),
        start: Timestamp::from_micros(start),
    });
    let (reason, seized) = (prop::option::of(a_reason()), prop::option::of(seized));
    let numbers = any::<(u64, u32, u32)>();
    (numbers, a_scope(), reason, seized).prop_map(
        |((number, copies, excess), scope, reason, seized)| HoldStatus {
            number,
            copies,
            excess,
            scope,
            reason,
            seized,
        },
    )
}

proptest! {
    #[test]
    fn operations_read_back_equal(
        agent in a_name(), epoch: u128, sequence: u64, sent in 0u64..1 << 60,
        resources in prop::collection::vec(a_name(), 1..4),
        ops in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0u64..1 << 60,
            (any::<u8>(), a_name(), 1u32.., any::<u32>(), any::<u128>(), any::<u64>())), 0..20),
    ) {
        let sender = Sender { agent: &agent, epoch, sequence, sent: Timestamp::from_micros(sent) };
        let names: Vec<&str> = resources.iter().map(String::as_str).collect();
        let ops: Vec<HoldOp<'_>> = ops.iter().map(|(resource, number, at, draft)| HoldOp {
            resource: resource.index(names.len()) as u32,
            number: *number,
            at: Timestamp::from_micros(*at),
            action: action(draft),
        }).collect();
        let mut writer = Writer::new();
        write_holds(&mut writer, &sender, &names, ops.iter().copied());
        let Ok(Record::Holds(read)) = Record::decode(writer.as_slice()) else { panic!("holds") };
        prop_assert_eq!(read.sender, sender);
        prop_assert_eq!(read.resources(), &names[..]);
        prop_assert_eq!(read.ops().collect::<Vec<_>>(), ops);
    }

    #[test]
    fn heartbeats_read_back_equal(
        replaces: Option<u128>, more: bool, last: bool, digest: u64, bounds: (u64, u64),
        awaiting in prop::collection::btree_set(any::<u64>(), 0..5),
        asked in prop::collection::btree_set(any::<u64>(), 0..5),
        holds in prop::collection::btree_map(any::<u64>(), (a_name(), 1u32.., 0u64..1 << 60, any::<bool>(), any::<Option<u128>>()), 0..20),
    ) {
        let (from, upto) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1));
        let listed: Vec<Listed<'_>> = holds.range(from..=upto).map(|(number, hold)| Listed {
            number: *number,
            domain: &hold.0,
            copies: hold.1,
            start: Timestamp::from_micros(hold.2),
            strict: hold.3,
            seized: hold.4.map(TransferId),
        }).collect();
        let (awaiting, asked): (Vec<u64>, Vec<u64>) = (awaiting.into_iter().collect(), asked.into_iter().collect());
        let part = |resource, holds| Part { resource, awaiting: &awaiting, asked: &asked, holds };
        let parts = [
            part(1, Holds::Digest(Holdings::from_bits(digest))),
            part(0, Holds::List { from, upto, listed: &listed }),
        ];
        let head = HeartbeatHead { replaces, more, last };
        let mut writer = Writer::new();
        write_heartbeat(&mut writer, &SENDER, &["a", "b"], head, &parts);
        let Ok(Record::Heartbeat(heartbeat)) = Record::decode(writer.as_slice()) else { panic!("a heartbeat") };
        let heartbeat: Heartbeat<'_> = heartbeat;
        prop_assert_eq!((heartbeat.sender, heartbeat.head, heartbeat.resources()), (SENDER, head, &["a", "b"][..]));
        let read: Vec<PartRead<'_>> = heartbeat.parts().collect();
        prop_assert_eq!(read.len(), 2);
        prop_assert!(matches!(read[0].holds, HoldsRead::Digest(found) if found.bits() == digest));
        let bounds = match read[1].holds {
            HoldsRead::List { from, upto, .. } => Some((from, upto)),
            HoldsRead::Digest(_) => None,
        };
        prop_assert_eq!(bounds, Some((from, upto)));
        prop_assert_eq!(read[1].listed().collect::<Vec<_>>(), listed);
        for (part, resource) in read.iter().zip([1, 0]) {
            prop_assert_eq!(part.resource, resource);
            prop_assert_eq!(part.awaiting().collect::<Vec<_>>(), &awaiting[..]);
            prop_assert_eq!(part.asked().collect::<Vec<_>>(), &asked[..]);
        }
    }

    #[test]
    fn verdicts_read_back_equal(
        instance: u128, sequence: u64, sent: u64, agent in a_name(), partition: u32, epoch: u128,
        resource in a_name(), position: (u32, u64, u32), all in prop::collection::vec(prop::option::of(a_status()), 0..8),
    ) {
        let frame = VerdictFrame {
            instance, sequence, sent: Span::from_micros(sent), agent: agent.into(),
            verdicts: all.into_iter().map(|status| Verdict {
                partition,
                position: LogPosition { generation: position.0, offset: position.1, entry: position.2 },
                epoch,
                resource: resource.as_str().into(),
                status,
            }).collect(),
        };
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        prop_assert_eq!(VerdictFrame::decode(writer.as_slice()), Ok(frame));
    }
}
