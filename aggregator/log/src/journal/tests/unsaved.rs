//! What the log says of hits that the bound on bytes takes before a snapshot has them.

use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::super::core::{Core, JournalCommand};
use super::super::snapshots::Snapshots;
use super::*;

/// Keeps of each line about lost hits the partition and what follows it.
#[derive(Clone, Default)]
struct LostLines(Arc<Mutex<Vec<String>>>);

impl Subscriber for LostLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        if let Some((message, fields)) = line.0.split_once(" partition=")
            && message.contains("hits that no snapshot has")
        {
            let mut lines = self.0.lock().expect("no panic");
            lines.push(fields.to_owned());
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A line as one text.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

/// The lines of a journal with room for five segments of nine records, which gets 120 records, one a second. `saved`
/// has the offset of the newest snapshot at each second.
fn lines(until_snapshot: bool, saved: impl Fn(u64) -> Option<u64>) -> Vec<String> {
    let mut kit = Kit::new();
    kit.config.until_snapshot = until_snapshot;
    kit.config.segment_bytes = 10_000;
    kit.config.retention_bytes = 50_000;
    let snapshots = Snapshots::beside(&kit.config.dir, Arc::clone(&kit.disk));
    let disk = Arc::clone(&kit.disk);
    let opened = Core::open(kit.config.clone(), disk, None, Timestamp::from_millis(0));
    let (mut core, _) = opened.expect("opens");
    let kept = LostLines::default();
    tracing::subscriber::with_default(kept.clone(), || {
        for second in 1..=120 {
            if let Some(upto) = saved(second) {
                snapshots.save(1, upto, |_| {}).expect("saved");
            }
            let append = JournalCommand::Append(Append {
                stream: Stream::Hits,
                partition: 1,
                ticket: Ticket(second),
                record: vec![0; 1_000].into(),
            });
            core.turn(
                [append],
                Timestamp::from_millis(1_000 * second),
                &mut |_| {},
            );
        }
    });
    core.close().expect("closes");
    std::mem::take(&mut *kept.0.lock().expect("no panic"))
}

#[test]
fn hits_lost_to_the_bound_on_bytes_are_named_once_a_minute() {
    // A segment of nine records goes every nine seconds.
    let later = "1 from=63 upto=71 unsaid=6";
    let first = "1 from=0 upto=8 unsaid=0";
    assert_eq!(lines(true, |_| None), [first, later]);
    // The snapshot has a part of the first segment.
    let first = "1 from=6 upto=8 unsaid=0";
    assert_eq!(lines(true, |_| Some(5)), [first, later]);
}

#[test]
fn hits_that_a_snapshot_has_are_not_lost() {
    assert!(lines(true, |second| second.checked_sub(20)).is_empty());
    assert!(lines(false, |_| None).is_empty());
}
