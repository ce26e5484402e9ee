//! Partitions that come and go: restored beside the loop, caught up, ruled, and revoked without a trace.

use std::collections::BTreeMap;

use tollgate_engine::engine::SnapshotFault;
use tollgate_log::Chunks;
use tollgate_log::{Delivered, LogEvent, Stream};
use tollgate_server::core::assignment::Restored;
use tollgate_server::core::event::Event;
use tollgate_server::core::ruler::Ruler;
use tollgate_shared::time::Span;

use crate::LIMITS;
use crate::world::{Fate, MemoryLog, PARTITIONS, Random, World};

/// Snapshots as in the topic `state`, in the order in which they were written.
pub(crate) type State = Vec<(u32, u64, Chunks)>;

/// Answers requests to restore with the newest snapshot of each partition, as the fleet's reader does.
pub(crate) fn restore(world: &mut World, state: &State) {
    while let Some((partition, attempt, known)) = world.restores.pop() {
        let newest = state
            .iter()
            .filter(|(of, upto, _)| {
                *of == partition && known.before.is_none_or(|before| *upto < before)
            })
            .max_by_key(|(_, upto, _)| *upto);
        let restored = match newest {
            None => Restored::Nothing,
            Some((.., chunks)) => {
                match Ruler::restore(partition, PARTITIONS, chunks, &known.book) {
                    Ok(ruler) => Restored::Snapshot(Box::new(ruler)),
                    Err(SnapshotFault::MissingVersion { version }) => {
                        assert!(known.limits_next <= version);
                        Restored::NeedsLimits(version)
                    }
                    Err(fault) => panic!("{fault}"),
                }
            }
        };
        world.step(Event::Restored {
            partition,
            attempt,
            restored,
        });
    }
}

/// By partition: how far it was ruled, and its digest.
pub(crate) fn digests(world: &mut World) -> Vec<(u32, u64, String)> {
    let view = world.digests();
    let of = |p: tollgate_api::state::DigestView| (p.partition, p.offset, p.digest);
    view.partitions.into_iter().map(of).collect()
}

/// The digests of an aggregator that rules the whole log from its beginning, and adds nothing to it.
pub(crate) fn twin(log: &MemoryLog) -> Vec<(u32, u64, String)> {
    let mut twin = World::on(log.clone(), 9);
    twin.fate = Box::new(|_, _| Fate::Refused);
    twin.settle();
    digests(&mut twin)
}

/// The digest of a partition at an offset.
type Seen = BTreeMap<(u32, u64), String>;

/// Records the states that a core shows; earlier ones of the same offsets must be the same.
fn look(world: &mut World, seen: &mut Seen) {
    for of in world.digests().partitions {
        if of.stage == "restoring" || of.offset == 0 {
            continue;
        }
        let known = seen.entry((of.partition, of.offset));
        let known = known.or_insert_with(|| of.digest.clone());
        assert_eq!(*known, of.digest, "{} at {}", of.partition, of.offset);
    }
}

/// The states of an aggregator that rules the whole log record by record.
fn all_states(log: &MemoryLog) -> Seen {
    let mut twin = World::on(log.clone(), 9);
    twin.fate = Box::new(|_, _| Fate::Refused);
    twin.held = vec![Stream::Hits];
    twin.settle();
    let mut all = Seen::new();
    let stream = Stream::Hits;
    for partition in 0..PARTITIONS {
        let from = 0;
        twin.step(Event::Log(LogEvent::Following {
            stream,
            partition,
            from,
        }));
        for record in &log.streams[&(stream, partition)] {
            let records = vec![record.clone()];
            twin.step(Event::Log(LogEvent::Delivered {
                stream,
                partition,
                records,
            }));
            look(&mut twin, &mut all);
        }
    }
    all
}

#[test]
fn a_core_of_a_fleet_rules_only_its_assigned_partitions() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    world.run_for(Span::from_secs(1));
    assert_eq!(
        world.why_not_ready(),
        ["partitions have not been assigned yet"]
    );
    let before = world.log.streams.clone();
    world.step(Event::Assigned(vec![1, 3]));
    world.run_for(Span::from_secs(1));
    assert_eq!(
        world.why_not_ready(),
        ["partition 1: being restored", "partition 3: being restored"]
    );
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    assert!(world.why_not_ready().is_empty());
    let ours: Vec<u32> = digests(&mut world).iter().map(|(p, ..)| *p).collect();
    assert_eq!(ours, [1, 3]);
    for ((stream, partition), records) in &world.log.streams {
        let grew = before[&(*stream, *partition)].len() < records.len();
        let ruled = *stream == Stream::Hits && [1, 3].contains(partition);
        assert_eq!(grew, ruled, "{stream:?} {partition}");
    }
    assert_eq!(digests(&mut world), {
        let all = twin(&world.log);
        [all[1].clone(), all[3].clone()]
    });
}

