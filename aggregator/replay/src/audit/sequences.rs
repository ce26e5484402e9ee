//! Agents' sequence numbers: which batches never arrived.
//!
//! An agent numbers its batches for each partition from 1; the log may have them in another order and
//! more than once. A missing number is a remark, not a difference: an agent reports itself when it had
//! to drop a batch, and a record that was removed from the log leaves a hole in the offsets. Knows
//! nothing of batches' content. What stays true: at most [`EPOCHS_MAX`] agents' processes are
//! remembered.

use std::collections::HashMap;

use tollgate_shared::wire::hits::Sender;

use super::report::PartitionAudit;

/// How many processes of agents are remembered in one partition: some 4 MB.
const EPOCHS_MAX: usize = 65_536;

/// How far behind the highest number a batch may still come, as in the engine.
const WINDOW: u64 = 128;

/// The numbers seen of every process of an agent.
#[derive(Debug, Default)]
pub struct Sequences {
    seen: HashMap<u128, Seen>,
}

#[derive(Debug)]
struct Seen {
    first: u64,
    highest: u64,
    /// Bit n: `highest - n` was seen.
    window: u128,
    offset: u64,
}

impl Sequences {
    /// Takes a batch's number.
    pub fn saw(&mut self, sender: &Sender<'_>, offset: u64, part: &mut PartitionAudit) {
        if EPOCHS_MAX <= self.seen.len() && !self.seen.contains_key(&sender.epoch) {
            return;
        }
        let number = sender.sequence;
        let seen = self.seen.entry(sender.epoch).or_insert(Seen {
            first: number,
            highest: number,
            window: 1,
            offset,
        });
        seen.offset = offset;
        if number <= seen.highest {
            let back = seen.highest - number;
            if back < WINDOW {
                seen.window |= 1 << back;
                seen.first = seen.first.min(number);
            }
            return;
        }
        let missing = seen.advance(number);
        note_missing(missing, offset, part);
    }

    /// Takes the end of the log.
    pub fn end(self, part: &mut PartitionAudit) {
        for mut seen in self.seen.into_values() {
            let last = seen.highest;
            let offset = seen.offset;
            note_missing(seen.advance(last.saturating_add(WINDOW)), offset, part);
        }
    }
}

impl Seen {
    /// Makes a number the highest. Returns how many of the numbers that leave the window never came.
    fn advance(&mut self, highest: u64) -> u64 {
        let by = highest - self.highest;
        let kept = (self.highest - self.first + 1).min(WINDOW);
        // The numbers that leave: the oldest of the window, and those that were never in it.
        let leaving = by.min(WINDOW);
        let mut missing = by.saturating_sub(WINDOW);
        for back in WINDOW - leaving..WINDOW {
            missing += u64::from(back < kept && self.window >> back & 1 == 0);
        }
        self.window = if by < WINDOW { self.window << by } else { 0 };
        self.window |= 1;
        self.highest = highest;
        missing
    }
}

fn note_missing(missing: u64, offset: u64, part: &mut PartitionAudit) {
    if 0 < missing {
        let text = "batches of agents that never arrived (their sequence numbers are missing)";
        part.remark("sequence_gaps", missing, offset, text);
    }
}
