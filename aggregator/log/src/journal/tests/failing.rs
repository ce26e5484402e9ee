//! A disk that is full or fails: nothing acknowledged is lost, and the journal goes on when it can.

use super::faulty::{Faults, FaultyDisk, kit_on};
use super::*;

fn is_not_now(answer: Result<u64, AppendError>) -> bool {
    matches!(answer, Err(AppendError::NotNow(_)))
}

#[test]
fn a_full_disk_at_any_step_leaves_the_journal_whole() {
    for ack in [Ack::Written, Ack::Synced] {
        for room in 0..40 {
            let disk = FaultyDisk::default();
            let mut kit = kit_on(&disk);
            kit.config.ack = ack;
            let mut open = kit.open();
            assert_eq!(open.append(Stream::Hits, 0, b"before, and longer"), Ok(0));
            disk.set(Faults {
                room_bytes: Some(room),
                ..Faults::default()
            });
            assert!(is_not_now(open.append(
                Stream::Hits,
                0,
                b"does not fit, being long"
            )));
            let whole = std::fs::read(&kit.segments(Stream::Hits, 0)[0]).expect("reads");
            assert_eq!(whole.len(), 32 + 20 + 18, "the rest was cut off");
            assert!(is_not_now(open.append(Stream::Hits, 0, &[7; 100])));
            disk.set(Faults::default());
            assert_eq!(open.append(Stream::Hits, 0, b"after"), Ok(1));
            let all = open.read_all(Stream::Hits, 0, 0);
            assert_eq!(texts(&all), ["before, and longer", "after"]);
            open.close();
            assert_eq!(kit.open_report().torn, []);
        }
    }
}

#[test]
fn a_full_disk_is_reported_once_and_so_is_its_end() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    let states = |open: &mut Open| -> Vec<bool> {
        let events = std::mem::take(&mut open.held);
        let states = events.into_iter().filter_map(|event| match event {
            LogEvent::Down { why } => {
                assert!(why.contains("hits-0000"), "{why}");
                Some(false)
            }
            LogEvent::Up => Some(true),
            _ => None,
        });
        states.collect()
    };
    assert_eq!(open.append(Stream::Hits, 0, b"fits"), Ok(0));
    assert_eq!(states(&mut open), [] as [bool; 0]);
    disk.set(Faults {
        room_bytes: Some(0),
        ..Faults::default()
    });
    for partition in [0, 1, 0] {
        assert!(is_not_now(open.append(
            Stream::Hits,
            partition,
            b"does not"
        )));
    }
    assert_eq!(states(&mut open), [false]);
    disk.set(Faults::default());
    assert_eq!(open.append(Stream::Hits, 0, b"fits again"), Ok(1));
    assert_eq!(
        states(&mut open),
        [] as [bool; 0],
        "the other has not been heard of"
    );
    assert_eq!(open.append(Stream::Hits, 1, b"fits again"), Ok(0));
    assert_eq!(states(&mut open), [true]);
    open.close();
}

#[test]
fn a_torn_end_is_cut_off_before_the_next_append() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, b"before"), Ok(0));
    let full = Faults {
        room_bytes: Some(30),
        truncate: true,
        ..Faults::default()
    };
    disk.set(full);
    assert!(is_not_now(open.append(
        Stream::Hits,
        0,
        b"a long record that is torn"
    )));
    // There is room again, but a short record written over a torn long one would leave rubbish
    // behind it.
    disk.set(Faults {
        truncate: true,
        ..Faults::default()
    });
    assert!(is_not_now(open.append(Stream::Hits, 0, b"short")));
    disk.set(Faults::default());
    assert_eq!(open.append(Stream::Hits, 0, b"short"), Ok(1));
    let length = std::fs::metadata(&kit.segments(Stream::Hits, 0)[0])
        .expect("there")
        .len();
    assert_eq!(length, 32 + 26 + 25);
    open.close();
}

#[test]
fn an_unsynced_record_is_neither_acknowledged_nor_delivered() {
    let disk = FaultyDisk::default();
    let mut kit = kit_on(&disk);
    kit.config.ack = Ack::Synced;
    let mut open = kit.open();
    open.log.follow(Stream::Hits, 0, 0);
    assert_eq!(open.append(Stream::Hits, 0, b"first"), Ok(0));
    disk.set(Faults {
        sync: true,
        ..Faults::default()
    });
    assert!(is_not_now(open.append(Stream::Hits, 0, b"lost")));
    disk.set(Faults::default());
    assert_eq!(open.append(Stream::Hits, 0, b"second"), Ok(1));
    let mut delivered = Vec::new();
    while delivered.len() < 2 {
        delivered.extend(open.find(|event| match event {
            LogEvent::Delivered { records, .. } => Some(records.clone()),
            _ => None,
        }));
    }
    assert_eq!(texts(&delivered), ["first", "second"]);
    open.close();
}

