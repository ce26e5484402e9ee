//! The agents of a log: which of their batches came before, and how wrong their clocks are.
//!
//! ```text
//! a batch    sent at 10:00 by its agent's clock, appended at 12:00: its calls are two hours later than their stamps
//! the same   comes again: its calls were read already
//! ```
//!
//! The engine's own rule corrects the stamps: see [`Clocks`]. Knows nothing of calls. What stays true: records before a
//! range show how wrong a clock is, and are not counted.

use std::collections::HashMap;

use tollgate_engine::engine::{Clock, Clocks};
use tollgate_log::Delivered;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::Sender;

use super::calls::Calls;
use crate::tags::Tags;

/// The agents of all partitions.
#[derive(Debug, Default)]
pub struct Senders {
    /// By epoch and partition.
    sequences: HashMap<(u128, u32), Sequences>,
    /// By partition.
    clocks: HashMap<u32, Clocks>,
}

impl Senders {
    /// Notes a tick.
    pub fn tick(&mut self, partition: u32, appended: Timestamp) {
        self.clocks.entry(partition).or_default().tick(appended);
    }

    /// Notes a record. Returns how its stamps are read; `None` if it came before.
    pub fn record(
        &mut self,
        partition: u32,
        sender: &Sender<'_>,
        appended: Timestamp,
    ) -> Option<Clock> {
        let clocks = self.clocks.entry(partition).or_default();
        let clock = clocks.record(sender, appended)?;
        let sequences = self.sequences.entry((sender.epoch, partition)).or_default();
        sequences.note(sender.sequence);
        Some(clock)
    }

    /// Notes a record from before the range that is read.
    pub fn before(&mut self, partition: u32, delivered: &Delivered, tags: &Tags) {
        let clocks = self.clocks.entry(partition).or_default();
        match Calls::of(partition, delivered, tags) {
            Ok(Calls::Batch(batch)) => {
                clocks.record(&batch.sender, delivered.appended);
            }
            Ok(Calls::Holds { sender, .. }) => {
                clocks.record(&sender, delivered.appended);
            }
            Ok(Calls::Tick) => clocks.tick(delivered.appended),
            // Nothing of it is played.
            Ok(Calls::None | Calls::Unreadable(_)) | Err(_) => {}
        }
    }

    /// How many batches are missing between others of their agent.
    pub fn missing(&self) -> u64 {
        self.sequences.values().map(Sequences::missing).sum()
    }
}

/// The numbers of batches that one epoch of an agent sent to one partition.
#[derive(Clone, Copy, Debug, Default)]
struct Sequences {
    first: u64,
    highest: u64,
    distinct: u64,
}

impl Sequences {
    /// Notes a number that did not come before.
    fn note(&mut self, number: u64) {
        if self.distinct == 0 {
            (self.first, self.highest) = (number, number);
        }
        self.first = self.first.min(number);
        self.highest = self.highest.max(number);
        self.distinct += 1;
    }

    fn missing(&self) -> u64 {
        (self.highest - self.first + 1).saturating_sub(self.distinct)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_sequences_are_found_and_gaps_counted() {
        let mut senders = Senders::default();
        let now = Timestamp::from_millis(1_000);
        let new: Vec<bool> = [5, 6, 5, 9, 8, 9, 200, 6]
            .into_iter()
            .map(|sequence| {
                let sender = Sender {
                    agent: "web-1",
                    epoch: 7,
                    sequence,
                    sent: now,
                };
                senders.record(0, &sender, now).is_some()
            })
            .collect();
        assert_eq!(new, [true, true, false, true, true, false, true, false]);
        // 5, 6, 8, 9 and 200 came, of 5 to 200.
        assert_eq!(senders.missing(), 196 - 5);
    }
}
