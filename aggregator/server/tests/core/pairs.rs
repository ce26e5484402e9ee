//! Several ruling aggregators of each partition: they come to the same states, and notice if they do not.

use std::collections::BTreeMap;

use tollgate_engine::engine::DIGEST_FORM;
use tollgate_limits::RULES;
use tollgate_log::{Chunks, LogEvent, Stream};
use tollgate_server::core::event::Event;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{Record, RecordPen, kind};
use tollgate_shared::wire::state_digest::StateDigest;

use crate::LIMITS;
use crate::world::{Fate, MemoryLog, PARTITIONS, World};

/// The state digests in a partition: the offset that each is about, the digest, the group.
fn digests_of(log: &MemoryLog, partition: u32) -> Vec<(u64, u128, String)> {
    let records = &log.streams[&(Stream::Hits, partition)];
    let of = |bytes: &[u8]| match Record::decode(bytes) {
        Ok(Record::StateDigest(digests)) => {
            Some((digests.offset, digests.digest, digests.group.to_owned()))
        }
        _ => None,
    };
    records
        .iter()
        .filter_map(|record| of(&record.bytes))
        .collect()
}

/// Half a minute of hits on many domains.
fn busy(world: &mut World) {
    for n in 0..320 {
        world.hit("search", &format!("d{}", n % 30), 1);
        world.hit("wide", &format!("d{}", n % 7), 1);
        world.run_for(Span::from_millis(100));
    }
}

fn first_of_group_a() -> World {
    let mut world = World::in_group(MemoryLog::default(), 1, "a");
    world.push(LIMITS);
    busy(&mut world);
    world
}

#[test]
fn two_groups_reach_and_record_equal_states() {
    let mut first = first_of_group_a();
    for partition in 0..PARTITIONS {
        let digests = digests_of(&first.log, partition);
        assert!((3..=4).contains(&digests.len()), "{digests:?}");
        let before_and_at = |offset: u64| {
            let record = &first.log.streams[&(Stream::Hits, partition)][offset as usize];
            (record.bytes[1], record.appended.as_millis() / 10_000)
        };
        let tens: Vec<u64> = digests
            .iter()
            .map(|(at, ..)| before_and_at(*at).1)
            .collect();
        assert!(tens.is_sorted_by(|a, b| a < b), "one in each 10 s");
        assert!(
            digests
                .iter()
                .all(|(at, ..)| before_and_at(*at).0 == kind::TICK)
        );
    }
    let said_by_first = first.log.count(kind::STATE_DIGEST) as u64;
    assert_eq!(first.counters().states_compared, 0, "nobody else is there");

    let mut second = World::in_group(first.log.clone(), 2, "b");
    second.clock = first.clock;
    busy(&mut second);
    let counters = second.counters();
    assert_eq!(counters.states_compared, said_by_first);
    assert_eq!(counters.states_differing, 0);
    let groups = |partition| -> Vec<String> {
        let digests = digests_of(&second.log, partition);
        digests.into_iter().map(|(.., group)| group).collect()
    };
    assert!((0..PARTITIONS).all(|partition| groups(partition).contains(&"b".to_owned())));

    // An aggregator that comes after both compares with both.
    let all = second.log.count(kind::STATE_DIGEST) as u64;
    let mut third = World::in_group(second.log.clone(), 3, "a");
    third.settle();
    let counters = third.counters();
    assert_eq!(
        (counters.states_compared, counters.states_differing),
        (all, 0)
    );
}

#[test]
fn a_log_without_groups_has_no_state_digests() {
    let mut world = World::new(LIMITS);
    busy(&mut world);
    assert_eq!(world.log.count(kind::STATE_DIGEST), 0);
}

