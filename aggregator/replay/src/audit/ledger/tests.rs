//! Statements of one record about several scopes, which share a log position.

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};

use super::*;

/// No older record is looked up.
struct NoPast;

impl Lookup for NoPast {
    fn at(&self, _: u64) -> Option<(Timestamp, Announced)> {
        None
    }
}

/// What an operation at `offset` states about a scope of copies.
fn stated(offset: u64, scope: Scope, limit: u64) -> Announced {
    let denial = Denial {
        end: Timestamp::MAX,
        cause: Cause::Full,
        version: 1,
        limit,
        window: Span::ZERO,
        most: u64::MAX,
    };
    Announced {
        log: Default::default(),
        partition: 0,
        resource: "sandbox".into(),
        statement: Statement {
            scope,
            position: LogPosition {
                generation: 1,
                offset,
                entry: 0,
            },
            kind: StatementKind::Denied(denial),
        },
    }
}

/// The statements of one hold that fills its domain, its group and all domains together.
fn of_one_hold(offset: u64) -> [Announced; 3] {
    [
        stated(offset, Scope::Pair("acme".into()), 2),
        stated(offset, Scope::Group("probation".into()), 2),
        stated(offset, Scope::Resource, 2),
    ]
}

/// The audit of statements that are recorded in this order, one a second. The replay states those of two holds.
fn audited(recorded: &[Announced]) -> PartitionAudit {
    let (mut ledger, mut part) = (Ledger::default(), PartitionAudit::new(0));
    for announced in of_one_hold(10).into_iter().chain(of_one_hold(11)) {
        ledger.expect(announced, Timestamp::from_millis(1_000), &mut part);
    }
    for (offset, announced) in (0u64..).zip(recorded) {
        let at = Recorded {
            offset,
            appended: Timestamp::from_millis(1_000),
        };
        ledger.found(announced, at, &NoPast, &mut part);
    }
    ledger.end(100, &mut part);
    part
}

fn found(part: &PartitionAudit) -> Vec<(DifferenceKind, u64, Option<&str>)> {
    let differences = part.differences.iter();
    differences
        .map(|of| (of.kind, of.offset, of.scope))
        .collect()
}

fn both_holds() -> Vec<Announced> {
    of_one_hold(10).into_iter().chain(of_one_hold(11)).collect()
}

#[test]
fn one_record_may_state_something_about_several_scopes() {
    let part = audited(&both_holds());
    assert_eq!(found(&part), []);
    assert_eq!((part.compared, part.repeats), (6, 0));
    // A new aggregator announces all of them again, or only the last ones.
    for again in 0..6 {
        let repeated = both_holds().split_off(again);
        let part = audited(&[both_holds(), repeated].concat());
        assert_eq!(found(&part), []);
        assert_eq!((part.compared, part.repeats), (6, 6 - again as u64));
    }
}

#[test]
fn each_statement_of_a_record_has_to_be_recorded() {
    let scopes = ["pair", "group", "resource"];
    for missing in 0..6 {
        let mut recorded = both_holds();
        recorded.remove(missing);
        let part = audited(&recorded);
        let offset = 10 + missing as u64 / 3;
        let scope = Some(scopes[missing % 3]);
        assert_eq!(found(&part), [(DifferenceKind::Missing, offset, scope)]);
        assert_eq!(part.compared, 5);
    }
}

#[test]
fn each_statement_of_a_record_has_to_be_equal() {
    let mut recorded = both_holds();
    recorded[2] = stated(10, Scope::Resource, 3);
    let part = audited(&recorded);
    let changed = (DifferenceKind::Changed, 10, Some("resource"));
    assert_eq!(found(&part), [changed]);
    let difference = &part.differences[0];
    assert_eq!(difference.text, "was announced otherwise: limit");
    let limit = |of: &Option<Stated>| of.as_ref().and_then(|of| of.limit);
    assert_eq!(limit(&difference.expected), Some(2));
    assert_eq!(limit(&difference.found), Some(3));
}

#[test]
fn a_statement_about_another_scope_is_unexpected() {
    let mut recorded = both_holds();
    recorded[0] = stated(10, Scope::Pair("globex".into()), 2);
    let part = audited(&recorded);
    let expected = [
        (DifferenceKind::Unexpected, 10, Some("pair")),
        (DifferenceKind::Missing, 10, Some("pair")),
    ];
    assert_eq!(found(&part), expected);
    let names = part.differences.iter().map(|of| of.domain.as_deref());
    let names: Vec<_> = names.collect();
    assert_eq!(names, [Some("globex"), Some("acme")]);
    // The same scope of another resource.
    let mut recorded = both_holds();
    recorded[2].resource = "build".into();
    let kinds = [DifferenceKind::Unexpected, DifferenceKind::Missing];
    let part = audited(&recorded);
    assert!(part.differences.iter().map(|of| of.kind).eq(kinds));
}

#[test]
fn statements_of_a_record_are_recorded_in_their_order() {
    let mut recorded = both_holds();
    recorded.swap(0, 2);
    let part = audited(&recorded);
    let expected = [
        (DifferenceKind::Order, 10, Some("group")),
        (DifferenceKind::Order, 10, Some("pair")),
    ];
    assert_eq!(found(&part), expected);
}

#[test]
fn a_statement_beside_a_forgotten_one_is_still_known() {
    let (mut ledger, mut part) = (Ledger::default(), PartitionAudit::new(0));
    let [acme, probation, all] = of_one_hold(10);
    for announced in [acme.clone(), probation.clone(), all] {
        ledger.expect(announced, Timestamp::ZERO, &mut part);
    }
    let at = Recorded {
        offset: 0,
        appended: Timestamp::from_millis(1_000),
    };
    ledger.found(&acme, at, &NoPast, &mut part);
    for offset in 0..REMEMBERED as u64 - 2 {
        let later = stated(100 + offset, Scope::Resource, 2);
        ledger.expect(later, Timestamp::ZERO, &mut part);
    }
    ledger.found(&probation, at, &NoPast, &mut part);
    assert_eq!((found(&part), part.compared), (vec![], 2));
    // The oldest statement is forgotten: a repeat of it is only remarked on.
    ledger.found(&acme, at, &NoPast, &mut part);
    assert_eq!(found(&part), []);
}
