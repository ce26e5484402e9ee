//! Limits that come late, lose a conflict or are invalid, and records that cannot be ruled.

use tollgate_limits::versions::BanFilter;
use tollgate_log::Stream;
use tollgate_server::core::amendments::Proposal;
use tollgate_server::core::event::{Event, LimitsFile, QueryId};
use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::record::{LimitsActivation, RecordPen, Tick, Total};
use tollgate_shared::wire::set_rows::SetRow;

use crate::LIMITS;
use crate::bounds::domains;
use crate::world::{Fate, MemoryLog, PARTITIONS, STRANGER, World};

#[test]
fn a_partition_waits_for_the_limits_of_an_activation() {
    let mut world = World::new(LIMITS);
    // Another aggregator on the same log pushes a version, activates it, and rules on.
    let mut other = World::on(world.log.clone(), 2);
    other.clock = world.clock;
    other.push(&LIMITS.replace("5/m", "2/m"));
    other.hit("search", "acme", 3);
    other.settle();
    // This one receives the partitions first.
    world.log = other.log.clone();
    world.fate = Box::new(|_, _| Fate::Refused);
    world.held = vec![Stream::Limits];
    world.settle();
    let why = world.why_not_ready();
    assert_eq!(why.len(), PARTITIONS as usize);
    assert!(
        why.iter()
            .all(|why| why.contains("waits for limits version")),
        "{why:?}"
    );
    world.held.clear();
    world.settle();
    for (theirs, ours) in other
        .digests()
        .partitions
        .iter()
        .zip(world.digests().partitions)
    {
        assert_eq!((theirs.offset, &theirs.digest), (ours.offset, &ours.digest));
        assert_eq!(theirs.version, ours.version);
    }
    assert_eq!(world.announced(), 1);
}

/// The push of another aggregator that follows another file.
fn push_of_a_rival(world: &World, limits: &str) -> Vec<u8> {
    let mut rival = World::on(world.log.clone(), 2);
    rival.clock = world.clock;
    rival.settle();
    rival.read_limits_file(limits);
    rival.settle();
    let pushed = rival.log.streams[&(Stream::Limits, 0)].last().unwrap();
    pushed.bytes.to_vec()
}

#[test]
fn a_file_is_pushed_once_and_later_pushes_stay() {
    let mut world = World::new(LIMITS);
    let pushes = world.counters().pushes;
    let theirs = push_of_a_rival(&world, &LIMITS.replace("5/m", "3/m"));
    world.put(Stream::Limits, 0, theirs);
    world.run_for(Span::from_secs(3));
    assert_eq!(world.counters().pushes, pushes, "it was not read again");
    world.hit("search", "acme", 3);
    world.settle();
    assert_eq!(
        world.pair("search", "acme").state.unwrap().constraints[0].limit,
        3
    );
    // As on SIGHUP.
    world.push(LIMITS);
    assert_eq!(world.counters().pushes, pushes + 1);
    world.hit("search", "acme", 5);
    world.settle();
    assert_eq!(
        world.pair("search", "acme").state.unwrap().constraints[0].limit,
        5
    );
}

#[test]
fn a_file_that_is_read_again_while_it_is_pushed_is_pushed_again() {
    // Another document, and the one that was in force and still is.
    for (text, limit) in [(LIMITS.replace("5/m", "4/m"), 4), (LIMITS.to_owned(), 5)] {
        let mut world = World::new(LIMITS);
        world.held = vec![Stream::Limits];
        world.read_limits_file(&LIMITS.replace("5/m", "3/m"));
        world.settle();
        world.read_limits_file(&text);
        world.settle();
        world.held.clear();
        world.run_for(Span::from_secs(3));
        world.hit("search", "acme", 4);
        world.settle();
        let state = world.pair("search", "acme").state.unwrap();
        assert_eq!(state.constraints[0].limit, limit);
    }
}

