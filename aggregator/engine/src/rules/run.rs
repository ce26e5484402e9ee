//! One run: all hits of one instant, as a distance from the run before it and a count.
//!
//! ```text
//! one hit, 250 us later        F4 03         the lowest bit: no count follows
//! three hits, 250 us later     F5 03 03
//! ```
//!
//! The first byte has the flag, six bits of the distance and whether more bytes of it follow; the
//! rest is as in [`crate::varint`]. So one hit within two minutes of the one before it takes at
//! most four bytes. Knows nothing of windows.

use crate::varint;

/// A run as encoded in the bytes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Microseconds since the run before it.
    pub delta_us: u64,
    /// Hits; at least 1.
    pub hits: u64,
}

const COUNTED: u8 = 0x01;
const MORE: u8 = 0x80;

impl Run {
    /// Appends the run.
    #[inline]
    pub fn write(self, bytes: &mut Vec<u8>) {
        let flag = u8::from(self.hits != 1);
        let low = ((self.delta_us as u8) & 0x3f) << 1;
        let rest = self.delta_us >> 6;
        if rest == 0 {
            bytes.push(low | flag);
        } else {
            bytes.push(low | flag | MORE);
            varint::write(bytes, rest);
        }
        if flag != 0 {
            varint::write(bytes, self.hits);
        }
    }

    /// Reads the run at `at`, and moves `at` behind it. `None` for bytes that [`Run::write`] does
    /// not write.
    #[inline]
    pub fn read(bytes: &[u8], at: &mut usize) -> Option<Self> {
        let first = *bytes.get(*at)?;
        *at += 1;
        let mut delta_us = u64::from(first & 0x7e) >> 1;
        if first & MORE != 0 {
            let rest = varint::read(bytes, at)?;
            if rest == 0 || (u64::MAX >> 6) < rest {
                return None;
            }
            delta_us |= rest << 6;
        }
        let hits = match first & COUNTED {
            0 => 1,
            _ => varint::read(bytes, at).filter(|hits| *hits != 1 && *hits != 0)?,
        };
        Some(Self { delta_us, hits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_survives_and_has_one_form() {
        for delta_us in [0, 1, 63, 64, 250, 1 << 27, u64::MAX >> 1, u64::MAX] {
            for hits in [1, 2, 3, 1 << 40, u64::MAX] {
                let mut bytes = Vec::new();
                let run = Run { delta_us, hits };
                run.write(&mut bytes);
                let mut at = 0;
                assert_eq!(Run::read(&bytes, &mut at), Some(run));
                assert_eq!(at, bytes.len());
                for cut in 0..bytes.len() {
                    assert_eq!(Run::read(&bytes[..cut], &mut 0), None);
                }
            }
        }
    }

    #[test]
    fn one_hit_within_two_minutes_takes_at_most_four_bytes() {
        let mut bytes = Vec::new();
        let delta_us = 120_000_000;
        Run { delta_us, hits: 1 }.write(&mut bytes);
        assert!(bytes.len() <= 4, "{}", bytes.len());
    }

    #[test]
    fn other_forms_are_refused() {
        // A count of one is not written; a distance that fits the first byte has no more bytes.
        assert_eq!(Run::read(&[0x03, 0x01], &mut 0), None);
        assert_eq!(Run::read(&[0x82, 0x00], &mut 0), None);
    }
}
