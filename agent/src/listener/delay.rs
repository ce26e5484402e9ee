//! How late a frame is: the publisher's monotonic clock against the agent's, over one connection.
//!
//! ```text
//! agent         100 hello sent            160 welcome received     500 frame received
//! publisher         7 030 welcome sent                             7 410 frame sent
//!
//! the publisher is at least 6 930 ahead... so the frame was sent at the agent's 480 at the latest: 20 late
//! ```
//!
//! A round trip gives the earliest time, by the agent's clock, of an instant of the publisher: not before the
//! question was sent. So a frame's delay is never underestimated, and never too little is subtracted from a denial's
//! remaining time. The two clocks may drift by 200 ppm; each answer is a new measurement, and older ones are trusted
//! less by the drift.
//!
//! Knows nothing of frames. What stays true: a connection that stalls cannot make a denial longer.

use std::collections::VecDeque;

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// The drift of two clocks, in parts per million.
const DRIFT_PPM: u64 = 200;

/// The most round trips that are remembered; with one a second the last quarter of a minute.
const TRIPS_MAX: usize = 16;

/// The clock measurements of one connection.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// When each was measured, and the least difference of the agent's clock minus the publisher's.
    trips: VecDeque<(Mono, i64)>,
}

impl Delay {
    /// The agent sent a question at `asked`; the publisher answered when its clock showed `clock`.
    pub(crate) fn round_trip(&mut self, sent_at: Mono, clock: Span) {
        if self.trips.len() == TRIPS_MAX {
            self.trips.pop_front();
        }
        self.trips
            .push_back((sent_at, difference(sent_at.0, clock.as_micros())));
    }

    /// How late a message is that the publisher sent when its clock showed `sent`, and that arrived at `now`. Without
    /// any round trip this is unknown, so the result is the greatest delay.
    pub(crate) fn late(&self, sent: Span, now: Mono) -> Span {
        let floor = self.trips.iter().map(|(at, floor)| {
            let drift = now.since(*at).as_micros() / 1_000_000 * DRIFT_PPM;
            floor.saturating_sub_unsigned(drift)
        });
        let Some(floor) = floor.max() else {
            return Span::MAX;
        };
        let late = difference(now.0, sent.as_micros()).saturating_sub(floor);
        Span::from_micros(u64::try_from(late).unwrap_or(0))
    }
}

fn difference(one: u64, other: u64) -> i64 {
    i64::try_from(i128::from(one) - i128::from(other)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    #[test]
    fn a_frame_is_as_late_as_it_can_be_by_the_best_round_trip() {
        let mut delay = Delay::default();
        assert_eq!(delay.late(clock(0), Mono(0)), Span::MAX);
        delay.round_trip(Mono(1_000), clock(7_400));
        // The question took 400 at most, the frame 100 more than nothing: 500 at most.
        assert_eq!(delay.late(clock(7_900), Mono(2_000)), clock(500));
        delay.round_trip(Mono(3_000), clock(9_050));
        assert_eq!(delay.late(clock(9_900), Mono(4_000)), clock(150));
    }

    #[test]
    fn frames_after_a_stall_are_late_by_the_stall() {
        let mut delay = Delay::default();
        delay.round_trip(Mono(1_000), clock(0));
        assert_eq!(
            delay.late(clock(10_000), Mono(30_011_000)),
            clock(30_000_000 + 30 * DRIFT_PPM)
        );
    }

    #[test]
    fn a_slow_answer_does_not_worsen_the_estimate() {
        let mut delay = Delay::default();
        delay.round_trip(Mono(1_000), clock(1_010));
        delay.round_trip(Mono(2_000), clock(900_000));
        assert_eq!(delay.late(clock(3_000), Mono(3_000)), clock(10));
    }

    #[test]
    fn no_frame_is_early() {
        let mut delay = Delay::default();
        delay.round_trip(Mono(1_000), clock(1_000));
        assert_eq!(delay.late(clock(9_000), Mono(5_000)), Span::ZERO);
    }
}
