//! The log of a fleet in the simulation: ordered, partitioned and shared.
//!
//! It stands in for Kafka. It never loses a record; it may refuse an append, or store it and answer that it did
//! not. A new follow may deliver the same records again, one follow never does.

use std::collections::{BTreeMap, VecDeque};

use tollgate_log::{Append, AppendError, Delivered, LogEvent, Stream, Ticket};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::MESSAGE_BYTES_MAX;

/// The position at which an aggregator reads a partition.
#[derive(Clone, Debug)]
struct Following {
    from: u64,
    next: u64,
    target: u64,
    begun: bool,
    caught_up: bool,
    /// The incarnation of the topic at the last delivery.
    made: u64,
}

/// The session of one aggregator at the log.
#[derive(Clone, Debug, Default)]
pub struct Session {
    follows: BTreeMap<(Stream, u32), Following>,
    /// Appends under way to the log, in order.
    pub appends: VecDeque<Append>,
}

impl Session {
    /// Ends an aggregator's following of a partition.
    pub fn unfollow(&mut self, stream: Stream, partition: u32) {
        self.follows.remove(&(stream, partition));
    }
}

/// The log.
#[derive(Clone, Debug, Default)]
pub struct SharedLog {
    partitions: u32,
    records: BTreeMap<(Stream, u32), Vec<Delivered>>,
    /// How many times each topic was recreated.
    made: BTreeMap<Stream, u64>,
    /// Records below this offset were deleted by age.
    first: BTreeMap<(Stream, u32), u64>,
}

impl SharedLog {
    /// An empty log.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            ..Self::default()
        }
    }

    fn has(&self, stream: Stream, partition: u32) -> bool {
        let count = match stream {
            Stream::Limits => 1,
            Stream::Hits | Stream::Denials => self.partitions,
        };
        partition < count
    }

    /// Stores a record. Returns its offset and append time.
    ///
    /// # Errors
    ///
    /// [`AppendError::Never`] if there is no such partition, or the record is too long.
    pub fn put(&mut self, append: &Append, wall: Timestamp) -> Result<Delivered, AppendError> {
        if !self.has(append.stream, append.partition) {
            let (stream, partition) = (append.stream, append.partition);
            return Err(AppendError::Never(format!("{stream:?} has no {partition}")));
        }
        if MESSAGE_BYTES_MAX < append.record.len() {
            let bytes = append.record.len();
            return Err(AppendError::Never(format!("{bytes} bytes are too many")));
        }
        let records = self
            .records
            .entry((append.stream, append.partition))
            .or_default();
        let last = records.last().map_or(Timestamp::ZERO, |last| last.appended);
        let record = Delivered {
            offset: records.len() as u64,
            appended: Timestamp::from_millis(wall.as_millis()).max(last),
            bytes: append.record.clone(),
        };
        records.push(record.clone());
        Ok(record)
    }

    /// Deletes and recreates a topic: it is empty, and offsets start at 0.
    pub fn make_anew(&mut self, stream: Stream) {
        self.records.retain(|(of, _), _| *of != stream);
        self.first.retain(|(of, _), _| *of != stream);
        *self.made.entry(stream).or_default() += 1;
    }

    /// Deletes the records below an offset, as a log does by age. They never come back.
    pub fn let_go(&mut self, stream: Stream, partition: u32, below: u64) {
        let at = (stream, partition);
        let below = below.min(self.end(at));
        let first = self.first.entry(at).or_default();
        *first = below.max(*first);
    }

    /// Whether a session follows a partition of a topic that is gone, and has not been notified yet.
    pub fn is_gone(&self, session: &Session, stream: Stream, partition: u32) -> bool {
        let following = session.follows.get(&(stream, partition));
        following.is_some_and(|following| following.made != self.made_of(stream))
    }

    fn made_of(&self, stream: Stream) -> u64 {
        self.made.get(&stream).copied().unwrap_or(0)
    }

    fn end(&self, at: (Stream, u32)) -> u64 {
        self.records
            .get(&at)
            .map_or(0, |records| records.len() as u64)
    }

    /// Starts an aggregator's following of a partition.
    pub fn follow(&self, session: &mut Session, stream: Stream, partition: u32, from: u64) {
        let at = (stream, partition);
        let following = Following {
            from,
            next: from,
            target: self.end(at),
            begun: false,
            caught_up: false,
            made: self.made_of(stream),
        };
        session.follows.insert(at, following);
    }

    /// The next events for an aggregator's followed partitions, up to this many records of each partition.
    pub fn deliver(&self, session: &mut Session, records_max: usize) -> Vec<LogEvent> {
        let mut events = Vec::new();
        session.follows.retain(|(stream, partition), following| {
            let (stream, partition) = (*stream, *partition);
            if !std::mem::replace(&mut following.begun, true) {
                events.push(LogEvent::Following {
                    stream,
                    partition,
                    from: following.from,
                });
            }
            if !self.has(stream, partition) {
                events.push(LogEvent::Broken {
                    stream,
                    partition,
                    next: following.next,
                    why: format!("{stream:?} has no {partition}"),
                });
                return false;
            }
            let records = self.records.get(&(stream, partition));
            let mut there = records.map_or(0, Vec::len) as u64;
            let made = self.made_of(stream);
            if std::mem::replace(&mut following.made, made) != made {
                // A reader that follows a topic by name and learns that it was recreated
                // starts with its first record.
                there = 0;
            }
            let first = self.first.get(&(stream, partition)).copied().unwrap_or(0);
            // Behind the end of a log that was recreated or, after that, before the oldest record.
            for (is_gap, next) in [
                (there < following.next, there),
                (following.next.min(there) < first, first),
            ] {
                if is_gap {
                    events.push(LogEvent::Gap {
                        stream,
                        partition,
                        wanted: following.next,
                        next,
                    });
                    following.next = next;
                }
            }
            let there = records.map_or(0, Vec::len) as u64;
            let some = (there - following.next).min(records_max as u64);
            let (from, to) = (following.next as usize, (following.next + some) as usize);
            if from < to
                && let Some(records) = records
            {
                following.next = to as u64;
                events.push(LogEvent::Delivered {
                    stream,
                    partition,
                    records: records[from..to].to_vec(),
                });
            }
            if !following.caught_up && following.target <= following.next {
                following.caught_up = true;
                events.push(LogEvent::CaughtUp {
                    stream,
                    partition,
                    next: following.next,
                });
            }
            true
        });
        events
    }

    /// Whether an aggregator still lacks records that it follows.
    pub fn is_behind(&self, session: &Session) -> bool {
        session.follows.iter().any(|(at, following)| {
            !following.caught_up
                || following.next < self.end(*at)
                || following.made != self.made_of(at.0)
        })
    }
}

/// The answer to an append that is refused.
pub fn refused(ticket: Ticket, why: &str) -> LogEvent {
    LogEvent::answer(ticket, Err(AppendError::NotNow(why.to_owned())))
}
