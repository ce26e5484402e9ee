//! Granted hits by stamp, and how many of them a sliding window still holds.
//!
//! ```text
//! window 1 s, hits at 0.0 0.0 0.4
//! at 1.0        3 in the window: a hit has left when now > hit + window
//! at 1.000001   1 in the window
//! ```
//!
//! Hits of one instant are one run; runs are bytes (see [`super::run`]), oldest first, so that a hit costs
//! no heap object and about four bytes. Knows nothing of tiers or limits. What stays true: stamps rise
//! along the bytes; `hits` and `sum` are those of all runs; the mark and the steps are only caches, and no
//! answer depends on their places.

mod bytes;
mod steps;

use tollgate_shared::time::{Span, Timestamp};

use super::pool::Renew;
use super::run::Run;
use steps::Steps;

/// A place where counting may begin: everything before it is known to be older than some cut.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Byte offset of the first run after it.
    at: usize,
    /// Stamp of the last run before it.
    before_us: u64,
    /// Hits before it.
    passed: u64,
}

/// Granted hits, oldest stamp first.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    bytes: Vec<u8>,
    /// Byte offset of the oldest run. Bytes before it are forgotten.
    head: usize,
    /// Byte offset of the newest run.
    tail: usize,
    /// The instant from which the oldest run's distance counts.
    before_us: u64,
    newest_us: u64,
    hits: u64,
    /// Computed when it is first asked for.
    sum: Option<u64>,
    mark: Mark,
    steps: Steps,
}

/// The first stamp that is still in a window of `span` at `now`: hits with earlier stamps have left.
fn cut_us(span: Span, now: Timestamp) -> u64 {
    // `hit + span < now`, without a sum that could overflow.
    now.as_micros().saturating_sub(span.as_micros())
}

/// The later of two places where a walk may begin.
fn later(mark: Mark, step: Option<Mark>) -> Mark {
    step.filter(|step| mark.at < step.at).unwrap_or(mark)
}