#[test]
fn any_order_of_ruling_aggregators_ends_in_the_same_state() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut restored = 0;
        let mut world = World::new(LIMITS);
        let (mut state, mut log) = (State::new(), world.log.clone());
        let mut seen = Seen::new();
        for round in 0..8 {
            // A new aggregator, at another moment, with snapshots of its predecessors.
            let clock = world
                .clock
                .saturating_add(Span::from_millis(random.below(3_000)));
            world = World::shared(log.clone(), 100 + round);
            world.clock = clock;
            let mut fates = Random(seed * 100 + round);
            world.fate = Box::new(move |_, _| match fates.below(9) {
                0 => Fate::Refused,
                1 => Fate::Denied,
                _ => Fate::Taken,
            });
            for _ in 0..40 {
                let partition = random.below(u64::from(PARTITIONS)) as u32;
                match random.below(4) {
                    0 => world.step(Event::Revoked(vec![partition])),
                    _ => world.step(Event::Assigned(vec![partition])),
                }
                if random.below(3) != 0 {
                    restore(&mut world, &state);
                    look(&mut world, &mut seen);
                }
                for _ in 0..random.below(40) {
                    let resource = ["search", "wide"][random.below(2) as usize];
                    world.hit(resource, &format!("d{}", random.below(9)), 1);
                }
                if random.below(2) == 0 {
                    world.run_for(Span::from_millis(random.below(1_500)));
                }
                look(&mut world, &mut seen);
                state.append(&mut world.snapshots);
            }
            restored += world.counters().restored;
            log = world.log.clone();
        }
        world.fate = Box::new(|_, _| Fate::Taken);
        world.step(Event::Assigned((0..PARTITIONS).collect()));
        world.run_for(Span::from_millis(100));
        restore(&mut world, &state);
        world.run_for(Span::from_secs(2));
        assert_eq!(world.why_not_ready(), Vec::<String>::new(), "seed {seed}");
        assert!(9 < restored, "seed {seed}: {restored}");
        assert_eq!(digests(&mut world), twin(&world.log), "seed {seed}");
        let all = all_states(&world.log);
        assert!(99 < seen.len(), "seed {seed}: {}", seen.len());
        for (at, digest) in seen {
            assert_eq!(all.get(&at), Some(&digest), "seed {seed}: at {at:?}");
        }
    }
}

#[test]
fn after_an_outage_a_core_waits_for_its_next_assignment() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    let assigned = |world: &mut World, partitions: Vec<u32>| {
        world.step(Event::Assigned(partitions));
        world.run_for(Span::from_secs(1));
        restore(world, &State::new());
        world.run_for(Span::from_secs(1));
    };
    assigned(&mut world, (0..PARTITIONS).collect());
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    // Partitions that go one at a time leave it ready.
    world.step(Event::Revoked(vec![0]));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    // The group's session is lost with the log, before or after the log is back.
    let down = || Event::Log(LogEvent::Down { why: "gone".into() });
    world.step(down());
    world.step(Event::Revoked((1..PARTITIONS).collect()));
    world.step(Event::Log(LogEvent::Up));
    let waits = ["partitions have not been assigned yet"];
    assert_eq!(world.why_not_ready(), waits);
    assigned(&mut world, vec![0, 1]);
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    world.step(down());
    world.step(Event::Log(LogEvent::Up));
    world.step(Event::Revoked(vec![0, 1]));
    assert_eq!(world.why_not_ready(), waits);
    // The group may have none for it.
    world.step(Event::Assigned(Vec::new()));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
}

#[test]
fn an_unexpected_partition_is_named_until_it_is_gone() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    world.step(Event::Assigned((0..=PARTITIONS).collect()));
    world.run_for(Span::from_secs(1));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    let why = world.why_not_ready();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].contains(&format!("at least {} partitions", PARTITIONS + 1)));
    world.step(Event::Revoked(vec![PARTITIONS]));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
}

