//! The rules about batches, clocks, ticks and eviction, each held by a test that quotes it.
//!
//! What stays true: a test's name is the promise, its body a log and the rulings.

use tollgate_model::log::{EntryRuling, HitsRecord, LogInput, NotRuled};
use tollgate_model::{End, Limits, PartitionModel};

use crate::support::log::*;
use crate::support::{MS, SECOND, limits, tier};

#[test]
fn an_instant_is_at_most_the_end_of_the_appends_millisecond() {
    let mut log = Log::new(per_second(9));
    let appended_us = START + 7 * MS;
    let stamps = [
        appended_us + 998,
        appended_us + 999,
        appended_us + 1000,
        u64::MAX,
    ];
    let entries: Vec<_> = stamps.iter().map(|at| hit("d", *at)).collect();
    let last = appended_us + 999;
    let outcome = log.hits(appended_us + 345, &entries);
    assert_eq!(instants(&outcome), [last - 1, last, last, last]);
}

#[test]
fn stamps_move_where_the_least_append_less_sent_exceeds_250_ms() {
    let mut log = Log::new(per_second(9));
    let now = START + SECOND;
    let at_edge = log.batch(
        "slow",
        1,
        1,
        now,
        now - 250 * MS,
        &[hit("d", now - 260 * MS)],
    );
    assert_eq!(
        (at_edge.moved_us, instants(&at_edge)),
        (0, vec![now - 260 * MS])
    );
    let beyond = log.batch(
        "slower",
        1,
        1,
        now,
        now - 250 * MS - 1,
        &[hit("d", now - 260 * MS)],
    );
    assert_eq!(
        (beyond.moved_us, instants(&beyond)),
        (250_001, vec![now - 10 * MS + 1])
    );
}

#[test]
fn a_fast_clocks_stamps_move_back() {
    let mut log = Log::new(per_second(9));
    let now = START + SECOND;
    let sent = now + 400 * MS;
    let outcome = log.batch("fast", 1, 1, now, sent, &[hit("d", sent - 30 * MS)]);
    assert_eq!(
        (outcome.moved_us, instants(&outcome)),
        (-400_000, vec![now - 30 * MS])
    );
}

#[test]
fn a_corrected_fast_clock_moves_no_stamps() {
    let mut log = Log::new(per_second(9));
    let now = START + SECOND;
    let mut moved_us = |seq, sent| log.batch("a", 1, seq, now, sent, &[]).moved_us;
    assert_eq!(moved_us(1, now + 9_000 * MS), -9_000_000);
    assert_eq!(moved_us(2, now + 8_750 * MS), -9_000_000);
    assert_eq!(moved_us(3, now + 400 * MS), -400_000);
    assert_eq!(moved_us(4, now), 0);
    assert_eq!(moved_us(5, now - 900 * MS), 0, "it may be slow to the log");
}

#[test]
fn the_least_delay_counts_and_not_the_last() {
    let mut log = Log::new(per_second(9));
    let now = START + SECOND;
    assert_eq!(
        log.batch("a", 1, 1, now, now - 900 * MS, &[]).moved_us,
        900_000
    );
    assert_eq!(
        log.batch("a", 1, 2, now, now - 400 * MS, &[]).moved_us,
        400_000
    );
    assert_eq!(
        log.batch("a", 1, 3, now, now - 700 * MS, &[]).moved_us,
        400_000
    );
    assert_eq!(log.batch("a", 1, 4, now, now, &[]).moved_us, 0);
    assert_eq!(
        log.batch("a", 2, 1, now, now - 700 * MS, &[]).moved_us,
        700_000,
        "another epoch"
    );
}

#[test]
fn the_least_is_of_the_last_whole_minute_and_the_current_one() {
    let mut log = Log::new(per_second(9));
    log.batch("a", 1, 1, START, START - 400 * MS, &[]);
    let moved = |log: &mut Log, seq, now| log.batch("a", 1, seq, now, now - 900 * MS, &[]).moved_us;
    assert_eq!(
        moved(&mut log, 2, START + 3 * MINUTE),
        400_000,
        "no tick, no log time"
    );
    log.tick(START + 2 * MINUTE - 1);
    assert_eq!(moved(&mut log, 3, START + 2 * MINUTE - 1), 400_000);
    log.tick(START + 2 * MINUTE);
    assert_eq!(moved(&mut log, 4, START + 2 * MINUTE), 900_000);
}

