//! Tests of the core in a world without I/O: identity, time, announcements, refusals.

mod bounds;
mod copies;
mod durable;
mod memory;
mod near;
mod pairs;
mod record_keys;
mod recreated;
mod refused;
mod sharing;
mod slices;
mod snapshot_responder;
mod threads;
mod usage;
mod world;

use tollgate_log::{LogEvent, Stream};
use tollgate_server::core::event::{Event, Peer, Request};
use tollgate_shared::time::Span;
use tollgate_shared::wire::link::{FromAggregator, Refusal};
use tollgate_shared::wire::record::kind;
use world::{Fate, MemoryLog, PARTITIONS, World};

/// The global limit of `wide`.
pub const WIDE: u64 = 40;

/// The limits of most of these worlds.
pub const LIMITS: &str = r#"
version = 1
rules = 2
[rate.search]
rate = "5/m"
[rate.wide]
rate = "1000000/s"
global = "40/s"
"#;

fn without_ticks(kinds: Vec<u8>) -> Vec<u8> {
    kinds
        .into_iter()
        .filter(|kind| *kind != kind::TICK)
        .collect()
}

#[test]
fn a_partition_begins_with_identity_and_activation() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 1);
    world.settle();
    for partition in 0..PARTITIONS {
        let kinds = world.log.kinds(partition);
        assert_eq!(kinds[0], kind::GENESIS);
        let rest = without_ticks(kinds);
        assert_eq!(rest[..2], [kind::GENESIS, kind::LIMITS_ACTIVATION]);
    }
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn agents_batches_wait_for_the_identity_of_the_log() {
    let mut world = World::on(MemoryLog::default(), 1);
    world.fate = Box::new(|_, record| match record[1] {
        kind::GENESIS => Fate::Refused,
        _ => Fate::Taken,
    });
    world.settle();
    world.hit("search", "acme", 1);
    let last = world.answers.last().unwrap();
    assert!(
        matches!(
            last,
            FromAggregator::Refused {
                reason: Refusal::NotNow,
                ..
            }
        ),
        "{last:?}"
    );
    // It is tried again, and then everything works.
    world.fate = Box::new(|_, _| Fate::Taken);
    world.run_for(Span::from_secs(1));
    world.hit("search", "acme", 1);
    world.settle();
    assert!(matches!(
        world.answers.last(),
        Some(FromAggregator::Appended { .. })
    ));
    assert!((0..PARTITIONS).all(|p| world.log.kinds(p)[0] == kind::GENESIS));
}

#[test]
fn a_version_pushed_during_an_activation_rules_everywhere() {
    let mut world = World::new(LIMITS);
    // The activations of the second version are in the log and were not read yet.
    world.held = vec![Stream::Hits];
    world.push(&LIMITS.replace("5/m", "6/m"));
    world.push(&LIMITS.replace("5/m", "7/m"));
    world.held.clear();
    world.run_for(Span::from_secs(2));
    for partition in 0..PARTITIONS {
        let activations = world.log.kinds(partition);
        let count = activations
            .iter()
            .filter(|kind| **kind == kind::LIMITS_ACTIVATION)
            .count();
        assert_eq!(count, 3, "partition {partition}");
    }
    let digests = world.digests();
    let versions: Vec<u64> = digests.partitions.iter().map(|one| one.version).collect();
    assert_eq!(versions, vec![digests.limits_version; PARTITIONS as usize]);
}

#[test]
fn log_time_that_is_ahead_of_the_clock_is_measured() {
    let mut first = World::new(LIMITS);
    first.run_for(Span::from_secs(60));
    assert_eq!(first.gauges().log_ahead_us, 0);
    // The next one begins an hour after the clock's start, as the first did: the clock was set back meanwhile.
    let mut second = World::on(first.log, 1);
    second.fate = Box::new(|_, _| Fate::Refused);
    second.settle();
    let gauges = second.gauges();
    assert_eq!(gauges.log_lag_us, 0);
    assert!(59_000_000 < gauges.log_ahead_us, "{gauges:?}");
}

