//! Appending and following, while all is well.

use super::*;

#[test]
fn acknowledged_records_are_delivered_in_order_and_kept() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.log.follow(Stream::Hits, 1, 0);
    for n in 0..5 {
        let appended = open.append(Stream::Hits, 1, format!("r{n}").as_bytes());
        assert_eq!(appended, Ok(n));
    }
    let mut delivered = Vec::new();
    while delivered.len() < 5 {
        delivered.extend(open.find(|event| match event {
            LogEvent::Delivered { records, .. } => Some(records.clone()),
            _ => None,
        }));
    }
    assert_eq!(texts(&delivered), ["r0", "r1", "r2", "r3", "r4"]);
    open.close();

    let mut open = kit.open();
    assert_eq!(open.read_all(Stream::Hits, 1, 0), delivered);
    assert_eq!(texts(&open.read_all(Stream::Hits, 1, 3)), ["r3", "r4"]);
    assert_eq!(open.append(Stream::Hits, 1, b"r5"), Ok(5));
    open.close();
}

#[test]
fn append_times_never_decrease_when_the_clock_does() {
    let kit = Kit::new();
    let mut open = kit.open();
    for at in [5_000, 4_000, 6_000, 1] {
        kit.at(at);
        open.append(Stream::Hits, 0, b"x").expect("appended");
    }
    open.close();
    kit.at(2);
    let (mut open, report) = kit.try_open().expect("opens");
    assert_eq!(report.clock_behind.as_millis(), 5_998);
    open.append(Stream::Hits, 0, b"x").expect("appended");
    let times: Vec<u64> = open
        .read_all(Stream::Hits, 0, 0)
        .iter()
        .map(|record| record.appended.as_millis())
        .collect();
    assert_eq!(times, [5_000, 5_000, 6_000, 6_000, 6_000]);
    open.close();
}

#[test]
fn append_times_go_on_after_the_clock_was_set_back() {
    let kit = Kit::new();
    let at = |now_ms, passed_ms| {
        kit.at(now_ms);
        kit.passed_ms.store(passed_ms, Ordering::SeqCst);
    };
    let append_to = |open: &mut Open, stream| {
        let offset = open.append(stream, 0, b"x").expect("appended");
        open.read_all(stream, 0, offset)[0].appended.as_millis()
    };
    let append = |open: &mut Open| append_to(open, Stream::Hits);
    at(50_000, 0);
    let mut open = kit.open();
    assert_eq!(append(&mut open), 50_000);
    at(20_000, 1_000);
    assert_eq!(append(&mut open), 50_990);
    open.close();
    // Restarted, with the clock still behind: for all partitions alike, so that no denial is earlier than its cause.
    let mut open = kit.open();
    assert_eq!(append_to(&mut open, Stream::Denials), 50_990);
    assert_eq!(append(&mut open), 50_990);
    at(30_000, 11_000);
    assert_eq!(append(&mut open), 60_890);
    open.close();
}

#[test]
fn a_follower_reads_all_segments_and_catches_up_once() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 200;
    let mut open = kit.open();
    for n in 0..40 {
        open.append(Stream::Denials, 0, format!("record {n}").as_bytes())
            .expect("appended");
    }
    assert!(5 < kit.segments(Stream::Denials, 0).len());
    for from in 0..=40 {
        let read = open.read_all(Stream::Denials, 0, from);
        let offsets: Vec<u64> = read.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, (from..40).collect::<Vec<_>>());
        assert!(
            read.iter()
                .all(|r| r.bytes == format!("record {}", r.offset))
        );
    }
    assert_eq!(open.append(Stream::Denials, 0, b"last"), Ok(40));
    let next = open.find(|event| match event {
        LogEvent::CaughtUp { .. } => panic!("said twice"),
        LogEvent::Delivered { records, .. } => Some(records[0].offset),
        _ => None,
    });
    assert_eq!(next, 40);
    open.close();
}

#[test]
fn following_beyond_the_end_is_a_gap_back_to_it() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"x").expect("appended");
    open.log.follow(Stream::Hits, 0, 9);
    let gap = open.find(|event| match event {
        LogEvent::Gap { wanted, next, .. } => Some((*wanted, *next)),
        _ => None,
    });
    assert_eq!(gap, (9, 1));
    open.append(Stream::Hits, 0, b"y").expect("appended");
    let offset = open.find(|event| match event {
        LogEvent::Delivered { records, .. } => Some(records[0].offset),
        _ => None,
    });
    assert_eq!(offset, 1);
    open.close();
}

#[test]
fn impossible_records_are_refused_at_once() {
    let kit = Kit::new();
    let mut open = kit.open();
    let no_partition = open.append(Stream::Hits, 2, b"x");
    assert!(matches!(no_partition, Err(AppendError::Never(_))));
    let too_long = open.append(Stream::Hits, 0, &vec![0; RECORD_BYTES_MAX + 1]);
    assert!(matches!(too_long, Err(AppendError::Never(_))));
    assert_eq!(
        open.append(Stream::Hits, 0, &vec![7; RECORD_BYTES_MAX]),
        Ok(0)
    );
    assert_eq!(
        open.read_all(Stream::Hits, 0, 0)[0].bytes.len(),
        RECORD_BYTES_MAX
    );
    open.close();
}

#[test]
fn after_close_appends_are_answered_not_now() {
    let kit = Kit::new();
    let mut open = kit.open();
    let before = open.send(Stream::Hits, 0, b"before");
    open.log.close();
    let after = open.send(Stream::Hits, 0, b"after");
    assert_eq!(open.answer(before), Ok(0));
    assert!(matches!(open.answer(after), Err(AppendError::NotNow(_))));
}

#[test]
fn a_lagging_follower_reads_the_missed_records_first() {
    let kit = Kit::new();
    let now = Timestamp::from_millis(1);
    let disk = Arc::clone(&kit.disk);
    let opened = core::Core::open(kit.config.clone(), disk, Some("boot"), now);
    let (mut core, _) = opened.expect("opens");
    let append = |n| {
        core::JournalCommand::Append(Append {
            stream: Stream::Hits,
            partition: 0,
            ticket: Ticket(n),
            record: n.to_string().into(),
        })
    };
    core.turn((0..10).map(append), now, &mut |_| {});
    let follow = core::JournalCommand::Follow {
        stream: Stream::Hits,
        partition: 0,
        from: 4,
    };
    let mut delivered = Vec::new();
    core.turn([follow, append(10)], now, &mut |event| {
        if let LogEvent::Delivered { records, .. } = event {
            delivered.extend(records);
        }
    });
    assert_eq!(texts(&delivered), ["4", "5", "6", "7", "8", "9", "10"]);
}

#[test]
fn appends_are_refused_above_the_queues_bound() {
    let mut kit = Kit::new();
    kit.config.queue_bytes_max = 1_000;
    kit.events_max = 1;
    for _ in 0..2 {
        let mut open = kit.open();
        // The test takes no events, so the thread stops after some.
        let tickets: Vec<Ticket> = (0..100)
            .map(|_| open.send(Stream::Hits, 0, &[7; 100]))
            .collect();
        let answers: Vec<_> = tickets.into_iter().map(|t| open.answer(t)).collect();
        let refused = answers.iter().filter(|answer| answer.is_err()).count();
        assert!((50..100).contains(&refused), "{refused}");
        for _ in 0..100 {
            assert!(open.append(Stream::Hits, 0, &[7; 900]).is_ok());
        }
        open.close();
    }
}