#[test]
fn hits_older_than_10_minutes_at_their_append_are_only_counted() {
    let mut log = Log::new(per_second(9));
    let at = START - 10 * MINUTE;
    let outcome = log.hits(START, &[hit("old", at - 1), hit("edge", at)]);
    assert_eq!(outcome.entries[0], EntryRuling::NotRuled(NotRuled::TooOld));
    assert_eq!(ruled(&outcome.entries[1]).1.granted, 1);
    assert_eq!(
        log.model.pairs_count(),
        1,
        "no pair was made of the old hit"
    );
    assert_eq!(log.model.counters().entries_too_old, 1);
}

#[test]
fn a_slow_clock_is_corrected_before_the_hits_age_is_judged() {
    let mut log = Log::new(per_second(9));
    let behind = 20 * MINUTE;
    let outcome = log.batch(
        "slow",
        1,
        1,
        START,
        START - behind,
        &[hit("d", START - behind - MS)],
    );
    assert_eq!(instants(&outcome), [START - MS]);
}

#[test]
fn a_duplicate_is_not_ruled_and_counted() {
    let mut log = Log::new(per_second(9));
    let entries = [hit("d", START), hit("d", START)];
    log.batch("a", 1, 5, START, START, &entries);
    let again = log.batch("a", 1, 5, START + MS, START, &entries);
    assert_eq!(
        again.entries,
        vec![EntryRuling::NotRuled(NotRuled::Duplicate); 2]
    );
    assert!(again.changes.is_empty() && again.totals_due.is_empty());
    assert_eq!(log.model.counters().entries_duplicate, 2);
    let other_epoch = log.batch("a", 2, 5, START, START, &[hit("d", START)]);
    assert_eq!(ruled(&other_epoch.entries[0]).1.tier_hits, 3);
}

#[test]
fn batches_may_come_out_of_order_within_a_window_of_128() {
    let mut log = Log::new(per_second(999));
    let seq = |log: &mut Log, seq| {
        log.batch("a", 1, seq, START, START, &[hit("d", START)])
            .entries
    };
    seq(&mut log, 200);
    ruled(&seq(&mut log, 72)[0]);
    assert_eq!(
        seq(&mut log, 72),
        [EntryRuling::NotRuled(NotRuled::Duplicate)]
    );
    assert_eq!(
        seq(&mut log, 71),
        [EntryRuling::NotRuled(NotRuled::OlderThanWindow)]
    );
    ruled(&seq(&mut log, 201)[0]);
    assert_eq!(
        seq(&mut log, 72),
        [EntryRuling::NotRuled(NotRuled::OlderThanWindow)]
    );
    assert_eq!(
        seq(&mut log, 200),
        [EntryRuling::NotRuled(NotRuled::Duplicate)]
    );
    assert_eq!(log.model.counters().entries_older, 2);
}

#[test]
fn duplicates_are_known_for_10_minutes_of_log_time() {
    let mut log = Log::new(per_second(9));
    let send = |log: &mut Log| {
        log.batch("a", 1, 5, START, START, &[hit("d", START)])
            .entries
    };
    ruled(&send(&mut log)[0]);
    log.tick(START + 10 * MINUTE);
    assert_eq!(send(&mut log), [EntryRuling::NotRuled(NotRuled::Duplicate)]);
    log.tick(START + 10 * MINUTE + SECOND);
    ruled(&send(&mut log)[0]);
}

#[test]
fn a_batch_before_the_first_tick_is_kept_as_if_it_came_with_it() {
    let mut model = PartitionModel::new();
    let batch = LogInput::Hits(HitsRecord {
        offset: 0,
        appended_us: START,
        agent: "a",
        epoch: 1,
        seq: 1,
        sent_us: START,
        entries: vec![hit("d", START)],
    });
    assert_eq!(
        model.apply(&batch).entries,
        [EntryRuling::NotRuled(NotRuled::Unconfigured)]
    );
    model.apply(&LogInput::Tick {
        offset: 1,
        appended_us: START,
    });
    assert_eq!(
        model.apply(&batch).entries,
        [EntryRuling::NotRuled(NotRuled::Duplicate)]
    );
}

#[test]
fn a_tick_counts_if_its_slot_is_above_the_last_counted_slot() {
    let mut log = Log::new(per_second(9));
    assert!(!log.tick(START + 500 * MS - 1));
    assert!(log.tick(START + 500 * MS));
    assert!(!log.tick(START), "the log's clock went back");
    assert_eq!(log.model.log_us(), Some(START + 500 * MS));
    assert!(log.tick(START + SECOND));
    assert_eq!(log.model.counters().ticks_ignored, 2);
}

