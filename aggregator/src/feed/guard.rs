//! Bounds what is published within the time that a stalled subscriber is kept.
//!
//! Whatever such a subscriber makes the socket hold was published within that time, and bodies are
//! shared between subscribers, so a bound on the one is a bound on the other.

use std::collections::VecDeque;
use std::time::Duration;

use super::STALL_MAX;

/// Bytes that the socket keeps for a waiting message beside its body, measured at 305.
const OVERHEAD_BYTES: u64 = 320;

/// How long after [`STALL_MAX`] the operating system may still be at it: its timer backs off.
const GRACE: Duration = Duration::from_secs(1);

/// The parts into which the time is cut. What was published leaves by whole parts, so that at most a
/// sixteenth more time is counted than needed.
const PARTS: u32 = 16;

/// Counts bytes over a sliding window of time.
#[derive(Debug)]
pub struct Guard {
    bytes_max: u64,
    bytes: u64,
    /// By part of time: when it began, and how much was published in it.
    parts: VecDeque<(Duration, u64)>,
}

impl Guard {
    /// One that lets `bytes_max` through within the window.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            parts: VecDeque::new(),
        }
    }

    /// Whether a frame of so many bytes may be published now; `now` never decreases.
    pub fn admit(&mut self, now: Duration, frame_bytes: usize) -> bool {
        let window = STALL_MAX + GRACE;
        let part = window / PARTS;
        while let Some((began, bytes)) = self.parts.front().copied() {
            if now < began + part + window {
                break;
            }
            self.bytes -= bytes;
            self.parts.pop_front();
        }
        let cost = frame_bytes as u64 + OVERHEAD_BYTES;
        if self.bytes_max < self.bytes + cost {
            return false;
        }
        self.bytes += cost;
        match self.parts.back_mut() {
            Some((began, bytes)) if now < *began + part => *bytes += cost,
            _ => self.parts.push_back((now, cost)),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_the_window_no_more_than_the_bound_is_let_through() {
        let mut guard = Guard::new(1 << 20);
        let mut through = 0;
        for n in 0..10_000u64 {
            // A second in all.
            through += u64::from(guard.admit(Duration::from_micros(100 * n), 1_000));
        }
        assert_eq!(through, (1 << 20) / 1_320);
        assert!(!guard.admit(Duration::from_millis(4_000), 1_000));
        assert!(guard.admit(Duration::from_millis(5_300), 1_000));
        assert!(guard.parts.len() <= 18, "{}", guard.parts.len());
    }
}
