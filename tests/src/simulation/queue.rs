//! Future events in the order of their times; those of one time in the order of their insertion.
//!
//! Knows nothing of events. What stays true: the elements that move in the heap are small, whatever an event carries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Values in the order of their times.
#[derive(Debug)]
pub struct Queue<T> {
    /// Time, number, and index of the value.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    values: Vec<Option<T>>,
    free: Vec<usize>,
    last_number: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            order: BinaryHeap::new(),
            values: Vec::new(),
            free: Vec::new(),
            last_number: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Inserts a value after all values of its time or an earlier one.
    pub fn push(&mut self, at_us: u64, value: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.values[slot] = Some(value);
                slot
            }
            None => {
                self.values.push(Some(value));
                self.values.len() - 1
            }
        };
        self.last_number += 1;
        self.order.push(Reverse((at_us, self.last_number, slot)));
    }

    /// Removes the first value, with its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((at_us, _, slot)) = self.order.pop()?;
        self.free.push(slot);
        let value = self.values[slot].take();
        Some((at_us, value.expect("a slot in the heap has its value")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_insertion() {
        let mut queue = Queue::default();
        for (at_us, value) in [(5, "c"), (3, "a"), (5, "d"), (4, "b")] {
            queue.push(at_us, value);
        }
        assert_eq!(queue.pop(), Some((3, "a")));
        queue.push(5, "e");
        queue.push(5, "f");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(4, "b"), (5, "c"), (5, "d"), (5, "e"), (5, "f")]);
        assert_eq!(queue.values.len(), 5, "slots are taken again");
    }
}
