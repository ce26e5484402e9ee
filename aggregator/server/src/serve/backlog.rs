//! Events of the log that the core has not handled yet, and how many of them are ruled at once.
//!
//! ```text
//! of partition 0, 0, 1, 1, 2   of the limits   of 0        two threads
//!              └─────┴── 0 and 1 at once, each up to its share; then the rest, in order
//! ```
//!
//! Events about partitions may overtake those about other partitions; no other event overtakes any. With one thread
//! events are handed out as they came. Knows nothing of what records mean. What stays true: events of one partition
//! keep their order; the number of waiting events is bounded.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use tollgate_log::LogEvent;

use crate::core::together::partition_of;

/// Events that may wait beside those in the channel.
const EVENTS_MAX: usize = 64;

/// What is ruled of one partition at once, in bytes of records: that takes a few milliseconds, like a delivery
/// that is read from a disk.
const SHARE_BYTES: usize = 128 * 1024;

/// How many such shares there are at once for each thread, if so many partitions have events. Threads take one after
/// the other, so that none waits long for another; and the more there are, the longer do all other events wait: while
/// an aggregator catches up, eight shares for two threads are about 25 ms.
const SHARES_A_THREAD: usize = 4;

/// With less it does not pay to wake another thread, which takes about 50 us.
const WORTH_BYTES: usize = 32 * 1024;

/// What the core handles next.
#[derive(Debug)]
pub(super) enum Next {
    /// An event.
    Event(LogEvent),
    /// Events about several partitions, to be handled at once.
    Together(Vec<LogEvent>),
}

/// Events of the log, in order.
pub(super) struct Backlog {
    events: VecDeque<WaitingEvent>,
    /// The bytes of the records that they deliver.
    bytes: usize,
    threads: NonZeroUsize,
}

/// An event, and what decides when it is handled.
struct WaitingEvent {
    event: LogEvent,
    /// The partition that it concerns, if it concerns one alone.
    partition: Option<u32>,
    /// The bytes of the records that it delivers.
    bytes: usize,
}

impl Backlog {
    /// An empty backlog, for this number of threads.
    pub fn new(threads: NonZeroUsize) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            threads,
        }
    }

    /// Whether another event may be added: with one thread only when the last one was handed out.
    pub fn has_room(&self) -> bool {
        let max = if self.threads.get() == 1 {
            1
        } else {
            EVENTS_MAX
        };
        self.events.len() < max
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes everything out.
    pub fn take_all(&mut self) -> impl Iterator<Item = LogEvent> + use<> {
        let events = std::mem::take(&mut self.events);
        self.bytes = 0;
        events.into_iter().map(|waiting| waiting.event)
    }

    pub fn push(&mut self, event: LogEvent) {
        let bytes = size_of(&event);
        self.bytes += bytes;
        self.events.push_back(WaitingEvent {
            partition: partition_of(&event),
            bytes,
            event,
        });
    }

    /// Takes the next event, or as many as the threads handle at once.
    pub fn next(&mut self) -> Option<Next> {
        match self.together() {
            Some(events) => Some(Next::Together(events)),
            None => {
                let waiting = self.events.pop_front()?;
                self.bytes -= waiting.bytes;
                Some(Next::Event(waiting.event))
            }
        }
    }

    /// Takes events about several partitions, if there is enough to do for several threads: of each partition at
    /// most a share, and no more shares than the threads do in time.
    fn together(&mut self) -> Option<Vec<LogEvent>> {
        let threads = self.threads.get();
        if threads == 1 || self.bytes < WORTH_BYTES {
            return None;
        }
        let shares_max = threads * SHARES_A_THREAD;
        let of = |waiting: &WaitingEvent| Some((waiting.partition?, waiting.bytes));
        let front = self.events.iter().map_while(of);
        let mut shares: Vec<Share> = Vec::new();
        let mut taken = Vec::new();
        let (mut total, mut full) = (0, 0);
        for (at, (partition, bytes)) in front.enumerate() {
            let is_enough = shares_max <= shares.len() && shares_max * SHARE_BYTES < total + bytes;
            if is_enough || shares_max <= full {
                break;
            }
            let share = match shares.iter_mut().find(|share| share.partition == partition) {
                Some(share) => share,
                None => {
                    shares.push(Share::of(partition));
                    shares.last_mut()?
                }
            };
            if share.is_full {
                continue;
            }
            if share.takes(bytes) {
                total += bytes;
                taken.push(at);
            }
            full += usize::from(share.is_full);
        }
        let greatest = shares.iter().map(|share| share.bytes).max()?;
        let is_worth_it = WORTH_BYTES <= total - greatest;
        is_worth_it.then(|| self.take_out(&taken))
    }

    fn take_out(&mut self, taken: &[usize]) -> Vec<LogEvent> {
        let mut out = Vec::with_capacity(taken.len());
        let mut taken = taken.iter().copied().peekable();
        let mut rest = VecDeque::with_capacity(self.events.len());
        for (at, waiting) in std::mem::take(&mut self.events).into_iter().enumerate() {
            match taken.next_if_eq(&at) {
                Some(_) => {
                    self.bytes -= waiting.bytes;
                    out.push(waiting.event);
                }
                None => rest.push_back(waiting),
            }
        }
        self.events = rest;
        out
    }
}

