//! Which hits the bound on bytes takes before a snapshot has them.

use super::super::core::{Core, JournalCommand};
use super::super::snapshots::Snapshots;
use super::*;

/// The losses, first and last offset, of a journal with room for five segments of nine records, which gets 120 records, one a second. `saved`
/// has the offset of the newest snapshot at each second.
fn losses(until_snapshot: bool, saved: impl Fn(u64) -> Option<u64>) -> Vec<(u64, u64)> {
    let mut kit = Kit::new();
    kit.config.until_snapshot = until_snapshot;
    kit.config.segment_bytes = 10_000;
    kit.config.retention_bytes = 50_000;
    let snapshots = Snapshots::beside(&kit.config.dir, Arc::clone(&kit.disk));
    let disk = Arc::clone(&kit.disk);
    let opened = Core::open(kit.config.clone(), disk, None, Timestamp::from_millis(0));
    let (mut core, _) = opened.expect("opens");
    let mut losses = Vec::new();
    let mut keep = |event| {
        if let LogEvent::Lost {
            partition,
            from,
            upto,
        } = event
        {
            assert_eq!(partition, 1);
            losses.push((from, upto));
        }
    };
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
        core.turn([append], Timestamp::from_millis(1_000 * second), &mut keep);
    }
    core.close().expect("closes");
    losses
}

#[test]
fn hits_lost_to_the_bound_on_bytes_are_named() {
    // A segment of nine records goes every nine seconds.
    let segments = |from: u64| -> Vec<_> { (from..8).map(|n| (9 * n, 9 * n + 8)).collect() };
    assert_eq!(losses(true, |_| None), segments(0));
    // The snapshot has a part of the first segment.
    assert_eq!(
        losses(true, |_| Some(5)),
        [vec![(6, 8)], segments(1)].concat()
    );
}

#[test]
fn hits_that_a_snapshot_has_are_not_lost() {
    assert!(losses(true, |second| second.checked_sub(20)).is_empty());
    assert!(losses(false, |_| None).is_empty());
}
