//! Tests of what the packer promises.

use super::super::partition_queue::GATHER;
use super::*;
use crate::deny::DenyView;
use crate::guard::Guard;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Sender};
use tollgate_shared::wire::public::{Kind, Public};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::Cause;

pub(super) const NOW: Mono = Mono(1_000_000);
pub(super) const WALL: Timestamp = Timestamp::from_micros(10);

/// How long calls that are not urgent wait.
const RELAXED: Span = Span::from_millis(60);

/// A packer whose calls are all urgent, because the limits of `r` are unknown.
fn packer(bytes_max: usize) -> Packer {
    let resources = Arc::new(Resources::new(1, 10));
    resources.get("r");
    let urgency = Urgency::new(Arc::new(DenyView::new(64)), RELAXED, usize::MAX);
    let mut packer = Packer::new(resources, Arc::new(urgency), bytes_max);
    packer.since = NOW;
    packer
}

/// A packer that knows a limit of `r`, for this many partitions.
pub(super) fn relaxed_packer(limit: u64, partitions: u32) -> Packer {
    let mut packer = packer(1 << 20);
    let resource = packer.resources.find("r").expect("it");
    resource.learn(&Public {
        version: 1,
        kind: Kind::Rate,
        least: Some(limit),
        ..Public::default()
    });
    packer.set_partitions(partitions, NOW);
    assert!(packer.next(NOW, false).is_none());
    packer
}

/// Everything that is handed over at an instant: partition and calls.
pub(super) fn handed_over(packer: &mut Packer, now: Mono) -> Vec<(u32, u64)> {
    let parcels = std::iter::from_fn(|| packer.next(now, false));
    parcels
        .map(|parcel| (parcel.partition, parcel.hits))
        .collect()
}

pub(super) fn hit(domain: &str, at: u64) -> RecorderEvent<'_> {
    RecorderEvent {
        resource: ResourceId(0),
        domain,
        at: Timestamp::from_micros(at),
        happened: Happened::Hit {
            copies: 1,
            min: None,
            unguarded: false,
        },
    }
}

fn bulk(domain: &str, at: u64) -> RecorderEvent<'_> {
    RecorderEvent {
        happened: Happened::Hit {
            copies: 5,
            min: Some(2),
            unguarded: false,
        },
        ..hit(domain, at)
    }
}

fn refused(domain: &str, at: u64) -> RecorderEvent<'_> {
    RecorderEvent {
        happened: Happened::Refused {
            copies: 3,
            cause: Cause::Hard,
            position: None,
        },
        ..hit(domain, at)
    }
}

fn record(packer: &Packer, parcel: &CallBatch) -> Vec<u8> {
    let mut writer = Writer::new();
    let sender = Sender {
        agent: "a",
        epoch: 1,
        sequence: 1,
        sent: Timestamp::from_micros(500),
    };
    parcel.encode(&mut writer, &sender, &packer.resources);
    writer.as_slice().to_vec()
}

/// Entries of a batch, as a reader of the record sees them: pair, instant, copies, calls, min.
fn read(packer: &Packer, parcel: &CallBatch) -> Vec<(String, u64, u32, u32, Option<u32>)> {
    let bytes = record(packer, parcel);
    hits_of(&bytes)
        .iter()
        .map(|hit| {
            (
                hit.domain.to_owned(),
                hit.at.as_micros(),
                hit.copies,
                hit.calls,
                hit.min,
            )
        })
        .collect()
}

fn hits_of(bytes: &[u8]) -> Vec<Hit<'_>> {
    let Ok(Record::Hits(batch)) = Record::decode(bytes) else {
        panic!("not hits")
    };
    batch.hits().to_vec()
}

#[test]
fn equal_hits_of_one_instant_are_one_entry_bulk_calls_are_not() {
    let mut packer = packer(1 << 20);
    packer.set_partitions(1, NOW);
    for event in [
        hit("a", 1),
        hit("b", 1),
        hit("a", 1),
        bulk("a", 1),
        bulk("a", 1),
        hit("a", 2),
        hit("a", 1),
    ] {
        packer.take(&event, NOW, WALL);
    }
    let parcel = packer.next(NOW, false).expect("a parcel");
    assert_eq!(parcel.hits, 7);
    let expected = [
        ("a", 1, 1, 3, None),
        ("b", 1, 1, 1, None),
        ("a", 1, 5, 1, Some(2)),
        ("a", 1, 5, 1, Some(2)),
        ("a", 2, 1, 1, None),
    ];
    assert_eq!(
        read(&packer, &parcel),
        expected.map(|(domain, at, copies, calls, min)| (
            domain.to_owned(),
            at,
            copies,
            calls,
            min
        ))
    );
    assert!(packer.next(NOW, false).is_none());
}

