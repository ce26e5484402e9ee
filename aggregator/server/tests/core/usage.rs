//! The heaviest users: counted by pair, over every partition, and with the same result on any machine.

use tollgate_api::top::TopView;
use tollgate_log::Stream;
use tollgate_server::core::usage::{By, TopFilter, keep_greatest};
use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Refused, write_hits};
use tollgate_shared::wire::statement::Cause;

use crate::LIMITS;
use crate::bounds::domains;
use crate::world::{PARTITIONS, World};

fn top(world: &mut World, by: By) -> TopView {
    let filter = TopFilter {
        by,
        resource: None,
        limit: 10,
        from: 0,
    };
    match world.ask(Query::Top(filter)) {
        Reply::Top(part) => part.view,
        other => panic!("{other:?}"),
    }
}

fn names(view: &TopView) -> Vec<&str> {
    view.pairs.iter().map(|pair| &*pair.domain).collect()
}

/// Hits of ten domains, of which the first is hit most, and refused calls of one.
fn busy(world: &mut World) {
    for round in 0..20u64 {
        for domain in 0..10 {
            if round * domain < 20 {
                world.hit("search", &format!("d{domain}"), 1);
            }
        }
        world.run_for(Span::from_millis(100));
    }
    let partition = tollgate_shared::names::partition_of_pair("search", "d0", PARTITIONS);
    let sender = world.sender("a", partition);
    let refused = Refused {
        resource: 0,
        domain: "d0",
        calls: 7,
        copies: 7,
        first: sender.sent,
        last: sender.sent,
        cause: Cause::Tier(1),
        position: None,
    };
    let mut writer = Writer::new();
    write_hits(
        &mut writer,
        &sender,
        &["search"],
        [].into_iter(),
        [refused].into_iter(),
    );
    world.agent_appends(partition, writer.as_slice().to_vec());
    world.settle();
}

#[test]
fn a_query_of_top_pairs_reads_one_partition_at_a_time() {
    let mut world = World::new(LIMITS);
    for partition in 0..PARTITIONS {
        let some: Vec<String> = domains("search", partition).take(300).collect();
        // Of longer records a sample is counted.
        for few in some.chunks(30) {
            let record = world.batch_of("search", few);
            world.put(Stream::Hits, partition, record);
        }
    }
    world.settle();
    let (mut found, mut from) = (Vec::new(), Some(0));
    let mut asked = Vec::new();
    while let Some(next) = from {
        asked.push(next);
        let filter = TopFilter {
            limit: 256,
            from: next,
            ..TopFilter::default()
        };
        let Reply::Top(part) = world.ask(Query::Top(filter)) else {
            panic!("another answer");
        };
        assert!(part.view.pairs.iter().all(|pair| pair.partition == next));
        found.extend(part.view.pairs);
        from = part.next;
    }
    assert_eq!(asked, (0..PARTITIONS).collect::<Vec<_>>());
    assert!(200 * asked.len() < found.len(), "{}", found.len());
    keep_greatest(&mut found, By::Hits, 10);
    assert_eq!(found.len(), 10);
}

#[test]
fn usage_counts_hits_excess_and_refused_calls() {
    let mut world = World::new(LIMITS);
    busy(&mut world);
    let by_hits = top(&mut world, By::Hits);
    assert_eq!(names(&by_hits)[..2], ["d0", "d1"], "{by_hits:?}");
    assert_eq!(by_hits.pairs.len(), 10);
    let first = &by_hits.pairs[0];
    // An ideal limiter lets 5 per minute through.
    assert_eq!(
        (first.hits, first.excess, first.refused),
        (Some(20), Some(15), Some(7))
    );
    assert!(by_hits.partitions_missing.is_empty());
    assert_eq!(by_hits.short_by_max, 0);
    let by_excess = top(&mut world, By::Excess);
    assert!(
        by_excess.pairs.iter().all(|pair| pair.hits > Some(5)),
        "{by_excess:?}"
    );
    assert_eq!(names(&top(&mut world, By::Refused)), ["d0"]);

    // An aggregator that replays the same log has the same counts.
    let mut again = World::on(world.log.clone(), 2);
    again.clock = world.clock;
    again.settle();
    assert_eq!(top(&mut again, By::Hits).pairs, by_hits.pairs);
    // A quiet partition's counts expire with time, which its own ticks advance.
    world.run_for(Span::from_secs(180));
    world.hit("search", "new", 1);
    world.settle();
    assert_eq!(names(&top(&mut world, By::Hits)), ["new"]);
}

#[test]
fn hits_that_ended_are_not_shown_as_present_ones() {
    let mut world = World::new(LIMITS);
    busy(&mut world);
    let before = top(&mut world, By::Hits);
    world.run_for(Span::from_secs(180));
    let view = top(&mut world, By::Hits);
    assert_eq!(names(&view), [""; 0]);
    assert!(before.to_us + 170_000_000 < view.to_us, "{view:?}");
}

#[test]
fn a_batch_that_comes_twice_is_counted_once() {
    let mut world = World::new(LIMITS);
    let (partition, record) = world.batch("search", "acme", 3);
    world.agent_appends(partition, record.clone());
    world.agent_appends(partition, record);
    world.settle();
    assert_eq!(world.counters().duplicates, 3);
    assert_eq!(top(&mut world, By::Hits).pairs[0].hits, Some(3));
}

#[test]
fn of_long_batches_a_sample_is_counted_with_its_weight() {
    let mut world = World::new(LIMITS);
    // One domain has a quarter of all hits.
    for _ in 0..60 {
        let domains: Vec<String> = (0..400)
            .map(|n| match n % 4 {
                0 => "great".to_owned(),
                _ => format!("small-{n}"),
            })
            .collect();
        let by_partition =
            |name: &String| tollgate_shared::names::partition_of_pair("wide", name, PARTITIONS);
        let of = by_partition(&"great".to_owned());
        let domains: Vec<String> = domains
            .into_iter()
            .filter(|name| by_partition(name) == of)
            .collect();
        let record = world.batch_of("wide", &domains);
        world.agent_appends(of, record);
        world.run_for(Span::from_millis(10));
    }
    world.settle();
    let view = top(&mut world, By::Hits);
    assert_eq!(view.pairs[0].domain.as_ref(), "great", "{view:?}");
    let found = view.pairs[0].hits.unwrap_or(0);
    assert!((4_500..7_500).contains(&found), "about 6000: {found}");
}