/// Puts a row beside the document in force.
fn put_row(world: &mut World, resource: &str, domain: &str, rate: &str) {
    let expected = world.digests().limits_version;
    let row = SetRow {
        resource: resource.into(),
        domain: domain.into(),
        rate: Some(rate.into()),
        hard: None,
        limit: None,
    };
    let mut writer = Writer::new();
    Amendment {
        push: 77,
        expected,
        who: "ann",
        why: "a test",
        act: Act::Set(row),
    }
    .encode(&mut writer);
    world.put(Stream::Limits, 0, writer.as_slice().to_vec());
    world.settle();
    assert!(expected < world.digests().limits_version);
}

#[test]
fn a_void_push_condemns_no_file_that_was_read_since() {
    let mut world = World::new(LIMITS);
    put_row(&mut world, "search", "198.51.100.0/24", "9/s");
    // The row cannot stand beside this document.
    let networks = "addresses = { v4 = 16, v6 = 64 }\nrate = \"5/m\"";
    let void = LIMITS.replace("rate = \"5/m\"", networks);
    world.held = vec![Stream::Limits];
    world.read_limits_file(&void);
    world.settle();
    world.read_limits_file(&LIMITS.replace("5/m", "4/m"));
    world.settle();
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.counters().pushes_void, 1);
    assert_eq!(world.gauges().limits_file_bad, 0);
    world.hit("search", "acme", 4);
    world.settle();
    let state = world.pair("search", "acme").state.unwrap();
    assert_eq!(state.constraints[0].limit, 4);

    // It is still bad if it is read again.
    world.push(&void);
    assert_eq!(world.counters().pushes_void, 2);
    assert_eq!(world.gauges().limits_file_bad, 1);
}

#[test]
fn limits_that_lose_a_race_are_pushed_again() {
    let mut world = World::new(LIMITS);
    // Another aggregator pushes at the same time: its record is in the log before ours.
    let theirs = push_of_a_rival(&world, &LIMITS.replace("5/m", "3/m"));
    world.held = vec![Stream::Limits];
    world.put(Stream::Limits, 0, theirs);
    world.read_limits_file(&LIMITS.replace("5/m", "4/m"));
    world.settle();
    world.held.clear();
    world.run_for(Span::from_secs(3));
    assert_eq!(world.counters().pushes_void, 1);
    world.hit("search", "acme", 4);
    world.settle();
    assert_eq!(
        world.pair("search", "acme").state.unwrap().constraints[0].limit,
        4
    );
}