/// A hit's part in [`Stamps::sum`]: a mix that spreads neighbouring stamps over 64 bits.
fn scatter(at_us: u64) -> u64 {
    let mut x = at_us.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Renew for Stamps {
    fn renew(&mut self) {
        self.clear();
    }
}

impl Stamps {
    /// No hits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no hits are remembered.
    pub fn is_empty(&self) -> bool {
        self.head == self.bytes.len()
    }

    /// Number of hits remembered, including those that have left a window and were not forgotten.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// A digest of the remembered hits alone. The first call walks over all of them; from then on it is
    /// updated with every change.
    pub fn sum(&mut self) -> u64 {
        let runs = Walk::at(&self.bytes, self.head, self.before_us);
        *self.sum.get_or_insert_with(|| {
            let parts = runs.map(|(at_us, hits)| scatter(at_us).wrapping_mul(hits));
            parts.fold(0, u64::wrapping_add)
        })
    }

    /// The oldest remembered stamp.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.runs().next().map(|(at, _)| at)
    }

    /// The newest remembered stamp.
    pub fn newest(&self) -> Option<Timestamp> {
        (!self.is_empty()).then(|| Timestamp::from_micros(self.newest_us))
    }

    /// Every run: an instant and its hits, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = (Timestamp, u64)> + '_ {
        Walk::at(&self.bytes, self.head, self.before_us)
            .map(|(at_us, hits)| (Timestamp::from_micros(at_us), hits))
    }

    /// Adds `hits` stamped `at`, which need not be the newest.
    pub fn take(&mut self, at: Timestamp, hits: u64) {
        if hits == 0 {
            return;
        }
        let at_us = at.as_micros();
        if self.is_empty() {
            self.clear();
            self.before_us = at_us;
            self.push(at_us, hits);
        } else if self.newest_us < at_us {
            self.tail = self.bytes.len();
            self.push(at_us, hits);
        } else if self.newest_us == at_us {
            self.add_to_newest(hits);
        } else {
            self.insert(at_us, hits);
        }
        self.hits = self.hits.saturating_add(hits);
        if let Some(sum) = &mut self.sum {
            *sum = sum.wrapping_add(scatter(at_us).wrapping_mul(hits));
        }
    }

    /// Forgets everything. Keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.head, self.tail) = (0, 0);
        (self.before_us, self.newest_us) = (0, 0);
        (self.hits, self.sum) = (0, None);
        self.mark = Mark::default();
        self.steps.clear();
    }

    /// Forgets the hits that have left a window of `span` at `now`. The caller must not ask for an earlier
    /// instant or a longer window afterwards.
    pub fn forget(&mut self, span: Span, now: Timestamp) {
        let cut_us = cut_us(span, now);
        let before = self.hits;
        let mut at = self.head;
        while let Some(run) = Run::read(&self.bytes, &mut at) {
            let at_us = self.before_us.saturating_add(run.delta_us);
            if cut_us <= at_us {
                break;
            }
            self.hits = self.hits.saturating_sub(run.hits);
            if let Some(sum) = &mut self.sum {
                *sum = sum.wrapping_sub(scatter(at_us).wrapping_mul(run.hits));
            }
            self.mark.passed = self.mark.passed.saturating_sub(run.hits);
            self.before_us = at_us;
            self.head = at;
        }
        if self.is_empty() {
            self.clear();
            return;
        }
        if self.mark.at <= self.head {
            self.mark = Mark::default();
        }
        self.steps.forgot(self.head, before - self.hits);
        self.reclaim();
    }

    /// How many hits are stamped `at`.
    pub fn hits_at(&self, at: Timestamp) -> u64 {
        let mut runs = self.runs().skip_while(|(run_at, _)| *run_at < at);
        let run = runs.next().filter(|(run_at, _)| *run_at == at);
        run.map_or(0, |(_, hits)| hits)
    }

    /// Removes at most `hits` of the hits stamped `at`; returns how many.
    pub fn take_out(&mut self, at: Timestamp, hits: u64) -> u64 {
        let mut taken = 0;
        if hits == 0 || self.is_empty() {
            return taken;
        }
        self.rewrite(|run_at, run| {
            if run_at == at {
                taken = run.min(hits);
            }
            run - if run_at == at { taken } else { 0 }
        });
        taken
    }

    /// Removes at most `hits` hits, the newest first; returns how many.
    pub fn take_out_newest(&mut self, hits: u64) -> u64 {
        let taken = hits.min(self.hits);
        if taken == 0 {
            return taken;
        }
        let mut stay = self.hits - taken;
        self.rewrite(|_, run| {
            let stays = run.min(stay);
            stay -= stays;
            stays
        });
        taken
    }

    /// Changes the stamps of all hits, which must keep their order.
    pub fn move_stamps(&mut self, to: impl Fn(Timestamp) -> Timestamp) {
        let moved: Vec<(Timestamp, u64)> = self.runs().map(|(at, hits)| (to(at), hits)).collect();
        self.clear();
        for (at, hits) in moved {
            self.take(at, hits);
        }
    }

    /// Rewrites all runs with the hits that `stays` leaves of each. Only operators and settlements remove
    /// hits, so a walk over all of them does not matter.
    fn rewrite(&mut self, mut stays: impl FnMut(Timestamp, u64) -> u64) {
        let left: Vec<(Timestamp, u64)> = self
            .runs()
            .map(|(at, hits)| (at, stays(at, hits)))
            .collect();
        self.clear();
        for (at, hits) in left {
            self.take(at, hits);
        }
    }

    /// How many hits a window of `span` holds at `now`.
    pub fn held(&self, span: Span, now: Timestamp) -> u64 {
        let cut_us = cut_us(span, now);
        if self.newest_us < cut_us || self.is_empty() {
            return 0;
        }
        let passed = self.passed(cut_us).passed;
        self.hits.saturating_sub(passed)
    }

    /// Remembers the place of the `nth` newest hit, so that looking it up needs no walk. Useful for a
    /// caller that looks it up again after the next hit: the place advances only by as many hits as were
    /// added.
    #[inline]
    pub fn aim(&mut self, nth: u64) {
        let Some(skip) = self.hits.checked_sub(nth).filter(|skip| *skip != 0) else {
            return;
        };
        let mut mark = self.passed_at_most(skip);
        let mut at = mark.at;
        while let Some(run) = Run::read(&self.bytes, &mut at) {
            let passed = mark.passed.saturating_add(run.hits);
            if skip < passed {
                break;
            }
            mark = Mark {
                at,
                before_us: mark.before_us.saturating_add(run.delta_us),
                passed,
            };
        }
        self.mark = mark;
    }

    /// The stamp of the `nth` newest hit, counted from 1; `None` if there are fewer.
    pub fn nth_newest(&self, nth: u64) -> Option<Timestamp> {
        let skip = self.hits.checked_sub(nth).filter(|_| nth != 0)?;
        let from = self.passed_at_most(skip);
        let mut passed = from.passed;
        for (at_us, hits) in Walk::at(&self.bytes, from.at, from.before_us) {
            passed = passed.saturating_add(hits);
            if skip < passed {
                return Some(Timestamp::from_micros(at_us));
            }
        }
        None
    }

    fn front(&self) -> Mark {
        Mark {
            at: self.head,
            before_us: self.before_us,
            passed: 0,
        }
    }

    /// The latest known mark before which there are at most `hits` hits.
    fn passed_at_most(&self, hits: u64) -> Mark {
        let from = match 0 < self.mark.passed && self.mark.passed <= hits {
            true => self.mark,
            false => self.front(),
        };
        later(from, self.steps.passed_at_most(hits))
    }

    /// The mark before which all stamps, and after which no stamps, are earlier than `cut_us`.
    fn passed(&self, cut_us: u64) -> Mark {
        let mut mark = match 0 < self.mark.passed && self.mark.before_us < cut_us {
            true => self.mark,
            false => self.front(),
        };
        mark = later(mark, self.steps.before(cut_us));
        let mut at = mark.at;
        while let Some(run) = Run::read(&self.bytes, &mut at) {
            let at_us = mark.before_us.saturating_add(run.delta_us);
            if cut_us <= at_us {
                break;
            }
            mark = Mark {
                at,
                before_us: at_us,
                passed: mark.passed.saturating_add(run.hits),
            };
        }
        mark
    }

    fn push(&mut self, at_us: u64, hits: u64) {
        let from_us = match self.is_empty() {
            true => self.before_us,
            false => self.newest_us,
        };
        let here = Mark {
            at: self.bytes.len(),
            before_us: from_us,
            passed: self.hits,
        };
        self.steps.offer(self.head, here);
        let delta_us = at_us.saturating_sub(from_us);
        Run { delta_us, hits }.write(&mut self.bytes);
        self.newest_us = at_us;
    }

    /// Adds hits to the newest run.
    fn add_to_newest(&mut self, hits: u64) {
        let mut at = self.tail;
        if let Some(run) = Run::read(&self.bytes, &mut at) {
            self.bytes.truncate(self.tail);
            let hits = run.hits.saturating_add(hits);
            Run { hits, ..run }.write(&mut self.bytes);
        }
        if self.tail < self.mark.at {
            self.mark = Mark::default();
        }
    }

    /// Inserts hits among newer ones: a late entry, mostly in one of the last runs.
    fn insert(&mut self, at_us: u64, hits: u64) {
        let mut here = self.steps.before(at_us).unwrap_or_else(|| self.front());
        let mut at = here.at;
        // The first run that is not older; there is one, since the newest run is not.
        let (next_us, next) = loop {
            let Some(run) = Run::read(&self.bytes, &mut at) else {
                return;
            };
            let run_us = here.before_us.saturating_add(run.delta_us);
            if at_us <= run_us {
                break (run_us, run);
            }
            here = Mark {
                at,
                before_us: run_us,
                passed: here.passed.saturating_add(run.hits),
            };
            self.steps.offer(self.head, here);
        };
        let (start, mut before_us) = (here.at, here.before_us);
        if at_us < before_us {
            // Only before the oldest run, whose distance then counts from here.
            before_us = at_us;
            self.before_us = at_us;
        }
        // Appended at the end and rotated into place, so that no buffer is needed.
        let end = self.bytes.len();
        let delta_us = at_us - before_us;
        let mut next_start = start;
        if next_us == at_us {
            let hits = next.hits.saturating_add(hits);
            Run { delta_us, hits }.write(&mut self.bytes);
        } else {
            Run { delta_us, hits }.write(&mut self.bytes);
            next_start += self.bytes.len() - end;
            let delta_us = next_us - at_us;
            Run { delta_us, ..next }.write(&mut self.bytes);
        }
        let grown = self.bytes.len() - end;
        self.steps.inserted(at, grown - (at - start), hits);
        self.bytes[at..].rotate_right(grown);
        self.bytes.drain(start..at);
        self.tail = match start == self.tail {
            true => next_start,
            // The runs between here and the tail have moved by as much as the bytes grew.
            false => self.tail + grown - (at - start),
        };
        if at <= self.mark.at {
            self.mark.at += grown - (at - start);
            self.mark.passed = self.mark.passed.saturating_add(hits);
        }
    }

    /// Frees the bytes of forgotten runs once they are the greater part.
    fn reclaim(&mut self) {
        const WORTH_BYTES: usize = 64;
        if WORTH_BYTES < self.head && self.bytes.len() / 2 < self.head {
            self.bytes.drain(..self.head);
            self.tail -= self.head;
            self.mark.at = self.mark.at.saturating_sub(self.head);
            self.steps.moved_down(self.head);
            self.head = 0;
        }
    }
}

/// Iterates over runs with their instants.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    before_us: u64,
}

impl<'a> Walk<'a> {
    fn at(bytes: &'a [u8], at: usize, before_us: u64) -> Self {
        Self {
            bytes,
            at,
            before_us,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let run = Run::read(self.bytes, &mut self.at)?;
        self.before_us = self.before_us.saturating_add(run.delta_us);
        Some((self.before_us, run.hits))
    }
}

#[cfg(test)]
mod tests;
