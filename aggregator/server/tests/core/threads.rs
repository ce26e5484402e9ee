//! Partitions are ruled on several threads, and no ruling depends on their number.

use std::num::NonZeroUsize;

use tollgate_log::{Chunks, Delivered, Stream};
use tollgate_shared::time::Span;

use crate::LIMITS;
use crate::world::{Fate, MemoryLog, PARTITIONS, Random, World};

/// The results of a core: the log with all that it appended, its frames, snapshots and states.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    log: Vec<((Stream, u32), Vec<Delivered>)>,
    frames: String,
    snapshots: Vec<(u32, u64, Chunks)>,
    states: Vec<(u64, String)>,
}

fn states(world: &mut World) -> Vec<(u64, String)> {
    let partitions = world.digests().partitions.into_iter();
    partitions.map(|of| (of.offset, of.digest)).collect()
}

fn some_hits(world: &mut World, random: &mut Random, count: usize) {
    for _ in 0..count {
        let resource = ["search", "wide"][random.below(2) as usize];
        let domain = format!("d{}", random.below(30));
        world.hit(resource, &domain, 1 + random.below(3) as usize);
        if random.below(6) == 0 {
            world.run_for(Span::from_millis(random.below(300)));
        }
    }
}

/// A log with hits in every partition, denials, totals, and two versions of the limits.
fn a_log() -> MemoryLog {
    let mut world = World::new(LIMITS);
    let mut random = Random(11);
    some_hits(&mut world, &mut random, 400);
    world.push(&LIMITS.replace("5/m", "4/m"));
    some_hits(&mut world, &mut random, 200);
    world.run_for(Span::from_secs(2));
    assert!(30 < world.counters().denials);
    assert!((0..PARTITIONS).all(|of| 50 < world.log.kinds(of).len()));
    world.log
}

fn threads(count: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(count)
}

/// The results of a core that reads the log, rules on for a minute, and takes snapshots.
fn come(log: &MemoryLog, count: usize) -> Came {
    let mut world = World::on(log.clone(), 2);
    world.rule_on(threads(count));
    world.settle();
    let mut random = Random(12);
    for _ in 0..6 {
        some_hits(&mut world, &mut random, 60);
        world.run_for(Span::from_secs(10));
    }
    assert!(PARTITIONS as usize <= world.snapshots.len());
    Came {
        states: states(&mut world),
        log: world.log.streams.into_iter().collect(),
        frames: format!("{:?}", world.frames),
        snapshots: world.snapshots,
    }
}

#[test]
fn rulings_snapshots_and_frames_do_not_depend_on_the_threads() {
    let log = a_log();
    let one = come(&log, 1);
    for count in [2, 4] {
        assert!(come(&log, count) == one, "{count} threads");
    }
}

#[test]
fn partitions_ruled_at_once_end_as_those_ruled_in_turn() {
    let log = a_log();
    let read = |count: Option<NonZeroUsize>| {
        let mut world = World::on(log.clone(), 3);
        world.rule_on(count);
        world.fate = Box::new(|_, _| Fate::Refused);
        world.settle();
        let denials = world.counters().denials;
        (states(&mut world), denials)
    };
    let in_turn = read(None);
    for count in [1, 2, 4] {
        assert_eq!(read(threads(count)), in_turn, "{count} threads");
    }
}

#[test]
fn a_restart_restores_snapshots_on_any_number_of_threads() {
    let log = a_log();
    let mut before = World::on(log, 4);
    before.settle();
    some_hits(&mut before, &mut Random(13), 100);
    before.run_for(Span::from_secs(70));
    let expected = states(&mut before);
    let restart = |count: usize| {
        let snapshots = before.newest_snapshots();
        let mut world = World::restored_on(threads(count), before.log.clone(), 5, snapshots);
        world.fate = Box::new(|_, _| Fate::Refused);
        world.settle();
        states(&mut world)
    };
    for count in [1, 2, 4] {
        assert_eq!(restart(count), expected, "{count} threads");
    }
}
