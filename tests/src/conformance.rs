//! The promises of every log, whatever its implementation: one suite for the journal and for Kafka.
//!
//! A promise is a function of a [`Medium`]: a log of its own that can be opened again. The suite
//! uses commands and events alone. It never waits for a guessed time: each event has a deadline.

mod open;

use std::collections::BTreeMap;
use std::time::SystemTime;

use tollgate_log::{Answer, AppendError, Delivered, Log, LogEvent, LogSender, Stream};
use tollgate_shared::wire::MESSAGE_BYTES_MAX;

use self::open::Open;

/// How many partitions `hits` and `denials` of a log under test have.
pub const PARTITIONS: u32 = 3;

/// An empty log with [`PARTITIONS`] partitions that nothing else uses.
pub trait Medium {
    /// Opens it, or opens it again after it was closed.
    fn open(&self, events: LogSender) -> Box<dyn Log>;
}

/// A promise, by name.
pub type Promise = (&'static str, fn(&dyn Medium));

/// Every promise.
pub const PROMISES: &[Promise] = &[
    (
        "records_keep_their_order_and_bytes",
        records_keep_their_order_and_bytes,
    ),
    (
        "acknowledged_records_are_delivered_at_their_offset",
        acknowledged_records_are_delivered_at_their_offset,
    ),
    (
        "acknowledged_records_are_there_after_reopening",
        acknowledged_records_are_there_after_reopening,
    ),
    ("following_begins_anywhere", following_begins_anywhere),
    (
        "caught_up_is_reported_once_after_existing_records",
        caught_up_is_reported_once_after_existing_records,
    ),
    (
        "a_later_follow_replaces_an_earlier_one",
        a_later_follow_replaces_an_earlier_one,
    ),
    (
        "streams_and_partitions_stay_apart",
        streams_and_partitions_stay_apart,
    ),
    (
        "append_times_are_of_now_and_never_decrease",
        append_times_are_of_now_and_never_decrease,
    ),
    (
        "following_beyond_the_end_is_a_gap_back",
        following_beyond_the_end_is_a_gap_back,
    ),
    (
        "the_longest_record_fits_and_a_longer_one_never_does",
        the_longest_record_fits_and_a_longer_one_never_does,
    ),
    (
        "a_partition_that_is_not_there_is_refused",
        a_partition_that_is_not_there_is_refused,
    ),
    (
        "close_finishes_accepted_appends",
        close_finishes_accepted_appends,
    ),
];

/// Checks every promise, each on a medium of its own.
pub fn hold(fresh: impl Fn() -> Box<dyn Medium>) {
    for (name, promise) in PROMISES {
        eprintln!("conformance: {name}");
        promise(&*fresh());
    }
}

fn texts(records: &[Delivered]) -> Vec<String> {
    let text = |record: &Delivered| String::from_utf8_lossy(&record.bytes).into_owned();
    records.iter().map(text).collect()
}

fn offsets(records: &[Delivered]) -> Vec<u64> {
    records.iter().map(|record| record.offset).collect()
}

fn records_keep_their_order_and_bytes(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    open.read(Stream::Hits, 1, 0);
    let mut sent: Vec<Vec<u8>> = vec![vec![], vec![0], vec![255; 300]];
    sent.extend((0..500_u32).map(|n| n.to_be_bytes().repeat((n % 50) as usize)));
    let tickets: Vec<_> = sent
        .iter()
        .map(|record| open.send(Stream::Hits, 1, record.clone()))
        .collect();
    let read = open.next_records(Stream::Hits, 1, sent.len());
    assert!(read.iter().map(|r| r.bytes.to_vec()).eq(sent));
    assert!(read.is_sorted_by(|a, b| a.offset < b.offset));
    let answered: Vec<u64> = tickets
        .into_iter()
        .map(|ticket| open.answer(ticket).expect("appended"))
        .collect();
    assert_eq!(offsets(&read), answered);
    open.close();
}

fn acknowledged_records_are_delivered_at_their_offset(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let mut acknowledged = BTreeMap::new();
    for n in 0..40 {
        let offset = open.append(Stream::Hits, 0, format!("record {n}"));
        acknowledged.insert(offset, format!("record {n}"));
    }
    let (read, _) = open.read(Stream::Hits, 0, 0);
    let delivered: BTreeMap<_, _> = offsets(&read).into_iter().zip(texts(&read)).collect();
    assert_eq!(delivered, acknowledged);
    assert_eq!(read.len(), 40, "each once");
    open.close();
}

fn acknowledged_records_are_there_after_reopening(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    for n in 0..10 {
        open.append(Stream::Limits, 0, format!("version {n}"));
    }
    let (before, next) = open.read(Stream::Limits, 0, 0);
    open.close();
    let mut open = Open::of(medium);
    let (after, _) = open.read(Stream::Limits, 0, 0);
    assert_eq!(before, after, "append times included");
    assert!(next <= open.append(Stream::Limits, 0, "one more"));
    open.close();
}

fn following_begins_anywhere(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    for n in 0..30 {
        open.append(Stream::Denials, 2, format!("{n}"));
    }
    let (all, next) = open.read(Stream::Denials, 2, 0);
    for at in [0, 1, 14, 29] {
        let (read, same) = open.read(Stream::Denials, 2, all[at].offset);
        assert_eq!(read, all[at..]);
        assert_eq!(same, next);
    }
    let (none, same) = open.read(Stream::Denials, 2, next);
    assert_eq!((none, same), (vec![], next));
    open.close();
}

fn caught_up_is_reported_once_after_existing_records(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    assert_eq!(open.read(Stream::Hits, 2, 0), (vec![], 0), "empty: at once");
    let first = open.append(Stream::Hits, 2, "first");
    assert_eq!(offsets(&open.next_records(Stream::Hits, 2, 1)), [first]);
    let (read, next) = open.read(Stream::Hits, 2, 0);
    assert_eq!(texts(&read), ["first"]);
    assert!(first < next);
    for n in 0..20 {
        open.append(Stream::Hits, 2, format!("{n}"));
    }
    // Fails if anything but records comes.
    open.next_records(Stream::Hits, 2, 20);
    open.close();
}

fn a_later_follow_replaces_an_earlier_one(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    for n in 0..200 {
        open.append(Stream::Hits, 0, format!("{n}"));
    }
    let (all, _) = open.read(Stream::Hits, 0, 0);
    let from = [all[0].offset, all[150].offset, all[20].offset];
    for from in from {
        open.log.follow(Stream::Hits, 0, from);
    }
    for from in from {
        open.find(|event| {
            let begun = LogEvent::Following {
                stream: Stream::Hits,
                partition: 0,
                from,
            };
            (*event == begun).then_some(())
        });
    }
    // Records after the last `Following` belong to that follow.
    open.passed_over.clear();
    let mut read = Vec::new();
    loop {
        match open.of_partition(Stream::Hits, 0) {
            LogEvent::Delivered { records, .. } => read.extend(records),
            LogEvent::CaughtUp { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(read, all[20..]);
    let last = open.append(Stream::Hits, 0, "after");
    assert_eq!(
        offsets(&open.next_records(Stream::Hits, 0, 1)),
        [last],
        "once"
    );
    open.close();
}

fn streams_and_partitions_stay_apart(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let places: Vec<(Stream, u32)> = [Stream::Hits, Stream::Denials]
        .into_iter()
        .flat_map(|stream| (0..PARTITIONS).map(move |partition| (stream, partition)))
        .chain([(Stream::Limits, 0)])
        .collect();
    for (stream, partition) in &places {
        open.read(*stream, *partition, 0);
    }
    let mut tickets = Vec::new();
    for round in 0..20 {
        for (stream, partition) in &places {
            let text = format!("{stream:?} {partition} {round}");
            tickets.push(open.send(*stream, *partition, text));
        }
    }
    for ticket in tickets {
        open.answer(ticket).expect("appended");
    }
    open.passed_over.clear();
    for (stream, partition) in places {
        let (read, _) = open.read(stream, partition, 0);
        let expected: Vec<_> = (0..20)
            .map(|round| format!("{stream:?} {partition} {round}"))
            .collect();
        assert_eq!(texts(&read), expected);
    }
    open.close();
}

fn append_times_are_of_now_and_never_decrease(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let now_ms = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::try_from(since.expect("after 1970").as_millis()).expect("small")
    };
    let before = now_ms();
    for n in 0..50 {
        open.append(Stream::Hits, 0, format!("{n}"));
    }
    let after = now_ms();
    let (read, _) = open.read(Stream::Hits, 0, 0);
    let times: Vec<u64> = read.iter().map(|r| r.appended.as_millis()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(
        times.iter().all(|t| (before..=after).contains(t)),
        "{times:?}"
    );
    let whole = |record: &Delivered| record.appended.as_micros().is_multiple_of(1_000);
    assert!(read.iter().all(whole), "to the millisecond");
    open.close();
}

fn following_beyond_the_end_is_a_gap_back(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let only = open.append(Stream::Hits, 1, "only");
    open.log.follow(Stream::Hits, 1, only + 1_000);
    open.find(|event| {
        matches!(
            event,
            LogEvent::Following {
                stream: Stream::Hits,
                ..
            }
        )
        .then_some(())
    });
    match open.of_partition(Stream::Hits, 1) {
        LogEvent::Gap { wanted, next, .. } => {
            assert_eq!(wanted, only + 1_000);
            assert!(next <= only + 1);
        }
        other => panic!("{other:?}"),
    }
    let later = open.append(Stream::Hits, 1, "later");
    let last = open.find(|event| match event {
        LogEvent::Delivered {
            stream: Stream::Hits,
            records,
            ..
        } => records
            .iter()
            .map(|r| r.offset)
            .find(|offset| *offset == later),
        _ => None,
    });
    assert_eq!(last, later);
    open.close();
}

fn the_longest_record_fits_and_a_longer_one_never_does(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let longest: Vec<u8> = (0..MESSAGE_BYTES_MAX)
        .map(|n| (n * 31 % 251) as u8)
        .collect();
    open.append(Stream::Hits, 0, longest.clone());
    let longer = open.send(Stream::Hits, 0, vec![1; MESSAGE_BYTES_MAX + 1]);
    assert!(matches!(open.answer(longer), Err(AppendError::Never(_))));
    let (read, _) = open.read(Stream::Hits, 0, 0);
    assert_eq!(read.len(), 1);
    assert!(read[0].bytes == longest);
    open.close();
}

fn a_partition_that_is_not_there_is_refused(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    for (stream, partition) in [(Stream::Hits, PARTITIONS), (Stream::Limits, 1)] {
        let ticket = open.send(stream, partition, "x");
        assert!(matches!(open.answer(ticket), Err(AppendError::Never(_))));
        open.log.follow(stream, partition, 7);
        let begun = LogEvent::Following {
            stream,
            partition,
            from: 7,
        };
        assert_eq!(open.of_partition(stream, partition), begun);
        let broken = open.of_partition(stream, partition);
        assert!(
            matches!(broken, LogEvent::Broken { next: 7, .. }),
            "{broken:?}"
        );
    }
    open.close();
}

fn close_finishes_accepted_appends(medium: &dyn Medium) {
    let mut open = Open::of(medium);
    let tickets: Vec<_> = (0..500)
        .map(|n| open.send(Stream::Hits, 0, format!("{n}")))
        .collect();
    open.log.close();
    let late = open.send(Stream::Hits, 0, "late");
    let mut answers = BTreeMap::new();
    let mut closed = false;
    while !closed || !answers.contains_key(&late) {
        match open.event() {
            LogEvent::Appended { answers: some, .. } => {
                for Answer { ticket, result } in some {
                    assert!(!closed || ticket == late, "answered before `Closed`");
                    answers.insert(ticket, result);
                }
            }
            LogEvent::Closed => closed = true,
            _ => {}
        }
    }
    assert!(matches!(
        answers.get(&late),
        Some(Err(AppendError::NotNow(_)))
    ));
    for ticket in &tickets {
        assert!(matches!(answers.get(ticket), Some(Ok(_))), "{ticket:?}");
    }
    let mut open = Open::of(medium);
    assert_eq!(open.read(Stream::Hits, 0, 0).0.len(), tickets.len());
    open.close();
}