#[test]
fn only_equal_calls_are_one_entry_and_refunds_never() {
    let mut packer = packer(1 << 20);
    packer.set_partitions(1, NOW);
    let of = |happened| RecorderEvent {
        happened,
        ..hit("a", 6)
    };
    let two = |unguarded| {
        of(Happened::Hit {
            copies: 2,
            min: None,
            unguarded,
        })
    };
    let charge = of(Happened::Charge { copies: 2 });
    let refund = of(Happened::Refund {
        estimated: 5,
        actual: 3,
        made: Timestamp::from_micros(1),
    });
    packer.guard_by(guards(1), false, Mono::ZERO);
    let all = [hit("a", 6), two(false), two(true), charge, refund];
    for event in all.iter().chain(&all) {
        packer.take(event, NOW, WALL);
    }
    let parcel = packer.next(NOW, false).expect("a parcel");
    let bytes = record(&packer, &parcel);
    let refund = HitKind::Refund {
        made: Timestamp::from_micros(1),
        estimated: 5,
        actual: 3,
    };
    let entries: Vec<_> = hits_of(&bytes)
        .iter()
        .map(|hit| (hit.copies, hit.calls, hit.kind, hit.unguarded))
        .collect();
    assert_eq!(
        entries,
        [
            (1, 2, HitKind::Hit, false),
            (2, 2, HitKind::Hit, false),
            (2, 2, HitKind::Hit, true),
            (2, 2, HitKind::Charge, false),
            (2, 1, refund, false),
            (2, 1, refund, false),
        ]
    );
    assert_eq!((parcel.hits, packer.take_unguarded()), (10, 2));
}

/// Guards for this many partitions, all current until a second after [`NOW`].
fn guards(partitions: u32) -> Guards {
    let guard = Guard::default();
    guard.set_partitions(partitions);
    for partition in 0..partitions {
        guard.note_watermark(
            partition,
            LogPosition::default(),
            true,
            Span::ZERO,
            Mono::ZERO.plus(HEARD),
        );
    }
    guard.guards()
}

/// When the watermarks arrived.
const HEARD: Span = Span::from_micros(NOW.0 - 5);

#[test]
fn calls_are_marked_by_their_own_instant_and_partition() {
    let mut packer = packer(1 << 20);
    packer.resources.get("shadow");
    packer
        .resources
        .find("shadow")
        .expect("it")
        .set_flag(IGNORED, true);
    packer.set_partitions(1, NOW);
    let mut mark = |event: &RecorderEvent<'_>, guards: Guards, is_killed| {
        packer.guard_by(guards, is_killed, Mono::ZERO);
        packer.take(event, NOW, WALL);
        let parcel = packer.next(NOW, true).expect("a parcel");
        let bytes = record(&packer, &parcel);
        hits_of(&bytes).iter().all(|hit| hit.unguarded)
    };
    // The wall clock shows 10 µs at NOW, and the watermark arrived 5 µs before.
    assert!(!mark(&hit("a", 5), guards(1), false));
    assert!(mark(&hit("a", 4), guards(1), false), "before the news");
    assert!(
        !mark(&hit("a", 99), guards(1), false),
        "a clock that was set back"
    );
    assert!(mark(&hit("a", 5), Guards::default(), false), "no news");
    assert!(mark(&hit("a", 5), guards(1), true), "the kill switch");
    let shadow = RecorderEvent {
        resource: ResourceId(1),
        ..hit("a", 5)
    };
    assert!(mark(&shadow, guards(1), false), "denials are ignored");
}

#[test]
fn a_wall_clock_set_forward_ages_no_call_past_the_last_visit() {
    let mut packer = packer(1 << 20);
    packer.set_partitions(1, NOW);
    let news = Guard::default();
    news.set_partitions(1);
    news.note_watermark(0, LogPosition::default(), true, Span::ZERO, Mono(2));
    let ended = Mono(2).plus(Span::from_secs(1));
    let now = ended.plus(Span::from_millis(1));
    let mut is_guarded = |since| {
        packer.guard_by(news.guards(), false, since);
        // By its stamp the call was made a second before the packer takes it.
        packer.take(&hit("a", 5), now, Timestamp::from_micros(1_000_005));
        let parcel = packer.next(now, true).expect("a parcel");
        let bytes = record(&packer, &parcel);
        hits_of(&bytes).iter().all(|hit| !hit.unguarded)
    };
    assert!(is_guarded(Mono::ZERO), "while the news guarded");
    assert!(!is_guarded(ended), "it was not recorded yet at the end");
}

