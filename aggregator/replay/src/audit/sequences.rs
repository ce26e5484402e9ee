//! Agents' sequence numbers: which batches never came.
//!
//! An agent counts its batches for each partition from 1, and the log may have them in another order and
//! more than once. A number that is missing is a remark: an agent that had to drop a batch has said so
//! itself, and a record that was taken out of the log leaves its offset behind. Knows nothing of what is
//! in batches. What stays true: at most [`EPOCHS_MAX`] agents' processes are remembered.

use std::collections::HashMap;

use tollgate_shared::wire::hits::Sender;

use super::report::PartitionAudit;

/// How many processes of agents are remembered in one partition: some 4 MB.
const EPOCHS_MAX: usize = 65_536;

/// How far behind the highest one a batch may still come, as for the engine.
const WINDOW: u64 = 128;

/// What was seen of every process of an agent.
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
    /// A batch came.
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
        tell(missing, offset, part);
    }

    /// No more come.
    pub fn end(self, part: &mut PartitionAudit) {
        for mut seen in self.seen.into_values() {
            let last = seen.highest;
            let offset = seen.offset;
            tell(seen.advance(last.saturating_add(WINDOW)), offset, part);
        }
    }
}

impl Seen {
    /// Makes a number the highest; how many of those that leave the window never came.
    fn advance(&mut self, highest: u64) -> u64 {
        let by = highest - self.highest;
        let kept = (self.highest - self.first + 1).min(WINDOW);
        // Those that leave: the oldest of the window, and what never was in it.
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

fn tell(missing: u64, offset: u64, part: &mut PartitionAudit) {
    if 0 < missing {
        let text = "batches of agents that never came (their sequence numbers are missing)";
        part.remark("sequence_gaps", missing, offset, text);
    }
}
