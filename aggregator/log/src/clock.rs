//! The clocks of a log: the machine's wall clock, and the clock from which the journal takes append times.
//!
//! ```text
//! wall       12:00:00   12:00:10   set back to 11:00:10   11:01:50
//! log time   12:00:00   12:00:10                          12:01:49
//! ```
//!
//! Knows nothing of records. What stays true: log time never falls, and never stands still while monotonic time
//! passes. If it stood still, a window that is full would stay full, its denial would keep its end, and running agents
//! would hear of no other.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_shared::time::{Span, Timestamp};

/// A clock that returns the wall time.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that returns the time since some instant, and that nobody sets.
pub type MonotonicClock = Arc<dyn Fn() -> Span + Send + Sync>;

/// The wall time now, or the Unix epoch if the machine's clock is before it.
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::ZERO.saturating_add(Span::from_std(since.unwrap_or(Duration::ZERO)))
}

/// The machine's wall clock.
pub fn system_clock() -> WallClock {
    Arc::new(wall)
}

/// The machine's monotonic clock, from now on.
pub fn monotonic_clock() -> MonotonicClock {
    let started = Instant::now();
    Arc::new(move || Span::from_std(started.elapsed()))
}

/// By what part log time is slower than monotonic time while it is ahead of the wall clock: one part in a hundred, so
/// that the wall clock catches up with an hour in about four days, and windows and denials last little longer.
const SLOWER_BY: u64 = 100;

/// A clock that is this much behind is logged, once until it has caught up. Time services set clocks by less.
const WORTH_LOGGING: Span = Span::from_secs(1);

/// Log time: the wall time, except that it goes on by monotonic time, a little slower, while the wall clock is behind.
pub struct LogClock {
    wall: WallClock,
    monotonic: MonotonicClock,
    /// A log time, and the monotonic time at which it was.
    anchor: (Timestamp, Span),
    /// That the wall clock is behind was logged.
    told: bool,
}

impl LogClock {
    /// A clock for a log whose newest record was appended at `newest`.
    pub fn new(wall: WallClock, monotonic: MonotonicClock, newest: Timestamp) -> Self {
        let anchor = (newest, monotonic());
        Self {
            wall,
            monotonic,
            anchor,
            told: false,
        }
    }

    /// The log time now.
    pub fn now(&mut self) -> Timestamp {
        let (wall, monotonic) = ((self.wall)(), (self.monotonic)());
        let (shown, at) = self.anchor;
        let passed_us = monotonic.saturating_sub(at).as_micros();
        let slower = Span::from_micros(passed_us - passed_us / SLOWER_BY);
        let least = shown.saturating_add(slower);
        if least <= wall {
            (self.anchor, self.told) = ((wall, monotonic), false);
            return wall;
        }
        let behind = least.since(wall);
        if WORTH_LOGGING < behind && !self.told {
            self.told = true;
            tracing::warn!(
                behind_ms = behind.as_millis(),
                "the clock is behind log time, which goes on a little slower until the clock has caught up"
            );
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn log_time_goes_on_while_the_wall_clock_is_behind() {
        // Seconds of the wall clock, of monotonic time.
        let set = Arc::new(Mutex::new((0, 0)));
        let (of_wall, of_monotonic) = (Arc::clone(&set), Arc::clone(&set));
        let mut clock = LogClock::new(
            Arc::new(move || Timestamp::from_millis(of_wall.lock().unwrap().0 * 1_000)),
            Arc::new(move || Span::from_secs(of_monotonic.lock().unwrap().1)),
            Timestamp::from_millis(5_000_000),
        );
        let mut at = |wall, monotonic| {
            *set.lock().unwrap() = (wall, monotonic);
            clock.now().as_millis()
        };
        // The newest record is of a later time than the clock shows after the start.
        assert_eq!([at(4_000, 0), at(4_001, 1)], [5_000_000, 5_000_990]);
        // The wall clock is set, and later set back by an hour.
        assert_eq!([at(9_000, 2), at(9_010, 12)], [9_000_000, 9_010_000]);
        assert_eq!([at(5_410, 12), at(5_510, 112)], [9_010_000, 9_109_000]);
        // In many short steps as in a long one.
        assert_eq!([at(5_511, 113), at(5_610, 212)], [9_109_990, 9_208_000]);
        // The wall clock has caught up.
        assert_eq!([at(9_207, 213), at(9_210, 214)], [9_208_990, 9_210_000]);
        assert_eq!(at(9_211, 215), 9_211_000);
    }
}
