//! How a journal ends, and what it has when it is opened again.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::super::frame::{SegmentHeader, Tag};
use super::faulty::{Faults, FaultyDisk, edit, kit_on};
use super::*;

fn kit_with(records: &[&[u8]]) -> Kit {
    let kit = Kit::new();
    let mut open = kit.open();
    for record in records {
        open.append(Stream::Hits, 0, record).expect("appended");
    }
    open.close();
    kit
}

/// Appends `records` records, each to a segment of its own, and leaves the journal as a killed
/// process does.
fn one_a_segment(kit: &mut Kit, records: usize) {
    kit.config.segment_bytes = 60;
    let mut open = kit.open();
    for _ in 0..records {
        open.append(Stream::Hits, 0, b"record").expect("appended");
    }
    open.close();
    kit.leave_as_if_killed();
}

fn segment(kit: &Kit) -> PathBuf {
    kit.segments(Stream::Hits, 0)[0].clone()
}

/// Where the three records of [`THREE`] begin, and where the file ends.
const BEGINS: [usize; 4] = [32, 32 + 25, 32 + 25 + 26, 32 + 25 + 26 + 25];
const THREE: [&[u8]; 3] = [b"first", b"second", b"third"];

#[test]
fn a_record_that_is_torn_at_any_byte_is_cut_off_and_reported() {
    for cut in BEGINS[2]..BEGINS[3] {
        let kit = kit_with(&THREE);
        kit.leave_as_if_killed();
        edit(&segment(&kit), |bytes| bytes.truncate(cut));
        let (mut open, report) = kit.try_open().expect("opens");
        let torn = Torn {
            file: segment(&kit),
            position: BEGINS[2] as u64,
            cut_bytes: (cut - BEGINS[2]) as u64,
            next: 2,
        };
        let expected = if cut == BEGINS[2] { vec![] } else { vec![torn] };
        assert_eq!(report.torn, expected);
        assert_eq!(report.last_stop, LastStop::Killed);
        assert_eq!(report.generation, 1, "nothing acknowledged was lost");
        assert_eq!(open.append(Stream::Hits, 0, b"again"), Ok(2));
        let all = open.read_all(Stream::Hits, 0, 0);
        assert_eq!(texts(&all), ["first", "second", "again"]);
        open.close();
        assert_eq!(kit.open_report().torn, []);
    }
}

#[test]
fn a_flipped_bit_anywhere_is_reported_with_file_and_position() {
    for killed in [false, true] {
        for at in 0..BEGINS[3] {
            let kit = kit_with(&THREE);
            if killed {
                kit.leave_as_if_killed();
            }
            edit(&segment(&kit), |bytes| bytes[at] ^= 1 << (at % 8));
            let Err(OpenError::Corrupt(found)) = kit.try_open() else {
                panic!("a flipped bit in byte {at} was not noticed");
            };
            assert_eq!(found.file, segment(&kit));
            let begin = BEGINS.iter().rposition(|begin| *begin <= at);
            let position = begin.map_or(0, |record| BEGINS[record]);
            assert_eq!(found.position, position as u64, "byte {at}");
            assert_eq!(found.offset, begin.unwrap_or(0) as u64, "byte {at}");
        }
    }
}

#[test]
fn damage_in_an_earlier_segment_ends_delivery_there() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 100;
    let mut open = kit.open();
    for n in 0..9 {
        open.append(Stream::Hits, 0, format!("record {n}").as_bytes())
            .expect("appended");
    }
    open.close();
    let file = kit.segments(Stream::Hits, 0)[1].clone();
    edit(&file, |bytes| *bytes.last_mut().expect("has bytes") ^= 4);

    let mut open = kit.open();
    open.log.follow(Stream::Hits, 0, 0);
    let mut read = 0;
    let (next, why) = open.find(|event| match event {
        LogEvent::Delivered { records, .. } => {
            read += records.len() as u64;
            None
        }
        LogEvent::Broken { next, why, .. } => Some((*next, why.clone())),
        _ => None,
    });
    assert_eq!(read, next);
    assert_eq!(next, 3);
    assert!(why.contains(&file.display().to_string()), "{why}");
    assert!(why.contains("byte 60"), "{why}");
    open.close();
}

#[test]
fn a_segment_that_is_missing_is_damage() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 60;
    let mut open = kit.open();
    for _ in 0..5 {
        open.append(Stream::Hits, 0, b"record").expect("appended");
    }
    open.close();
    std::fs::remove_file(&kit.segments(Stream::Hits, 0)[2]).expect("removes");
    let mut open = kit.open();
    open.log.follow(Stream::Hits, 0, 0);
    let next = open.find(|event| match event {
        LogEvent::Broken { next, .. } => Some(*next),
        _ => None,
    });
    assert_eq!(next, 2);
    open.close();
}

