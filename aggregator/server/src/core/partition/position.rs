//! How far a partition has been read, and whether the log is the one that its state came from.

use tollgate_log::Delivered;
use tollgate_shared::time::Timestamp;

/// A position in the log.
#[derive(Debug, Default)]
pub struct Position {
    /// The offset of the next record to rule; while it is unverified, of the record that verifies it.
    pub next: u64,
    /// The state came from a snapshot, or reading was interrupted, and the log was not yet seen to have the record
    /// with which the state ends.
    pub unverified: bool,
    /// The record that was read last, if it was read here: the one before `next`, or at `next` while it has to verify
    /// the position.
    pub last: Option<Delivered>,
    /// The append time of the last record that was ruled.
    pub appended: Timestamp,
    /// Whether that record was ruled soon after its append.
    pub current: bool,
}

impl Position {
    /// Resets to the beginning of a log. The append time of the last record stays known.
    pub fn restart(&mut self) {
        (self.next, self.unverified, self.last) = (0, false, None);
    }

    /// Moves to the end of a restored state, whose last record is at `upto`.
    pub fn restore(&mut self, upto: Option<u64>) {
        (self.next, self.unverified, self.last) = (upto.unwrap_or(0), upto.is_some(), None);
    }

    /// Moves back to the record that was read last, if it was read here: read again, it verifies that the log is
    /// the same.
    pub fn step_back(&mut self) {
        if !self.unverified
            && let Some(last) = &self.last
        {
            (self.next, self.unverified) = (last.offset, true);
        }
    }

    /// Moves behind a record.
    pub fn advance(&mut self, delivered: &Delivered) {
        self.next = delivered.offset + 1;
        self.appended = delivered.appended;
        self.last = Some(delivered.clone());
    }

    /// Moves to a record before which records are gone.
    pub fn skip_to(&mut self, next: u64) {
        (self.next, self.last) = (next, None);
    }

    /// Whether a record is the one with which the state ends. `mark` is the snapshot's mark of that record.
    pub fn is_verified_by(&self, delivered: &Delivered, mark: Option<u128>) -> bool {
        match &self.last {
            Some(last) => last == delivered,
            None => mark == Some(delivered.mark()),
        }
    }

    /// Whether it waits for the record that it had read last.
    pub fn is_reading_again(&self) -> bool {
        self.unverified && self.last.is_some()
    }

    /// The offset after the last record of the state, as operators see it.
    pub fn shown(&self) -> u64 {
        self.next + u64::from(self.is_reading_again())
    }

    /// All records below this offset were read.
    pub fn read_upto(&self) -> u64 {
        self.next + u64::from(self.unverified)
    }
}