#[test]
fn after_an_outage_it_is_ready_once_the_log_delivers() {
    let mut world = World::new(LIMITS);
    // Ticks are sent at whole quarters of a second.
    world.run_for(Span::from_millis(10));
    let why = "no broker".to_owned();
    world.step(Event::Log(LogEvent::Down { why }));
    assert_eq!(
        world.why_not_ready(),
        ["the log accepts nothing: no broker"]
    );
    // The log takes records, and delivers none yet.
    world.held = vec![Stream::Hits];
    world.step(Event::Log(LogEvent::Up));
    world.run_for(Span::from_secs(2));
    let why = world.why_not_ready();
    assert_eq!(why.len(), PARTITIONS as usize, "{why:?}");
    assert!(why[1].starts_with("partition 1: waits for its first tick since"));
    world.held.clear();
    world.run_for(Span::from_secs(1));
    assert_eq!(world.why_not_ready(), Vec::<String>::new());
}

/// A heartbeat of the feed.
struct Heartbeat {
    sent: Span,
    /// The sum of its watermarks.
    ruled: u64,
    /// Records in the log some milliseconds later.
    records: u64,
}

/// The heartbeats of five seconds, in steps of 10 ms; `each` is called before each step.
fn heartbeats(world: &mut World, mut each: impl FnMut(&mut World, u64)) -> Vec<Heartbeat> {
    let mut all = Vec::new();
    for step in 0..500 {
        let from = world.frames.len();
        each(world, step);
        world.run_for(Span::from_millis(10));
        let records: usize = (0..PARTITIONS).map(|p| world.log.kinds(p).len()).sum();
        all.extend(world.frames[from..].iter().map(|frame| Heartbeat {
            sent: frame.sent,
            ruled: frame.watermarks.iter().map(|one| one.ruled).sum(),
            records: records as u64,
        }));
    }
    all
}

/// The milliseconds between the heartbeats of five seconds. Each of them has the ticks of its turn, if the ticks of all
/// partitions come together.
fn heartbeats_apart(world: &mut World, is_together: bool) -> Vec<u64> {
    let mut before = world.frames.last().expect("a frame").sent;
    let apart = heartbeats(world, |_, _| {}).into_iter().map(|heartbeat| {
        let Heartbeat {
            sent,
            ruled,
            records,
        } = heartbeat;
        assert!(
            !is_together || ruled == records,
            "at {sent:?}: {ruled} of {records}"
        );
        let before = std::mem::replace(&mut before, sent);
        sent.saturating_sub(before).as_millis()
    });
    apart.collect()
}

fn run_to_a_heartbeat(world: &mut World) {
    let before = world.frames.len();
    while world.frames.len() == before {
        world.run_for(Span::from_millis(10));
    }
}

/// Ends the quiet of most partitions.
fn hit_everywhere(world: &mut World) {
    for domain in 0..40 {
        world.hit("search", &format!("domain-{domain}"), 1);
    }
}

#[test]
fn feed_heartbeats_have_the_ticks_of_their_turn() {
    let mut world = World::new(LIMITS);
    hit_everywhere(&mut world);
    let apart = heartbeats_apart(&mut world, true);
    let times = apart.len();
    assert!((17..=23).contains(&times), "{times} in 5 s");
    assert!(
        apart[1..].iter().all(|ms| (234..=281).contains(ms)),
        "{apart:?}"
    );
    // Without ticks they go on.
    hit_everywhere(&mut world);
    world.run_for(Span::from_millis(10));
    world.held = vec![Stream::Hits];
    let from = world.frames.len();
    world.run_for(Span::from_secs(5));
    let alone = world.frames.len() - from;
    assert!((16..=18).contains(&alone), "{alone} in 5 s");
}

