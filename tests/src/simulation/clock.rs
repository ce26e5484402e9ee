//! The clocks of a host: a wall clock, which may jump or stop, and a monotonic clock.
//!
//! Both run fast or slow by the host's drift. True time is the simulation's own, in microseconds from its start;
//! the code under test sees only these clocks.

use tollgate_shared::time::Timestamp;

/// The wall time at which every simulation begins.
pub const BEGINNING_US: u64 = 1_800_000_000_000_000;

/// The clocks of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    at_us: u64,
    mono_us: u64,
    wall_us: u64,
    drift_ppm: i64,
    /// The number of faults that stop the wall clock now.
    stops: u32,
}

impl Clock {
    /// Clocks whose wall time is wrong by `wall_off_us`.
    pub fn new(drift_ppm: i64, wall_off_us: i64) -> Self {
        Self {
            at_us: 0,
            // Hosts ran before the simulation, and their clocks differ.
            mono_us: 1_000_000_000,
            wall_us: BEGINNING_US.saturating_add_signed(wall_off_us),
            drift_ppm,
            stops: 0,
        }
    }

    fn since(&self, now_us: u64) -> u64 {
        let true_us = now_us.saturating_sub(self.at_us);
        let off = i128::from(true_us) * i128::from(self.drift_ppm) / 1_000_000;
        true_us.saturating_add_signed(off as i64)
    }

    /// The monotonic clock.
    pub fn mono_us(&self, now_us: u64) -> u64 {
        self.mono_us + self.since(now_us)
    }

    /// The wall clock.
    pub fn wall(&self, now_us: u64) -> Timestamp {
        Timestamp::from_micros(self.wall_us + self.wall_since(now_us))
    }

    /// Moves the wall clock forward or back.
    pub fn jump(&mut self, now_us: u64, by_us: i64) {
        self.settle(now_us);
        self.wall_us = self.wall_us.saturating_add_signed(by_us);
    }

    /// Stops the wall clock until [`Clock::go_on`] was called as many times.
    pub fn stop(&mut self, now_us: u64) {
        self.settle(now_us);
        self.stops += 1;
    }

    /// Lets the wall clock continue from where it stopped.
    pub fn go_on(&mut self, now_us: u64) {
        self.settle(now_us);
        self.stops -= 1;
    }

    fn wall_since(&self, now_us: u64) -> u64 {
        match self.stops {
            0 => self.since(now_us),
            _ => 0,
        }
    }

    fn settle(&mut self, now_us: u64) {
        self.wall_us += self.wall_since(now_us);
        self.mono_us += self.since(now_us);
        self.at_us = now_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_drift_and_only_the_wall_clock_jumps() {
        let mut clock = Clock::new(100, 0);
        let mono = clock.mono_us(0);
        assert_eq!(clock.mono_us(1_000_000) - mono, 1_000_100);
        clock.jump(1_000_000, -5_000_000);
        assert_eq!(
            clock.wall(1_000_000).as_micros(),
            BEGINNING_US + 1_000_100 - 5_000_000
        );
        assert_eq!(clock.mono_us(2_000_000) - mono, 2_000_200);
        let slow = Clock::new(-100, 0);
        assert_eq!(slow.mono_us(1_000_000) - slow.mono_us(0), 999_900);
    }

    #[test]
    fn a_wall_clock_stopped_twice_resumes_after_both_stops() {
        let mut clock = Clock::new(0, 0);
        let wall = |clock: &Clock, now_us| clock.wall(now_us).as_micros() - BEGINNING_US;
        let mono = clock.mono_us(0);
        clock.stop(1_000);
        clock.stop(2_000);
        assert_eq!(
            (wall(&clock, 3_000), clock.mono_us(3_000) - mono),
            (1_000, 3_000)
        );
        clock.go_on(4_000);
        clock.jump(4_500, 50);
        assert_eq!(wall(&clock, 5_000), 1_050);
        clock.go_on(5_000);
        assert_eq!(
            (wall(&clock, 6_000), clock.mono_us(6_000) - mono),
            (2_050, 6_000)
        );
    }
}