#[test]
fn only_comparable_state_digests_count_as_different() {
    let first = first_of_group_a();
    let (at, digest, _) = digests_of(&first.log, 0).pop().expect("one");
    let truth = StateDigest {
        offset: at,
        rules: RULES,
        form: DIGEST_FORM,
        digest,
        group: "b",
        aggregator: "other",
        instance: 77,
    };
    let of = |state_digest: &StateDigest<'_>, key: &MacKey| {
        let mut second = World::in_group(first.log.clone(), 2, "c");
        second.settle();
        let before = second.counters();
        let record = RecordPen::new(key, 0).state_digest(state_digest);
        second.put(Stream::Hits, 0, record);
        second.settle();
        let after = second.counters();
        (
            after.states_compared - before.states_compared,
            after.states_differing - before.states_differing,
        )
    };
    let ours = MacKey::UNPROTECTED;
    let lie = StateDigest {
        digest: digest ^ 1,
        ..truth
    };
    assert_eq!(of(&truth, &ours), (1, 0));
    assert_eq!(of(&lie, &ours), (1, 1));
    assert_eq!(of(&lie, &MacKey::derive(b"forger")), (0, 0));
    assert_eq!(
        of(
            &StateDigest {
                rules: RULES + 1,
                ..lie
            },
            &ours
        ),
        (0, 0)
    );
    let form = DIGEST_FORM + 1;
    assert_eq!(of(&StateDigest { form, ..lie }, &ours), (0, 0));
    let offset = at + 1;
    assert_eq!(of(&StateDigest { offset, ..lie }, &ours), (0, 0));
}

/// The newest snapshot of each partition that was taken before an offset.
fn snapshots_before(at: u64, world: &World) -> BTreeMap<u32, Vec<Chunks>> {
    let before = { world.snapshots.iter() }.filter(|(_, upto, _)| *upto < at);
    let of_each = before.map(|(partition, _, chunks)| (*partition, vec![chunks.clone()]));
    of_each.collect()
}

#[test]
fn a_restored_state_with_another_digest_is_given_up() {
    let first = first_of_group_a();
    let (at, digest, _) = digests_of(&first.log, 0).pop().expect("one");
    let lie = StateDigest {
        offset: at,
        rules: RULES,
        form: DIGEST_FORM,
        digest: digest ^ 1,
        group: "b",
        aggregator: "other",
        instance: 77,
    };
    let mut log = World::in_group(first.log.clone(), 2, "c");
    log.clock = first.clock;
    log.put(
        Stream::Hits,
        0,
        RecordPen::new(&MacKey::UNPROTECTED, 0).state_digest(&lie),
    );
    let snapshots = snapshots_before(at, &first);
    assert!(
        snapshots.contains_key(&0) && snapshots.contains_key(&1),
        "taken before {at}"
    );
    let all = |log: &MemoryLog, partition| log.streams[&(Stream::Hits, partition)].len() as u64;
    let restore = |log: &MemoryLog| {
        let mut world = World::restored_in_group(log.clone(), 3, "a", snapshots.clone());
        world.clock = first.clock;
        world.settle();
        world
    };
    let trusted = restore(&first.log).counters().records;
    let mut doubting = restore(&log.log);
    let counters = doubting.counters();
    assert_eq!(
        counters.states_differing, 2,
        "by the snapshot, and from the beginning"
    );
    assert!(
        trusted + all(&first.log, 0) / 2 < counters.records,
        "it was ruled again: {counters:?}"
    );
    let digest_of = |world: &mut World| {
        let partitions = world.digests().partitions.into_iter();
        let of_each = partitions.map(|of| (of.offset, of.digest));
        of_each.collect::<Vec<_>>()
    };
    // An aggregator that rules the whole log from its beginning, and adds nothing to it.
    let mut twin = World::on(doubting.log.clone(), 4);
    twin.fate = Box::new(|_, _| Fate::Refused);
    twin.settle();
    assert_eq!(digest_of(&mut doubting), digest_of(&mut twin));

    let saved = |world: &World, partition| {
        let of = world.snapshots.iter().filter(|(of, ..)| *of == partition);
        of.count()
    };
    for _ in 0..4 {
        busy(&mut doubting);
    }
    assert_eq!(saved(&doubting, 0), 0, "two minutes are not five");
    assert!(0 < saved(&doubting, 1));
    for _ in 0..8 {
        busy(&mut doubting);
    }
    assert!(0 < saved(&doubting, 0), "nobody has said otherwise since");
}

/// An aggregator of group `a`, number 3, that found a gap in partition 0 before the digest at `at`.
fn behind_a_gap(
    log: &MemoryLog,
    clock: Span,
    snapshots: BTreeMap<u32, Vec<Chunks>>,
    at: u64,
) -> World {
    let mut world = World::restored_in_group(log.clone(), 3, "a", snapshots);
    world.clock = clock;
    world.fate = Box::new(|_, _| Fate::Refused);
    world.held = vec![Stream::Hits];
    world.settle();
    let (stream, partition) = (Stream::Hits, 0);
    let partitions = world.digests().partitions;
    let wanted = partitions[0].offset;
    let next = at - 1;
    assert!(partitions[0].partition == partition && wanted + 1 < next);
    world.step(Event::Log(LogEvent::Following {
        stream,
        partition,
        from: wanted,
    }));
    world.step(Event::Log(LogEvent::Gap {
        stream,
        partition,
        wanted,
        next,
    }));
    world.held.clear();
    world.settle();
    world
}

