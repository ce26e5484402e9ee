//! Snapshots for agents: sent in parts, while the aggregator continues.

use std::collections::BTreeSet;

use tollgate_server::core::event::{AgentRoom, Event, Peer, Request};
use tollgate_shared::wire::link::{FromAggregator, Snapshot};
use tollgate_shared::wire::statement::Scope;

use super::world::World;

const LIMITS: &str = r#"
version = 1
rules = 2
[rate.closed]
tiers = [{ limit = 1, window = "1h", active = "1h" }]
[rate.search]
rate = "5/m"
"#;

fn ask(world: &mut World, peer: &'static str, nonce: u64) {
    let peer = Peer(bytes::Bytes::from_static(peer.as_bytes()));
    let resources = vec!["closed".into(), "search".into()];
    let request = Request::Ask { nonce, resources };
    world.step(Event::Agent { peer, request });
}

fn parts(world: &World, nonce: u64) -> Vec<&Snapshot> {
    let answers = world.answers.iter();
    answers
        .filter_map(|answer| match answer {
            FromAggregator::Snapshot(part) if part.nonce == nonce => Some(part),
            _ => None,
        })
        .collect()
}

/// The partitions for which a part states a watermark.
fn partitions(part: &Snapshot) -> impl Iterator<Item = u32> {
    part.watermarks.iter().map(|one| one.partition)
}

fn listed(parts: &[&Snapshot]) -> Vec<String> {
    let topics = parts.iter().flat_map(|part| &part.topics);
    let statement = topics.flat_map(|topic| &topic.statements);
    statement
        .map(|statement| match &statement.statement.scope {
            Scope::Pair(domain) => domain.to_string(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn close(world: &mut World, domains: std::ops::Range<u32>) {
    for number in domains {
        world.hit("closed", &format!("d{number}"), 1);
    }
    world.settle();
}

#[test]
fn a_snapshot_is_sent_in_parts_one_each_turn() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..4_500);
    ask(&mut world, "one", 7);
    assert_eq!(parts(&world, 7).len(), 0, "nothing before the turn ends");
    world.step(Event::Turn);
    assert_eq!(parts(&world, 7).len(), 1);
    // The aggregator continues between the parts.
    close(&mut world, 4_500..4_600);
    world.settle();
    let parts = parts(&world, 7);
    let numbers: Vec<_> = parts.iter().map(|part| (part.part, part.more)).collect();
    assert_eq!(numbers, [(0, true), (1, true), (2, false)]);
    for part in &parts {
        let statement: usize = part.topics.iter().map(|topic| topic.statements.len()).sum();
        assert!(statement <= 2_000);
        assert_eq!(part.watermarks, parts[0].watermarks);
        assert_eq!(part.topics[0].sequence, parts[0].topics[0].sequence);
    }
    let listed = listed(&parts);
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "nothing is listed twice");
    assert!((0..4_500).all(|number| once.contains(&format!("d{number}"))));
    // Pairs that were denied meanwhile may be listed; their statements are then beyond the watermark.
    let later = parts[1..].iter().flat_map(|part| &part.topics);
    for statement in later.flat_map(|topic| &topic.statements) {
        let watermark = &parts[0].watermarks[statement.partition as usize];
        let number = match &statement.statement.scope {
            Scope::Pair(domain) => domain[1..].parse::<u32>().unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            4_500 <= number,
            watermark.ruled <= statement.statement.position.offset
        );
    }
}

#[test]
fn an_answer_leaves_out_partitions_revoked_meanwhile() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..4_500);
    ask(&mut world, "one", 7);
    world.step(Event::Turn);
    let before: BTreeSet<u32> = partitions(parts(&world, 7)[0]).collect();
    let gone = *before.first().expect("a partition");
    world.step(Event::Revoked(vec![gone]));
    world.settle();
    let parts = parts(&world, 7);
    let last = parts.last().expect("a part");
    assert!(!last.more && 1 < parts.len());
    let left: BTreeSet<u32> = partitions(last).collect();
    assert_eq!(left, &before - &BTreeSet::from([gone]));
    let later = parts[1..].iter().flat_map(|part| &part.topics);
    assert!(
        later
            .flat_map(|topic| &topic.statements)
            .all(|statement| statement.partition != gone)
    );
}

