//! Where a walk over many runs may begin, so that nobody walks over all of them.
//!
//! ```text
//! runs    |----------|----------|----------|-----
//! steps   ^head      ^          ^          ^          one a kilobyte, without gaps from the head on
//! ```
//!
//! A late hit goes between two of a window's runs, and a window of an hour may have a million of them.
//! Knows nothing of the runs. What stays true: a step is a memo, no answer depends on whether it is
//! there, and few runs have none.

use std::collections::VecDeque;

use super::Mark;

/// Bytes of runs between two steps. Tests take many of them in a few runs.
pub(super) const STEP_BYTES: usize = if cfg!(test) { 12 } else { 1024 };

/// Marks by rising place, each with what was passed since the beginning, forgotten hits included.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    marks: VecDeque<Mark>,
    forgotten: u64,
}

impl Steps {
    /// There are no runs any more.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.forgotten = 0;
    }

    /// The last step before which everything is stamped before `cut_us`.
    pub fn before(&self, cut_us: u64) -> Option<Mark> {
        let count = self.marks.partition_point(|mark| mark.before_us < cut_us);
        self.nth(count)
    }

    /// The last step before which there are no more than so many hits.
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

    /// A run begins at this mark: it is a step if it is far enough behind the last one, and no runs
    /// without a step lie between.
    pub fn offer(&mut self, head: usize, mark: Mark) {
        let last = self.marks.back().map_or(head, |last| last.at);
        if (last + STEP_BYTES..last + 2 * STEP_BYTES).contains(&mark.at) {
            let passed = mark.passed.saturating_add(self.forgotten);
            self.marks.push_back(Mark { passed, ..mark });
        }
    }

    /// The runs begin at `head` by now, and `hits` before it were forgotten.
    pub fn forgot(&mut self, head: usize, hits: u64) {
        self.forgotten = self.forgotten.saturating_add(hits);
        while self.marks.front().is_some_and(|mark| mark.at <= head) {
            self.marks.pop_front();
        }
    }

    /// Hits came in: the runs that began at `from` or behind it begin `later` bytes later.
    pub fn inserted(&mut self, from: usize, later: usize, hits: u64) {
        let behind = |mark: &&mut Mark| from <= mark.at;
        for mark in self.marks.iter_mut().rev().take_while(behind) {
            mark.at += later;
            mark.passed = mark.passed.saturating_add(hits);
        }
    }

    /// The first bytes are gone: all runs begin so much earlier.
    pub fn moved_down(&mut self, bytes: usize) {
        for mark in &mut self.marks {
            mark.at = mark.at.saturating_sub(bytes);
        }
    }
}