#[test]
fn quiet_partitions_have_fewer_ticks_and_heartbeats() {
    let mut world = World::new(LIMITS);
    world.run_for(Span::from_secs(6));
    let ticks_before = world.log.count(kind::TICK);
    let apart = heartbeats_apart(&mut world, true);
    let times = apart.len();
    assert!((12..=14).contains(&times), "{times} in 5 s");
    assert!(apart.iter().all(|ms| (375..=451).contains(ms)), "{apart:?}");
    let quiet = (world.log.count(kind::TICK) - ticks_before) / PARTITIONS as usize;
    assert!((12..=13).contains(&quiet), "{quiet} ticks in 5 s");
    // A hit in one of them: its ticks, and the heartbeats of all, are as frequent as ever at once.
    run_to_a_heartbeat(&mut world);
    world.run_for(Span::from_millis(260));
    let (from, ticks_before) = (world.frames.len(), world.log.count(kind::TICK));
    world.hit("search", "acme", 1);
    world.run_for(Span::from_millis(20));
    assert!(from < world.frames.len(), "the heartbeat was due");
    assert!(
        ticks_before < world.log.count(kind::TICK),
        "so was its tick"
    );
    let apart = heartbeats_apart(&mut world, false);
    let of_busy = (apart.iter())
        .filter(|ms| (234..=281).contains(*ms))
        .count();
    assert!((17..=21).contains(&of_busy), "{apart:?}");
}

/// The longest time between heartbeats with newer watermarks, in the milliseconds of five seconds.
fn longest_without_news(world: &mut World, each: impl FnMut(&mut World, u64)) -> u64 {
    let mut with_news = heartbeats(world, each);
    with_news.dedup_by_key(|heartbeat| heartbeat.ruled);
    let pairs = with_news.windows(2);
    let apart = pairs.map(|pair| pair[1].sent.saturating_sub(pair[0].sent).as_millis());
    apart.max().expect("there are some")
}

/// After a second without newer watermarks, agents take their calls for unguarded.
#[test]
fn late_and_lost_ticks_of_quiet_partitions_delay_watermarks_by_little() {
    let mut world = World::new(LIMITS);
    // Until it is quiet, and heartbeats go with ticks.
    world.run_for(Span::from_secs(30));
    run_to_a_heartbeat(&mut world);
    // Each second tick comes when the heartbeat has just gone without it.
    let longest = longest_without_news(&mut world, |world, step| match step % 80 {
        35 => world.held = vec![Stream::Hits],
        // The tick was sent at 40, and the heartbeat at 45.
        46 => world.held.clear(),
        _ => {}
    });
    assert!((400..=600).contains(&longest), "{longest} ms");
    // Each second tick is lost.
    let mut world = World::new(LIMITS);
    world.run_for(Span::from_secs(30));
    let mut lost = 0;
    let mut taken = false;
    world.fate = Box::new(move |_, record| {
        if record[1] != kind::TICK {
            return Fate::Taken;
        }
        lost += 1;
        // The ticks of all partitions come together.
        if lost % PARTITIONS == 1 {
            taken = !taken;
        }
        if taken { Fate::Taken } else { Fate::Refused }
    });
    let longest = longest_without_news(&mut world, |_, _| {});
    assert!((600..700).contains(&longest), "{longest} ms");
}

#[test]
fn never_more_than_one_tick_is_on_its_way() {
    let mut world = World::new(LIMITS);
    let before = world.log.count(kind::TICK);
    // The log takes them and does not deliver them.
    world.held = vec![Stream::Hits];
    world.run_for(Span::from_secs(5));
    let sent = world.log.count(kind::TICK) - before;
    assert!(sent <= PARTITIONS as usize, "{sent}");
    world.held.clear();
    world.run_for(Span::from_secs(5));
    let later = world.log.count(kind::TICK) - before - sent;
    // Twelve per partition in five seconds, one each 400 ms, as it is quiet.
    assert!((12 * 4..=14 * 4).contains(&later), "{later}");
}

