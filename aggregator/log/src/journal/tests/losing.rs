//! A log that has lost its end, or all of a partition, is damage with a name; a journal that may have fewer records
//! opens.

use super::super::core::{Core, JournalCommand};
use super::super::reader::JournalRead;
use super::super::snapshots::Snapshots;
use super::faulty::{Faults, FaultyDisk, edit, kit_on};
use super::*;

const ALL: [Stream; 3] = [Stream::Limits, Stream::Hits, Stream::Denials];

/// A journal with two records in partition 0 of each stream, which was closed in order.
fn closed() -> Kit {
    let kit = Kit::new();
    let mut open = kit.open();
    for stream in ALL {
        for record in [&b"first"[..], b"second"] {
            open.append(stream, 0, record).expect("appended");
        }
    }
    open.close();
    kit
}

/// The damage with which the journal does not open, twice, and which a reader finds as well.
fn damage(kit: &Kit, stream: Stream) -> Corruption {
    let opened = || match kit.try_open() {
        Err(OpenError::Corrupt(found)) => found,
        Err(other) => panic!("{other}"),
        Ok((_, report)) => panic!("{stream:?}: it opens: {report:?}"),
    };
    let found = opened();
    assert_eq!(opened(), found);
    let reader = JournalReader::open(&kit.config.dir, Arc::new(OsDisk)).expect("a journal");
    let mut reader = reader.read(stream, 0, 0);
    let read = loop {
        match reader.read() {
            Ok(JournalRead::End) => panic!("{stream:?}: reading ends"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        read.to_string().contains(
            &layout::partition(&kit.config.dir, stream, 0)
                .display()
                .to_string()
        ),
        "{read}"
    );
    found
}

#[test]
fn a_partition_that_lost_its_files_is_damage() {
    for killed in [false, true] {
        for stream in ALL {
            for harm in ["directory", "file", "content"] {
                let kit = closed();
                if killed {
                    kit.leave_as_if_a_later_one_was_killed();
                }
                let file = kit.segments(stream, 0)[0].clone();
                match harm {
                    "directory" => std::fs::remove_dir_all(file.parent().expect("its directory")),
                    "file" => std::fs::remove_file(&file),
                    _ => std::fs::write(&file, b""),
                }
                .expect("removed");
                let found = damage(&kit, stream);
                assert_eq!((&found.file, found.offset), (&file, 0), "{harm}");
            }
        }
    }
}

#[test]
fn an_end_cut_after_an_orderly_stop_is_damage() {
    for stream in ALL {
        // A record has 20 bytes before its content.
        for cut in 1..=26 {
            let kit = closed();
            let file = kit.segments(stream, 0)[0].clone();
            edit(&file, |bytes| bytes.truncate(bytes.len() - cut));
            let left = std::fs::read(&file).expect("there");
            let found = damage(&kit, stream);
            assert_eq!((&found.file, found.offset), (&file, 1), "{cut} bytes");
            assert_eq!(std::fs::read(&file).expect("there"), left, "it is left");
        }
    }
}

#[test]
fn a_power_cut_takes_nothing_that_was_closed_in_order() {
    let mut kit = closed();
    kit.leave_as_if_a_later_one_was_killed();
    kit.boot = Some("second-boot".to_owned());
    let file = kit.segments(Stream::Hits, 0)[0].clone();
    edit(&file, |bytes| bytes.truncate(32 + 25));
    assert_eq!(damage(&kit, Stream::Hits).offset, 1);
}

#[test]
fn limits_without_their_first_segment_are_damage() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 60;
    let mut open = kit.open();
    for _ in 0..3 {
        open.append(Stream::Limits, 0, b"record").expect("appended");
        open.append(Stream::Hits, 0, b"record").expect("appended");
    }
    open.close();
    kit.leave_as_if_killed();
    std::fs::remove_file(&kit.segments(Stream::Hits, 0)[0]).expect("as retention does");
    kit.open().close();
    kit.leave_as_if_killed();
    std::fs::remove_file(&kit.segments(Stream::Limits, 0)[0]).expect("removes");
    assert_eq!(damage(&kit, Stream::Limits).offset, 0);
}

/// A journal without a thread, opened at 1 s.
fn core_of(kit: &Kit) -> Core {
    let (disk, now) = (Arc::clone(&kit.disk), Timestamp::from_millis(1_000));
    let opened = Core::open(kit.config.clone(), disk, kit.boot.as_deref(), now);
    opened.expect("opens").0
}

/// Appends a record in each of these partitions of a journal without a thread.
fn append(core: &mut Core, now_ms: u64, partitions: &[(Stream, u32)]) {
    let appends = partitions.iter().map(|(stream, partition)| {
        JournalCommand::Append(Append {
            stream: *stream,
            partition: *partition,
            ticket: Ticket(1),
            record: Bytes::from_static(b"record"),
        })
    });
    core.turn(appends, Timestamp::from_millis(now_ms), &mut |_| {});
}

#[test]
fn a_killed_first_process_has_recorded_what_began() {
    let all = [(Stream::Limits, 0), (Stream::Hits, 0), (Stream::Hits, 1)];
    // How many turns that tidy have passed, and which losses are noticed then.
    for (turns, noticed) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
        for (at, (stream, partition)) in all.into_iter().enumerate() {
            let kit = kit_on(&FaultyDisk::default());
            let mut core = core_of(&kit);
            append(&mut core, 1_500, &all);
            for turn in 1..=turns {
                append(&mut core, 1_500 + turn * 1_000, &[]);
            }
            drop(core);
            let file = kit.segments(stream, partition)[0].clone();
            std::fs::remove_file(&file).expect("removes");
            match kit.try_open() {
                Ok((open, report)) => {
                    assert!(noticed <= at, "{turns} turns: {report:?}");
                    assert!(report.unbegun.contains(&(stream, partition)));
                    open.close();
                }
                Err(error) => {
                    assert!(at < noticed, "{turns} turns: {error}");
                    assert!(
                        error.to_string().contains(&file.display().to_string()),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn each_record_of_limits_is_recorded_and_of_others_the_first() {
    let kit = kit_on(&FaultyDisk::default());
    let mut core = core_of(&kit);
    let both = [(Stream::Limits, 0), (Stream::Hits, 1)];
    for turn in 1..=8 {
        append(&mut core, turn * 1_000, if turn <= 4 { &both } else { &[] });
    }
    drop(core);
    assert_eq!(recorded(&kit, "limits 0 "), Some(4));
    let hits = recorded(&kit, "hits 1 ");
    assert!(hits.is_some_and(|end| (1..=4).contains(&end)), "{hits:?}");
}

/// The end that the file of the ends has, if any.
fn recorded(kit: &Kit, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(layout::ends(&kit.config.dir)).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map(|end| end.parse().expect("a number"))
}

#[test]
fn appends_do_not_wait_until_an_end_is_recorded() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut core = core_of(&kit);
    disk.set(Faults {
        slow: true,
        ..Faults::default()
    });
    let hits = [(Stream::Hits, 0), (Stream::Hits, 1)];
    for turn in 1..=5 {
        append(&mut core, turn * 1_000, &hits);
    }
    assert_eq!(recorded(&kit, "hits 0 "), None, "it was waited for");
    // What runs ends before the file is written for the last time: it would replace that.
    core.close().expect("closes");
    let ends = ["hits 0 ", "hits 1 "].map(|name| recorded(&kit, name));
    assert_eq!(ends, [Some(5); 2]);
}

#[test]
fn an_end_that_may_not_be_durable_is_never_recorded() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut core = core_of(&kit);
    append(&mut core, 1_500, &[(Stream::Hits, 0)]);
    disk.set(Faults {
        sync: true,
        ..Faults::default()
    });
    append(&mut core, 2_500, &[]);
    disk.set(Faults::default());
    append(&mut core, 3_500, &[(Stream::Hits, 1)]);
    append(&mut core, 4_500, &[]);
    core.close().expect("closes");
    assert_eq!(recorded(&kit, "hits 0 "), None);
    assert_eq!(recorded(&kit, "hits 1 "), Some(1));
}

#[test]
fn a_full_disk_does_not_prevent_a_stop_in_order() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"record").expect("appended");
    disk.set(Faults {
        room_bytes: Some(0),
        ..Faults::default()
    });
    open.close();
    disk.set(Faults::default());
    let report = kit.open_report();
    assert_eq!((report.last_stop, report.generation), (LastStop::Clean, 1));
}

#[test]
fn a_stop_that_fails_is_reported_before_the_end() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"record").expect("appended");
    std::fs::remove_dir_all(&kit.config.dir).expect("removes");
    open.log.close();
    let why = open.find(|event| match event {
        LogEvent::CloseFailed { why } => Some(why.clone()),
        LogEvent::Closed => panic!("closed, and no failure was reported"),
        _ => None,
    });
    assert!(why.contains(&kit.config.dir.display().to_string()), "{why}");
    open.find(|event| (*event == LogEvent::Closed).then_some(()));
}

