//! How far the wall clock is ahead of the monotonic one: stamps that never go back.
//!
//! ```text
//! set ahead    stamps follow at once: no hit counts later than its arrival at the log
//! set back     stamps follow by a millisecond a second; at once if it was by more than twelve hours: aggregators
//!              refuse records that are stamped a day ahead
//! ```
//!
//! Aggregators take the least that an agent's stamps were behind in the last minute or two for its clock's error. So
//! stamps that fell back by more than they tolerate would, for that long, be too old for each short window, and nothing
//! would limit these calls. Knows nothing of calls. What stays true: but for such a step, the wall clock by this goes back by
//! a quarter of a millisecond at most, after a sleep of the flusher.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_shared::time::Timestamp;

use super::{DOZING, MachineClocks, Mono};
use crate::log_lines::LogLines;

/// How often the log says that the clock was set back.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// How far the wall clock is ahead of the monotonic one.
#[derive(Debug)]
pub(super) struct Distance {
    us: AtomicU64,
    /// The monotonic instant up to which it has followed a wall clock that was set back.
    followed_us: AtomicU64,
    lines: LogLines,
}

/// Of so many microseconds, stamps follow a wall clock that was set back by one.
const FOLLOWS: u64 = 1_000;

/// A wall clock that was set back by more is followed at once: more than a wrong time zone, and half of what aggregators
/// accept. What is ahead by less, they correct.
const FOLLOWED_MAX_US: u64 = 12 * 3_600_000_000;

/// The longest time of which stamps follow at once, after which the process stood still.
const AT_ONCE_US: u64 = 250_000;

/// A wall clock that was set back by more is worth a line in the log: aggregators tolerate less.
const SET_BACK_US: u64 = 250_000;

impl Default for Distance {
    fn default() -> Self {
        Self {
            us: AtomicU64::new(0),
            followed_us: AtomicU64::new(0),
            lines: LogLines::once_in(LINE_EVERY),
        }
    }
}

impl Distance {
    /// Compares it with the machine's wall clock.
    pub fn follow_the_machine(&self, machine: &MachineClocks) {
        let before = machine.mono();
        let wall_us = machine.wall().as_micros();
        self.follow(wall_us, (before, machine.mono()));
        let ahead_us = self.wall(before).as_micros().saturating_sub(wall_us);
        if SET_BACK_US < ahead_us
            && let Some(unsaid) = self.lines.may()
        {
            tracing::warn!(
                ahead_us,
                unsaid,
                "the clock of this machine was set back: stamps follow it by a millisecond a second, so that limits hold"
            );
        }
    }

    /// Compares it with the machine's wall clock, which was read between two readings of the monotonic one.
    fn follow(&self, wall_us: u64, (before, after): (Mono, Mono)) {
        let us = self.us.load(Ordering::Relaxed);
        let (least, most) = (
            wall_us.saturating_sub(after.0),
            wall_us.saturating_sub(before.0),
        );
        let followed_us = self.followed_us.load(Ordering::Relaxed);
        let ahead_us = us.saturating_sub(most);
        let elapsed_us = before.0.saturating_sub(followed_us).min(AT_ONCE_US);
        let less = (elapsed_us / FOLLOWS).min(ahead_us);
        if us < least || FOLLOWED_MAX_US < ahead_us {
            self.us.store(least, Ordering::Relaxed);
        } else if most < us && less == 0 {
            // Too soon to follow by a whole microsecond.
            return;
        } else {
            self.us.store(us - less, Ordering::Relaxed);
        }
        self.followed_us.store(before.0, Ordering::Relaxed);
    }

    /// Follows a wall clock that was set ahead, or went on while the monotonic one stood still because the machine slept.
    pub fn rise(&self, machine: &MachineClocks) {
        let wall_us = machine.wall().as_micros();
        let least = wall_us.saturating_sub(machine.mono().0);
        self.us.fetch_max(least, Ordering::Relaxed);
    }

    /// The wall clock at a monotonic instant.
    pub fn wall(&self, at: Mono) -> Timestamp {
        let wall_us = self.us.load(Ordering::Relaxed).saturating_add(at.0);
        Timestamp::from_micros(wall_us.max(DOZING + 1))
    }
}

/// Whole microseconds, without the 128-bit division of the standard library: every refusal calls this.
pub(super) fn micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_follow_a_step_ahead_at_once_and_one_back_slowly() {
        let distance = Distance::default();
        let at = |mono_us: u64, wall_us: u64| {
            // The wall clock is read in the middle of ten microseconds.
            distance.follow(wall_us, (Mono(mono_us - 5), Mono(mono_us + 5)));
            distance.wall(Mono(mono_us)).as_micros().abs_diff(wall_us)
        };
        assert!(at(1_000_000, 50_000_000) <= 5);
        // Noise of less than the readings took changes nothing.
        let us = distance.us.load(Ordering::Relaxed);
        at(2_000_000, 50_999_998);
        assert_eq!(distance.us.load(Ordering::Relaxed), us);
        // Ahead by ten seconds.
        assert!(at(3_000_000, 62_000_000) <= 5);
        // Back by two: in twenty seconds of readings, each half a millisecond, twenty milliseconds of them.
        let (mut mono_us, mut wall_us) = (3_000_000, 60_000_000);
        let (mut apart, mut before) = (0, distance.wall(Mono(mono_us)));
        for _ in 0..40_000 {
            (mono_us, wall_us) = (mono_us + 500, wall_us + 500);
            apart = at(mono_us, wall_us);
            assert!(before <= distance.wall(Mono(mono_us)), "it goes back");
            before = distance.wall(Mono(mono_us));
        }
        assert!(apart.abs_diff(1_980_000) <= 100, "{apart}");
        // It is there after half an hour, and stays.
        for _ in 0..20_000 {
            (mono_us, wall_us) = (mono_us + 100_000, wall_us + 100_000);
            apart = at(mono_us, wall_us);
        }
        assert!(apart <= 5, "{apart}");
    }

    #[test]
    fn a_step_of_more_than_twelve_hours_is_followed_at_once() {
        let distance = Distance::default();
        let wall_after = |wall_us: u64| {
            distance.follow(wall_us, (Mono(1_000_000), Mono(1_000_000)));
            distance.wall(Mono(1_000_000)).as_micros()
        };
        let day = 86_400_000_000;
        assert_eq!(wall_after(3 * day), 3 * day);
        let half = wall_after(3 * day - day / 2);
        assert!(3 * day - 1_000 <= half, "{half}");
        assert_eq!(wall_after(day), day);
    }
}