/// The part of one partition's events that is ruled at once.
struct Share {
    partition: u32,
    bytes: usize,
    /// No more events are taken, so that none overtakes one that was left.
    is_full: bool,
}

impl Share {
    const fn of(partition: u32) -> Self {
        Self {
            partition,
            bytes: 0,
            is_full: false,
        }
    }

    /// Takes more bytes if they fit. The first event always fits, whatever its size.
    fn takes(&mut self, bytes: usize) -> bool {
        let is_taken = self.bytes == 0 || self.bytes + bytes <= SHARE_BYTES;
        if is_taken {
            self.bytes += bytes;
        }
        self.is_full = !is_taken || SHARE_BYTES <= self.bytes;
        is_taken
    }
}

/// The bytes of the records that an event delivers.
fn size_of(event: &LogEvent) -> usize {
    match event {
        LogEvent::Delivered { records, .. } => {
            records.iter().map(|record| record.bytes.len()).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use tollgate_log::{Delivered, Stream};
    use tollgate_shared::time::Timestamp;

    use super::*;

    fn delivered(partition: u32, offset: u64, bytes: usize) -> LogEvent {
        LogEvent::Delivered {
            stream: Stream::Hits,
            partition,
            records: vec![Delivered {
                offset,
                appended: Timestamp::ZERO,
                bytes: vec![0; bytes].into(),
            }],
        }
    }

    /// The events handed out, as `partition:offset`; those ruled at once are in brackets.
    fn handed_out(threads: usize, events: Vec<LogEvent>) -> String {
        let mut backlog = Backlog::new(NonZeroUsize::new(threads).expect("a thread"));
        let mut out = Vec::new();
        events.into_iter().for_each(|event| backlog.push(event));
        let name = |event: &LogEvent| match event {
            LogEvent::Delivered {
                partition, records, ..
            } => format!("{partition}:{}", records[0].offset),
            _ => "up".to_owned(),
        };
        while let Some(next) = backlog.next() {
            out.push(match next {
                Next::Event(event) => name(&event),
                Next::Together(events) => {
                    let all: Vec<String> = events.iter().map(name).collect();
                    format!("[{}]", all.join(" "))
                }
            });
        }
        out.join(" ")
    }

    #[test]
    fn deliveries_of_several_partitions_are_ruled_at_once() {
        const LARGE: usize = SHARE_BYTES;
        let events = || {
            vec![
                delivered(0, 0, LARGE),
                delivered(0, 1, LARGE),
                delivered(1, 0, LARGE),
                delivered(2, 0, LARGE),
                LogEvent::Up,
                delivered(1, 1, LARGE),
                delivered(2, 1, 100),
            ]
        };
        assert_eq!(handed_out(1, events()), "0:0 0:1 1:0 2:0 up 1:1 2:1");
        assert_eq!(handed_out(2, events()), "[0:0 1:0 2:0] 0:1 up 1:1 2:1");
    }

    /// Whatever the size of a delivery: one share more would be done by one thread while all others wait for it.
    #[test]
    fn threads_get_equal_shares() {
        for bytes in [SHARE_BYTES - 100, SHARE_BYTES, SHARE_BYTES + 100] {
            let events = (0..10).map(|partition| delivered(partition, 0, bytes));
            let first: Vec<_> = (0..8).map(|partition| format!("{partition}:0")).collect();
            let expected = format!("[{}] [8:0 9:0]", first.join(" "));
            assert_eq!(handed_out(2, events.collect()), expected, "{bytes}");
        }
    }

    #[test]
    fn small_deliveries_of_a_partition_are_one_share() {
        const SMALL: usize = WORTH_BYTES / 2;
        let events = (0..8).map(|n| delivered(n % 2, u64::from(n) / 2, SMALL));
        let expected = "[0:0 1:0 0:1 1:1 0:2 1:2 0:3 1:3]";
        assert_eq!(handed_out(2, events.collect()), expected);
        let events = vec![delivered(0, 0, SMALL), delivered(1, 0, SMALL)];
        assert_eq!(handed_out(2, events), "0:0 1:0", "not worth a thread");
    }
}