#[test]
fn a_segment_that_cannot_be_begun_is_begun_later() {
    let disk = FaultyDisk::default();
    let mut kit = kit_on(&disk);
    kit.config.segment_bytes = 80;
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, &[1; 20]), Ok(0));
    disk.set(Faults {
        create: true,
        ..Faults::default()
    });
    assert!(is_not_now(open.append(Stream::Hits, 0, &[2; 20])));
    disk.set(Faults {
        room_bytes: Some(31),
        ..Faults::default()
    });
    assert!(is_not_now(open.append(Stream::Hits, 0, &[2; 20])));
    disk.set(Faults::default());
    assert_eq!(open.append(Stream::Hits, 0, &[3; 20]), Ok(1));
    assert_eq!(kit.segments(Stream::Hits, 0).len(), 2);
    open.close();
    let mut open = kit.open();
    assert_eq!(open.read_all(Stream::Hits, 0, 0).len(), 2);
    open.close();
}

#[test]
fn a_segment_begun_after_a_fault_is_not_taken_for_what_the_fault_left() {
    let disk = FaultyDisk::default();
    let mut kit = kit_on(&disk);
    kit.config.retention = Span::from_secs(40);
    let mut open = kit.open();
    kit.at(1_000);
    assert_eq!(open.append(Stream::Hits, 0, b"before"), Ok(0));
    // The directory cannot be written to for a while: a quarter of the retention is over, and no segment can be begun.
    disk.set(Faults {
        create: true,
        removals: Some(0),
        ..Faults::default()
    });
    kit.at(20_000);
    assert!(is_not_now(open.append(Stream::Hits, 1, b"of another")));
    disk.set(Faults::default());
    for second in 22..30 {
        kit.at(1_000 * second);
        assert!(open.append(Stream::Hits, 1, b"of another").is_ok());
    }
    assert_eq!(kit.segments(Stream::Hits, 0).len(), 2, "begun by now");
    assert_eq!(open.append(Stream::Hits, 0, b"after"), Ok(1));
    assert_eq!(kit.segments(Stream::Hits, 0).len(), 2);
    open.close();
    let mut open = kit.open();
    let all = open.read_all(Stream::Hits, 0, 0);
    assert_eq!(texts(&all), ["before", "after"]);
    open.close();
}

#[test]
fn synced_syncs_once_for_all_waiting_and_written_never() {
    for ack in [Ack::Written, Ack::Synced] {
        let disk = FaultyDisk::default();
        let mut kit = kit_on(&disk);
        kit.config.ack = ack;
        let (mut core, _) = core::Core::open(
            kit.config.clone(),
            Arc::clone(&kit.disk),
            Some("boot"),
            Timestamp::ZERO,
        )
        .expect("opens");
        let mut turn = || {
            let commands = (0..100).map(|n| {
                core::JournalCommand::Append(Append {
                    stream: Stream::Hits,
                    partition: 0,
                    ticket: Ticket(n),
                    record: vec![0; 10].into(),
                })
            });
            core.turn(commands, Timestamp::ZERO, &mut |_| {});
        };
        turn();
        let before = disk.counts();
        turn();
        let after = disk.counts();
        assert_eq!(after.writes - before.writes, 1);
        assert_eq!(after.syncs - before.syncs, u64::from(ack == Ack::Synced));
    }
}

#[test]
fn a_read_that_the_system_refuses_is_tried_again() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    for record in [b"first ", b"second"] {
        let appended = open.append(Stream::Hits, 0, record);
        appended.expect("appended");
    }
    open.close();
    let (config, boot) = (kit.config.clone(), kit.boot.as_deref());
    let opened = core::Core::open(config, Arc::clone(&kit.disk), boot, Timestamp::ZERO);
    let (mut core, _) = opened.expect("opens");
    let mut turn = |ms, follow: Option<u64>| {
        let follow = follow.map(|from| core::JournalCommand::Follow {
            stream: Stream::Hits,
            partition: 0,
            from,
        });
        let (mut read, mut others) = (Vec::new(), 0);
        let more = core.turn(
            follow,
            Timestamp::from_millis(ms),
            &mut |event| match event {
                LogEvent::Delivered { records, .. } => read.extend(texts(&records)),
                _ => others += 1,
            },
        );
        assert!(!more, "it does not try without a pause");
        (read, others)
    };
    disk.set(Faults {
        secret: Some(".seg"),
        ..Faults::default()
    });
    assert_eq!(turn(1_000, Some(0)), (vec![], 1), "following begins");
    assert_eq!(turn(2_000, None), (vec![], 0));
    disk.set(Faults::default());
    assert_eq!(turn(2_999, None), (vec![], 0));
    let both = ["first ", "second"].map(str::to_owned).to_vec();
    assert_eq!(turn(3_000, None), (both, 1), "and it has caught up");
}

