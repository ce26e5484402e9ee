//! Promises of the core, held in a world without I/O: order, identity, time, totals, limits, refusals.

mod world;

use std::collections::BTreeMap;

use tollgate::core::event::{Event, LimitsFile, Peer, Request};
use tollgate::core::snapshots::Chunks;
use tollgate::log::Stream;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::link::{FromAggregator, Refusal};
use tollgate_shared::wire::record::{OwnersPen, Pointer, Tick, kind};
use tollgate_shared::wire::statement::Says;
use world::{Fate, MemoryLog, PARTITIONS, Random, STRANGER, World};

const LIMITS: &str = r#"
version = 1
rules = 1
[rate.search]
rate = "5/m"
[rate.wide]
rate = "1000000/s"
global = "40/s"
"#;

fn without_ticks(kinds: Vec<u8>) -> Vec<u8> {
    kinds
        .into_iter()
        .filter(|kind| *kind != kind::TICK)
        .collect()
}

#[test]
fn a_partition_begins_with_its_identity_and_the_pointer_comes_before_the_first_hit_it_rules() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 1);
    world.settle();
    for partition in 0..PARTITIONS {
        let kinds = world.log.kinds(partition);
        assert_eq!(kinds[0], kind::GENESIS);
        let rest = without_ticks(kinds);
        assert_eq!(rest[..2], [kind::GENESIS, kind::POINTER]);
    }
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn nothing_is_appended_for_agents_before_the_identity_is_there() {
    let mut world = World::on(MemoryLog::default(), 1);
    world.fate = Box::new(|_, record| match record[1] {
        kind::GENESIS => Fate::Refused,
        _ => Fate::Taken,
    });
    world.settle();
    world.hit("search", "acme", 1);
    let last = world.answers.last().unwrap();
    assert!(
        matches!(
            last,
            FromAggregator::Refused {
                reason: Refusal::NotNow,
                ..
            }
        ),
        "{last:?}"
    );
    // It is tried again, and then everything goes its way.
    world.fate = Box::new(|_, _| Fate::Taken);
    world.run_for(Span::from_secs(1));
    world.hit("search", "acme", 1);
    world.settle();
    assert!(matches!(
        world.answers.last(),
        Some(FromAggregator::Appended { .. })
    ));
    assert!((0..PARTITIONS).all(|p| world.log.kinds(p)[0] == kind::GENESIS));
}

#[test]
fn never_more_than_one_tick_is_on_its_way() {
    let mut world = World::new(LIMITS);
    let before = world.log.count(kind::TICK);
    // The log takes them and does not give them back.
    world.held = vec![Stream::Hits];
    world.run_for(Span::from_secs(5));
    let sent = world.log.count(kind::TICK) - before;
    assert!(sent <= PARTITIONS as usize, "{sent}");
    world.held.clear();
    world.run_for(Span::from_secs(5));
    let later = world.log.count(kind::TICK) - before - sent;
    // Twenty a partition in five seconds, one each 250 ms.
    assert!((19 * 4..=21 * 4).contains(&later), "{later}");
}

#[test]
fn a_denial_is_announced_with_the_time_it_still_has_in_the_logs_time() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 5);
    world.run_for(Span::from_millis(400));
    let told: Vec<_> = world.frames.iter().flat_map(|frame| &frame.told).collect();
    assert_eq!(told.len(), 1);
    let remaining = told[0].remaining;
    // A minute from the hit on; the log's time lags by at most a tick and a turn.
    assert!(
        Span::from_micros(59_500_000) <= remaining
            && remaining <= Span::from_micros(60_000_001 + 300_000),
        "{remaining}"
    );
    let frame = world
        .frames
        .iter()
        .find(|frame| !frame.told.is_empty())
        .unwrap();
    let evidence = frame
        .evidence
        .iter()
        .find(|e| e.partition == told[0].partition)
        .unwrap();
    assert!(told[0].statement.place.offset < evidence.ruled);
}

#[test]
fn a_core_that_comes_to_an_old_log_ends_in_the_same_state_and_announces_what_is_in_force() {
    let mut world = World::new(LIMITS);
    let mut random = Random(7);
    for _ in 0..300 {
        let domain = format!("d{}", random.below(20));
        world.hit(
            ["search", "wide"][random.below(2) as usize],
            &domain,
            1 + random.below(3) as usize,
        );
        if random.below(3) == 0 {
            world.run_for(Span::from_millis(random.below(400)));
        }
    }
    world.run_for(Span::from_secs(2));
    let denials = world.counters().denials;
    assert!(denials > 3, "{denials}");
    let log = world.log.clone();
    // Two that come after, and meet the partitions in other orders.
    for seed in [2, 3] {
        let mut again = World::on(log.clone(), seed);
        // Nothing that this one appends may take part in the comparison.
        again.fate = Box::new(|_, _| Fate::Refused);
        again.settle();
        let strip = |world: &mut World| -> Vec<(u64, String)> {
            world
                .digests()
                .partitions
                .into_iter()
                .map(|p| (p.offset, p.digest))
                .collect()
        };
        assert_eq!(strip(&mut again), strip(&mut world));
        assert_eq!(again.told(), 0, "not before it knows the log's time");
        again.fate = Box::new(|_, _| Fate::Taken);
        again.run_for(Span::from_secs(1));
        // What has ended meanwhile (an hour has gone by) is not told; evidence is recorded again.
        assert_eq!(again.counters().denials, denials);
    }
}

