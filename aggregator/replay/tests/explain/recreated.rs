//! Tests of a log whose topic of hits was recreated, and that has the snapshots of the one before beside it.

use tollgate_replay::audit::audit;
use tollgate_replay::audit::report::AuditReport;
use tollgate_replay::range::{Point, Range};
use tollgate_replay::work::{Model, Progress, Task};
use tollgate_shared::keyring::Keyring;

use super::HOURS;
use super::log::{MemoryLog, at};

const MINUTE: u64 = 60_000;
const PAIR: (&str, &str) = ("api.window", "rr");

/// The log before, with a snapshot of its first hour: it ends at offset 62.
fn before() -> MemoryLog {
    let mut log = MemoryLog::new(HOURS);
    for minute in 0..60 {
        log.tick(minute * MINUTE);
    }
    log.tick(60 * MINUTE);
    log.snapshot();
    log
}

/// The recreated log, in which hits of two instants fill a limit; some ticks are between them.
fn recreated(ticks: u64) -> MemoryLog {
    let mut log = MemoryLog::recreated(HOURS);
    log.hits(61 * MINUTE, "first", PAIR, 60);
    for tick in 0..ticks {
        log.tick(62 * MINUTE + tick * 1_000);
    }
    log.hits(90 * MINUTE, "second", PAIR, 40);
    log.tick(91 * MINUTE);
    log.keep_snapshots_of(&before());
    log
}

fn audited(log: &MemoryLog, from: Option<u64>) -> AuditReport {
    let task = Task {
        range: Range {
            from: from.map(|ms| Point::At(at(ms))),
            to: None,
        },
        keys: Keyring::default(),
        threads: 1,
        model: Model::Share(1.0),
    };
    audit(log, &task, &Progress::default()).expect("a report")
}

fn has_remark(report: &AuditReport, kind: &str) -> bool {
    report.remarks.iter().any(|remark| remark.kind == kind)
}

/// Ticks of the recreated log: it ends before the snapshot does, or has another record there.
const TICKS: [u64; 2] = [3, 90];

#[test]
fn a_call_is_not_explained_from_another_logs_snapshot() {
    for ticks in TICKS {
        let log = recreated(ticks);
        let found = log.explained(PAIR, Some(90 * MINUTE + 1));
        assert!(found.denied, "{ticks} ticks: {found}");
    }
}

#[test]
fn an_audit_does_not_begin_at_another_logs_snapshot() {
    for ticks in TICKS {
        let report = audited(&recreated(ticks), Some(80 * MINUTE));
        assert_eq!((report.records, report.denials), (2, 1), "{report}");
        assert!(report.equal && !has_remark(&report, "model_not_asked"));
    }
}

#[test]
fn an_audit_begins_at_a_snapshot_of_this_log() {
    let mut log = before();
    log.hits(90 * MINUTE, "first", PAIR, 40);
    let report = audited(&log, Some(80 * MINUTE));
    assert_eq!(report.records, 1, "{report}");
    assert!(report.equal && has_remark(&report, "model_not_asked"));
}

#[test]
fn another_logs_snapshot_is_a_remark() {
    let report = audited(&recreated(90), None);
    assert!(report.equal, "{report}");
    assert!(has_remark(&report, "another_log_snapshots"), "{report}");
    assert_eq!(report.snapshots_equal, 0);
    let report = audited(&before(), None);
    assert!(report.equal, "{report}");
    assert_eq!((report.snapshots_equal, report.remarks.len()), (1, 0));
}