#[test]
fn a_bad_file_and_an_empty_log_leave_no_limits() {
    let bad = |text: Result<&str, &str>| LimitsFile {
        name: "limits.toml".to_owned(),
        text: text.map(str::to_owned).map_err(str::to_owned),
    };
    let mut world = World::on(MemoryLog::default(), 1);
    world.step(Event::LimitsFile(bad(Ok("[rate.r]\nrats = 1\n"))));
    world.settle();
    assert!(world.gave_up.is_some_and(|why| why.contains("rats")));

    let good = World::new(LIMITS);
    let mut world = World::on(good.log, 1);
    world.step(Event::LimitsFile(bad(Err("No such file"))));
    world.run_for(Span::from_secs(1));
    assert_eq!(world.gave_up, None);
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn an_unreadable_record_is_a_dead_letter_and_stops_nothing() {
    let mut world = World::new(LIMITS);
    let (partition, mut cut) = world.batch("search", "acme", 5);
    let (_, good) = world.batch("search", "acme", 5);
    cut.truncate(cut.len() - 2);
    world.put(Stream::Hits, partition, cut.clone());
    world.put(Stream::Hits, partition, vec![7, 7, 7]);
    let at = world.put(Stream::Hits, partition, vec![1, 0x80 | 40, 1]);
    // Signed by a writer without the key.
    let stranger = MacKey::derive(b"not the fleet's");
    let tick = Tick {
        log: STRANGER,
        aggregator: "x",
        instance: 1,
        number: 1,
    };
    world.put(
        Stream::Hits,
        partition,
        RecordPen::new(&stranger, partition).tick(&tick),
    );
    let activation = LimitsActivation {
        version: 1,
        digest: [9; 32],
    };
    world.put(
        Stream::Hits,
        partition,
        RecordPen::new(&stranger, partition).limits_activation(&activation),
    );
    // Of this fleet, and for a version that does not exist.
    let forged = LimitsActivation {
        version: 0,
        digest: [9; 32],
    };
    world.put(
        Stream::Hits,
        partition,
        RecordPen::new(&MacKey::UNPROTECTED, partition).limits_activation(&forged),
    );
    world.put(Stream::Hits, partition, good);
    world.settle();
    let counters = world.counters();
    assert_eq!(
        (counters.undecodable, counters.forged, counters.skipped),
        (2, 2, 1)
    );
    assert_eq!(world.dead_letters.len(), 4);
    assert_eq!(&world.dead_letters[0].bytes[..], &cut[..]);
    assert!(
        world
            .dead_letters
            .iter()
            .all(|dead_letter| dead_letter.offset != at && !dead_letter.why.is_empty())
    );
    assert_eq!(
        world.announced(),
        1,
        "the good record behind them was ruled"
    );
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn an_unknown_kind_of_an_aggregator_stops_its_partition_alone() {
    let mut world = World::new(LIMITS);
    let (partition, good) = world.batch("search", "acme", 5);
    let record = [1, 40, 1];
    let tag = MacKey::UNPROTECTED.tag(partition, &record);
    let at = world.put(Stream::Hits, partition, [&record[..], &tag].concat());
    world.put(Stream::Hits, partition, good);
    world.run_for(Span::from_secs(1));
    let why = world.why_not_ready();
    assert_eq!(why.len(), 1);
    assert!(why[0].contains("kind 40"), "{why:?}");
    assert_eq!(world.announced(), 0);
    let stopped = &world.digests().partitions[partition as usize];
    assert_eq!((&*stopped.stage, stopped.offset), ("stopped", at));
}

#[test]
fn an_unknown_kind_that_no_aggregator_wrote_is_a_dead_letter() {
    let mut world = World::new(LIMITS);
    let (partition, good) = world.batch("search", "acme", 5);
    let of_another = {
        let record = [1, 40, 1];
        let tag = MacKey::UNPROTECTED.tag(partition + 1, &record);
        [&record[..], &tag].concat()
    };
    let letters = [
        vec![1, 99],
        vec![1, 8],
        vec![1, 0],
        vec![1, 0x7f, 1, 2, 3],
        of_another,
    ];
    for letter in &letters {
        world.put(Stream::Hits, partition, letter.clone());
    }
    world.put(Stream::Hits, partition, good);
    world.settle();
    assert_eq!(world.counters().unknown_kinds, letters.len() as u64);
    let dead_letter: Vec<Vec<u8>> = world
        .dead_letters
        .iter()
        .map(|one| one.bytes.to_vec())
        .collect();
    assert_eq!(dead_letter, letters);
    assert!(
        world
            .dead_letters
            .iter()
            .all(|one| one.why.contains("kind "))
    );
    assert_eq!(
        world.announced(),
        1,
        "the good record behind them was ruled"
    );
    assert!(world.why_not_ready().is_empty());
}

#[test]
fn totals_that_their_source_never_had_are_counted() {
    let mut world = World::new(LIMITS);
    let target = partition_of_resource("wide", PARTITIONS);
    let source = (target + 1) % PARTITIONS;
    let domain = domains("wide", source).next().unwrap();
    world.hit("wide", &domain, 1);
    world.settle();
    assert_eq!(world.counters().totals_forged, 0, "its own are not");
    let mut put = |source: (u32, u64), resource: &str| {
        let pen = RecordPen::new(&MacKey::UNPROTECTED, target);
        let total = pen.totals(
            resource,
            source,
            &[Total::guarded(1_700_000_000_000, 2_000)],
        );
        world.put(Stream::Hits, target, total);
        world.settle();
        world.counters().totals_forged
    };
    assert_eq!(put((source, 0), "tall"), 1, "no record had one");
    assert_eq!(put((PARTITIONS, 1), "wide"), 2, "no such partition");
    assert_eq!(put((source, 1 << 40), "wide"), 2, "nobody here can tell");
    assert!(world.why_not_ready().is_empty());
}

/// Where a clock was set back, log time is ahead: a ban that is over by log time would ban nobody, and end another one.
#[test]
fn a_ban_that_is_over_by_log_time_is_refused() {
    let mut world = World::new(LIMITS);
    world.hit("search", "acme", 1);
    world.settle();
    let log_now = world.wall();
    let mut asked_for = |until: Timestamp, ban_lasts: Option<Span>| {
        let act = Act::Ban {
            resource: Some("search".into()),
            domain: "acme".into(),
            until,
        };
        let proposal = Proposal {
            act,
            ban_lasts,
            who: "ann".to_owned(),
            why: "scraping".to_owned(),
            expected: None,
            dry_run: true,
        };
        match world.ask(Query::Amend(Box::new(proposal))) {
            Reply::Amended(answer) => match answer {
                Ok(view) => Ok(view.amendment),
                Err(refused) => Err(refused.to_string()),
            },
            other => panic!("{other:?}"),
        }
    };
    // An operator's hour is an hour, though this aggregator's clock is behind log time.
    let hour = Span::from_secs(3_600);
    let behind = Timestamp::from_micros(log_now.as_micros() - 1_800_000_000);
    let of_log = asked_for(behind.saturating_add(hour), Some(hour));
    assert_eq!(of_log, asked_for(log_now.saturating_add(hour), None));
    let ahead = log_now.saturating_add(hour).saturating_add(hour);
    assert_eq!(asked_for(ahead, Some(hour)), asked_for(ahead, None));
    let mut asked = |until: Timestamp| asked_for(until, None).map(drop);
    let over = asked(Timestamp::from_micros(log_now.as_micros() - 3_600_000_000));
    let expected = "log time is 3600 s after the end of the ban already: expected an end that is later by more than that";
    assert_eq!(over, Err(expected.to_owned()));
    assert_eq!(asked(log_now.saturating_add(Span::from_secs(60))), Ok(()));
    assert_eq!(asked(Timestamp::MAX), Ok(()));
}

fn bans_listed(world: &mut World) -> usize {
    let all = Query::Bans {
        filter: BanFilter::default(),
        limit: 10,
    };
    match world.ask(all) {
        Reply::Bans(Some(page)) => page.bans.len(),
        other => panic!("{other:?}"),
    }
}

/// An aggregator of a fleet may rule no partition for a while: its own clock then says which bans have ended.
#[test]
fn a_core_without_partitions_knows_which_bans_have_ended() {
    let mut ruling = World::new(LIMITS);
    ruling.settle();
    let proposal = Proposal {
        act: Act::Ban {
            resource: Some("search".into()),
            domain: "acme".into(),
            until: ruling.wall().saturating_add(Span::from_secs(7_200)),
        },
        ban_lasts: None,
        who: "ann".to_owned(),
        why: "scraping".to_owned(),
        expected: None,
        dry_run: false,
    };
    // Answered once the log has it.
    ruling.step(Event::Query {
        id: QueryId(u64::MAX),
        query: Query::Amend(Box::new(proposal.clone())),
    });
    ruling.run_for(Span::from_secs(1));
    assert_eq!(bans_listed(&mut ruling), 1);
    let bans = |hour: u64| {
        let mut idle = World::shared(ruling.log.clone(), hour);
        idle.step(Event::Assigned(Vec::new()));
        idle.run_for(Span::from_secs(1));
        let listed = bans_listed(&mut idle);
        let unban = Proposal {
            act: Act::Unban {
                resource: Some("search".into()),
                domain: "acme".into(),
            },
            dry_run: true,
            ..proposal.clone()
        };
        match idle.ask(Query::Amend(Box::new(unban))) {
            Reply::Amended(answer) => (listed, answer.is_ok()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(bans(1), (1, true));
    assert_eq!(bans(9), (0, false));
}
