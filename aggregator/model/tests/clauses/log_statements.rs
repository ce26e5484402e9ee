//! The rules about statements, versions and global limits, each held by a test that quotes it.
//!
//! What stays true: a test's name is the promise, its body a log and the statements.

use std::collections::BTreeMap;

use tollgate_model::log::{
    Act, EntryKind, EntryRuling, HitEntry, LogInput, ModelPosition, NotRuled, ScopeName, Total,
    TotalPart, TotalRuling,
};
use tollgate_model::{Cause, End, Limits};

use crate::support::log::*;
use crate::support::{MS, SECOND, limits, tier};

#[test]
fn entries_on_resources_without_limits_are_only_counted() {
    let mut log = Log::new(per_second(1));
    let other = HitEntry {
        resource: "other",
        ..hit("d", START)
    };
    let outcome = log.hits(START, &[other, hit("d", START)]);
    assert_eq!(
        outcome.entries[0],
        EntryRuling::NotRuled(NotRuled::Unconfigured)
    );
    assert_eq!(
        changes(&outcome),
        [change(Some("d"), 2, 1, Some(End::At(START + SECOND + 1)))]
    );
    assert_eq!(log.model.counters().entries_unconfigured, 1);
}

#[test]
fn a_statement_has_its_log_position_and_is_not_repeated() {
    let mut log = Log::new(per_second(2));
    let entries = [
        hit("d", START),
        hit("d", START),
        hit("d", START),
        hit("e", START),
    ];
    let outcome = log.hits(START, &entries);
    let end = Some(End::At(START + SECOND + 1));
    assert_eq!(changes(&outcome), [change(Some("d"), 2, 1, end)]);
    let later = START + 2 * SECOND;
    let outcome = log.hits(later, &[hit("d", later)]);
    assert!(
        outcome.changes.is_empty(),
        "a denial that has ended by itself is not lifted"
    );
    assert_eq!(log.model.denied_until("r", "d"), None);
}

#[test]
fn a_statement_justifies_refusals_until_its_end() {
    let mut log = Log::new(per_second(1));
    log.hits(START, &[hit("d", START)]);
    log.version(START + MS, 2, per_second(5));
    let (denied, lifted) = (
        ModelPosition {
            offset: 2,
            entry: 0,
        },
        ModelPosition {
            offset: 3,
            entry: 0,
        },
    );
    let model = &log.model;
    let end = START + SECOND + 1;
    assert_eq!(
        model.denied_at_place(denied, "r", "d").unwrap().end,
        End::At(end)
    );
    assert_eq!(model.denied_at_place(lifted, "r", "d"), None);
    assert_eq!(
        model.denied_at_place(
            ModelPosition {
                offset: 1,
                entry: 9
            },
            "r",
            "d"
        ),
        None
    );
    let (scope, statement) = model.justification(denied, "r", "d", end - 1).unwrap();
    assert_eq!(
        (scope, statement.position),
        (ScopeName::new("r", Some("d")), denied)
    );
    assert_eq!(
        model.justification(denied, "r", "d", end),
        None,
        "open at its end"
    );
    assert_eq!(model.justification(lifted, "r", "d", START), None);
    assert_eq!(model.justification(denied, "r", "e", START), None);
}

#[test]
fn an_activation_takes_effect_at_log_time_at_the_earliest() {
    let mut log = Log::new(per_second(1));
    log.hits(START, &[hit("d", START)]);
    log.tick(START + 1_500 * MS);
    // The denial is over by log time: the version finds it ended, and there is no lift.
    let version = log.version(START + 900 * MS, 2, per_second(9));
    assert!(version.changes.is_empty());
    let at = START + 2 * SECOND;
    log.hits(at, &[hits("d", at, 9)]);
    log.tick(START + 3_500 * MS);
    let offset = log.offset;
    let pardon = log.feed(LogInput::Amendment {
        offset,
        appended_us: at + 900 * MS,
        version: 3,
        act: Act::Pardon {
            resource: "r".to_owned(),
            domain: "d".to_owned(),
        },
    });
    assert!(pardon.changes.is_empty());
}

#[test]
fn an_activation_brings_in_every_version_up_to_its_own() {
    let mut log = Log::new(per_second(1));
    log.hits(START, &[hit("d", START)]);
    let known = log.version(START + MS, 1, per_second(9));
    assert!(known.changes.is_empty());
    // Version 2 empties the tier, so version 3 finds nothing to keep although it has the shape of version 1.
    let offset = log.offset;
    let odd = of_resource(limits(&[tier(1, 2 * SECOND, 3600 * SECOND, 0)]), None);
    let outcome = log.feed(LogInput::Limits {
        offset,
        appended_us: START + MS,
        versions: vec![(1, per_second(9)), (2, odd), (3, per_second(1))],
    });
    assert_eq!(changes(&outcome), [change(Some("d"), 4, 0, None)]);
    assert_eq!(log.model.version(), Some(3));
}

