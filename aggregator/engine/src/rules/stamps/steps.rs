//! Places in a long list of runs where a walk may begin, so that no walk covers all of them.
//!
//! ```text
//! runs    |----------|----------|----------|-----
//! steps   ^head      ^          ^          ^          one for each kilobyte, without gaps from the head on
//! ```
//!
//! A late hit goes between two of a window's runs, and a window of an hour may have a million of them.
//! Knows nothing of the runs. What stays true: a step is a cache, no answer depends on whether it
//! exists, and a short list has no steps.

use std::collections::VecDeque;

use super::Mark;

/// Bytes of runs between two steps; so few in tests that a few runs have many steps.
pub(super) const STEP_BYTES: usize = if cfg!(test) { 12 } else { 1024 };

/// Marks in rising order, each with the hits before it since the beginning, including forgotten ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    marks: VecDeque<Mark>,
    forgotten: u64,
}

impl Steps {
    /// Removes all steps: there are no runs any more.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.forgotten = 0;
    }

    /// The last step before which all stamps are earlier than `cut_us`.
    pub fn before(&self, cut_us: u64) -> Option<Mark> {
        let count = self.marks.partition_point(|mark| mark.before_us < cut_us);
        self.nth(count)
    }

    /// The last step before which there are at most `hits` hits.
    pub fn passed_at_most(&self, hits: u64) -> Option<Mark> {
        let upto = hits.saturating_add(self.forgotten);
        let count = self.marks.partition_point(|mark| mark.passed <= upto);
        self.nth(count)
    }

    fn nth(&self, count: usize) -> Option<Mark> {
        let mut mark = *self.marks.get(count.checked_sub(1)?)?;
        mark.passed = mark.passed.saturating_sub(self.forgotten);
        Some(mark)
    }

    /// A run begins at this mark. The mark becomes a step if it is far enough after the last one, and
    /// there is no stretch without steps between the two.
    pub fn offer(&mut self, head: usize, mark: Mark) {
        let last = self.marks.back().map_or(head, |last| last.at);
        if (last + STEP_BYTES..last + 2 * STEP_BYTES).contains(&mark.at) {
            let passed = mark.passed.saturating_add(self.forgotten);
            self.marks.push_back(Mark { passed, ..mark });
        }
    }

    /// The runs begin at `head` now, and `hits` before it were forgotten.
    pub fn forgot(&mut self, head: usize, hits: u64) {
        self.forgotten = self.forgotten.saturating_add(hits);
        while self.marks.front().is_some_and(|mark| mark.at <= head) {
            self.marks.pop_front();
        }
    }

    /// Hits were inserted: runs that began at `from` or after it begin `later` bytes later.
    pub fn inserted(&mut self, from: usize, later: usize, hits: u64) {
        let behind = |mark: &&mut Mark| from <= mark.at;
        for mark in self.marks.iter_mut().rev().take_while(behind) {
            mark.at += later;
            mark.passed = mark.passed.saturating_add(hits);
        }
    }

    /// The first `bytes` bytes were removed: all runs begin so much earlier.
    pub fn moved_down(&mut self, bytes: usize) {
        for mark in &mut self.marks {
            mark.at = mark.at.saturating_sub(bytes);
        }
    }
}
