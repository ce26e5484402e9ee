//! Messages about copies, one of each kind, for the golden bytes.

use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Holds, Listed, Part, write_heartbeat};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, Op, write_holds};
use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::{
    BlindPolicy, Kind, OnExcess, Public, PublicCopies, PublicGroup, Reserving,
};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{
    EndedBy, HoldReason, HoldStatus, SeizedCopies, Verdict, VerdictFrame, Why,
};

fn sender() -> Sender<'static> {
    Sender {
        agent: "web-1",
        epoch: 0x0102,
        sequence: 3,
        sent: Timestamp::from_micros(5_000_000),
    }
}

/// An operation of every kind.
pub fn holds(writer: &mut Writer) {
    let all = [
        HoldAction::Reserve {
            domain: "acme",
            copies: 5,
            min: 2,
        },
        HoldAction::Hold {
            domain: "globex",
            copies: 300,
        },
        HoldAction::Release { copies: 1 },
        HoldAction::Transfer {
            copies: 2,
            to: TransferId(0xabcd),
            ttl: Span::from_secs(30),
        },
        HoldAction::Seize {
            from: TransferId(0xabcd),
        },
        HoldAction::Cancel,
    ];
    let ops = (7..).zip(all).map(|(number, action)| HoldOp {
        resource: u32::from(action.op() == Op::Hold),
        number,
        at: Timestamp::from_micros(4_990_000 + number),
        action,
    });
    let ops: Vec<HoldOp<'_>> = ops.collect();
    write_holds(writer, &sender(), &["sandbox", "gpu"], ops.into_iter());
}

/// A list of one resource, a digest of another.
pub fn heartbeat(writer: &mut Writer) {
    let listed = [
        Listed {
            number: 7,
            domain: "acme",
            copies: 5,
            start: Timestamp::from_micros(4_990_007),
            strict: true,
            seized: None,
        },
        Listed {
            number: 11,
            domain: "acme",
            copies: 0,
            start: Timestamp::from_micros(5_000_000),
            strict: false,
            seized: Some(TransferId(0xabcd)),
        },
    ];
    let parts = [
        Part {
            resource: 0,
            awaiting: &[12, 13],
            asked: &[7],
            holds: Holds::List {
                from: 0,
                upto: u64::MAX,
                listed: &listed,
            },
        },
        Part {
            resource: 1,
            awaiting: &[],
            asked: &[],
            holds: Holds::Digest(Holdings::default().with(8, 300)),
        },
    ];
    let head = HeartbeatHead {
        replaces: Some(0x0101),
        more: true,
        last: false,
    };
    write_heartbeat(writer, &sender(), &["sandbox", "gpu"], head, &parts);
}

/// The last heartbeat of an epoch.
pub fn last_heartbeat(writer: &mut Writer) {
    let head = HeartbeatHead {
        last: true,
        ..HeartbeatHead::default()
    };
    write_heartbeat(writer, &sender(), &[], head, &[]);
}

/// Holds that stand in every way, and a list that is wanted.
pub fn verdicts(writer: &mut Writer) {
    let counted = |number, copies| HoldStatus {
        number,
        copies,
        ..HoldStatus::default()
    };
    let over = |number, reason| HoldStatus {
        reason: Some(reason),
        ..counted(number, 0)
    };
    let all = [
        Some(HoldStatus {
            excess: 2,
            scope: Some(Scope::Group("probation".into())),
            ..counted(7, 5)
        }),
        Some(counted(8, 300)),
        Some(HoldStatus {
            seized: Some(SeizedCopies {
                domain: "acme".into(),
                start: Timestamp::from_micros(4_990_007),
            }),
            ..counted(9, 2)
        }),
        Some(counted(12, 0)),
        Some(over(7, HoldReason::Ended(EndedBy::Operator))),
        Some(over(
            10,
            HoldReason::Refused(Some(Op::Seize), Why::UnknownTransfer),
        )),
        Some(over(11, HoldReason::Refused(None, Why::AtCapacity))),
        None,
    ];
    let verdicts = (0..).zip(all).map(|(entry, status)| Verdict {
        partition: 3,
        position: LogPosition {
            generation: 1,
            offset: 300,
            entry,
        },
        epoch: 0x0102,
        resource: "sandbox".into(),
        status,
    });
    VerdictFrame {
        instance: 9,
        sequence: 12,
        sent: Span::from_millis(77),
        agent: "web-1".into(),
        verdicts: verdicts.collect(),
    }
    .encode(writer);
}

/// Public limits of a resource that is limited by copies.
pub fn snapshot(writer: &mut Writer) {
    let group = |name: &str, members: Option<&[&str]>| PublicGroup {
        name: name.into(),
        limit: 4,
        members: members.map(|of| of.iter().map(|name| (*name).into()).collect()),
    };
    let public = Public {
        version: 7,
        kind: Kind::Copies,
        blind: BlindPolicy::Closed,
        copies: Some(PublicCopies {
            limit: 10,
            global: Some(400),
            reserve: Reserving::Strict,
            on_excess: OnExcess::GiveBack,
            max_age: Some(Span::from_secs(3_600)),
            agent_timeout: Span::from_secs(2),
            groups: [group("large", None), group("probation", Some(&["a", "b"]))].into(),
        }),
        ..Public::default()
    };
    FromAggregator::Snapshot(Snapshot {
        nonce: 1,
        topics: vec![TopicSnapshot {
            resource: "sandbox".into(),
            sequence: 12,
            public,
            statements: vec![],
        }],
        ..Snapshot::default()
    })
    .encode(writer);
}