#[test]
fn a_resource_that_a_version_drops_is_denied_no_more() {
    let mut log = Log::new(global(1));
    log.total(1, &[(START / MS, 1)]);
    let closed = of_resource(limits(&[]), Some(1));
    log.version(START, 2, closed);
    log.hits(START, &[hit("d", START)]);
    let dropped = log.version(START + MS, 3, Limits::default());
    assert_eq!(
        changes(&dropped),
        [change(None, 5, 0, None), change(Some("d"), 5, 0, None)]
    );
}

#[test]
fn totals_due_hold_what_counts_by_millisecond() {
    let mut log = Log::new(of_resource(
        limits(&[tier(3, SECOND, 3600 * SECOND, 0)]),
        Some(9),
    ));
    let entries = [
        hits("d", START + 500, 2),
        hits("d", START + 1500, 4),
        hits("e", START + 999, 1),
    ];
    let outcome = log.hits(START + 2 * MS, &entries);
    let ms = START / MS;
    let by_ms = BTreeMap::from([((ms, false), 3), ((ms + 1, false), 4)]);
    assert_eq!(
        outcome.totals_due,
        BTreeMap::from([("r".to_owned(), by_ms)])
    );
}

#[test]
fn a_full_global_limit_denies_the_resource_for_a_second() {
    let mut log = Log::new(global(3));
    let ms = START / MS;
    let first = log.total(10, &[(ms, 2)]);
    assert!(first.changes.is_empty());
    let second = log.total(11, &[(ms + 400, 2)]);
    let ruling = TotalRuling::Ruled {
        granted: 1,
        excess: 1,
        late: 0,
    };
    assert_eq!(second.totals, [ruling]);
    let end = START + SECOND + 1;
    assert_eq!(changes(&second), [change(None, 3, 0, Some(End::At(end)))]);
    assert_eq!(second.changes[0].denied.unwrap().cause, Cause::Global);
    assert_eq!(log.model.whole_denied_until("r"), Some(End::At(end)));
    let position = ModelPosition {
        offset: 3,
        entry: 0,
    };
    assert!(
        log.model
            .justification(position, "r", "anyone", end - 1)
            .is_some()
    );
    assert!(log.model.whole_denied_at_position(position, "r").is_some());
    assert_eq!(
        ruled(&log.hits(START, &[hit("d", START)]).entries[0])
            .1
            .granted,
        1,
        "pairs are ruled apart"
    );
}

#[test]
fn excess_of_a_global_limit_counts_up_to_twice_the_limit() {
    let mut log = Log::new(global(2));
    let ms = START / MS;
    let first = log.total(1, &[(ms, 2), (ms + 900, 50)]);
    let end = Some(End::At(START + 1900 * MS + 1));
    assert_eq!(changes(&first), [change(None, 2, 0, end)], "four count");
    let later = log.total(2, &[(ms + 1001, 1)]);
    assert!(later.changes.is_empty(), "three count, of which two leave");
}

#[test]
fn unguarded_excess_of_a_global_limit_counts_nowhere() {
    let mut log = Log::new(global(2));
    let ms = START / MS;
    let offset = log.offset;
    let part = |ms, unguarded, copies| TotalPart {
        ms,
        unguarded,
        copies,
    };
    let total = Total {
        resource: "r",
        source_partition: 7,
        source_offset: 1,
        parts: vec![part(ms, false, 2), part(ms + 900, true, 50)],
    };
    let totals = vec![total];
    log.feed(LogInput::Totals { offset, totals });
    let later = log.total(2, &[(ms + 1001, 1)]);
    assert!(later.changes.is_empty(), "one of two");
}

#[test]
fn a_total_has_grants_and_the_count_of_every_constraint() {
    let mut log = Log::new(of_resource(
        limits(&[tier(3, SECOND, 3600 * SECOND, 0)]),
        Some(9),
    ));
    let unguarded = HitEntry {
        unguarded: true,
        ..hits("d", START, 2)
    };
    let outcome = log.hits(START, &[unguarded, hits("d", START, 20)]);
    let parts = BTreeMap::from([((START / MS, false), 4), ((START / MS, true), 2)]);
    assert_eq!(
        outcome.totals_due,
        BTreeMap::from([("r".to_owned(), parts)])
    );
}