fn snapshot(kit: &Kit, upto: u64) -> Snapshots {
    let snapshots = Snapshots::beside(&kit.config.dir, Arc::new(OsDisk));
    let chunks = |sink: &mut dyn FnMut(Vec<u8>)| sink(b"state".to_vec());
    snapshots.save(0, upto, chunks).expect("saved");
    snapshots
}

#[test]
fn snapshots_that_may_not_be_read_are_no_absent_ones() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    kit.open().close();
    snapshot(&kit, 1);
    for secret in ["snapshots", ".snap"] {
        disk.set(Faults {
            secret: Some(secret),
            ..Faults::default()
        });
        let error = kit.try_open().map(|_| ()).expect_err("unreadable");
        let text = error.to_string();
        assert!(
            text.contains(secret) && text.contains("permission denied"),
            "{text}"
        );
    }
    disk.set(Faults::default());
    kit.leave_as_if_killed();
}

#[test]
fn after_a_kill_the_log_reaches_its_snapshots() {
    let mut kit = closed();
    // Readers compare with the boot of this machine.
    kit.boot = boot_of_this_machine();
    kit.leave_as_if_killed();
    snapshot(&kit, 1);
    kit.open().close();
    kit.leave_as_if_killed();
    let file = kit.segments(Stream::Hits, 0)[0].clone();
    // The end is torn, or a whole record is gone.
    for cut in [3, 23] {
        edit(&file, |bytes| bytes.truncate(bytes.len() - cut));
        let left = std::fs::read(&file).expect("there");
        assert_eq!(damage(&kit, Stream::Hits).offset, 1);
        assert_eq!(std::fs::read(&file).expect("there"), left, "it is left");
    }
}