#[test]
fn a_pair_is_evicted_at_the_first_tick_after_10_minutes() {
    let mut log = Log::new(per_second(9));
    log.hits(START, &[hit("d", START)]);
    log.tick(START + 10 * MINUTE);
    assert_eq!(log.model.pairs_count(), 1, "active for an hour");
    log.tick(START + 60 * MINUTE);
    assert_eq!(log.model.pairs_count(), 1, "not later yet");
    assert!(!log.tick(START + 60 * MINUTE + 1), "later, but not counted");
    assert_eq!(log.model.pairs_count(), 1);
    let mut late_in_its_slot = Log::new(per_second(9));
    late_in_its_slot.hits(START, &[hit("d", START)]);
    assert!(late_in_its_slot.tick(START + 60 * MINUTE + 499 * MS));
    assert_eq!(late_in_its_slot.model.pairs_count(), 1, "of the same slot");
    log.tick(START + 60 * MINUTE + SECOND);
    assert_eq!(log.model.pairs_count(), 0);
}

#[test]
fn every_pair_stays_for_10_minutes_after_its_own_time() {
    let mut log = Log::new(of_resource(limits(&[tier(9, SECOND, SECOND, 0)]), None));
    log.hits(START, &[hit("d", START)]);
    log.hits(START + MINUTE, &[hit("d", START + MINUTE)]);
    log.tick(START + 11 * MINUTE);
    assert_eq!(log.model.pairs_count(), 1);
    log.tick(START + 11 * MINUTE + SECOND);
    assert_eq!(log.model.pairs_count(), 0);
    let back = log.hits(
        START + 11 * MINUTE + SECOND,
        &[hit("d", START + 10 * MINUTE)],
    );
    assert_eq!(
        ruled(&back.entries[0]).1.late,
        0,
        "a new pair has no time yet"
    );
}

#[test]
fn a_pair_is_not_evicted_before_all_it_remembers_ends() {
    let hour = 3600 * SECOND;
    let cases = [
        (tier(9, hour, hour, 0), hour),
        (tier(9, SECOND, SECOND, hour - SECOND), hour),
        // Denied until the active time ends and, because the window is longer than the rest of it,
        // until the hit leaves the window.
        (tier(1, hour, hour, 0), hour + 1),
    ];
    for (tier, stays) in cases {
        let mut log = Log::new(of_resource(limits(&[tier]), None));
        log.hits(START, &[hit("d", START)]);
        log.tick(START + stays);
        assert_eq!(log.model.pairs_count(), 1, "{tier:?}");
        log.tick(START + stays + SECOND);
        assert_eq!(log.model.pairs_count(), 0, "{tier:?}");
    }
}

#[test]
fn a_pair_denied_for_ever_stays_until_a_version_opens_it() {
    let mut log = Log::new(of_resource(limits(&[]), None));
    log.hits(START, &[hit("d", START)]);
    assert_eq!(log.model.denied_until("r", "d"), Some(End::Never));
    log.tick(START + 600 * MINUTE);
    assert_eq!(log.model.pairs_count(), 1);
    let lifted = log.version(START + 600 * MINUTE, 2, per_second(1));
    assert_eq!(changes(&lifted), [change(Some("d"), 4, 0, None)]);
    log.tick(START + 601 * MINUTE);
    assert_eq!(log.model.pairs_count(), 0);
}

#[test]
fn at_the_cap_only_pairs_that_remember_nothing_are_evicted() {
    let mut log = Log::new(Limits {
        pairs_per_partition_max: 2,
        ..of_resource(limits(&[tier(1, SECOND, SECOND, 0)]), None)
    });
    let entries = [
        hit("a", START),
        hit("b", START),
        hit("c", START),
        hit("a", START),
    ];
    let outcome = log.hits(START, &entries);
    assert_eq!(outcome.entries[2], EntryRuling::NotRuled(NotRuled::AtCap));
    assert_eq!(ruled(&outcome.entries[3]).1.excess, 1);
    assert_eq!(log.model.counters().entries_at_cap, 1);
    let later = START + 10 * SECOND;
    log.hits(later, &[hit("a", later)]);
    log.tick(later);
    let outcome = log.hits(later, &[hit("c", later), hit("b", later)]);
    assert_eq!(ruled(&outcome.entries[0]).1.granted, 1, "instead of b");
    assert_eq!(outcome.entries[1], EntryRuling::NotRuled(NotRuled::AtCap));
    assert_eq!(log.model.pairs_count(), 2);
}