#[test]
fn a_settlement_downwards_lifts_a_denial() {
    let mut log = Log::new(per_second(3));
    log.hits(START, &[hits("d", START, 3)]);
    let settled = HitEntry {
        kind: EntryKind::Refund {
            made_us: START,
            estimated: 3,
            actual: 1,
        },
        ..hits("d", START + MS, 2)
    };
    let outcome = log.hits(START + MS, &[settled]);
    assert_eq!(ruled(&outcome.entries[0]).1.refunded, 2);
    assert_eq!(changes(&outcome), [change(Some("d"), 3, 0, None)]);
    let again = log.hits(START + 2 * MS, &[settled]);
    assert_eq!(ruled(&again.entries[0]).1.refunded, 0);
    assert_eq!(log.model.counters().refunds_empty, 1);
}

#[test]
fn for_a_whole_resource_late_means_outside_its_second() {
    let mut log = Log::new(global(5));
    let ms = START / MS;
    log.total(1, &[(ms + 2000, 1)]);
    let late = log.total(2, &[(ms + 999, 7), (ms + 1000, 2)]);
    let ruling = TotalRuling::Ruled {
        granted: 2,
        excess: 0,
        late: 7,
    };
    assert_eq!(late.totals, [ruling]);
    let filled = log.total(3, &[(ms + 1500, 2)]);
    let end = End::At(START + 2 * SECOND + 1);
    assert_eq!(
        changes(&filled),
        [change(None, 4, 0, Some(end))],
        "the two of 1.000 leave first"
    );
}

#[test]
fn a_total_is_applied_only_if_it_is_after_the_last_applied_one() {
    let mut log = Log::new(global(9));
    let ms = START / MS;
    let out_of_order = [TotalRuling::OutOfOrder];
    assert_ne!(log.total(5, &[(ms, 1)]).totals, out_of_order);
    assert_eq!(log.total(5, &[(ms, 1)]).totals, out_of_order, "a repeat");
    assert_eq!(log.total(4, &[(ms, 1)]).totals, out_of_order, "late");
    let later = log.total(8, &[(ms, 8)]);
    assert_eq!(
        later.changes.len(),
        1,
        "two totals were applied, so nine hits count"
    );
    assert_eq!(log.model.counters().totals_out_of_order, 2);
}

#[test]
fn the_last_total_is_known_without_a_limit_and_outlives_the_pair() {
    let mut log = Log::new(per_second(9));
    let ms = START / MS;
    assert_eq!(log.total(1, &[(ms, 1)]).totals, [TotalRuling::Unlimited]);
    log.version(START, 2, global(1));
    assert_eq!(log.total(2, &[(ms, 1)]).changes.len(), 1);
    assert_eq!(log.model.pairs_count(), 1);
    log.tick(START + 11 * MINUTE);
    assert_eq!(log.model.pairs_count(), 0);
    assert_eq!(log.total(2, &[(ms, 1)]).totals, [TotalRuling::OutOfOrder]);
    let back = log.total(3, &[(ms, 1)]);
    assert_ne!(back.totals, [TotalRuling::OutOfOrder]);
}

#[test]
fn a_global_denial_is_ruled_again_by_a_version() {
    let mut log = Log::new(global(2));
    let ms = START / MS;
    log.total(1, &[(ms, 1), (ms + 300, 1)]);
    let lowered = log.version(START + 400 * MS, 2, global(1));
    let end = Some(End::At(START + 300 * MS + SECOND + 1));
    assert_eq!(changes(&lowered), [change(None, 3, 0, end)]);
    let raised = log.version(START + 500 * MS, 3, global(3));
    assert_eq!(changes(&raised), [change(None, 4, 0, None)]);
    let closes = log.version(START + 600 * MS, 4, global(1));
    assert!(closes.changes.is_empty(), "a version starts no denial");
    assert_eq!(log.model.whole_denied_until("r"), None);
}

#[test]
fn a_whole_resource_is_ruled_at_the_cap_as_well() {
    let mut log = Log::new(Limits {
        pairs_per_partition_max: 1,
        ..global(1)
    });
    log.hits(START, &[hit("d", START)]);
    let ruled = log.total(1, &[(START / MS, 1)]);
    assert!(matches!(
        ruled.totals[..],
        [TotalRuling::Ruled { granted: 1, .. }]
    ));
    assert_eq!(log.model.pairs_count(), 2);
}
