//! `tollgate explain --at` means an instant of log time, also if an agent's clock is wrong.

use tollgate_shared::wire::hits::Sender;

use super::*;

const BEHIND: Span = Span::from_secs(300);

/// A batch of an agent whose clock is five minutes behind: hits, and refused calls, at milliseconds after the origin.
async fn behind(world: &mut World, hits: &[u64], refused: Option<u64>) -> u64 {
    world.sequence += 1;
    let by_its_clock = |at: Timestamp| at.saturating_sub(BEHIND);
    let hits: Vec<_> = hits
        .iter()
        .map(|ms| Hit::one(0, "acme", by_its_clock(world.at(*ms)), 1))
        .collect();
    let refused = refused.map(|ms| Refused {
        resource: 0,
        domain: "acme",
        calls: 3,
        copies: 3,
        first: by_its_clock(world.at(ms)),
        last: by_its_clock(world.at(ms)),
        cause: Cause::Window(0),
        position: None,
    });
    let sender = Sender {
        sent: by_its_clock(wall()),
        ..world.dealers[0].sender(world.sequence)
    };
    let mut writer = Writer::new();
    let (hits, refused) = (hits.into_iter(), refused.into_iter());
    write_hits(&mut writer, &sender, &["api.six"], hits, refused);
    let partition = partition_of_pair("api.six", "acme", PARTITIONS);
    let bytes = writer.as_slice();
    world.dealers[0].append(partition, bytes).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instant_is_of_log_time_if_an_agents_clock_is_wrong() {
    let mut world = World::new().await;
    behind(&mut world, &[0], None).await;
    behind(&mut world, &[5_000, 5_000, 5_000, 5_000, 5_000], None).await;
    let last = behind(&mut world, &[], Some(8_000)).await;
    let partition = partition_of_pair("api.six", "acme", PARTITIONS);
    world.served.await_json("/v1/digests", |shown| {
        last < number(&shown["partitions"][partition as usize]["offset"])
    });
    let at = |ms: u64| world.explain(&["api.six", "acme", "--at", &world.at_us(ms)]);
    let found = at(0);
    assert_eq!(found["reason"], "room", "{found:#}");
    let call = &found["call"];
    // The correction is as exact as the way to the log is short.
    let apart = number(&call["at_us"]).abs_diff(world.at(0).as_micros());
    assert!(apart < 500_000, "{call}");
    let by_agent = world.at(0).saturating_sub(BEHIND).as_micros();
    assert_eq!(number(&call["stamp_us"]), by_agent, "{call}");
    // Refused calls are at their instants, too.
    let found = at(9_000);
    assert_eq!(
        (&found["denied"], &found["refused"]["calls"]),
        (&true.into(), &3.into()),
        "{found:#}"
    );
    let first = number(&found["refused"]["by_agent"][0]["first_us"]);
    assert!(first.abs_diff(world.at(8_000).as_micros()) < 500_000);
    // Five minutes before, by the agent's clock, there was no call.
    let by_agent = by_agent.to_string();
    let found = world.explain(&["api.six", "acme", "--at", &by_agent]);
    assert_eq!(found["reason"], "no_call", "{found:#}");
}