#[test]
fn early_calls_reach_their_partition_once_it_is_known() {
    let mut packer = packer(1 << 20);
    let domains: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    for domain in &domains {
        packer.take(&hit(domain, 1), NOW, WALL);
        packer.take(&refused(domain, 1), NOW, WALL);
    }
    assert!(packer.next(NOW, true).is_none());
    packer.set_partitions(4, NOW);
    let (mut seen, mut hits, mut refused_calls) = (0, 0, 0);
    while let Some(parcel) = packer.next(NOW, true) {
        for (domain, ..) in read(&packer, &parcel) {
            assert_eq!(partition_of_pair("r", &domain, 4), parcel.partition);
            seen += 1;
        }
        hits += parcel.hits;
        refused_calls += parcel.refused_calls;
    }
    assert_eq!((seen, hits, refused_calls), (200, 200, 200));
}

#[test]
fn a_busy_partition_gathers_and_a_quiet_one_does_not_wait() {
    let mut packer = packer(1 << 20);
    packer.set_partitions(1, NOW);
    let mut under_way = Vec::new();
    for n in 0..2 {
        packer.take(&hit("a", n), NOW, WALL);
        under_way.push(packer.next(NOW, false).expect("at once"));
    }
    assert!(!packer.is_held_up());
    packer.take(&hit("a", 3), NOW, WALL);
    assert!(packer.next(NOW, false).is_none() && packer.is_held_up());
    under_way.push(
        packer
            .next(NOW.plus(GATHER), false)
            .expect("gathered long enough"),
    );
    assert!(!packer.is_held_up());
    packer.take(&hit("a", 4), NOW.plus(GATHER), WALL);
    under_way.clear();
    assert!(packer.next(NOW.plus(GATHER), false).is_some());
}

#[test]
fn calls_that_are_not_urgent_wait_and_share_a_batch() {
    let mut packer = relaxed_packer(1_000, 16);
    let domains: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    for (domain, ms) in domains.iter().zip([0, 5, 24].into_iter().cycle()) {
        let now = NOW.plus(Span::from_millis(ms));
        packer.take(&hit(domain, 1), now, WALL);
        assert_eq!(handed_over(&mut packer, now), [], "it waits");
    }
    assert!(!packer.is_empty());
    // Counted from the first of them, and in one record for each partition.
    let due = NOW.plus(RELAXED);
    assert_eq!(handed_over(&mut packer, Mono(due.0 - 1)), []);
    let all = handed_over(&mut packer, due);
    assert_eq!((all.len(), packer.is_empty()), (16, true));
    assert_eq!(all.iter().map(|(_, hits)| hits).sum::<u64>(), 200);
    // What comes after that waits for its own 60 ms, counted from this visit.
    packer.guard_by(Guards::default(), false, due);
    packer.take(&hit("late", 2), due, WALL);
    assert_eq!(handed_over(&mut packer, due), []);
    assert_eq!(handed_over(&mut packer, due.plus(RELAXED)).len(), 1);
}

#[test]
fn an_urgent_call_flushes_its_partition_queue_at_once() {
    let mut packer = relaxed_packer(1_000, 16);
    let of = |domain: &str| partition_of_pair("r", domain, 16);
    let domains: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    for domain in &domains {
        packer.take(&hit(domain, 1), NOW, WALL);
    }
    assert_eq!(handed_over(&mut packer, NOW), []);
    // 25 calls are a fortieth of the limit.
    for n in 0..25 {
        assert_eq!(handed_over(&mut packer, NOW), [], "after {n}");
        packer.take(&hit("acme", n), NOW, WALL);
    }
    assert_eq!(packer.urgent().shortly, Some(NOW));
    let beside = domains.iter().filter(|one| of(one) == of("acme")).count() as u64;
    let gone = handed_over(&mut packer, NOW);
    assert_eq!(gone, [(of("acme"), 25 + beside)]);
    // The pair stays urgent while its calls go on, and other pairs do not become urgent.
    packer.take(&hit("acme", 26), NOW, WALL);
    assert_eq!(handed_over(&mut packer, NOW), [(of("acme"), 1)]);
    assert_eq!(handed_over(&mut packer, NOW.plus(RELAXED)).len(), 15);
}

