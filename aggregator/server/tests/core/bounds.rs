//! Records that wait for the log are bounded, and at the bound nothing is lost: the partition waits.

use std::collections::BTreeSet;

use tollgate_log::Stream;
use tollgate_server::core::recordings::WAITING_MAX;
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::time::Span;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::kind;

use crate::world::{Fate, MemoryLog, PARTITIONS, World};
use crate::{LIMITS, WIDE};

/// Domains whose pairs with a resource belong to one partition.
pub fn domains(resource: &str, partition: u32) -> impl Iterator<Item = String> {
    (0..)
        .map(|n| format!("d{n}"))
        .filter(move |domain| partition_of_pair(resource, domain, PARTITIONS) == partition)
}

/// The number of a partition's statements whose decision records the log has.
fn recorded(log: &MemoryLog, partition: u32) -> usize {
    let records = log.streams[&(Stream::Denials, partition)].iter();
    let statements = records.filter(|record| record.bytes[1] != kind::GENESIS);
    let scopes: BTreeSet<_> = statements
        .map(|record| Announced::decode(&record.bytes).unwrap().statement.scope)
        .collect();
    scopes.len()
}

#[test]
fn recovery_writes_all_decision_records_and_snapshots() {
    const STATED: usize = 100_000;
    let limits = "version = 1\nrules = 2\n[rate.once]\ntiers = [{ limit = 1, window = \"1h\", active = \"1h\" }]\n";
    let mut world = World::new(limits);
    let all: Vec<String> = domains("once", 1).take(STATED).collect();
    for some in all.chunks(500) {
        let record = world.batch_of("once", some);
        world.put(Stream::Hits, 1, record);
    }
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.fate = Box::new(|stream, _| match stream {
        Stream::Denials => Fate::Refused,
        _ => Fate::Taken,
    });
    again.run_for(Span::from_secs(1));
    let why = again.why_not_ready();
    assert!(why[0].contains("decision records and totals"), "{why:?}");
    let waiting = again.gauges().denials_waiting as usize;
    // At most the bound and what one record caused.
    assert!(
        (WAITING_MAX..WAITING_MAX + 500).contains(&waiting),
        "{waiting}"
    );
    again.fate = Box::new(|_, _| Fate::Taken);
    // Statements in force are published in steps that a subscriber can follow.
    let mut steps = Vec::new();
    for _ in 0..100 {
        let before = again.announced();
        again.run_for(Span::from_millis(50));
        steps.push(again.announced() - before);
    }
    assert_eq!(steps.iter().sum::<usize>(), STATED);
    assert!(steps.iter().all(|step| *step <= 10_000), "{steps:?}");
    let mut announced = 0;
    for frame in again
        .frames
        .iter()
        .filter(|frame| &*frame.resource == "once")
    {
        announced += frame.statements.len();
        // A watermark must not run ahead of statements that were not published yet.
        let of_all = frame.watermarks.iter().any(|one| one.partition == 1);
        assert!(announced == STATED || !of_all, "after {announced}");
    }
    assert_eq!(again.why_not_ready(), Vec::<String>::new());
    assert_eq!(recorded(&again.log, 1), STATED);
    assert_eq!(again.counters().held_back, 1);
    assert_eq!(again.gauges().denials_waiting, 0);
    let upto = again.snapshots.iter().filter(|(of, ..)| *of == 1);
    let last = again.log.streams[&(Stream::Hits, 1)].len() as u64;
    assert!(upto.map(|(_, upto, _)| *upto).max().unwrap() + 1_000 > last);
}

/// A record with the tag of an aggregator.
fn tagged(partition: u32, record: &[u8]) -> Vec<u8> {
    let tag = MacKey::UNPROTECTED.tag(partition, record);
    [record, &tag].concat()
}

/// The partition to which the totals of `wide` go, and a source partition.
fn target_and_source() -> (u32, u32) {
    let target = partition_of_resource("wide", PARTITIONS);
    (target, (target + 1) % PARTITIONS)
}

#[test]
fn totals_for_a_stopped_partition_wait_in_the_log() {
    let (target, source) = target_and_source();
    let mut world = World::new(LIMITS);
    // A kind that is unknown and may not be skipped.
    let stop = world.put(Stream::Hits, target, tagged(target, &[1, 127]));
    world.settle();
    assert!(world.why_not_ready()[0].contains("stopped"));
    for domain in domains("wide", source).take(300) {
        world.hit("wide", &domain, 1);
    }
    world.settle();
    assert_eq!(world.gauges().totals_waiting, 0);
    assert!(world.snapshots.iter().any(|(of, ..)| *of == source));
    // A build that knows the kind continues from there.
    let records = world.log.streams.get_mut(&(Stream::Hits, target)).unwrap();
    let before = records[stop as usize - 1].bytes.clone();
    records[stop as usize].bytes = before;
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.run_for(Span::from_millis(500));
    let everybody = again.pair("wide", "*").state.unwrap();
    // Beyond the limit, as much again counts, as excess.
    let granted = everybody.last_second.min(WIDE);
    assert_eq!(granted + again.counters().global_excess, 300);
    assert_eq!(again.totals().len(), 300);
}

#[test]
fn a_source_waits_at_the_bound_for_the_log_to_have_its_totals() {
    const HITS: usize = 70_000;
    let (target, source) = target_and_source();
    let mut world = World::new(LIMITS);
    let all: Vec<String> = domains("wide", source).take(100).collect();
    for n in 0..HITS {
        let record = world.batch_of("wide", &all[n % 100..=n % 100]);
        world.put(Stream::Hits, source, record);
    }
    world.fate = Box::new(|_, record| match record[1] {
        kind::TOTALS => Fate::Refused,
        _ => Fate::Taken,
    });
    world.settle();
    let why = world.why_not_ready();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(
        why[0].starts_with(&format!("partition {source}: waits until")),
        "{why:?}"
    );
    let waiting = world.gauges().totals_waiting as usize;
    // At most the bound and one delivery.
    assert!(
        (WAITING_MAX..WAITING_MAX + 10).contains(&waiting),
        "{waiting}"
    );
    world.fate = Box::new(|_, _| Fate::Taken);
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    let totals = world.totals();
    assert_eq!(totals.len(), HITS);
    let everybody = world.pair("wide", "*").state.unwrap();
    let held = everybody.last_second + world.counters().global_excess;
    assert!(0 < held, "partition {target} has counted them");
    assert_eq!(world.counters().totals_out_of_order, 0);
}
