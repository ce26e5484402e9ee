//! Retention, who may open a journal, and reading it beside its writer.

use std::time::{Duration, Instant};

use super::super::reader::JournalRead;
use super::super::snapshots::Snapshots;
use super::faulty::edit;
use super::*;

#[test]
fn old_segments_are_removed_and_slow_followers_see_the_gap() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 60;
    kit.config.retention = Span::from_secs(100);
    let mut open = kit.open();
    for at in [1_000, 11_000, 21_000, 31_000] {
        kit.at(at);
        for stream in layout::STREAMS {
            open.append(stream, 0, b"record").expect("appended");
        }
    }
    kit.at(112_000);
    open.append(Stream::Hits, 1, b"moves time")
        .expect("appended");
    open.log.follow(Stream::Hits, 0, 0);
    let gap = open.find(|event| match event {
        LogEvent::Gap { wanted, next, .. } => Some((*wanted, *next)),
        _ => None,
    });
    assert_eq!(gap, (0, 2));
    let rest = open.read_all(Stream::Hits, 0, 2);
    assert_eq!(rest.len(), 2);
    assert_eq!(open.read_all(Stream::Limits, 0, 0).len(), 4);
    open.close();
    assert_eq!(kit.open_report().torn, []);
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, b"next"), Ok(4));
    open.close();
}

#[test]
fn a_slow_partitions_records_are_removed_in_the_end() {
    let mut kit = Kit::new();
    kit.config.retention = Span::from_secs(100);
    let mut open = kit.open();
    for second in 0..300 {
        kit.at(1_000 * second);
        open.append(Stream::Hits, 0, b"tick").expect("appended");
    }
    let first = open.read_all(Stream::Hits, 0, 0)[0].clone();
    assert!(165_000 < first.appended.as_millis(), "{first:?}");
    assert!(first.appended.as_millis() <= 200_000, "{first:?}");
    open.close();
}

#[test]
fn hits_stay_until_a_snapshot_has_them() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 60;
    kit.config.retention = Span::from_secs(100);
    let fill = |kit: &Kit, open: &mut Open, from: u64| {
        for n in 0..4 {
            kit.at(1_000 * (from + 10 * n));
            open.append(Stream::Hits, 0, b"record").expect("appended");
        }
    };
    // Segments have one record.
    let first = |kit: &Kit, open: &mut Open, second: u64| {
        kit.at(1_000 * second);
        open.append(Stream::Hits, 1, b"moves time")
            .expect("appended");
        open.read_all(Stream::Hits, 0, 0)[0].offset
    };
    let snapshots = Snapshots::beside(&kit.config.dir, Arc::clone(&kit.disk));
    let save = |upto| snapshots.save(0, upto, |_| {}).expect("saved");
    kit.config.until_snapshot = true;
    let mut open = kit.open();
    fill(&kit, &mut open, 1);
    assert_eq!(first(&kit, &mut open, 1_000), 0, "no snapshot has any");
    save(2);
    assert_eq!(first(&kit, &mut open, 1_002), 2, "a start reads 2 again");
    open.close();
    let mut open = kit.open();
    fill(&kit, &mut open, 1_010);
    assert_eq!(first(&kit, &mut open, 2_000), 2, "none since the start");
    save(7);
    assert_eq!(first(&kit, &mut open, 2_002), 7);
    open.close();
    // Who saves no snapshots keeps nothing for them.
    kit.config.until_snapshot = false;
    let mut open = kit.open();
    kit.at(3_000_000);
    open.append(Stream::Hits, 1, b"moves time")
        .expect("appended");
    assert_eq!(open.read_all(Stream::Hits, 0, 0), []);
    open.close();
}

#[test]
fn the_bound_on_bytes_waits_for_no_snapshot() {
    let mut kit = Kit::new();
    kit.config.until_snapshot = true;
    kit.config.segment_bytes = 10_000;
    kit.config.retention_bytes = 50_000;
    let mut open = kit.open();
    for n in 0..200 {
        kit.at(1_000 * n);
        open.append(Stream::Hits, 0, &[0; 1_000]).expect("appended");
    }
    assert!(0 < open.read_all(Stream::Hits, 0, 0)[0].offset);
    open.close();
}

