//! Record keys: which keys count under which limits, how one key replaces another, and aggregators that lack one.

use tollgate_log::Stream;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{RecordPen, Tick, Total, authentic, kind, needs_tag};
use tollgate_shared::wire::statement::Scope;

use crate::LIMITS;
use crate::bounds::domains;
use crate::world::{Fate, MemoryLog, PARTITIONS, STRANGER, World};

const K1: &str = "5f2c1e0c41aa87b39d6e5f2c1e0c41aa87b39d6e";
const K2: &str = "0c41aa87b39d6e5f2c1e0c41aa87b39d6e5f2c1e";

/// The keys with these ids.
fn keys(ids: &[&str]) -> Keyring {
    let line = |id: &&str| format!("{id} {}\n", if *id == "k1" { K1 } else { K2 });
    let file: String = ids.iter().map(line).collect();
    Keyring::parse(file.as_bytes()).unwrap()
}

fn key(text: &str) -> MacKey {
    MacKey::derive(text.as_bytes())
}

/// Limits under which the keys with these ids count.
fn limits(ids: &str) -> String {
    LIMITS.replace("rules = 2", &format!("rules = 2\nrecord_keys = {ids}"))
}

fn world(ids: &str, keys: Keyring) -> World {
    let mut world = World::with_keys(MemoryLog::default(), 1, keys);
    world.push(&limits(ids));
    world
}

/// Appends a total that no record caused, and that fills the limit of all domains of `wide`.
fn forge(world: &mut World, key: &MacKey) {
    let target = partition_of_resource("wide", PARTITIONS);
    let source = ((target + 1) % PARTITIONS, 1 << 40);
    let total = Total::guarded(world.wall().as_millis(), 2_000);
    let record = RecordPen::new(key, target).totals("wide", source, &[total]);
    world.put(Stream::Hits, target, record);
    world.settle();
}

/// Makes hits on `wide` from every partition, and on `search` beyond its limit.
fn traffic(world: &mut World, rounds: usize) {
    for round in 0..rounds {
        for source in 0..PARTITIONS {
            let domain = domains("wide", source).next().unwrap();
            world.hit("wide", &domain, 1);
        }
        world.hit("search", &format!("d{round}"), 6);
        world.run_for(Span::from_millis(150));
    }
}

/// By partition: how far it was ruled, under which version, and its state.
fn states(world: &mut World) -> Vec<(u64, u64, String)> {
    let view = world.digests();
    let partitions = view.partitions.into_iter();
    partitions
        .map(|of| (of.offset, of.version, of.digest.to_string()))
        .collect()
}

