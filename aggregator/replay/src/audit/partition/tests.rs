//! What an audit keeps in memory of the statements that its range does not reach.

use std::sync::Arc;

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::statement::{Scope, Statement};

use super::*;
use crate::range::{Point, Range};
use crate::source::SourceError;
use crate::work::{Model, Progress, Task};

/// Each record of hits, and one statement about each.
struct TwoStreams(u64);

struct BatchCursor(Vec<Delivered>);

impl Cursor for BatchCursor {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        Ok(match std::mem::take(&mut self.0) {
            records if records.is_empty() => ReadStep::End,
            records => ReadStep::Records(records),
        })
    }
}

/// A lift that the record at `offset` caused.
fn lifted(offset: u64) -> Vec<u8> {
    let announced = Announced {
        log: LogId::default(),
        partition: 0,
        resource: "api".into(),
        statement: Statement {
            scope: Scope::Resource,
            position: LogPosition {
                offset,
                ..LogPosition::default()
            },
            kind: StatementKind::Lifted,
        },
    };
    let mut writer = Writer::new();
    announced.encode(&mut writer);
    writer.as_slice().to_vec()
}

impl Source for TwoStreams {
    fn name(&self) -> String {
        "two streams".to_owned()
    }

    fn partitions(&self) -> u32 {
        1
    }

    fn open(&self, stream: Stream, _: u32, from: u64) -> Result<Box<dyn Cursor>, SourceError> {
        let record = |offset| Delivered {
            offset,
            appended: Timestamp::from_millis(1_000 + offset),
            bytes: match stream {
                Stream::Denials => lifted(offset).into(),
                // No record, which an audit only remarks on.
                _ => vec![0xff].into(),
            },
        };
        Ok(Box::new(BatchCursor((from..self.0).map(record).collect())))
    }
}

#[test]
fn statements_behind_the_range_are_not_kept() {
    let source = TwoStreams(1_000);
    let offset = Point::Offset {
        partition: 0,
        offset: 10,
    };
    let task = Task {
        range: Range {
            from: None,
            to: Some(offset),
        },
        keys: Keyring::default(),
        threads: 1,
        model: Model::None,
    };
    let work = Work {
        source: &source,
        task: &task,
        book: Arc::new(LimitsBook::default()),
        progress: &Progress::default(),
    };
    let mut part = PartitionAudit::new(0);
    let mut auditor = Auditor::begin(&work, 0, &mut part).expect("a beginning");
    auditor.read(&mut part).expect("read");
    assert_eq!((auditor.next, auditor.denials.ahead.len()), (10, 0));
}