/// What retention has removed is missing in its state, for which nobody is to blame, the snapshot least of all.
#[test]
fn a_state_that_lacks_removed_records_is_compared_with_none() {
    let first = first_of_group_a();
    let (at, ..) = digests_of(&first.log, 0).pop().expect("one");
    let snapshots = snapshots_before(at, &first);
    let mut world = behind_a_gap(&first.log, first.clock, snapshots, at);
    let counters = world.counters();
    assert_eq!(
        (counters.gaps, counters.states_differing),
        (1, 0),
        "{counters:?}"
    );
    assert!(0 < counters.states_compared, "in the other partitions");
    assert!(
        at < world.digests().partitions[0].offset,
        "it went on behind the gap"
    );
}

/// How many digests of an aggregator differed from another's in partition 0 where both ruled the end of the log, and how
/// many it has stated there itself.
fn compared_in_the_end(world: &mut World, first: &World) -> (u64, usize) {
    let before = digests_of(&world.log, 0).len();
    world.fate = Box::new(|_, _| Fate::Taken);
    world.clock = world.clock.max(first.clock);
    busy(world);
    let own = digests_of(&world.log, 0).len() - before;
    (world.counters().states_differing, own)
}

#[test]
fn a_snapshot_of_a_state_without_some_records_says_so() {
    let first = first_of_group_a();
    let (at, ..) = digests_of(&first.log, 0).pop().expect("one");
    let mut world = behind_a_gap(&first.log, first.clock, snapshots_before(at, &first), at);
    assert_eq!(compared_in_the_end(&mut world, &first), (0, 0));
    let last = world.log.streams[&(Stream::Hits, 0)].len() as u64;
    let snapshots = snapshots_before(last, &world);
    assert!(snapshots.contains_key(&0));
    let mut again = World::restored_in_group(world.log.clone(), 4, "a", snapshots);
    again.clock = world.clock;
    again.settle();
    assert_eq!(compared_in_the_end(&mut again, &world), (0, 0));
}

#[test]
fn a_state_is_compared_again_once_missing_records_do_not_matter() {
    let mut first = first_of_group_a();
    let (at, ..) = digests_of(&first.log, 0).pop().expect("one");
    let snapshots = snapshots_before(at, &first);
    first.run_for(Span::from_secs(700));
    let mut world = behind_a_gap(&first.log, first.clock, snapshots, at);
    let (differing, own) = compared_in_the_end(&mut world, &first);
    assert_eq!(differing, 0);
    assert!(3 <= own, "it states digests again");
}

/// The log as a faulty aggregator rules it, which ignores every third batch of hits.
fn misread(log: &MemoryLog) -> MemoryLog {
    let mut log = log.clone();
    for ((stream, _), records) in &mut log.streams {
        let third = records
            .iter_mut()
            .filter(|one| one.offset.is_multiple_of(3));
        for record in third.filter(|one| *stream == Stream::Hits && one.bytes[1] == kind::HITS) {
            let mut bytes = record.bytes.to_vec();
            bytes[1] = kind::SKIPPABLE;
            record.bytes = bytes.into();
        }
    }
    log
}

#[test]
fn a_misread_partition_is_noticed_by_the_other_groups() {
    let first = first_of_group_a();
    let mut wrong = World::in_group(misread(&first.log), 2, "b");
    wrong.clock = first.clock;
    busy(&mut wrong);
    let counters = wrong.counters();
    assert!(0 < counters.states_differing, "{counters:?}");
    // Another aggregator that reads the log as it is comes to the same state.
    let mut log = first.log.clone();
    for (at, records) in &mut log.streams {
        let appended = &wrong.log.streams[at][records.len()..];
        records.extend_from_slice(appended);
    }
    let mut right = World::in_group(log, 3, "a");
    right.settle();
    let right_counters = right.counters();
    assert!(0 < right_counters.states_differing, "{right_counters:?}");
    assert!(right_counters.states_differing < right_counters.states_compared);
}
