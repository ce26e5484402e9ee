//! Logs that lose more than was read: topics that are recreated, and records that go by age.

use tollgate_log::{LogEvent, Stream};
use tollgate_server::core::event::Event;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{Record, kind};

use crate::LIMITS;
use crate::bounds::domains;
use crate::sharing::{State, digests, restore, twin};
use crate::world::{Fate, MemoryLog, PARTITIONS, World};

/// A fleet's log with limits and without hits.
fn without_hits() -> MemoryLog {
    let mut log = World::new(LIMITS).log;
    log.streams.retain(|(stream, _), _| *stream != Stream::Hits);
    log
}

fn forget_hits(world: &mut World) {
    let records = world.log.streams.iter_mut();
    let hits = records.filter(|((stream, _), _)| *stream == Stream::Hits);
    hits.for_each(|(_, records)| records.clear());
}

#[test]
fn appends_to_a_recreated_topic_are_not_awaited() {
    let mut world = World::shared(without_hits(), 2);
    world.step(Event::Assigned((0..PARTITIONS).collect()));
    world.run_for(Span::from_millis(100));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    // The log takes ticks and an activation of new limits, and is gone before it delivers them.
    world.held = vec![Stream::Hits];
    world.push(&LIMITS.replace("5/m", "6/m"));
    world.run_for(Span::from_secs(1));
    forget_hits(&mut world);
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    assert_eq!(digests(&mut world), twin(&world.log));
}

#[test]
fn nothing_is_appended_before_the_identity_of_a_generation() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 6);
    world.run_for(Span::from_secs(1));
    let rest = |world: &World| {
        let statements = world.frames.iter().flat_map(|frame| &frame.statements);
        statements
            .map(|statements| statements.remaining)
            .next_back()
    };
    let (hit_at, lasts) = (world.clock, rest(&world).expect("acme is denied"));
    let before = world.log.clone();
    let mut again = World::after_a_loss(before.clone(), 2);
    again.clock = world.clock;
    let is_identity = |bytes: &[u8]| matches!(Record::decode(bytes), Ok(Record::Genesis(_)));
    // The disk has room for small records, but none for identities.
    again.fate = Box::new(move |_, record| match is_identity(record) {
        true => Fate::Refused,
        false => Fate::Taken,
    });
    again.push(&LIMITS.replace("5/m", "4/m"));
    again.run_for(Span::from_secs(3));
    assert_eq!(again.log.streams, before.streams, "it took something");
    again.fate = Box::new(|_, _| Fate::Taken);
    again.run_for(Span::from_secs(3));
    for (at, records) in &again.log.streams {
        let had = before.streams.get(at).map_or(0, Vec::len);
        let first = records.get(had).expect("something came");
        assert!(is_identity(&first.bytes), "{at:?}");
    }
    assert_eq!(again.why_not_ready(), Vec::<String>::new());
    // The long time for which its ticks were on their way does not count.
    let since = again.clock.saturating_sub(hit_at);
    let left = rest(&again).expect("it is told anew");
    let expected = lasts.saturating_sub(since);
    assert!(
        expected <= left.saturating_add(Span::from_secs(1)),
        "{left:?}, {expected:?}"
    );
    again.hit("search", "acme", 1);
    again.settle();
    assert_eq!(
        again.pair("search", "acme").state.unwrap().constraints[0].limit,
        4
    );
}

#[test]
fn a_recreated_topic_is_of_the_next_generation() {
    let mut world = World::shared(without_hits(), 2);
    world.step(Event::Assigned((0..PARTITIONS).collect()));
    world.run_for(Span::from_millis(100));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    let is_tick = |bytes: &[u8]| matches!(Record::decode(bytes), Ok(Record::Tick(_)));
    let hits = |world: &World, partition| {
        let records = &world.log.streams[&(Stream::Hits, partition)];
        records.iter().map(|one| one.bytes.to_vec()).collect()
    };
    let ticks: Vec<Vec<u8>> = (0..PARTITIONS)
        .map(|partition| {
            let records: Vec<Vec<u8>> = hits(&world, partition);
            let mut ticks = records.into_iter().filter(|bytes| is_tick(bytes));
            ticks.next_back().expect("a tick")
        })
        .collect();
    forget_hits(&mut world);
    for (partition, tick) in (0..).zip(&ticks) {
        world.put(Stream::Hits, partition, tick.clone());
    }
    world.run_for(Span::from_secs(3));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    for (partition, tick) in (0..).zip(&ticks) {
        let records: Vec<Vec<u8>> = hits(&world, partition);
        assert_eq!(records[0], *tick);
        let genesis = records
            .iter()
            .find_map(|bytes| match Record::decode(bytes) {
                Ok(Record::Genesis(log)) => Some(log),
                _ => None,
            });
        assert_eq!(genesis.map(|log| log.generation), Some(2));
        let found = world.digests().partitions;
        let found = found.iter().find(|one| one.partition == partition);
        let random = genesis.map(|log| format!("{:016x}", log.random));
        assert_eq!(found.map(|one| one.log_random.clone()), random);
    }
    assert_eq!(digests(&mut world), twin(&world.log));
}