#[test]
fn after_a_power_cut_unsynced_records_begin_a_generation() {
    let mut kit = kit_with(&THREE);
    kit.leave_as_if_killed();
    assert_eq!(kit.open_report().generation, 1, "the machine went on");
    kit.leave_as_if_killed();
    // The last record's pages never reached the disk.
    edit(&segment(&kit), |bytes| bytes[BEGINS[2]..].fill(0));
    kit.boot = Some("second-boot".to_owned());
    let report = kit.open_report();
    assert_eq!(report.last_stop, LastStop::PowerCut);
    assert_eq!(report.generation, 2);
    assert_eq!(report.torn.len(), 1);
    assert_eq!(report.torn[0].next, 2);
    assert!(report.unbegun.contains(&(Stream::Hits, 0)));

    // Nothing was appended: the report lists the partition again, and the generation stays.
    let (mut open, report) = kit.try_open().expect("opens");
    assert_eq!((report.last_stop, report.generation), (LastStop::Clean, 2));
    assert!(report.unbegun.contains(&(Stream::Hits, 0)));
    assert_eq!(open.append(Stream::Hits, 0, b"generation 2"), Ok(2));
    open.close();
    let report = kit.open_report();
    assert!(!report.unbegun.contains(&(Stream::Hits, 0)));
    assert!(report.unbegun.contains(&(Stream::Hits, 1)), "has none yet");
}

#[test]
fn a_power_cut_keeps_the_generation_where_records_were_synced() {
    let mut kit = Kit::new();
    kit.config.ack = Ack::Synced;
    let mut open = kit.open();
    open.append(Stream::Hits, 0, b"x").expect("appended");
    open.close();
    kit.leave_as_if_killed();
    edit(&segment(&kit), |bytes| bytes.extend([0; 4096]));
    kit.boot = None;
    let report = kit.open_report();
    assert_eq!(
        (report.last_stop, report.generation),
        (LastStop::PowerCut, 1)
    );
    assert_eq!(report.torn.len(), 1);

    // No single turn writes this much, so the faulty bytes include acknowledged records.
    kit.leave_as_if_killed();
    edit(&segment(&kit), |bytes| bytes.extend(vec![0; 3_000_000]));
    assert!(matches!(kit.try_open(), Err(OpenError::Corrupt(_))));
}

#[test]
fn a_machine_without_a_boot_id_is_taken_to_have_gone_down() {
    let mut kit = kit_with(&THREE);
    kit.boot = None;
    kit.leave_as_if_killed();
    assert_eq!(kit.open_report().last_stop, LastStop::PowerCut);
}

#[test]
fn after_a_power_cut_segments_after_a_torn_one_are_dropped() {
    let mut kit = Kit::new();
    one_a_segment(&mut kit, 5);
    kit.boot = Some("second-boot".to_owned());
    let segments = kit.segments(Stream::Hits, 0);
    edit(&segments[3], |bytes| bytes.truncate(40));
    let (mut open, report) = kit.try_open().expect("opens");
    assert_eq!(report.torn.len(), 2);
    assert_eq!(open.append(Stream::Hits, 0, b"genesis"), Ok(3));
    assert_eq!(open.read_all(Stream::Hits, 0, 0).len(), 4);
    open.close();

    // The third-last segment was synced before the last was begun: a fault there is damage.
    kit.leave_as_if_killed();
    kit.boot = Some("third-boot".to_owned());
    let segments = kit.segments(Stream::Hits, 0);
    edit(&segments[0], |bytes| bytes.truncate(40));
    let mut open = kit.open();
    open.log.follow(Stream::Hits, 0, 0);
    let next = open.find(|event| match event {
        LogEvent::Broken { next, .. } => Some(*next),
        _ => None,
    });
    assert_eq!(next, 0);
    open.close();
}

#[test]
fn after_a_power_cut_the_log_ends_before_a_lost_header() {
    let mut kit = Kit::new();
    kit.config.segment_bytes = 100;
    kit.at(5_000);
    let mut open = kit.open();
    for n in 0..12 {
        open.append(Stream::Hits, 0, format!("record {n}").as_bytes())
            .expect("appended");
    }
    open.close();
    kit.leave_as_if_killed();
    let segments = kit.segments(Stream::Hits, 0);
    let lost = &segments[segments.len() - 2];
    edit(lost, |bytes| bytes.fill(0));
    kit.boot = Some("second-boot".to_owned());
    // The clock is behind: append times stand still all the same.
    kit.at(1_000);
    let (mut open, _) = kit.try_open().expect("opens");
    let left = open.read_all(Stream::Hits, 0, 0).len() as u64;
    assert!(0 < left && left < 12);
    assert_eq!(open.append(Stream::Hits, 0, b"again"), Ok(left));
    let all = open.read_all(Stream::Hits, 0, 0);
    assert_eq!(texts(&all).last().map(String::as_str), Some("again"));
    assert!(all.is_sorted_by_key(|record| record.appended));
}