#[test]
fn a_follower_that_is_caught_up_gets_records_from_memory() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"x").expect("appended");
    open.read_all(Stream::Hits, 0, 0);
    let before = disk.counts().reads_opened;
    for _ in 0..10 {
        open.append(Stream::Hits, 0, b"y").expect("appended");
    }
    assert_eq!(disk.counts().reads_opened, before);
    open.close();
}

#[test]
fn an_unsynced_segment_delays_the_one_after_the_next() {
    let disk = FaultyDisk::default();
    let mut kit = kit_on(&disk);
    kit.config.segment_bytes = 60;
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, b"in the first"), Ok(0));
    disk.set(Faults {
        sync: true,
        ..Faults::default()
    });
    assert_eq!(open.append(Stream::Hits, 0, b"in the second"), Ok(1));
    // If a segment began now, a power cut could lose part of the first, which opening would take
    // for damage.
    assert!(is_not_now(open.append(Stream::Hits, 0, b"in the third")));
    assert_eq!(kit.segments(Stream::Hits, 0).len(), 2);
    disk.set(Faults::default());
    assert_eq!(open.append(Stream::Hits, 0, b"in the third"), Ok(2));
    assert_eq!(open.read_all(Stream::Hits, 0, 0).len(), 3);
    open.close();
}

#[test]
fn synced_mode_syncs_earlier_written_records() {
    let disk = FaultyDisk::default();
    let mut kit = kit_on(&disk);
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"x").expect("appended");
    open.append(Stream::Denials, 1, b"x").expect("appended");
    open.close();
    kit.leave_as_if_killed();
    kit.config.ack = Ack::Synced;
    let before = disk.counts().syncs;
    let open = kit.open();
    assert_eq!(disk.counts().syncs - before, 2, "both partitions");
    open.close();
}

#[test]
fn records_unsynced_at_a_kill_are_synced_before_delivery() {
    for (ack, synced) in [(Ack::Written, 1), (Ack::Synced, 2)] {
        let disk = FaultyDisk::default();
        let mut kit = kit_on(&disk);
        kit.config.ack = ack;
        let mut open = kit.open();
        open.append(Stream::Hits, 0, b"x").expect("appended");
        open.append(Stream::Limits, 0, b"x").expect("appended");
        open.close();
        kit.leave_as_if_killed();
        let before = disk.counts().syncs;
        let open = kit.open();
        assert_eq!(
            disk.counts().syncs - before,
            synced,
            "{ack:?}: limits in both"
        );
        open.close();
        // After a clean stop opening has nothing to sync.
        let before = disk.counts().syncs;
        let open = kit.open();
        assert_eq!(disk.counts().syncs - before, 0, "{ack:?}");
        open.close();
    }
}

#[test]
fn a_journal_that_was_moved_away_is_a_failed_disk_until_it_is_back() {
    let kit = Kit::new();
    let (config, disk) = (kit.config.clone(), Arc::clone(&kit.disk));
    let (dir, away) = (config.dir.clone(), kit.path().join("away"));
    let opened = core::Core::open(config, disk, Some("boot"), Timestamp::ZERO);
    let (mut core, _) = opened.expect("opens");
    let mut seconds = 0;
    // A second passes in which the journal looks, and then a record comes.
    let mut append = |core: &mut core::Core| {
        seconds += 1;
        let now = Timestamp::from_millis(seconds * 1_000);
        core.turn([], now, &mut |_| {});
        let append = Append {
            stream: Stream::Hits,
            partition: 0,
            ticket: Ticket(seconds),
            record: Bytes::from_static(b"x"),
        };
        let (mut answer, mut down) = (None, None);
        core.turn([core::JournalCommand::Append(append)], now, &mut |event| {
            answer = event.answer_to(Ticket(seconds)).cloned().or(answer.take());
            if let LogEvent::Down { why } = event {
                down = Some(why);
            }
        });
        (answer.expect("an answer"), down)
    };
    assert_eq!(append(&mut core), (Ok(0), None));
    std::fs::rename(&dir, &away).expect("renamed");
    let (answer, down) = append(&mut core);
    assert!(is_not_now(answer));
    let why = down.expect("it is reported");
    assert!(why.contains("deleted, moved or replaced"), "{why}");
    assert!(why.contains("00000000000000000000.seg"), "{why}");
    assert!(!dir.exists(), "nothing is made in its place");
    std::fs::rename(&away, &dir).expect("renamed");
    assert_eq!(append(&mut core), (Ok(1), None));
    // Another journal in its place is left as it is.
    std::fs::rename(&dir, &away).expect("renamed");
    let mut other = kit.open();
    assert_eq!(other.append(Stream::Hits, 0, b"of another"), Ok(0));
    assert!(is_not_now(append(&mut core).0));
    assert!(core.close().is_err());
    assert!(layout::running(&dir).exists());
    assert_eq!(other.append(Stream::Hits, 0, b"of another"), Ok(1));
    other.close();
}