#[test]
fn a_large_call_is_urgent_and_a_refund_is_not() {
    let mut packer = relaxed_packer(100, 1);
    let refund = RecorderEvent {
        happened: Happened::Refund {
            estimated: 90,
            actual: 3,
            made: Timestamp::from_micros(1),
        },
        ..hit("a", 2)
    };
    packer.take(&refund, NOW, WALL);
    assert_eq!(handed_over(&mut packer, NOW), []);
    packer.take(&bulk("a", 3), NOW, WALL);
    assert_eq!(handed_over(&mut packer, NOW), [(0, 2)]);
    let charge = RecorderEvent {
        happened: Happened::Charge { copies: 60 },
        ..hit("b", 4)
    };
    packer.take(&charge, NOW, WALL);
    assert_eq!(handed_over(&mut packer, NOW), [(0, 1)]);
}

#[test]
fn at_the_bound_the_newest_are_dropped_and_counted() {
    let mut packer = packer(100_000);
    packer.set_partitions(1, NOW);
    let domains: Vec<String> = (0..20_000).map(|n| format!("tenant-{n}")).collect();
    let mut kept = Vec::new();
    for domain in &domains {
        packer.take(&hit(domain, 1), NOW, WALL);
        kept.extend(packer.next(NOW, false));
    }
    kept.extend(std::iter::from_fn(|| packer.next(NOW, true)));
    let hits: u64 = kept.iter().map(|parcel| parcel.hits).sum();
    let dropped = packer.take_dropped().hits;
    assert_eq!(hits + dropped, 20_000);
    assert!(0 < dropped && kept.iter().map(CallBatch::bytes).sum::<usize>() < 100_000 + 2 * 70_000);
    // Batches that are done make room.
    kept.clear();
    packer.take(&hit("late", 2), NOW, WALL);
    assert_eq!(packer.take_dropped().hits, 0);
    // The first bound also holds while partitions are unknown.
    let mut lost = self::packer(100_000);
    domains
        .iter()
        .for_each(|domain| lost.take(&hit(domain, 1), NOW, WALL));
    let dropped = lost.take_dropped().hits;
    assert!(0 < dropped);
    lost.give_up();
    assert_eq!(lost.take_dropped().hits + dropped, 20_000);
}

#[test]
fn every_batch_fits_into_a_record() {
    let mut packer = packer(64 << 20);
    packer.set_partitions(1, NOW);
    for n in 0..3_000u64 {
        packer.take(&hit(&format!("{n:0>256}"), n), NOW, WALL);
    }
    let mut parcels = 0;
    while let Some(parcel) = packer.next(NOW, true) {
        assert!(record(&packer, &parcel).len() <= parcel.bytes() + 400);
        assert!(parcel.bytes() < 70_000);
        parcels += 1;
    }
    assert!(10 < parcels);
}

#[test]
fn refused_calls_of_a_pair_are_one_entry_of_a_flush() {
    let mut packer = packer(1 << 20);
    packer.set_partitions(1, NOW);
    for at in [7, 5, 9] {
        packer.take(&refused("a", at), NOW, WALL);
    }
    assert!(packer.next(NOW, false).is_none());
    let parcel = packer
        .next(NOW.plus(REFUSED_EVERY), false)
        .expect("a parcel");
    let bytes = record(&packer, &parcel);
    let Ok(Record::Hits(batch)) = Record::decode(&bytes) else {
        panic!("not hits")
    };
    let all: Vec<_> = batch.refused().collect();
    assert_eq!(all.len(), 1);
    assert_eq!(
        (
            all[0].calls,
            all[0].copies,
            all[0].first.as_micros(),
            all[0].last.as_micros()
        ),
        (3, 9, 5, 9)
    );
}

#[test]
fn hits_go_to_their_pairs_partition_however_the_resource_is_used() {
    let mut packer = packer(1 << 20);
    let resource = packer.resources.find("r").expect("it");
    resource.set_flag(crate::resource::OF_COPIES, true);
    packer.set_partitions(16, NOW);
    for domain in ["acme", "globex", "hooli"] {
        packer.take(&hit(domain, 1), NOW, WALL);
        packer.take(&refused(domain, 2), NOW, WALL);
    }
    let (mut hits, mut refusals) = (0, 0);
    while let Some(parcel) = packer.next(NOW, true) {
        let bytes = record(&packer, &parcel);
        let Ok(Record::Hits(batch)) = Record::decode(&bytes) else {
            panic!("not hits")
        };
        for hit in batch.hits() {
            assert_eq!(parcel.partition, partition_of_pair("r", hit.domain, 16));
            hits += 1;
        }
        for _ in batch.refused() {
            assert_eq!(parcel.partition, partition_of_resource("r", 16));
            refusals += 1;
        }
    }
    assert_eq!((hits, refusals), (3, 3));
}
