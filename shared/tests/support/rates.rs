//! Messages about rates, for the golden bytes: hits, statements and notices about pairs, public limits.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Watermark};
use tollgate_shared::wire::hits::{Hit, HitKind, Refused, Sender, write_hits};
use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::notice::{Notice, NoticeFrame};
use tollgate_shared::wire::public::{
    AddressPrefixes, BlindPolicy, Kind, Public, PublicBucket, PublicNetworks, PublicQuota,
    PublicTier, QuotaUnit,
};
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};

use super::log;

fn statement() -> Statement {
    Statement {
        scope: Scope::Pair("acme".into()),
        position: LogPosition {
            generation: 1,
            offset: 300,
            entry: 2,
        },
        kind: StatementKind::Denied(Denial {
            end: Timestamp::from_micros(1_000_001),
            cause: Cause::Tier(1),
            version: 7,
            limit: 5,
            window: Span::from_secs(1),
            most: 5,
        }),
    }
}

fn statement_notice() -> StatementNotice {
    StatementNotice {
        partition: 3,
        remaining: Span::from_millis(900),
        statement: statement(),
    }
}

fn watermark() -> Watermark {
    Watermark {
        partition: 3,
        log: log(),
        ruled: 301,
        appended: Timestamp::from_millis(2),
        current: true,
    }
}

pub fn hits(writer: &mut Writer) {
    let sent = Timestamp::from_micros(5_000_000);
    let sender = Sender {
        agent: "web-1",
        epoch: 0x0102,
        sequence: 1,
        sent,
    };
    let at = Timestamp::from_micros(4_999_000);
    let one = Hit::one(0, "acme", at, 3);
    let bulk = Hit {
        min: Some(2),
        ..Hit::one(0, "globex", sent, 9)
    };
    let refused = Refused {
        resource: 0,
        domain: "acme",
        calls: 4,
        copies: 5,
        first: at,
        last: sent,
        cause: Cause::Hard,
        position: Some(LogPosition {
            generation: 1,
            offset: 300,
            entry: 2,
        }),
    };
    write_hits(
        writer,
        &sender,
        &["api.search"],
        [one, bulk].into_iter(),
        [refused].into_iter(),
    );
}

/// Every kind of entry that [`hits`] lacks.
pub fn calls(writer: &mut Writer) {
    let sent = Timestamp::from_micros(5_000_000);
    let sender = Sender {
        agent: "web-1",
        epoch: 0x0102,
        sequence: 2,
        sent,
    };
    let at = Timestamp::from_micros(4_999_000);
    let one = Hit::one(0, "acme", at, 3);
    let many = Hit { calls: 7, ..one };
    let bulk = Hit {
        min: Some(2),
        unguarded: true,
        ..Hit::one(0, "globex", sent, 9)
    };
    let charge = Hit {
        kind: HitKind::Charge,
        ..one
    };
    let refund = Hit {
        at: sent,
        kind: HitKind::Refund {
            made: at,
            estimated: 8,
            actual: 5,
        },
        unguarded: true,
        ..one
    };
    let estimate = Hit {
        kind: HitKind::Estimate,
        ..one
    };
    write_hits(
        writer,
        &sender,
        &["api.search"],
        [many, bulk, charge, refund, estimate].into_iter(),
        [].into_iter(),
    );
}

pub fn frame(writer: &mut Writer) {
    Frame {
        instance: 9,
        sequence: 12,
        sent: Span::from_millis(77),
        resource: "api.search".into(),
        watermarks: vec![watermark()],
        statements: vec![statement_notice()],
    }
    .encode(writer);
}

pub fn notices(writer: &mut Writer) {
    NoticeFrame {
        instance: 9,
        sequence: 12,
        sent: Span::from_millis(77),
        resource: "api.search".into(),
        notices: vec![Notice {
            partition: 3,
            domain: "acme".into(),
            cause: Cause::Window(0),
            left: 7,
            limit: 50,
            window: Span::from_secs(1),
            more_in: Span::from_millis(20),
            near_for: Span::from_millis(90),
            since: Timestamp::from_millis(1_000),
        }],
    }
    .encode(writer);
}

pub fn announced(writer: &mut Writer) {
    Announced {
        log: log(),
        partition: 3,
        resource: "api.search".into(),
        statement: statement(),
    }
    .encode(writer);
}

pub fn snapshot(writer: &mut Writer) {
    let public = Public {
        version: 7,
        kind: Kind::Rate,
        tiers: vec![PublicTier {
            limit: 5,
            window: Span::from_secs(1),
        }]
        .into(),
        hard: Some(200),
        has_overrides: true,
        blind: BlindPolicy::Local {
            limit: 20,
            window: Span::from_secs(1),
        },
        refused: false,
        ignored: true,
        windows: vec![PublicTier {
            limit: 50,
            window: Span::from_secs(60),
        }]
        .into(),
        bucket: Some(PublicBucket {
            tokens: 10,
            period: Span::from_secs(1),
            burst: 40,
        }),
        quotas: vec![PublicQuota {
            limit: 1_000,
            unit: QuotaUnit::Month,
        }]
        .into(),
        most: Some(40),
        least: Some(5),
        global: Some(900),
        keeps_estimates: true,
        addresses: Some(AddressPrefixes { v4: 32, v6: 64 }),
        copies: None,
        descriptors: Box::default(),
        closed: Box::default(),
        limits_of: 0,
        networks: PublicNetworks::default(),
        allowed: None,
    };
    FromAggregator::Snapshot(Snapshot {
        nonce: 1,
        part: 0,
        more: false,
        instance: 9,
        clock: Span::from_millis(77),
        watermarks: vec![watermark()],
        control_sequence: 40,
        topics: vec![TopicSnapshot {
            resource: "api.search".into(),
            sequence: 12,
            public,
            statements: vec![statement_notice()],
        }],
    })
    .encode(writer);
}
