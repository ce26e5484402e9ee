//! Notices about pairs near a limit: published on a separate topic, at a bounded rate, and without effect on rulings.

use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::time::Span;

use crate::LIMITS;
use crate::world::{PARTITIONS, World};

const ROOMY: &str = r#"
[rate.search]
rate = "50/m"
[rate.quiet]
rate = "50/m"
near = "0%"
[rate.shadowed]
rate = "50/m"
shadow = true
"#;

/// Of each notice: domain, left, limit.
fn notices_of(world: &World) -> Vec<(&str, u64, u64)> {
    let notices = world.notices.iter().flat_map(|frame| &frame.notices);
    notices
        .map(|notice| (&*notice.domain, notice.left, notice.limit))
        .collect()
}

#[test]
fn a_pair_gets_notices_from_its_share_of_the_limit_on() {
    let mut world = World::new(ROOMY);
    world.run_for(Span::from_secs(1));
    for resource in ["search", "quiet", "shadowed"] {
        world.hit(resource, "acme", 39);
        world.run_for(Span::from_millis(100));
    }
    assert_eq!(notices_of(&world), [], "11 of 50 are left");
    for resource in ["search", "quiet", "shadowed"] {
        world.hit(resource, "acme", 1);
        world.run_for(Span::from_millis(100));
    }
    assert_eq!(notices_of(&world), [("acme", 10, 50)]);
    let notice = world.notices[0].notices[0].clone();
    // The first hit leaves the minute then; the log's time lags by at most a tick and a turn.
    let lasts = Span::from_millis(59_000)..Span::from_millis(60_300);
    assert!(lasts.contains(&notice.near_for), "{}", notice.near_for);
    world.run_for(Span::from_secs(10));
    assert_eq!(
        notices_of(&world).len(),
        1,
        "who is not hit is not told again"
    );
    world.hit("search", "acme", 10);
    world.run_for(Span::from_millis(100));
    assert_eq!(notices_of(&world).last(), Some(&("acme", 0, 50)));
    let Reply::Counters(counted) = world.ask(Query::Counters) else {
        panic!("counters")
    };
    let of = |name: &str| {
        let found = counted.resources.iter().find(|(of, _)| **of == *name);
        found.map(|(_, of)| (of.calls, of.near))
    };
    assert_eq!(of("search"), Some((50, 2)));
    assert_eq!(of("quiet"), Some((40, 0)));
}

#[test]
fn notices_change_no_ruling_and_are_bounded() {
    let mut world = World::new(LIMITS);
    world.run_for(Span::from_secs(1));
    // Four of five, in one turn: each is near, and they are more than are published at once.
    let domains: Vec<String> = (0..40_000).map(|n| format!("d{n}")).collect();
    let of_first = |domain: &&String| {
        tollgate_shared::names::partition_of_pair("search", domain, PARTITIONS) == 0
    };
    let first: Vec<String> = domains.iter().filter(of_first).cloned().collect();
    for part in first.chunks(200) {
        for _ in 0..4 {
            let record = world.batch_of("search", part);
            world.agent_appends(0, record);
        }
    }
    world.settle();
    world.run_for(Span::from_secs(1));
    let counters = world.counters();
    assert!(counters.notices <= 2_000 + 40, "{}", counters.notices);
    assert!(0 < counters.notices, "{}", counters.notices);
    let waiting_max = 4_096;
    assert!(
        first.len() as u64 - waiting_max - 2_040 <= counters.notices_shed,
        "{}",
        counters.notices_shed
    );
    assert_eq!(world.announced(), 0, "nobody is denied");
    // An aggregator that replays the same log publishes no notices, and denies no pair either.
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.run_for(Span::from_secs(1));
    assert_eq!((again.counters().notices, again.announced()), (0, 0));
}
