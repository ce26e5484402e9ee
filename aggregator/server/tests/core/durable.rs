//! What outlives a core: totals and decision records in the log, snapshots, and the same state in its successor.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tollgate_log::Chunks;
use tollgate_log::{Delivered, LogEvent, Stream};
use tollgate_server::core::event::Event;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{RecordPen, kind};
use tollgate_shared::wire::statement::StatementKind;

use crate::world::{Fate, MemoryLog, PARTITIONS, Random, World};
use crate::{LIMITS, WIDE};

#[test]
fn replay_reaches_the_same_state_and_announces_it() {
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
    // Two successors, which receive the partitions in other orders.
    for seed in [2, 3] {
        let mut again = World::on(log.clone(), seed);
        // Appends of the successor must not take part in the comparison.
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
        assert_eq!(again.announced(), 0, "not before it knows the log's time");
        again.fate = Box::new(|_, _| Fate::Taken);
        again.run_for(Span::from_secs(1));
        // Denials that have ended meanwhile (an hour has passed) are not published; decision records are appended
        // again.
        assert_eq!(again.counters().denials, denials);
    }
}

#[test]
fn totals_are_applied_once_and_in_order_despite_lost_appends() {
    for seed in 0..20 {
        let mut world = World::new(LIMITS);
        let mut random = Random(seed);
        let mut fates = Random(seed + 100);
        // A log that is away took a first part of what was sent, but could not say so, and takes nothing behind that
        // until it is back.
        let (is_away, refuses) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let (away, refusing) = (Rc::clone(&is_away), Rc::clone(&refuses));
        world.fate = Box::new(move |_, record| {
            if record[1] != kind::TOTALS || !away.get() {
                return Fate::Taken;
            }
            refusing.set(refusing.get() || fates.below(2) == 0);
            match refusing.get() {
                true => Fate::Refused,
                false => Fate::Denied,
            }
        });
        let mut hits = 0;
        for _ in 0..60 {
            let n = 1 + random.below(2) as usize;
            world.hit("wide", &format!("d{}", random.below(9)), n);
            hits += n as u64;
            if random.below(4) == 0 {
                world.settle();
                is_away.set(random.below(2) == 0);
                refuses.set(false);
            }
        }
        world.fate = Box::new(|_, _| Fate::Taken);
        // Within one second of the log, so that all are still in the window.
        world.run_for(Span::from_millis(600));
        let everybody = world.pair("wide", "*");
        let granted = everybody.state.unwrap().last_second.min(WIDE);
        let counted = granted + world.counters().global_excess;
        assert_eq!(counted, hits, "seed {seed}");
        assert!(everybody.denial.is_some(), "seed {seed}");
    }
}

#[test]
fn a_successor_sends_only_the_missing_totals() {
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
fn every_statement_gets_its_decision_record_in_the_end() {
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
            assert!(matches!(announced.statement.kind, StatementKind::Denied(_)));
            found.insert(announced.statement.scope);
        }
    }
    assert_eq!(found.len(), 40);
}

