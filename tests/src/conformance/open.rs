//! An open log under test: performs requests, and finds the events that a promise is about.
//!
//! Knows no promises. What stays true: every wait has a deadline; an event that was passed
//! over is found by a later search.

use std::time::Duration;

use bytes::Bytes;
use tollgate_log::{AppendError, Delivered, Log, LogEvent, LogReceiver, Stream, Ticket, channel};

use super::{Medium, PARTITIONS};

/// The longest wait for one event: far above what a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(60);

/// An open log and its events.
pub struct Open {
    pub log: Box<dyn Log>,
    inbox: LogReceiver,
    /// Events that no search has picked yet.
    pub passed_over: Vec<LogEvent>,
    tickets: u64,
    clock: tokio::runtime::Runtime,
}

impl Open {
    /// Opens a log and waits until it accepts appends: the first events of Kafka take a moment.
    pub fn of(medium: &dyn Medium) -> Self {
        let (events, inbox) = channel(64);
        let mut open = Self {
            log: medium.open(events),
            inbox,
            passed_over: Vec::new(),
            tickets: 0,
            clock: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime"),
        };
        assert_eq!(open.log.partitions(), PARTITIONS);
        open.read(Stream::Limits, 0, 0);
        open
    }

    pub fn event(&mut self) -> LogEvent {
        let waiting = async { tokio::time::timeout(DEADLINE, self.inbox.recv()).await };
        let event = self.clock.block_on(waiting).expect("an event in time");
        event.expect("the log is open")
    }

    /// The first event that is picked; those before it are kept for later searches.
    pub fn find<T>(&mut self, pick: impl Fn(&LogEvent) -> Option<T>) -> T {
        if let Some(at) = self.passed_over.iter().position(|e| pick(e).is_some()) {
            return pick(&self.passed_over.remove(at)).expect("as before");
        }
        loop {
            let event = self.event();
            match pick(&event) {
                Some(found) => return found,
                None => self.passed_over.push(event),
            }
        }
    }

    pub fn send(&mut self, stream: Stream, partition: u32, record: impl Into<Bytes>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.log.append(stream, partition, ticket, record.into());
        ticket
    }

    pub fn answer(&mut self, ticket: Ticket) -> Result<u64, AppendError> {
        // An event may have more answers, so it is kept.
        loop {
            let answer = { self.passed_over.iter() }.find_map(|event| event.answer_to(ticket));
            if let Some(answer) = answer {
                return answer.clone();
            }
            let event = self.event();
            self.passed_over.push(event);
        }
    }

    pub fn append(&mut self, stream: Stream, partition: u32, record: impl Into<Bytes>) -> u64 {
        let ticket = self.send(stream, partition, record);
        self.answer(ticket).expect("appended")
    }

    /// Follows a partition. Returns the records delivered until it is caught up, and the offset at that point.
    pub fn read(&mut self, stream: Stream, partition: u32, from: u64) -> (Vec<Delivered>, u64) {
        self.log.follow(stream, partition, from);
        self.find(|event| {
            let begun = LogEvent::Following {
                stream,
                partition,
                from,
            };
            (*event == begun).then_some(())
        });
        // Earlier events of the partition belong to an earlier follow.
        self.passed_over
            .retain(|event| place_of(event) != Some((stream, partition)));
        let mut read = Vec::new();
        loop {
            match self.of_partition(stream, partition) {
                LogEvent::Delivered { records, .. } => read.extend(records),
                LogEvent::CaughtUp { next, .. } => return (read, next),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next event about a partition.
    pub fn of_partition(&mut self, stream: Stream, partition: u32) -> LogEvent {
        self.find(|event| (place_of(event) == Some((stream, partition))).then(|| event.clone()))
    }

    /// The next `count` records of a partition; no other event about it may come between.
    pub fn next_records(&mut self, stream: Stream, partition: u32, count: usize) -> Vec<Delivered> {
        let mut read = Vec::new();
        while read.len() < count {
            match self.of_partition(stream, partition) {
                LogEvent::Delivered { records, .. } => read.extend(records),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read.len(), count);
        read
    }

    pub fn close(mut self) {
        self.log.close();
        self.find(|event| (*event == LogEvent::Closed).then_some(()));
    }
}

/// The partition that an event is about.
fn place_of(event: &LogEvent) -> Option<(Stream, u32)> {
    match event {
        LogEvent::Delivered {
            stream, partition, ..
        }
        | LogEvent::CaughtUp {
            stream, partition, ..
        }
        | LogEvent::Following {
            stream, partition, ..
        }
        | LogEvent::Gap {
            stream, partition, ..
        }
        | LogEvent::Broken {
            stream, partition, ..
        } => Some((*stream, *partition)),
        _ => None,
    }
}
