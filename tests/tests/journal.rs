//! Checks that the embedded journal keeps the promises of every log, in both durabilities.

use tempfile::TempDir;
use tollgate_log::journal::{Ack, Journal, JournalConfig, JournalContext};
use tollgate_log::{Log, LogSender};
use tollgate_tests::conformance::{self, Medium, PARTITIONS};

struct InDirectory {
    dir: TempDir,
    ack: Ack,
    segment_bytes: u64,
}

impl Medium for InDirectory {
    fn open(&self, events: LogSender) -> Box<dyn Log> {
        let config = JournalConfig {
            partitions: PARTITIONS,
            ack: self.ack,
            segment_bytes: self.segment_bytes,
            ..JournalConfig::new(self.dir.path().join("journal"))
        };
        let opened = Journal::open(config, JournalContext::of_this_machine(), events);
        Box::new(opened.expect("opens").0)
    }
}

fn hold(ack: Ack, segment_bytes: u64) {
    conformance::hold(|| {
        Box::new(InDirectory {
            dir: tempfile::tempdir().expect("a temporary directory"),
            ack,
            segment_bytes,
        })
    });
}

#[test]
fn the_journal_keeps_every_promise_of_a_log_when_written() {
    hold(Ack::Written, 64 * 1024 * 1024);
}

#[test]
fn the_journal_keeps_every_promise_of_a_log_when_synced() {
    hold(Ack::Synced, 64 * 1024 * 1024);
}

#[test]
fn the_journal_keeps_every_promise_of_a_log_with_small_segments() {
    hold(Ack::Written, 200);
}
