//! New limits rule existing denials again one slice per turn, and no other partition waits for it.

use std::collections::BTreeMap;

use tollgate_log::Stream;
use tollgate_server::core::view::{DenialFilter, Query, Reply};
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Frame;
use tollgate_shared::wire::statement::Scope;

use crate::bounds::domains;
use crate::world::{Fate, World};

fn limits(limit: u32) -> String {
    format!(
        "version = 1\nrules = 2\n[rate.once]\ntiers = [{{ limit = {limit}, window = \"1h\", active = \"1h\" }}]\n"
    )
}

/// A world with this many denied pairs in partition 1.
fn denied(count: usize) -> World {
    let mut world = World::new(&limits(1));
    let all: Vec<String> = domains("once", 1).take(count).collect();
    for some in all.chunks(500) {
        let record = world.batch_of("once", some);
        world.put(Stream::Hits, 1, record);
    }
    world.run_for(Span::from_secs(1));
    assert_eq!(world.announced(), count);
    world
}

#[test]
fn new_limits_lift_denials_in_steps_between_other_work() {
    const DENIED: usize = 10_000;
    let mut world = denied(DENIED);
    world.read_limits_file(&limits(2));
    let before = world.announced();
    // The activation has been appended and read, and the first slices are ruled.
    while world.announced() == before {
        assert!(!world.round(), "no denial was lifted");
    }
    assert!(world.announced() < before + DENIED);
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
    let announced = |world: &World, domain: &str| {
        let scope = Scope::Pair(domain.into());
        let announced = world.frames.iter().flat_map(|frame| &frame.statements);
        announced
            .filter(|announced| announced.statement.scope == scope)
            .count()
    };

    // Both come while slices are left: one is ruled at once, the other waits for the last slice.
    let next_door = domains("once", 2).next().unwrap();
    let denied_again = domains("once", 1).next().unwrap();
    world.hit("once", &next_door, 2);
    world.hit("once", &denied_again, 1);
    let mut steps = Vec::new();
    while announced(&world, &next_door) == 0 {
        let announced = world.announced();
        assert!(!world.round(), "the other partition waits");
        steps.push(world.announced() - announced);
    }
    assert!(
        world.announced() < before + DENIED,
        "it waited for all slices"
    );
    loop {
        let announced = world.announced();
        let rests = world.round();
        steps.push(world.announced() - announced);
        if rests {
            break;
        }
    }
    assert!(steps.iter().all(|step| *step <= 2 * 1_024), "{steps:?}");
    check_statements_precede_watermarks(&world.frames);
    // All lifts, the neighbour's denial, and the one that the second hit brought.
    assert_eq!(world.announced(), before + DENIED + 2);
    assert_eq!(world.counters().lifts as usize, DENIED);
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
}

fn check_statements_precede_watermarks(frames: &[Frame]) {
    let mut ruled_upto: BTreeMap<u32, u64> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| &*frame.resource == "once") {
        for notice in &frame.statements {
            let ruled_upto = ruled_upto.get(&notice.partition).copied().unwrap_or(0);
            let position = notice.statement.position;
            assert!(
                ruled_upto <= position.offset,
                "{position}, ruled up to {ruled_upto}"
            );
        }
        for one in &frame.watermarks {
            ruled_upto.insert(one.partition, one.ruled);
        }
    }
}

#[test]
fn slices_wait_while_the_log_takes_no_decision_records() {
    const DENIED: usize = 70_000;
    let mut world = denied(DENIED);
    world.fate = Box::new(|stream, _| match stream {
        Stream::Denials => Fate::Refused,
        _ => Fate::Taken,
    });
    world.read_limits_file(&limits(2));
    world.run_for(Span::from_secs(2));
    let lifted = world.counters().lifts as usize;
    assert!((65_536..65_536 + 1_024).contains(&lifted), "{lifted}");
    // No state in the middle of a record is shown or saved.
    assert!(
        world
            .digests()
            .partitions
            .iter()
            .all(|one| one.partition != 1)
    );
    world.fate = Box::new(|_, _| Fate::Taken);
    world.run_for(Span::from_secs(2));
    assert_eq!(world.counters().lifts as usize, DENIED);
    assert!(
        world
            .digests()
            .partitions
            .iter()
            .any(|one| one.partition == 1)
    );
}

#[test]
fn a_question_for_denials_looks_at_no_more_than_a_turn_allows() {
    let mut world = denied(2_500);
    let mut ask = |after, limit, counted_max| {
        let filter = DenialFilter {
            after,
            limit,
            counted_max,
            ..DenialFilter::default()
        };
        match world.ask(Query::Denials(filter)) {
            Reply::Denials(view) => view,
            other => panic!("{other:?}"),
        }
    };
    let part = ask(None, 3, 0);
    let page = part.page;
    assert_eq!((page.denials.len(), page.omitted, part.kept), (3, 0, 2_500));
    assert!(part.more && page.next.is_some() && page.next == part.upto);
    let (mut counted, mut after) = (Vec::new(), page.next);
    while after.is_some() {
        let part = ask(after, 0, 1_000);
        counted.push(part.page.omitted);
        assert_eq!(part.more, part.upto.is_some());
        after = part.upto;
    }
    assert_eq!(counted, [1_000, 1_000, 497]);
    let last = ask(None, 2_500, 1_000);
    assert_eq!(
        (last.page.denials.len(), last.page.omitted, last.more),
        (2_500, 0, false)
    );
    assert_eq!(last.page.next, None);
}

#[test]
fn pairs_that_new_limits_reset_are_counted() {
    let mut world = World::new("version = 1\nrules = 2\n[rate.search]\nrate = \"2/h\"\n");
    world.run_for(Span::from_secs(1));
    world.hit("search", "denied", 2);
    world.hit("search", "seldom", 1);
    world.run_for(Span::from_secs(1));
    world.push("version = 1\nrules = 2\n[rate.search]\nrate = \"2/s\"\n");
    world.run_for(Span::from_secs(1));
    assert_eq!(
        forgotten(&mut world),
        1,
        "the denied one, by the version itself"
    );
    for domain in ["denied", "seldom", "new"] {
        world.hit("search", domain, 1);
    }
    world.run_for(Span::from_secs(1));
    assert_eq!(forgotten(&mut world), 2);
}

fn forgotten(world: &mut World) -> u64 {
    let Reply::Counters(counted) = world.ask(Query::Counters) else {
        panic!("counters")
    };
    let of = counted.resources.iter().map(|(_, of)| of.pairs_forgotten);
    of.sum()
}