#[test]
fn above_the_bound_on_bytes_the_oldest_segments_go() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 10_000;
    kit.config.retention_bytes = 50_000;
    let mut open = kit.open();
    for n in 0..200 {
        kit.at(1_000 * n);
        open.append(Stream::Hits, (n % 2) as u32, &[0; 1_000])
            .expect("appended");
    }
    let bytes: u64 = [0, 1]
        .iter()
        .flat_map(|partition| kit.segments(Stream::Hits, *partition))
        .map(|path| std::fs::metadata(path).expect("there").len())
        .sum();
    assert!((40_000..=51_100).contains(&bytes), "{bytes}");
    open.close();
}

#[test]
fn a_reader_begins_shortly_before_an_instant() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 100;
    let mut open = kit.open();
    for second in 1..=50 {
        kit.at(1_000 * second);
        open.append(Stream::Hits, 0, b"a record").expect("appended");
    }
    let records = open.read_all(Stream::Hits, 0, 0);
    open.close();
    let segments = kit.segments(Stream::Hits, 0).len() as u64;
    assert!(10 < segments, "{segments}");
    let reader = JournalReader::open(&kit.config.dir, Arc::clone(&kit.disk)).expect("opens");
    for ms in (0..60_000).step_by(500) {
        let instant = Timestamp::from_millis(ms);
        let before = reader
            .offset_before(Stream::Hits, 0, instant)
            .expect("reads");
        let passed = &records[..before as usize];
        assert!(passed.iter().all(|record| record.appended < instant));
        let first = records.iter().position(|record| instant <= record.appended);
        let behind = first.unwrap_or(records.len()) as u64 - before;
        assert!(behind <= 2 * (50 / segments), "{ms}: {behind}");
    }
    let empty = reader.offset_before(Stream::Hits, 1, Timestamp::MAX);
    assert_eq!(empty.expect("reads"), 0);
}

#[test]
fn a_second_writer_is_refused_and_a_reader_allowed() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"r0").expect("appended");
    assert!(matches!(kit.try_open(), Err(OpenError::InUse { .. })));

    let reader = JournalReader::open(&kit.config.dir, Arc::clone(&kit.disk)).expect("opens");
    assert_eq!((reader.partitions(), reader.generation()), (2, 1));
    let mut records = reader.read(Stream::Hits, 0, 0);
    let next = |records: &mut PartitionReader| match records.read().expect("reads") {
        JournalRead::Records(records) => texts(&records),
        JournalRead::End => vec![],
        JournalRead::Gone { .. } => panic!("nothing has gone"),
    };
    assert_eq!(next(&mut records), ["r0"]);
    assert!(next(&mut records).is_empty());
    assert_eq!(open.append(Stream::Hits, 0, b"r1"), Ok(1));
    assert_eq!(next(&mut records), ["r1"]);
    open.close();
}

#[test]
fn a_reader_takes_a_torn_end_for_the_end() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 100;
    let mut open = kit.open();
    for n in 0..9 {
        open.append(Stream::Hits, 0, format!("record {n}").as_bytes())
            .expect("appended");
    }
    open.close();
    kit.leave_as_if_killed();
    let segments = kit.segments(Stream::Hits, 0);
    let last = segments.last().expect("has some");
    edit(last, |bytes| bytes.truncate(bytes.len() - 3));
    let reader = JournalReader::open(&kit.config.dir, Arc::clone(&kit.disk)).expect("opens");
    for from in 0..9 {
        let all: Result<Vec<_>, _> = reader.read(Stream::Hits, 0, from).into_iter().collect();
        let offsets: Vec<u64> = all.expect("reads").iter().map(|r| r.offset).collect();
        assert_eq!(offsets, (from..8).collect::<Vec<_>>());
    }
    std::fs::remove_file(&segments[0]).expect("removes");
    let mut records = reader.read(Stream::Hits, 0, 0);
    let gone = records.read().expect("reads");
    assert_eq!(
        gone,
        JournalRead::Gone {
            wanted: 0,
            first: 2
        }
    );
    edit(&segments[1], |bytes| bytes[40] ^= 1);
    assert!(matches!(records.read(), Err(ReadError::Corrupt(_))));
}