#[test]
fn a_denial_is_announced_with_its_remaining_log_time() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 5);
    world.run_for(Span::from_millis(400));
    let statements: Vec<_> = world
        .frames
        .iter()
        .flat_map(|frame| &frame.statements)
        .collect();
    assert_eq!(statements.len(), 1);
    let remaining = statements[0].remaining;
    // A minute from the hit on; the log's time lags by at most a tick and a turn.
    assert!(
        Span::from_micros(59_500_000) <= remaining
            && remaining <= Span::from_micros(60_000_001 + 300_000),
        "{remaining}"
    );
    let frame = world
        .frames
        .iter()
        .find(|frame| !frame.statements.is_empty())
        .unwrap();
    let watermark = frame
        .watermarks
        .iter()
        .find(|e| e.partition == statements[0].partition)
        .unwrap();
    assert!(statements[0].statement.position.offset < watermark.ruled);
}

#[test]
fn denials_in_force_are_announced_once_when_ready() {
    let mut world = World::new(LIMITS);
    for n in 0..30 {
        world.hit("search", &format!("d{n}"), 5);
    }
    world.settle();
    let mut again = World::on(world.log.clone(), 1);
    again.clock = world.clock;
    again.run_for(Span::from_secs(1));
    assert_eq!(again.announced(), 30);
    let frames: Vec<_> = again
        .frames
        .iter()
        .filter(|frame| !frame.resource.is_empty())
        .collect();
    assert_eq!(frames[0].sequence, 1);
}

#[test]
fn too_many_appends_of_agents_are_deferred() {
    let mut world = World::new(LIMITS);
    let (partition, record) = world.batch("search", "acme", 1);
    for id in 0..70_000 {
        let request = Request::Append {
            id,
            partition,
            record: record.clone(),
        };
        let peer = Peer(bytes::Bytes::from_static(b"p"));
        world.step(Event::Agent { peer, request });
    }
    let refused = world
        .answers
        .iter()
        .filter(|answer| {
            matches!(
                answer,
                FromAggregator::Refused {
                    reason: Refusal::NotNow,
                    ..
                }
            )
        })
        .count();
    assert_eq!(refused, 70_000 - 65_536);
}

#[test]
fn an_append_is_acknowledged_once_ruled_or_after_a_second() {
    let mut world = World::new(LIMITS);
    let answered = |world: &World| {
        let answers = world.answers.iter();
        answers
            .filter(|answer| matches!(answer, FromAggregator::Appended { .. }))
            .count()
    };
    world.hit("search", "acme", 1);
    world.settle();
    assert_eq!(answered(&world), 1);
    // The log has it, and it is not ruled yet.
    world.held = vec![Stream::Hits];
    world.hit("search", "acme", 1);
    world.run_for(Span::from_millis(900));
    assert_eq!(answered(&world), 1);
    world.run_for(Span::from_millis(200));
    assert_eq!(answered(&world), 2);
    world.hit("search", "acme", 1);
    world.settle();
    assert_eq!(answered(&world), 2);
    world.held.clear();
    world.settle();
    assert_eq!(answered(&world), 3);
    // If another aggregator rules the partition, the answer says only that the log has the record.
    world.held = vec![Stream::Hits];
    world.hit("search", "acme", 1);
    world.settle();
    assert_eq!(answered(&world), 3);
    world.step(Event::Revoked((0..PARTITIONS).collect()));
    world.settle();
    assert_eq!(answered(&world), 4);
}

#[test]
fn a_record_that_is_delivered_again_is_not_ruled_again() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 5);
    world.settle();
    let before = world.counters();
    for partition in 0..PARTITIONS {
        let records = world.log.streams[&(Stream::Hits, partition)].clone();
        let stream = Stream::Hits;
        world.step(Event::Log(LogEvent::Delivered {
            stream,
            partition,
            records,
        }));
    }
    assert_eq!(world.counters(), before);
}

#[test]
fn an_ended_denial_is_recorded_and_not_announced() {
    let mut world = World::new(LIMITS);
    world.held = vec![Stream::Hits];
    world.hit("search", "acme", 5);
    // The denial would have lasted a minute.
    world.run_for(Span::from_secs(70));
    world.held.clear();
    world.settle();
    let counters = world.counters();
    assert_eq!((counters.denials, counters.denials_recorded), (1, 1));
    assert_eq!(world.announced(), 0);
}