#[test]
fn what_is_in_force_when_a_core_becomes_ready_is_announced_once() {
    let mut world = World::new(LIMITS);
    for n in 0..30 {
        world.hit("search", &format!("d{n}"), 5);
    }
    world.settle();
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.run_for(Span::from_secs(1));
    assert_eq!(again.told(), 30);
    let frames: Vec<_> = again
        .frames
        .iter()
        .filter(|frame| !frame.resource.is_empty())
        .collect();
    assert_eq!(frames[0].sequence, 1);
}

#[test]
fn totals_are_applied_once_and_in_order_whatever_becomes_of_their_appends() {
    for seed in 0..20 {
        let mut world = World::new(LIMITS);
        let mut random = Random(seed);
        let mut fates = Random(seed + 100);
        world.fate = Box::new(move |_, record| match (record[1], fates.below(4)) {
            (kind::TOTALS, 0) => Fate::Refused,
            (kind::TOTALS, 1) => Fate::Denied,
            _ => Fate::Taken,
        });
        let mut hits = 0;
        for _ in 0..60 {
            let n = 1 + random.below(2) as usize;
            world.hit("wide", &format!("d{}", random.below(9)), n);
            hits += n as u64;
            if random.below(4) == 0 {
                world.settle();
            }
        }
        world.fate = Box::new(|_, _| Fate::Taken);
        // Within one second of the log, so that all are still in the window.
        world.run_for(Span::from_millis(600));
        let everybody = world.pair("wide", "*");
        let counted = everybody.state.unwrap().last_second + world.counters().global_excess;
        assert_eq!(counted, hits, "seed {seed}");
        assert!(everybody.denial.is_some(), "seed {seed}");
    }
}

#[test]
fn a_core_that_comes_after_sends_only_the_totals_that_are_missing() {
    let mut world = World::new(LIMITS);
    for n in 0..20 {
        world.hit("wide", &format!("d{n}"), 1);
    }
    world.settle();
    assert_eq!(world.totals().len(), 20);
    // Three more hits, whose totals never reach the log.
    world.fate = Box::new(|_, record| match record[1] {
        kind::TOTALS => Fate::Refused,
        _ => Fate::Taken,
    });
    for n in 0..3 {
        world.hit("wide", &format!("d{n}"), 1);
    }
    world.settle();
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.run_for(Span::from_millis(600));
    assert_eq!(again.totals().len(), 23);
    assert_eq!(again.counters().totals_out_of_order, 0);
}

#[test]
fn a_partition_waits_for_limits_that_it_is_pointed_at_and_loses_nothing() {
    let mut world = World::new(LIMITS);
    // Another owner of the same log brings in a version, points at it, and rules on.
    let mut other = World::on(world.log.clone(), 2);
    other.clock = world.clock;
    other.push(&LIMITS.replace("5/m", "2/m"));
    other.hit("search", "acme", 3);
    other.settle();
    // This one is given the partitions first.
    world.log = other.log.clone();
    world.fate = Box::new(|_, _| Fate::Refused);
    world.held = vec![Stream::Limits];
    world.settle();
    let why = world.why_not_ready();
    assert_eq!(why.len(), PARTITIONS as usize);
    assert!(
        why.iter()
            .all(|why| why.contains("waits for limits version")),
        "{why:?}"
    );
    world.held.clear();
    world.settle();
    for (theirs, ours) in other
        .digests()
        .partitions
        .iter()
        .zip(world.digests().partitions)
    {
        assert_eq!((theirs.offset, &theirs.digest), (ours.offset, &ours.digest));
        assert_eq!(theirs.version, ours.version);
    }
    assert_eq!(world.told(), 1);
}