#[test]
fn a_crash_while_dropping_lost_segments_leaves_no_gap() {
    for removals in 0..2 {
        let disk = FaultyDisk::default();
        let mut kit = kit_on(&disk);
        one_a_segment(&mut kit, 2);
        // The power cut took the first segment's content, and left the second one's.
        edit(&kit.segments(Stream::Hits, 0)[0], Vec::clear);
        kit.boot = Some("second-boot".to_owned());
        disk.set(Faults {
            removals: Some(removals),
            ..Faults::default()
        });
        if let Ok((open, _)) = kit.try_open() {
            open.close();
        }
        disk.set(Faults::default());
        kit.boot = Some("third-boot".to_owned());
        let (mut open, _) = kit.try_open().expect("opens");
        assert_eq!(open.append(Stream::Hits, 0, b"again"), Ok(0));
        assert_eq!(texts(&open.read_all(Stream::Hits, 0, 0)), ["again"]);
        open.close();
    }
}

#[test]
fn segments_dropped_by_a_failed_opening_stay_dropped() {
    for ack in [Ack::Written, Ack::Synced] {
        let disk = FaultyDisk::default();
        let mut kit = kit_on(&disk);
        one_a_segment(&mut kit, 5);
        kit.boot = Some("second-boot".to_owned());
        edit(&kit.segments(Stream::Hits, 0)[3], |bytes| {
            bytes.truncate(40);
        });
        disk.set(Faults {
            sync_dir: true,
            ..Faults::default()
        });
        assert!(matches!(kit.try_open(), Err(OpenError::Io { .. })));
        disk.set(Faults::default());
        kit.config.ack = ack;
        let mut open = kit.open();
        assert_eq!(open.append(Stream::Hits, 0, b"again"), Ok(3));
        open.close();
        disk.cut_power();
        kit.boot = Some("third-boot".to_owned());
        let mut open = kit.open();
        let all = open.read_all(Stream::Hits, 0, 0);
        assert_eq!(texts(&all), ["record", "record", "record", "again"]);
        open.close();
    }
}

#[test]
fn with_synced_an_unreadable_segment_header_is_damage() {
    for stream in [Stream::Hits, Stream::Limits] {
        let mut kit = Kit::new();
        kit.config.ack = match stream {
            Stream::Limits => Ack::Written,
            Stream::Hits | Stream::Denials => Ack::Synced,
        };
        let mut open = kit.open();
        open.append(stream, 0, b"record").expect("appended");
        open.close();
        let segment = kit.segments(stream, 0)[0].clone();
        kit.leave_as_if_killed();
        kit.boot = Some("second-boot".to_owned());
        let whole = std::fs::read(&segment).expect("reads");
        edit(&segment, |bytes| bytes[..32].fill(0));
        assert!(matches!(kit.try_open(), Err(OpenError::Corrupt(_))));
        std::fs::write(&segment, &whole).expect("writes");
        let (mut open, _) = kit.try_open().expect("opens");
        assert_eq!(texts(&open.read_all(stream, 0, 0)), ["record"]);
        open.close();
    }
}

#[test]
fn a_log_whose_only_header_is_lost_goes_on_at_its_offset() {
    for left in [0, 20, 32] {
        let mut kit = Kit::new();
        one_a_segment(&mut kit, 3);
        kit.boot = Some("second-boot".to_owned());
        // Retention had removed the others.
        let segments = kit.segments(Stream::Hits, 0);
        std::fs::remove_file(&segments[0]).expect("removes");
        std::fs::remove_file(&segments[1]).expect("removes");
        edit(&segments[2], |bytes| {
            bytes.truncate(left);
            bytes.fill(0);
        });
        for _ in 0..2 {
            let (open, report) = kit.try_open().expect("opens");
            assert!(report.ends.contains(&(Stream::Hits, 0, 2)), "{report:?}");
            open.close();
        }
    }
}

#[test]
fn limits_are_synced_however_durable_the_rest_is() {
    let disk = FaultyDisk::default();
    let kit = kit_on(&disk);
    let mut open = kit.open();
    let syncs = |disk: &FaultyDisk| disk.counts().syncs;
    let before = syncs(&disk);
    open.append(Stream::Hits, 0, b"hits").expect("appended");
    assert_eq!(syncs(&disk), before);
    open.append(Stream::Limits, 0, b"limits").expect("appended");
    assert!(before < syncs(&disk));
}