/// A world of snapshot tests with hits: enough for some snapshots of each partition.
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
fn a_snapshot_restores_the_same_state_with_less_to_read() {
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
fn a_snapshot_waits_until_the_log_has_its_effects() {
    let kinds: [fn(Stream, u8) -> bool; 2] = [
        |stream, _| stream == Stream::Denials,
        |stream, kind| stream == Stream::Hits && kind == kind::TOTALS,
    ];
    for outstanding in kinds {
        let mut world = World::new(LIMITS);
        world.fate = Box::new(move |stream, record| match outstanding(stream, record[1]) {
            true => Fate::Refused,
            false => Fate::Taken,
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
}

/// Cuts the end off all partitions of hits, as a power cut does, and begins the next generation there.
fn cut(log: &mut MemoryLog, keep: usize) {
    for partition in 0..PARTITIONS {
        let records = log.streams.get_mut(&(Stream::Hits, partition)).unwrap();
        records.truncate(keep);
        let genesis = RecordPen::new(&MacKey::UNPROTECTED, partition).genesis(LogId {
            generation: 2,
            random: 77,
        });
        records.push(Delivered {
            offset: keep as u64,
            appended: records[keep - 1].appended,
            bytes: genesis.into(),
        });
    }
}

#[test]
fn a_snapshot_beyond_the_end_of_the_log_is_dropped() {
    let mut world = busy_world();
    let snapshots = by_partition(&world);
    let keep = 40;
    cut(&mut world.log, keep);
    let (whole, _) = state_of(&world.log, BTreeMap::new());
    let (restored, _) = state_of(&world.log, snapshots);
    assert_eq!(restored, whole);
    assert!(whole.iter().all(|(offset, _)| *offset == keep as u64 + 1));
}

#[test]
fn a_full_replay_uses_the_limits_of_their_time() {
    let mut world = busy_world();
    let early = by_partition(&world);
    world.push(&LIMITS.replace("5/m", "6/m"));
    world.run_for(Span::from_secs(1));
    for n in 0..900 {
        world.hit(["search", "wide"][n % 2], &format!("d{}", n % 41), 2);
        if n % 5 == 0 {
            world.run_for(Span::from_millis(50));
        }
    }
    world.run_for(Span::from_secs(1));
    // One partition was restored under the new limits, and the log has lost its end. The others were restored
    // before the new limits, and have passed them when the loss is noticed.
    let late = by_partition(&world).remove(&0).expect("a snapshot");
    let mut log = world.log.clone();
    cut(&mut log, 40);
    let lost = log.streams.remove(&(Stream::Hits, 0)).expect("records");
    let mut log = world.log.clone();
    log.streams.insert((Stream::Hits, 0), lost);
    let (whole, _) = state_of(&log, BTreeMap::new());
    let snapshots = early.into_iter().filter(|(of, _)| *of != 0);
    let snapshots = snapshots.chain([(0, late)]).collect();
    let mut again = World::restored(log, 2, snapshots);
    again.fate = Box::new(|_, _| Fate::Refused);
    again.held = vec![Stream::Hits];
    again.settle();
    for found in again.digests().partitions.iter().skip(1) {
        let (stream, partition, from) = (Stream::Hits, found.partition, found.offset);
        again.step(Event::Log(LogEvent::Following {
            stream,
            partition,
            from,
        }));
        let records = again.log.streams[&(stream, partition)][from as usize..].to_vec();
        again.step(Event::Log(LogEvent::Delivered {
            stream,
            partition,
            records,
        }));
    }
    again.held.clear();
    again.settle();
    assert_eq!(again.dead_letters, []);
    let partitions = again.digests().partitions.into_iter();
    let state: Vec<_> = partitions.map(|p| (p.offset, p.digest)).collect();
    assert_eq!(state, whole);
}

#[test]
fn a_snapshot_of_lost_records_is_never_restored() {
    let world = busy_world();
    let lost = world.snapshots.clone();
    let newest = |partition| {
        let of = lost.iter().filter(|(of, ..)| *of == partition);
        of.map(|(_, upto, _)| *upto).max().unwrap()
    };
    let mut log = world.log.clone();
    cut(&mut log, 40);
    let mut again = World::restored(log, 3, by_partition(&world));
    let mut random = Random(5);
    let has_grown =
        |world: &World| (0..PARTITIONS).all(|p| newest(p) + 20 < world.log.kinds(p).len() as u64);
    while !has_grown(&again) {
        again.hit("search", &format!("e{}", random.below(40)), 2);
        again.hit("wide", &format!("e{}", random.below(40)), 1);
        again.run_for(Span::from_millis(50));
    }
    assert_eq!(again.dropped.len(), lost.len(), "each of them was tried");
    assert_eq!(again.counters().snapshots_refuted, lost.len() as u64);
    assert!(PARTITIONS as usize <= again.snapshots.len());
    let (whole, _) = state_of(&again.log, BTreeMap::new());
    // Whichever snapshots could not be removed, and whichever come first: none of a lost future is used.
    let (restored, _) = state_of(&again.log, by_partition(&world));
    assert_eq!(restored, whole);
    again.snapshots.extend(lost);
    again.snapshots.sort_by_key(|(_, upto, _)| *upto);
    let (restored, _) = state_of(&again.log, by_partition(&again));
    assert_eq!(restored, whole);
}

#[test]
fn a_snapshots_end_may_be_gone_before_it_is_verified() {
    let world = busy_world();
    let snapshots = by_partition(&world);
    let mut again = World::restored(world.log.clone(), 2, snapshots);
    again.fate = Box::new(|_, _| Fate::Refused);
    again.held = vec![Stream::Hits];
    again.settle();
    let partitions = again.digests().partitions;
    for found in &partitions {
        let (stream, partition, wanted) = (Stream::Hits, found.partition, found.offset);
        assert!(0 < wanted);
        again.step(Event::Log(LogEvent::Following {
            stream,
            partition,
            from: wanted,
        }));
        again.step(Event::Log(LogEvent::Gap {
            stream,
            partition,
            wanted,
            next: wanted + 1 + u64::from(partition),
        }));
    }
    // In partition 0 only the record that would have verified it is gone.
    assert_eq!(again.counters().gaps, u64::from(PARTITIONS) - 1);
    assert_eq!(again.dropped, []);
    for (before, after) in partitions.iter().zip(again.digests().partitions) {
        assert_eq!(before.digest, after.digest);
        assert_eq!(after.offset, before.offset + 1 + u64::from(after.partition));
    }
}

/// Each record counts, whichever of the losses a log line names.
#[test]
fn hits_that_the_journal_lost_are_counted() {
    let mut world = World::new(LIMITS);
    for (partition, from, upto) in [(0, 4, 12), (1, 7, 7)] {
        let lost = LogEvent::Lost {
            partition,
            from,
            upto,
        };
        world.step(Event::Log(lost));
    }
    assert_eq!(world.counters().records_lost, 10);
}