#[test]
fn limits_that_lose_a_race_are_pushed_again() {
    let mut world = World::new(LIMITS);
    // Somebody else pushes at the same time: his chunk is in the log before ours.
    let other = LIMITS.replace("5/m", "3/m");
    let mut rival = World::on(world.log.clone(), 2);
    rival.clock = world.clock;
    rival.settle();
    rival.read_limits_file(&other);
    rival.settle();
    let theirs = rival.log.streams[&(Stream::Limits, 0)]
        .last()
        .unwrap()
        .bytes
        .to_vec();
    world.held = vec![Stream::Limits];
    world.put(Stream::Limits, 0, theirs);
    world.read_limits_file(&LIMITS.replace("5/m", "4/m"));
    world.settle();
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.counters().pushes_void, 1);
    world.hit("search", "acme", 4);
    world.settle();
    assert_eq!(world.pair("search", "acme").state.unwrap().tier_limit, 4);
}

#[test]
fn a_bad_file_and_an_empty_log_leave_nothing_to_rule_by() {
    let bad = |text: Result<&str, &str>| LimitsFile {
        name: "limits.toml".to_owned(),
        text: text.map(str::to_owned).map_err(str::to_owned),
    };
    let mut world = World::on(MemoryLog::default(), 1);
    world.step(Event::LimitsFile(bad(Ok("[rate.r]\nrats = 1\n"))));
    world.settle();
    assert!(world.gave_up.is_some_and(|why| why.contains("rats")));

    let good = World::new(LIMITS);
    let mut world = World::on(good.log, 1);
    world.step(Event::LimitsFile(bad(Err("No such file"))));
    world.run_for(Span::from_secs(1));
    assert_eq!(world.gave_up, None);
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn what_cannot_be_read_is_kept_aside_and_stops_nothing() {
    let mut world = World::new(LIMITS);
    let (partition, mut cut) = world.batch("search", "acme", 5);
    let (_, good) = world.batch("search", "acme", 5);
    cut.truncate(cut.len() - 2);
    world.put(Stream::Hits, partition, cut.clone());
    world.put(Stream::Hits, partition, vec![7, 7, 7]);
    let at = world.put(Stream::Hits, partition, vec![1, 0x80 | 40, 1]);
    // Signed by somebody without the key.
    let stranger = MacKey::derive(b"not the fleet's");
    let tick = Tick {
        log: STRANGER,
        owner: "x",
        instance: 1,
        number: 1,
    };
    world.put(
        Stream::Hits,
        partition,
        OwnersPen::new(&stranger, partition).tick(&tick),
    );
    let pointer = Pointer {
        version: 1,
        digest: [9; 32],
    };
    world.put(
        Stream::Hits,
        partition,
        OwnersPen::new(&stranger, partition).pointer(&pointer),
    );
    // Of this fleet, and to a version that does not exist.
    let forged = Pointer {
        version: 0,
        digest: [9; 32],
    };
    world.put(
        Stream::Hits,
        partition,
        OwnersPen::new(&MacKey::UNPROTECTED, partition).pointer(&forged),
    );
    world.put(Stream::Hits, partition, good);
    world.settle();
    let counters = world.counters();
    assert_eq!(
        (counters.undecodable, counters.forged, counters.skipped),
        (2, 2, 1)
    );
    assert_eq!(world.asides.len(), 4);
    assert_eq!(&world.asides[0].bytes[..], &cut[..]);
    assert!(
        world
            .asides
            .iter()
            .all(|aside| aside.offset != at && !aside.why.is_empty())
    );
    assert_eq!(world.told(), 1, "the good record behind them was ruled");
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn an_unknown_kind_that_may_not_be_skipped_stops_its_partition_alone() {
    let mut world = World::new(LIMITS);
    let (partition, good) = world.batch("search", "acme", 5);
    let at = world.put(Stream::Hits, partition, vec![1, 40, 1]);
    world.put(Stream::Hits, partition, good);
    world.run_for(Span::from_secs(1));
    let why = world.why_not_ready();
    assert_eq!(why.len(), 1);
    assert!(why[0].contains("kind 40"), "{why:?}");
    assert_eq!(world.told(), 0);
    let stopped = &world.digests().partitions[partition as usize];
    assert_eq!((stopped.stage, stopped.offset), ("stopped", at));
}

#[test]
fn evidence_of_what_was_said_is_in_the_log_in_the_end() {
    let mut world = World::new(LIMITS);
    let mut fates = Random(3);
    world.fate = Box::new(move |stream, _| match (stream, fates.below(3)) {
        (Stream::Denials, 0 | 1) => Fate::Refused,
        _ => Fate::Taken,
    });
    for n in 0..40 {
        world.hit("search", &format!("d{n}"), 5);
    }
    world.run_for(Span::from_secs(30));
    let mut found = std::collections::BTreeSet::new();
    for partition in 0..PARTITIONS {
        for record in world
            .log
            .streams
            .get(&(Stream::Denials, partition))
            .into_iter()
            .flatten()
        {
            if record.bytes[1] == kind::GENESIS {
                continue;
            }
            let announced =
                tollgate_shared::wire::denial::Announced::decode(&record.bytes).unwrap();
            assert_eq!(announced.partition, partition);
            assert!(matches!(announced.statement.says, Says::Denied(_)));
            found.insert(announced.statement.scope);
        }
    }
    assert_eq!(found.len(), 40);
}

#[test]
fn too_many_records_of_agents_on_their_way_are_told_to_come_again() {
    let mut world = World::new(LIMITS);
    let (partition, record) = world.batch("search", "acme", 1);
    for id in 0..70_000 {
        let request = Request::Append {
            id,
            partition,
            record: record.clone(),
        };
        let peer = Peer(bytes::Bytes::from_static(b"p"));
        world.step(Event::Agent { peer, request });
    }
    let refused = world
        .answers
        .iter()
        .filter(|answer| {
            matches!(
                answer,
                FromAggregator::Refused {
                    reason: Refusal::NotNow,
                    ..
                }
            )
        })
        .count();
    assert_eq!(refused, 70_000 - 65_536);
}

/// What was hit in a world of snapshot tests: enough for some snapshots of each partition.
fn busy_world() -> World {
    let mut world = World::new(LIMITS);
    let mut random = Random(11);
    for _ in 0..900 {
        let domain = format!("d{}", random.below(40));
        let resource = ["search", "wide"][random.below(2) as usize];
        world.hit(resource, &domain, 1 + random.below(4) as usize);
        if random.below(5) == 0 {
            world.run_for(Span::from_millis(50));
        }
    }
    world.run_for(Span::from_secs(1));
    world
}

fn by_partition(world: &World) -> BTreeMap<u32, Vec<Chunks>> {
    let mut all: BTreeMap<u32, Vec<Chunks>> = BTreeMap::new();
    for (partition, _, chunks) in world.snapshots.iter().rev() {
        all.entry(*partition).or_default().push(chunks.clone());
    }
    all
}

/// Offsets and digests of all partitions, with nothing appended meanwhile.
fn state_of(log: &MemoryLog, snapshots: BTreeMap<u32, Vec<Chunks>>) -> (Vec<(u64, String)>, u64) {
    let mut world = World::restored(log.clone(), 2, snapshots);
    world.fate = Box::new(|_, _| Fate::Refused);
    world.settle();
    let partitions = world.digests().partitions;
    let state = partitions
        .into_iter()
        .map(|p| (p.offset, p.digest))
        .collect();
    (state, world.counters().records)
}

#[test]
fn from_a_snapshot_a_core_comes_to_the_same_state_with_less_to_read() {
    let world = busy_world();
    assert!(4 < world.snapshots.len(), "{}", world.snapshots.len());
    let (whole, all) = state_of(&world.log, BTreeMap::new());
    let (restored, few) = state_of(&world.log, by_partition(&world));
    assert_eq!(restored, whole);
    assert!(few < all / 2, "{few} of {all}");
}

#[test]
fn a_snapshot_that_does_not_restore_is_passed_over() {
    let world = busy_world();
    let (whole, _) = state_of(&world.log, BTreeMap::new());
    let mut snapshots = by_partition(&world);
    for chunks in snapshots.values_mut().map(|found| &mut found[0]) {
        let last = chunks.len() - 1;
        let middle = chunks[last].len() / 2;
        chunks[last][middle] ^= 1;
    }
    let (restored, _) = state_of(&world.log, snapshots);
    assert_eq!(restored, whole);
}

#[test]
fn a_snapshot_waits_until_all_that_it_caused_is_in_the_log() {
    let mut world = World::new(LIMITS);
    world.fate = Box::new(|stream, record| match (stream, record[1]) {
        (Stream::Denials, _) | (_, kind::TOTALS) => Fate::Refused,
        _ => Fate::Taken,
    });
    for n in 0..600 {
        world.hit("search", &format!("d{}", n % 50), 3);
        world.hit("wide", &format!("d{}", n % 50), 1);
    }
    world.run_for(Span::from_secs(3));
    assert_eq!(world.snapshots.len(), 0);
    world.fate = Box::new(|_, _| Fate::Taken);
    world.run_for(Span::from_secs(1));
    assert!(PARTITIONS as usize <= world.snapshots.len());
}

#[test]
fn a_snapshot_beyond_the_end_of_the_log_is_dropped_and_the_log_read_from_its_beginning() {
    let mut world = busy_world();
    let snapshots = by_partition(&world);
    let keep = 40;
    for partition in 0..PARTITIONS {
        let records = world
            .log
            .streams
            .get_mut(&(Stream::Hits, partition))
            .unwrap();
        records.truncate(keep);
    }
    let (whole, _) = state_of(&world.log, BTreeMap::new());
    let (restored, _) = state_of(&world.log, snapshots);
    assert_eq!(restored, whole);
    assert!(whole.iter().all(|(offset, _)| *offset == keep as u64));
}