#[test]
fn a_segment_whose_header_is_cut_short_had_no_records() {
    for length in 0..32 {
        let mut kit = Kit::new();
        one_a_segment(&mut kit, 2);
        edit(&kit.segments(Stream::Hits, 0)[1], |bytes| {
            bytes.truncate(length)
        });
        let (mut open, report) = kit.try_open().expect("opens");
        assert_eq!(report.torn.len(), 1);
        assert_eq!(open.append(Stream::Hits, 0, b"again"), Ok(1));
        open.close();
    }
}

#[test]
fn a_segment_without_records_still_says_where_the_log_is() {
    let mut kit = Kit::new();
    one_a_segment(&mut kit, 3);
    // Retention had removed all before it.
    let segments = kit.segments(Stream::Hits, 0);
    std::fs::remove_file(&segments[0]).expect("removes");
    std::fs::remove_file(&segments[1]).expect("removes");
    edit(&segments[2], |bytes| bytes.truncate(20));
    let mut open = kit.open();
    assert_eq!(open.append(Stream::Hits, 0, b"record"), Ok(2));
    open.close();
}

const CHILD_DIR: &str = "TOLLGATE_TEST_JOURNAL_CHILD_DIR";

/// Appends, and prints what was acknowledged, until it is killed.
fn write_until_killed(dir: PathBuf) {
    let mut kit = Kit::new();
    kit.config.dir = dir;
    kit.config.segment_bytes = 1024 * 1024;
    let mut open = kit.open();
    for n in 0.. {
        // Several at once, and large, so that a kill is likely to interrupt a write.
        let tickets: Vec<Ticket> = (0..8)
            .map(|_| open.send(Stream::Hits, 0, &vec![n as u8; 100_000]))
            .collect();
        for ticket in tickets {
            println!("acknowledged {}", open.answer(ticket).expect("appended"));
        }
    }
}

#[test]
fn acknowledged_records_survive_kill_9() {
    if let Ok(dir) = std::env::var(CHILD_DIR) {
        return write_until_killed(PathBuf::from(dir));
    }
    for acknowledged in [1, 40, 99, 200] {
        let mut kit = Kit::new();
        kit.config.segment_bytes = 1024 * 1024;
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("journal::tests::ending::acknowledged_records_survive_kill_9")
            .env(CHILD_DIR, &kit.config.dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut last = None;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut killed = false;
        for line in lines {
            let Ok(line) = line else { break };
            if let Some((_, offset)) = line.split_once("acknowledged ") {
                last = offset.parse::<u64>().ok().or(last);
            }
            if !killed && last.is_some_and(|last| acknowledged <= last) {
                child.kill().expect("kills");
                killed = true;
            }
        }
        child.wait().expect("ends");
        let last = last.expect("the child acknowledged something");
        let (mut open, report) = kit.try_open().expect("opens");
        assert_eq!(report.last_stop, LastStop::Killed);
        assert_eq!(report.generation, 1);
        let all = open.read_all(Stream::Hits, 0, 0);
        assert!(last < all.len() as u64, "{last} of {}", all.len());
        let right = |(n, record): (usize, &Delivered)| record.bytes == vec![(n / 8) as u8; 100_000];
        assert!(all.iter().enumerate().all(right));
        open.close();
    }
}

/// A segment could not be begun, since syncs failed, and was removed; the one before it grew; then
/// a power cut undid the removal.
#[test]
fn after_a_power_cut_no_log_position_is_given_twice() {
    for went_on in [0, 1, 2] {
        let mut kit = Kit::new();
        kit.config.ack = Ack::Synced;
        let mut open = kit.open();
        let all = [THREE, THREE].concat();
        for record in &all[..3 + went_on] {
            open.append(Stream::Hits, 0, record).expect("appended");
        }
        open.close();
        kit.leave_as_if_killed();
        kit.boot = Some("second-boot".to_owned());
        let dir = layout::partition(&kit.config.dir, Stream::Hits, 0);
        let header = SegmentHeader {
            tag: Tag::of(Stream::Hits, 0),
            base: 3,
            floor_ms: 1_000,
        };
        std::fs::write(layout::segment(&dir, 3), header.encode()).expect("back");
        let mut open = kit.open();
        let next = 3 + went_on as u64;
        assert_eq!(open.read_all(Stream::Hits, 0, 0).len() as u64, next);
        assert_eq!(open.append(Stream::Hits, 0, b"new"), Ok(next));
        open.close();
        let mut open = kit.open();
        let records = open.read_all(Stream::Hits, 0, 0);
        assert_eq!(records.len() as u64, next + 1);
        assert!(
            records
                .windows(2)
                .all(|two| two[0].offset + 1 == two[1].offset)
        );
        open.close();
    }
}