#[test]
fn a_reader_beside_a_writer_sees_whole_records_in_order() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 20_000;
    let mut open = kit.open();
    let dir = kit.config.dir.clone();
    let reader = JournalReader::open(&dir, Arc::clone(&kit.disk)).expect("opens");
    let reading = std::thread::spawn(move || {
        let mut records = reader.read(Stream::Hits, 0, 0);
        let mut next = 0;
        let until = Instant::now() + Duration::from_secs(60);
        while next < 3_000 {
            assert!(Instant::now() < until, "{next} of 3,000 are there to read");
            if let JournalRead::Records(batch) = records.read().expect("reads") {
                for record in batch {
                    assert_eq!(record.offset, next);
                    assert_eq!(*record.bytes, vec![next as u8; (next % 700) as usize]);
                    next += 1;
                }
            }
        }
    });
    for n in 0..3_000_u64 {
        open.append(Stream::Hits, 0, &vec![n as u8; (n % 700) as usize])
            .expect("appended");
    }
    reading.join().expect("read well");
    open.close();
}

#[test]
fn a_journal_of_a_newer_version_is_refused_naming_both() {
    let kit = Kit::new();
    kit.open().close();
    edit(&layout::description(&kit.config.dir), |bytes| {
        *bytes = b"tollgate-journal 2\nsomething new\n".to_vec();
    });
    let Err(error) = kit.try_open() else {
        panic!("opened");
    };
    assert!(matches!(
        error,
        OpenError::Newer {
            found: 2,
            supported: 1,
            ..
        }
    ));
    assert!(error.to_string().contains("version 2"), "{error}");
    assert!(error.to_string().contains("version 1"), "{error}");
}

#[test]
fn a_description_that_is_cut_short_anywhere_is_refused() {
    let text = layout::Description {
        partitions: 12,
        generation: 34,
        begins: vec![(Stream::Hits, 3, 18_250)],
    }
    .to_text();
    assert_eq!(
        layout::Description::from_text(&text)
            .expect("reads")
            .to_text(),
        text
    );
    // Earlier builds wrote no sum.
    let whole = text.find("sum ").expect("a sum");
    let may_end = [whole - 1, whole];
    for end in (0..text.len()).filter(|end| !may_end.contains(end)) {
        assert!(
            layout::Description::from_text(&text[..end]).is_err(),
            "{end}"
        );
    }
}

#[test]
fn a_description_in_which_anything_changed_is_refused() {
    let text = layout::Description {
        partitions: 12,
        generation: 34,
        begins: vec![(Stream::Hits, 3, 18_250)],
    }
    .to_text();
    for at in 0..text.len() {
        for changed in [b'0', b'7', b' ', b'\n', 0xff] {
            let mut bytes = text.clone().into_bytes();
            if std::mem::replace(&mut bytes[at], changed) == changed {
                continue;
            }
            let text = String::from_utf8_lossy(&bytes);
            assert!(layout::Description::from_text(&text).is_err(), "{text}");
        }
    }
    let fault = |lines: &str| {
        let text = format!("tollgate-journal 1\n{lines}\nend\n");
        match layout::Description::from_text(&text) {
            Err(layout::DescriptionFault::Unreadable(what)) => what,
            other => panic!("{lines}: {other:?}"),
        }
    };
    for (lines, named) in [
        (
            "partitions 0\ngeneration 1",
            "line `partitions 0`: expected",
        ),
        (
            "partitions 1\ngeneration 0",
            "line `generation 0`: expected",
        ),
        ("generation 1", "expected a line `partitions`"),
        (
            "partitions 3\ngeneration 1\nbegins hits 3 9",
            "`begins hits 3` and `partitions 3`",
        ),
        (
            "partitions 3\ngeneration 1\nbegins limits 1 9",
            "`begins limits 1`",
        ),
    ] {
        assert!(fault(lines).contains(named), "{}", fault(lines));
    }
}