/// Lets partition 0 be read without a snapshot from a log that begins at offset 7.
fn truncate_log(world: &mut World) {
    world.held = vec![Stream::Hits];
    world.step(Event::Assigned(vec![0]));
    world.settle();
    restore(world, &State::new());
    begins_at_7(world);
}

fn assert_waits(world: &mut World, what: &str) {
    let why = world.why_not_ready();
    let what = format!("partition 0: {what}");
    assert!(why.iter().any(|why| why.starts_with(&what)), "{why:?}");
}

fn begins_at_7(world: &mut World) {
    let (stream, partition) = (Stream::Hits, 0);
    world.step(Event::Log(LogEvent::Following {
        stream,
        partition,
        from: 0,
    }));
    world.step(Event::Log(LogEvent::Gap {
        stream,
        partition,
        wanted: 0,
        next: 7,
    }));
}

#[test]
fn a_truncated_log_waits_for_another_groups_snapshot() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    world.step(Event::RuledToo([0, 2].into()));
    truncate_log(&mut world);
    assert_waits(&mut world, "the log begins at offset 7");
    assert_eq!(world.counters().gaps, 0);
    // It looks for snapshots again and again, and rules nothing meanwhile.
    world.run_for(Span::from_secs(4));
    assert!(world.restores.is_empty());
    world.run_for(Span::from_secs(2));
    assert_eq!(world.restores.len(), 1);
    restore(&mut world, &State::new());
    begins_at_7(&mut world);
    assert_waits(&mut world, "the log begins at offset 7");
    // The other group is gone: the remaining records have to do, and that is logged.
    world.step(Event::RuledToo([2].into()));
    world.run_for(Span::from_secs(6));
    restore(&mut world, &State::new());
    begins_at_7(&mut world);
    // A snapshot may have come meanwhile.
    assert_waits(&mut world, "being restored");
    restore(&mut world, &State::new());
    begins_at_7(&mut world);
    assert_waits(&mut world, "catching up, at offset 7");
    assert_eq!(world.counters().gaps, 1);
}

#[test]
fn the_wait_for_another_groups_snapshot_ends() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    world.step(Event::RuledToo([0].into()));
    truncate_log(&mut world);
    let mut looks = 0;
    loop {
        world.run_for(Span::from_secs(6));
        if world.restores.is_empty() {
            break;
        }
        restore(&mut world, &State::new());
        begins_at_7(&mut world);
        looks += 1;
        assert!(looks < 12, "a minute has ten times six seconds");
    }
    assert!(8 < looks, "{looks}");
    assert_waits(&mut world, "catching up, at offset 7");
    assert_eq!(world.counters().gaps, 1);
}

#[test]
fn a_single_group_rules_a_truncated_log_from_a_gap() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    truncate_log(&mut world);
    // A snapshot may have come meanwhile.
    assert_waits(&mut world, "being restored");
    restore(&mut world, &State::new());
    begins_at_7(&mut world);
    assert_waits(&mut world, "catching up, at offset 7");
    assert_eq!(world.counters().gaps, 1);
}

#[test]
fn an_old_answer_does_not_restore_a_revoked_partition() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    world.step(Event::Assigned((0..PARTITIONS).collect()));
    world.run_for(Span::from_secs(1));
    let (partition, attempt, _) = world.restores[0].clone();
    world.step(Event::Revoked(vec![partition]));
    world.step(Event::Restored {
        partition,
        attempt,
        restored: Restored::Nothing,
    });
    world.step(Event::Assigned(vec![partition]));
    assert!(
        world
            .why_not_ready()
            .contains(&format!("partition {partition}: being restored")),
        "the answer was to another question"
    );
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    for _ in 0..9 {
        world.hit("search", "acme", 1);
    }
    world.run_for(Span::from_secs(1));
    let denied = world.pair("search", "acme");
    assert!(denied.denial.is_some());

    world.step(Event::Revoked(vec![denied.partition]));
    assert!(world.pair("search", "acme").denial.is_none());
    world.frames.clear();
    // Records that were on their way when it was revoked are ignored.
    let records = vec![Delivered {
        offset: 1_000,
        ..world.log.streams[&(Stream::Hits, denied.partition)][1].clone()
    }];
    world.step(Event::Log(LogEvent::Delivered {
        stream: Stream::Hits,
        partition: denied.partition,
        records,
    }));
    world.run_for(Span::from_secs(1));
    assert!(!world.frames.is_empty());
    for frame in &world.frames {
        let of_it = |e: &tollgate_shared::wire::frame::Watermark| e.partition == denied.partition;
        assert!(!frame.watermarks.iter().any(of_it), "{frame:?}");
        assert!(frame.statements.is_empty(), "{frame:?}");
    }
}