#[test]
fn a_checksum_denies_nobody_where_a_key_counts() {
    let mut unkeyed = World::new(LIMITS);
    forge(&mut unkeyed, &MacKey::UNPROTECTED);
    assert_eq!(
        unkeyed.announced(),
        1,
        "without a key anybody can deny everybody"
    );

    let mut world = world("[\"k1\"]", keys(&["k1", "k2"]));
    for forger in [MacKey::UNPROTECTED, key(K2), key("somebody else's")] {
        forge(&mut world, &forger);
    }
    assert_eq!((world.announced(), world.counters().forged), (0, 3));
    let why: Vec<&str> = world
        .dead_letters
        .iter()
        .map(|dead_letter| &*dead_letter.why)
        .collect();
    assert!(
        why[0].contains("under \"checksum\"") && why[0].ends_with("counts k1"),
        "{why:?}"
    );
    assert!(why[1].contains("under \"k2\""), "{why:?}");
    assert!(why[2].contains("its tag is wrong"), "{why:?}");
    forge(&mut world, &key(K1));
    assert_eq!(world.announced(), 1, "who has the key is believed");
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn a_forged_tick_brings_in_no_time() {
    let mut world = world("[\"k1\"]", keys(&["k1"]));
    let tick = Tick {
        log: STRANGER,
        aggregator: "x",
        instance: 1,
        number: 1,
    };
    let before = world.counters().forged;
    for partition in 0..PARTITIONS {
        let record = RecordPen::new(&MacKey::UNPROTECTED, partition).tick(&tick);
        world.put(Stream::Hits, partition, record);
    }
    world.settle();
    assert_eq!(world.counters().forged, before + u64::from(PARTITIONS));
}

#[test]
fn a_rotation_in_steps_refuses_no_record_and_replays_alike() {
    let mut world = World::with_keys(MemoryLog::default(), 1, keys(&["k1", "k2"]));
    world.push(LIMITS);
    let steps = [
        "[\"checksum\", \"k1\"]",
        "[\"k1\", \"checksum\"]",
        "[\"k1\"]",
        "[\"k1\", \"k2\"]",
        "[\"k2\", \"k1\"]",
        "[\"k2\"]",
    ];
    for step in steps {
        traffic(&mut world, 3);
        world.read_limits_file(&limits(step));
        traffic(&mut world, 6);
    }
    let counters = world.counters();
    assert_eq!(counters.forged, 0);
    assert!(world.why_not_ready().is_empty());
    // The last records are under the last key alone.
    for partition in 0..PARTITIONS {
        let records = &world.log.streams[&(Stream::Hits, partition)];
        let last = records.iter().rfind(|record| needs_tag(&record.bytes));
        assert!(authentic(&last.unwrap().bytes, partition, &key(K2)));
    }
    let mut again = World::with_keys(world.log.clone(), 2, keys(&["k1", "k2"]));
    again.fate = Box::new(|_, _| Fate::Refused);
    again.settle();
    assert_eq!(states(&mut again), states(&mut world));
    assert_eq!(again.counters().forged, 0);
}

#[test]
fn a_rotation_in_one_step_loses_totals_and_no_hits() {
    let mut world = world("[\"k1\"]", keys(&["k1", "k2"]));
    traffic(&mut world, 4);
    world.read_limits_file(&limits("[\"k2\"]"));
    traffic(&mut world, 4);
    world.run_for(Span::from_secs(10));
    traffic(&mut world, 4);
    assert!(world.why_not_ready().is_empty());
    // Five copies of each domain of `search` have room, and `wide` is far from its limit.
    let statement = world.frames.iter().flat_map(|frame| &frame.statements);
    let mut scopes = statement.map(|statement| &statement.statement.scope);
    assert!(scopes.all(|scope| *scope != Scope::Resource));
}

#[test]
fn no_tick_follows_an_own_activation_under_the_key_of_before() {
    let mut world = World::with_keys(MemoryLog::default(), 1, keys(&["k1"]));
    world.push(LIMITS);
    // The last tick was read and the next is not due: so it is the activation that is on its way, for a second.
    world.run_for(Span::from_millis(100));
    world.held = vec![Stream::Hits];
    world.read_limits_file(&limits("[\"k1\"]"));
    world.run_for(Span::from_secs(1));
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.counters().forged, 0);
    let ticks = world.log.count(kind::TICK);
    assert!(3 * PARTITIONS as usize <= ticks, "time goes on: {ticks}");
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn no_digest_follows_the_activation_of_the_first_keys_under_a_checksum() {
    // The number of records in a delivery is random: a tick may come alone, before the activation behind it.
    for seed in 1..=8 {
        let mut world = World::in_group_with_keys(MemoryLog::default(), seed, "g", keys(&["k1"]));
        world.read_limits_file(&limits("[\"k1\"]"));
        world.run_for(Span::from_secs(12));
        assert_eq!(world.counters().forged, 0, "seed {seed}");
        assert!(0 < world.log.count(kind::STATE_DIGEST), "seed {seed}");
    }
}

#[test]
fn a_tick_that_came_too_late_for_its_key_is_sent_again() {
    let mut world = world("[\"k1\"]", keys(&["k1", "k2"]));
    // Another aggregator activates limits that end the key, before this one learns of them.
    let mut other = World::with_keys(world.log.clone(), 2, keys(&["k1", "k2"]));
    other.clock = world.clock;
    other.push(&limits("[\"k2\"]"));
    let pointer_in = |partition: u32| {
        let had = world.log.streams[&(Stream::Hits, partition)].len();
        let new = other.log.streams[&(Stream::Hits, partition)]
            .iter()
            .skip(had);
        let activation = new
            .into_iter()
            .find(|record| record.bytes[1] == kind::LIMITS_ACTIVATION);
        activation.expect("limits came into force").bytes.to_vec()
    };
    let activations: Vec<Vec<u8>> = (0..PARTITIONS).map(pointer_in).collect();
    world.held = vec![Stream::Hits];
    let stream = (Stream::Limits, 0);
    let documents = other.log.streams[&stream].clone();
    world.log.streams.insert(stream, documents);
    for (partition, activation) in (0..).zip(activations) {
        world.put(Stream::Hits, partition, activation);
    }
    world.clock = world.clock.saturating_add(Span::from_secs(1));
    world.settle();
    let before = world.log.count(kind::TICK);
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert!(0 < world.counters().forged, "a tick came behind the limits");
    let since = world.log.count(kind::TICK) - before;
    assert!(3 * PARTITIONS as usize <= since, "time goes on: {since}");
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn without_a_key_that_counts_no_partition_is_ruled() {
    let mut signed = world("[\"k1\"]", keys(&["k1"]));
    traffic(&mut signed, 3);
    let version = states(&mut signed)[0].1;
    for at_hand in [Keyring::default(), keys(&["k2"])] {
        let mut world = World::with_keys(signed.log.clone(), 2, at_hand);
        world.run_for(Span::from_secs(2));
        let why = world.why_not_ready();
        let stopped = why
            .iter()
            .filter(|why| why.contains("stopped: limits version"));
        assert_eq!(stopped.count(), PARTITIONS as usize, "{why:?}");
        let expected = format!(
            "limits version {version}: record_keys names \"k1\", and security.key_file has no key of this id here: put"
        );
        let is_said = |why: &&String| why.contains(&expected);
        assert_eq!(
            why.iter().filter(is_said).count(),
            1 + PARTITIONS as usize,
            "{why:?}"
        );
        assert_eq!(world.counters().forged, 0);
        assert_eq!(world.log.streams, signed.log.streams, "nothing is written");
    }
}

#[test]
fn limits_with_a_missing_key_are_not_brought_into_force() {
    let mut unkeyed = World::new(LIMITS);
    let before = states(&mut unkeyed)[0].1;
    // Its own file is bad.
    unkeyed.push(&limits("[\"k1\"]"));
    assert_eq!(states(&mut unkeyed)[0].1, before);
    // Another, which has the key, pushes them.
    let mut other = World::with_keys(unkeyed.log.clone(), 2, keys(&["k1"]));
    other.clock = unkeyed.clock;
    other.fate = Box::new(|stream, _| match stream {
        Stream::Limits => Fate::Taken,
        _ => Fate::Refused,
    });
    other.push(&limits("[\"k1\"]"));
    unkeyed.log = other.log.clone();
    unkeyed.hit("search", "acme", 6);
    unkeyed.run_for(Span::from_secs(1));
    assert_eq!(states(&mut unkeyed)[0].1, before);
    assert_eq!(unkeyed.announced(), 1, "what is in force rules on");
    let why = unkeyed.why_not_ready();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].contains("record_keys names \"k1\""), "{why:?}");
}