#[test]
fn opening_faults_have_distinct_errors() {
    let mut kit = Kit::new();
    kit.open().close();
    kit.config.partitions = 3;
    let other = kit.try_open().map(|_| ());
    assert!(matches!(
        other,
        Err(OpenError::OtherPartitions {
            found: 2,
            wanted: 3,
            ..
        })
    ));

    kit.config.dir = kit.path().join("photos");
    std::fs::create_dir(&kit.config.dir).expect("creates");
    std::fs::write(kit.config.dir.join("cat.jpg"), "x").expect("writes");
    let strange = kit.try_open().map(|_| ());
    assert!(matches!(strange, Err(OpenError::NotAJournal { .. })));

    kit.config.dir = kit.path().join("photos/cat.jpg/journal");
    let none = kit.try_open().map(|_| ());
    assert!(matches!(none, Err(OpenError::CannotCreate { .. })));
}

#[test]
fn segments_are_as_short_as_the_bound_on_bytes_needs() {
    let of = |partitions, bytes| {
        let config = JournalConfig {
            partitions,
            ..JournalConfig::new("journal")
        };
        config.bounded(bytes).map(|config| config.segment_bytes)
    };
    const MIB: u64 = 1 << 20;
    assert_eq!(of(16, 8 << 30), Ok(64 * MIB));
    assert_eq!(of(16, 660 * MIB), Ok(10 * MIB));
    assert_eq!(of(16, 66 * MIB - 1), Err(66 * MIB));
    assert_eq!(of(1, 2 * MIB), Err(6 * MIB));
    assert_eq!(of(1, 6 * MIB), Ok(MIB));
}

#[test]
fn all_segments_together_keep_to_the_bound_on_bytes() {
    let mut kit = Kit::new();
    kit.config.partitions = 1;
    let bound = 6 << 20;
    kit.config = kit.config.bounded(bound).expect("enough");
    let mut open = kit.open();
    let record = vec![7; 512 * 1024];
    for n in 1..=40_u64 {
        for stream in [Stream::Hits, Stream::Denials] {
            // Old segments are looked for once a second.
            kit.at(1_000 + 1_001 * n);
            open.append(stream, 0, &record).expect("appended");
        }
    }
    // What was appended last is looked at a second later.
    for n in 42..=43_u64 {
        kit.at(1_000 + 1_001 * n);
        open.append(Stream::Hits, 0, b"x").expect("appended");
    }
    open.close();
    let segments = [Stream::Hits, Stream::Denials].map(|stream| kit.segments(stream, 0));
    let sizes = segments.iter().flatten();
    let sizes = sizes.map(|file| std::fs::metadata(file).expect("there").len());
    let (bytes, since) = (sizes.sum::<u64>(), record.len() as u64);
    assert!(bytes <= bound + since, "{bytes}, and {bound} are the bound");
}

#[test]
fn a_restored_journal_begins_one_generation() {
    let kit = Kit::new();
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"x").expect("appended");
    open.close();
    let statement = kit.config.dir.join("restored");
    std::fs::write(&statement, b"").expect("written");
    let report = kit.open_report();
    assert_eq!((report.last_stop, report.generation), (LastStop::Clean, 2));
    assert!(report.unbegun.contains(&(Stream::Hits, 0)), "{report:?}");
    assert!(!statement.exists());
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, b"generation 2"), Ok(1));
    assert_eq!(
        texts(&open.read_all(Stream::Hits, 0, 0)),
        ["x", "generation 2"]
    );
    open.close();
    assert_eq!(kit.open_report().generation, 2);
}
