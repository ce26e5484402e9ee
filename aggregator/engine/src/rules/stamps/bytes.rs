//! A window's hits as bytes, as part of a stored pair.
//!
//! ```text
//! no hits      00
//! three runs   [bytes after the oldest run + 1][how long before the time the newest is, hits][the others]
//! many runs    the same, followed by their totals, so that the runs can be read by copying
//! ```
//!
//! Knows nothing of pairs. What stays true: each list of hits has exactly one encoding.

use tollgate_shared::time::Timestamp;

use super::{Run, Stamps};
use crate::varint;

/// The totals of a window's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totalled {
    hits: u64,
    span_us: u64,
    /// Byte offset of the last run.
    tail: usize,
}

/// From so many bytes of runs on their totals are written after them.
const MANY_BYTES: usize = 32;

impl Totalled {
    #[inline]
    fn add(&mut self, at: usize, run: Run) -> Option<()> {
        // All hits of one instant are one run.
        if at != 0 && run.delta_us == 0 {
            return None;
        }
        self.hits = self.hits.checked_add(run.hits)?;
        self.span_us = self.span_us.checked_add(run.delta_us)?;
        self.tail = at;
        Some(())
    }
}

impl Stamps {
    /// Bytes of the runs, without forgotten ones.
    pub(crate) fn run_bytes(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// The first byte of the oldest run; 0 without runs.
    pub(crate) fn first_byte(&self) -> u8 {
        self.bytes.get(self.head).copied().unwrap_or(0)
    }

    /// Writes the remembered hits, none of which may be stamped after `time`.
    ///
    /// `0` for no hits. Otherwise: one more than the number of bytes after the oldest run; that run, with
    /// the time from the newest run to `time` in place of its distance; then the other runs unchanged. The
    /// newest run is mostly at the pair's time, so its instant costs nothing. After many runs come their
    /// totals, so that the runs can be read by copying.
    pub(crate) fn write(&self, time: Timestamp, bytes: &mut Vec<u8>) {
        let mut at = self.head;
        let Some(oldest) = Run::read(&self.bytes, &mut at) else {
            varint::write(bytes, 0);
            return;
        };
        let rest = &self.bytes[at..];
        varint::write(bytes, rest.len() as u64 + 1);
        let first = Run {
            delta_us: time.as_micros().saturating_sub(self.newest_us),
            ..oldest
        };
        first.write(bytes);
        bytes.extend_from_slice(rest);
        if MANY_BYTES <= rest.len() {
            let oldest_us = self.before_us.saturating_add(oldest.delta_us);
            varint::write(bytes, self.hits.saturating_sub(oldest.hits));
            varint::write(bytes, self.newest_us.saturating_sub(oldest_us));
            varint::write(bytes, (self.bytes.len() - self.tail) as u64);
        }
    }

    /// Reads the output of [`Stamps::write`] in place of the remembered hits. `None` for other bytes.
    pub(crate) fn read(&mut self, time: Timestamp, bytes: &[u8], at: &mut usize) -> Option<()> {
        self.load(time, bytes, at)?;
        // The totals that follow many runs must be correct.
        let (mut within, mut sum) = (0, Totalled::default());
        while within < self.bytes.len() {
            sum.add(within, Run::read(&self.bytes, &mut within)?)?;
        }
        let stated = Totalled {
            hits: self.hits,
            span_us: self.newest_us - self.before_us,
            tail: self.tail,
        };
        (sum == stated).then_some(())
    }

    /// The same for bytes that are known to be such an output.
    pub(crate) fn load(&mut self, time: Timestamp, bytes: &[u8], at: &mut usize) -> Option<()> {
        self.clear();
        let len = usize::try_from(varint::read(bytes, at)?).ok()?;
        let Some(rest) = len.checked_sub(1) else {
            return Some(());
        };
        let first = Run::read(bytes, at)?;
        let rest = bytes.get(*at..)?.get(..rest)?;
        *at += rest.len();
        self.newest_us = time.as_micros().checked_sub(first.delta_us)?;
        let oldest = Run {
            delta_us: 0,
            ..first
        };
        oldest.write(&mut self.bytes);
        let shift = self.bytes.len();
        self.bytes.extend_from_slice(rest);
        let mut sum = Totalled {
            hits: first.hits,
            ..Totalled::default()
        };
        if rest.len() < MANY_BYTES {
            let mut within = 0;
            while within < rest.len() {
                sum.add(shift + within, Run::read(rest, &mut within)?)?;
            }
        } else {
            sum.hits = sum.hits.checked_add(varint::read(bytes, at)?)?;
            sum.span_us = varint::read(bytes, at)?;
            let from_end = usize::try_from(varint::read(bytes, at)?).ok()?;
            sum.tail = self.bytes.len().checked_sub(from_end)?;
        }
        self.before_us = self.newest_us.checked_sub(sum.span_us)?;
        (self.hits, self.tail) = (sum.hits, sum.tail);
        Some(())
    }
}