#[test]
fn a_new_fleet_begins_with_no_limits_whose_keys_it_lacks() {
    let mut world = World::with_keys(MemoryLog::default(), 1, keys(&["k2"]));
    world.read_limits_file(&limits("[\"k2\", \"k1\"]"));
    world.settle();
    let why = world.gave_up.expect("there is nothing to rule by");
    assert!(
        why.starts_with("limits.toml: record_keys names \"k1\""),
        "{why}"
    );
}

#[test]
fn after_a_lost_end_the_identity_is_under_the_key_in_force() {
    let mut signed = world("[\"k1\"]", keys(&["k1"]));
    traffic(&mut signed, 3);
    let mut again = World::with_keys_after_a_loss(signed.log.clone(), 2, keys(&["k1"]));
    again.clock = signed.clock;
    again.run_for(Span::from_secs(3));
    assert_eq!(again.counters().forged, 0);
    assert!(
        again.why_not_ready().is_empty(),
        "{:?}",
        again.why_not_ready()
    );
    traffic(&mut again, 3);
    let unlike = |of: &World, partition| {
        let records = of.log.streams[&(Stream::Hits, partition)].len();
        signed.log.streams[&(Stream::Hits, partition)].len() < records
    };
    assert!((0..PARTITIONS).all(|partition| unlike(&again, partition)));
}