#[test]
fn a_power_cut_may_leave_snapshots_of_lost_records() {
    for ack in [Ack::Written, Ack::Synced] {
        let mut kit = closed();
        kit.config.ack = ack;
        kit.leave_as_if_killed();
        snapshot(&kit, 0);
        let snapshots = snapshot(&kit, 1);
        kit.boot = Some("second-boot".to_owned());
        edit(&kit.segments(Stream::Hits, 0)[0], |bytes| {
            bytes.truncate(32 + 25)
        });
        if ack == Ack::Synced {
            assert_eq!(damage(&kit, Stream::Hits).offset, 1);
            continue;
        }
        let (open, report) = kit.try_open().expect("opens");
        assert_eq!(report.generation, 2);
        assert_eq!(
            snapshots.offsets(0),
            [0],
            "the other has records that the log lost"
        );
        open.close();
        kit.leave_as_if_killed();
        assert_eq!(kit.open_report().last_stop, LastStop::Killed);
    }
}

#[test]
fn another_number_of_partitions_is_refused_by_what_it_contradicts() {
    let refused = |kit: &Kit, named: &[&str]| {
        let reading = JournalReader::open(&kit.config.dir, Arc::new(OsDisk));
        for fault in [kit.try_open().err(), reading.err()] {
            let Some(OpenError::Damaged { what, .. }) = &fault else {
                panic!("{named:?}: {fault:?}");
            };
            for name in named {
                assert!(what.contains(name), "{what}");
            }
        }
    };
    let kit = Kit::new();
    let mut open = kit.open();
    for (stream, partition) in [(Stream::Limits, 0), (Stream::Hits, 0), (Stream::Hits, 1)] {
        open.append(stream, partition, b"record").expect("appended");
    }
    open.close();
    let (description, ends) = (
        layout::description(&kit.config.dir),
        layout::ends(&kit.config.dir),
    );
    let [described, ended] = [&description, &ends].map(|path| {
        let text = std::fs::read_to_string(path).expect("there");
        assert!(text.contains("\nend\nsum "), "{text}");
        text
    });
    let without = |text: &str| text[..text.find("sum ").expect("a sum")].to_owned();
    let change = |path: &Path, text: String| std::fs::write(path, text).expect("written");

    for (wrong, partitions) in [("partitions 1", 1), ("partitions 3", 3)] {
        let mut other = Kit::new();
        other.config.dir.clone_from(&kit.config.dir);
        other.config.partitions = partitions;
        let text = described.replace("partitions 2", wrong);
        change(&description, text.clone());
        refused(&other, &["file `journal`", "sum"]);
        if partitions < 2 {
            // As earlier builds wrote it.
            change(&description, without(&text));
            refused(&other, &["`hits 1`", "`partitions 1`"]);
            std::fs::remove_file(&ends).expect("removed");
            refused(&other, &["`hits-00001`", "`partitions 1`"]);
            change(&ends, ended.clone());
        }
    }
    change(&description, without(&described));
    change(&ends, ended.replace("hits 1 1", "hits 1 0"));
    refused(&kit, &["file `ends`", "sum"]);
    change(&ends, without(&ended).replace("hits 1 1", "hits 99 5"));
    refused(&kit, &["`hits 99`", "`partitions 2`"]);
    change(&ends, without(&ended));
    let report = kit.open_report();
    assert_eq!((report.last_stop, report.generation), (LastStop::Clean, 1));
}

#[test]
fn a_pipe_in_place_of_a_segment_is_refused_by_name() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.append(Stream::Hits, 1, b"x").expect("appended");
    open.close();
    let segment = kit.segments(Stream::Hits, 1).remove(0);
    std::fs::remove_file(&segment).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&segment).status();
    assert!(made.expect("mkfifo").success());
    let fault = kit.try_open().err().expect("refused").to_string();
    assert!(fault.contains("hits-00001"), "{fault}");
    assert!(fault.ends_with(".seg: not a regular file"), "{fault}");
}