#[test]
fn simultaneous_queries_are_answered_one_after_the_other() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..2_500);
    ask(&mut world, "one", 1);
    ask(&mut world, "two", 2);
    ask(&mut world, "one", 3);
    for _ in 0..2 {
        world.step(Event::Turn);
    }
    let so_far = [1, 2, 3].map(|nonce| parts(&world, nonce).len());
    assert_eq!(so_far, [0, 0, 2], "a repeated one keeps its place");
    world.settle();
    let in_all = [1, 2, 3].map(|nonce| parts(&world, nonce).len());
    assert_eq!(in_all, [0, 2, 2]);
    assert_eq!(listed(&parts(&world, 2)), listed(&parts(&world, 3)));
    assert_eq!(world.counters().snapshots, 2);
}

#[test]
fn an_agent_that_asks_again_during_its_answer_waits_for_the_others() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..2_500);
    ask(&mut world, "one", 1);
    ask(&mut world, "two", 2);
    for nonce in 3..6 {
        world.step(Event::Turn);
        ask(&mut world, "one", nonce);
    }
    assert_eq!(parts(&world, 1).len(), 1);
    assert_eq!(parts(&world, 2).len(), 2);
    world.settle();
    assert_eq!(parts(&world, 5).len(), 2);
}

fn peer(name: &'static str) -> Peer {
    Peer(bytes::Bytes::from_static(name.as_bytes()))
}

#[test]
fn no_part_is_made_for_an_agent_that_does_not_read() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..4_500);
    ask(&mut world, "deaf", 7);
    ask(&mut world, "other", 8);
    world.step(Event::Turn);
    world.step(Event::Room(peer("deaf"), AgentRoom::Full));
    world.settle();
    assert_eq!(parts(&world, 7).len(), 1);
    assert_eq!(parts(&world, 8).len(), 3, "nobody else waits for it");
    // Its newest query is the one that is answered once it takes something.
    ask(&mut world, "deaf", 9);
    world.settle();
    assert_eq!(parts(&world, 9).len(), 0);
    world.step(Event::Room(peer("deaf"), AgentRoom::Free));
    world.settle();
    assert_eq!((parts(&world, 7).len(), parts(&world, 9).len()), (1, 3));
}

#[test]
fn an_agent_that_left_is_sent_no_more_parts() {
    let mut world = World::new(LIMITS);
    close(&mut world, 0..4_500);
    ask(&mut world, "gone", 7);
    world.step(Event::Turn);
    world.step(Event::Room(peer("gone"), AgentRoom::Full));
    world.step(Event::Room(peer("gone"), AgentRoom::Gone));
    world.settle();
    assert_eq!(parts(&world, 7).len(), 1);
}

/// Agents ask again by it, so that a version of which they learn nothing costs no snapshot.
#[test]
fn a_welcome_names_the_version_by_which_agents_last_had_something_to_learn() {
    let mut world = World::new(LIMITS);
    world.settle();
    let mut named = |limits: Option<&str>| {
        if let Some(limits) = limits {
            world.push(limits);
            world.settle();
        }
        let peer = Peer(bytes::Bytes::from_static(b"one"));
        let request = Request::Hello { nonce: 1 };
        world.step(Event::Agent { peer, request });
        world.settle();
        match world.answers.last() {
            Some(FromAggregator::Welcome { limits, .. }) => *limits,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(None), 1);
    let one = format!("{LIMITS}domains.acme.rate = \"4/m\"\n");
    assert_eq!(named(Some(&one)), 2, "the least limit is another");
    // A second domain with it teaches agents nothing.
    let two = format!("{one}domains.globex.rate = \"4/m\"\n");
    assert_eq!(named(Some(&two)), 2);
    assert_eq!(named(Some(&LIMITS.replace("5/m", "6/m"))), 4);
}