#[test]
fn a_recreated_topic_of_the_same_length_is_noticed() {
    let limits = |limit: u32| LIMITS.replace("5/m", &format!("{limit}/m"));
    let mut log = World::new(&limits(1)).log;
    log.streams.retain(|(stream, _), _| *stream != Stream::Hits);
    let mut world = World::shared(log, 2);
    world.step(Event::Assigned((0..PARTITIONS).collect()));
    world.run_for(Span::from_millis(100));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    let all: Vec<String> = domains("search", 1).take(3_000).collect();
    for _ in 0..2 {
        for some in all.chunks(500) {
            let record = world.batch_of("search", some);
            world.put(Stream::Hits, 1, record);
        }
    }
    world.run_for(Span::from_secs(1));
    let before = world.announced();
    assert_eq!(before, all.len());
    // New limits are ruled slice by slice, and nothing is read meanwhile.
    world.read_limits_file(&limits(9));
    while world.announced() == before {
        assert!(!world.round(), "no denial was lifted");
    }
    assert!(world.announced() < before + all.len());
    let at = (Stream::Hits, 1);
    let length = world.log.streams[&at].len();
    world.log.streams.insert(at, Vec::new());
    for n in 0..=length {
        let record = world.batch_of("search", &all[n..n + 3]);
        world.put(Stream::Hits, 1, record);
    }
    world.run_for(Span::from_secs(1));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(3));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    assert_eq!(digests(&mut world), twin(&world.log));
}

#[test]
fn a_late_gap_wakes_no_partition_that_is_not_read() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    let assign = |world: &mut World| {
        world.step(Event::Assigned(vec![1]));
        world.run_for(Span::from_millis(100));
    };
    // From a following before the partition was revoked.
    let gap = LogEvent::Gap {
        stream: Stream::Hits,
        partition: 1,
        wanted: 5,
        next: 0,
    };
    assign(&mut world);
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    world.step(Event::Revoked(vec![1]));
    world.step(Event::Log(gap.clone()));
    world.run_for(Span::from_secs(1));
    assert_eq!(digests(&mut world), [], "another aggregator rules it");
    assign(&mut world);
    world.step(Event::Log(gap));
    world.run_for(Span::from_secs(1));
    let waits = ["partition 1: being restored"];
    assert_eq!(world.why_not_ready(), waits, "with a snapshot");
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    assert_eq!(world.counters().gaps, 0);
}

#[test]
fn recreated_limits_rule_no_partition() {
    let mut world = World::new(LIMITS);
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    world.log.streams.remove(&(Stream::Limits, 0));
    world.push(LIMITS);
    world.run_for(Span::from_secs(3));
    let why = world.why_not_ready();
    assert!(why[0].contains("recreated, and version 1"), "{why:?}");
    let versions: Vec<u64> = world
        .digests()
        .partitions
        .iter()
        .map(|of| of.version)
        .collect();
    assert_eq!(versions, vec![1; PARTITIONS as usize]);
}

#[test]
fn appends_that_went_by_age_are_not_awaited() {
    let mut world = World::new(LIMITS);
    world.run_for(Span::from_secs(1));
    // The log takes a tick of each partition and an activation of new limits, and removes them before it delivers them.
    world.held = vec![Stream::Hits];
    let ruled = digests(&mut world);
    world.push(&LIMITS.replace("5/m", "6/m"));
    for (partition, wanted, _) in ruled {
        let next = world.log.kinds(partition).len() as u64;
        assert!(wanted + 1 < next, "{partition}: {wanted} of {next}");
        world.step(Event::Log(LogEvent::Gap {
            stream: Stream::Hits,
            partition,
            wanted,
            next,
        }));
    }
    let ticks = world.log.count(kind::TICK);
    world.held.clear();
    world.run_for(Span::from_secs(2));
    assert!(ticks + 4 * PARTITIONS as usize <= world.log.count(kind::TICK));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    let versions = world.digests().partitions;
    let under: Vec<u64> = versions.iter().map(|of| of.version).collect();
    let newest = world.log.streams[&(Stream::Limits, 0)].len() as u64 - 1;
    assert_eq!(under, vec![newest; PARTITIONS as usize]);
}

#[test]
fn a_core_overtaken_by_retention_restores_a_newer_snapshot() {
    let mut world = World::new(LIMITS);
    let hit = |world: &mut World, records: u64| {
        for n in 0..records {
            world.hit("search", &format!("d{}", n % 30), 1);
            world.run_for(Span::from_millis(50));
        }
    };
    hit(&mut world, 100);
    let mut slow = World::shared(world.log.clone(), 2);
    slow.fate = Box::new(|_, _| Fate::Refused);
    slow.step(Event::Assigned((0..PARTITIONS).collect()));
    slow.settle();
    restore(&mut slow, &State::new());
    slow.settle();
    let ruled = digests(&mut slow);
    world.snapshots.clear();
    hit(&mut world, 1_200);
    let state = std::mem::take(&mut world.snapshots);
    slow.log = world.log.clone();
    slow.held = vec![Stream::Hits];
    let mut overtaken = 0;
    for (partition, wanted, _) in ruled {
        let of_it = state.iter().filter(|(of, ..)| *of == partition);
        let Some(upto) = of_it.map(|(_, upto, _)| *upto).max() else {
            continue;
        };
        assert!(wanted < upto);
        slow.step(Event::Log(LogEvent::Gap {
            stream: Stream::Hits,
            partition,
            wanted,
            next: upto + 1,
        }));
        overtaken += 1;
    }
    assert!(0 < overtaken);
    assert_eq!(slow.restores.len(), overtaken);
    restore(&mut slow, &state);
    slow.held.clear();
    slow.settle();
    assert_eq!(digests(&mut slow), twin(&slow.log));
}