#[test]
fn a_snapshot_waits_for_the_limits_that_it_needs() {
    let mut world = World::new(LIMITS);
    let older = world.log.streams[&(Stream::Limits, 0)].clone();
    world.push(&LIMITS.replace("5/m", "6/m"));
    for n in 0..400 {
        world.hit("search", &format!("d{}", n % 20), 1);
    }
    world.run_for(Span::from_secs(40));
    let state = std::mem::take(&mut world.snapshots);
    assert!(!state.is_empty());
    let log = world.log.clone();

    let mut behind = log.clone();
    behind.streams.insert((Stream::Limits, 0), older);
    let mut world = World::shared(behind, 2);
    world.run_for(Span::from_millis(50));
    let partition = state[0].0;
    world.step(Event::Assigned(vec![partition]));
    restore(&mut world, &state);
    assert_eq!(
        world.why_not_ready(),
        [format!("partition {partition}: being restored")]
    );
    world.log = log;
    world.run_for(Span::from_millis(100));
    restore(&mut world, &state);
    world.run_for(Span::from_secs(1));
    assert!(world.why_not_ready().is_empty());
    assert_eq!(world.counters().restored, 1);
}

#[test]
fn totals_reach_a_target_that_another_rules() {
    let mut world = World::shared(World::new(LIMITS).log, 2);
    let target = tollgate_shared::names::partition_of_resource("wide", PARTITIONS);
    let sources = (0..PARTITIONS).filter(|p| *p != target).collect();
    world.step(Event::Assigned(sources));
    world.run_for(Span::from_millis(100));
    restore(&mut world, &State::new());
    world.run_for(Span::from_secs(1));
    for n in 0..40 {
        world.hit("wide", &format!("d{n}"), 1);
    }
    world.run_for(Span::from_secs(1));
    let sent = world.totals().len();
    assert!(20 < sent, "{sent}");
    assert!(
        world
            .totals()
            .iter()
            .all(|(_, source, ..)| *source != target),
        "who does not rule a partition totals nothing of it"
    );
}

#[test]
fn a_snapshot_of_another_log_is_rejected_for_an_older_one() {
    let mut world = World::new(LIMITS);
    let hit = |world: &mut World, records: u64| {
        for n in 0..records {
            world.hit("search", &format!("d{}", n % 30), 1);
            world.run_for(Span::from_millis(50));
        }
    };
    hit(&mut world, 1_200);
    let old = world.log.clone();
    let mut state = std::mem::take(&mut world.snapshots);
    hit(&mut world, 1_200);
    let lost = std::mem::take(&mut world.snapshots);
    assert!(PARTITIONS as usize <= lost.len().min(state.len()));
    // The log is restored from a backup, and then grows differently, beyond the records that were lost.
    let mut world = World::shared(old, 2);
    world.step(Event::Assigned((0..PARTITIONS).collect()));
    world.run_for(Span::from_millis(100));
    restore(&mut world, &state);
    world.run_for(Span::from_secs(1));
    hit(&mut world, 1_300);
    let log = world.log.clone();
    let newest = lost.iter().max_by_key(|(_, upto, _)| *upto).unwrap();
    assert!(newest.1 < log.kinds(newest.0).len() as u64);
    state.extend(lost.clone());
    let mut again = World::shared(log, 3);
    again.fate = Box::new(|_, _| Fate::Refused);
    again.step(Event::Assigned((0..PARTITIONS).collect()));
    for _ in 0..=lost.len() {
        again.settle();
        restore(&mut again, &state);
    }
    again.settle();
    assert_eq!(again.dropped.len(), lost.len());
    assert!(again.restores.is_empty());
    // No snapshot of this log was rejected with them: less is read than from the beginning.
    let records = again.log.streams.iter();
    let hits = records.filter(|((stream, _), _)| *stream == Stream::Hits);
    let all: usize = hits.map(|(_, records)| records.len()).sum();
    assert!(again.counters().records < all as u64 * 2 / 3);
    assert_eq!(digests(&mut again), twin(&again.log));
}
