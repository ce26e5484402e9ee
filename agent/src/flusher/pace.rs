//! How often the flusher visits.
//!
//! ```text
//! urgent calls, notices of holds    every 100 µs
//! calls of pairs near their limits  every 100 µs, and for 20 ms after the last one
//! other calls                       every three milliseconds; with thousands a second every millisecond: no call
//!                                   waits for the flusher, but one may turn out to be urgent
//! very many calls                   every millisecond, while buffers have room: all calls of one pair in between
//!                                   become one entry of the log
//! no calls                          at growing pauses up to three milliseconds
//! no calls for 20 ms                asleep, with a look every 250 ms; the first call wakes it
//! ```
//!
//! The sooner the last call that has room is in the log, the fewer calls are let through after it. So after urgent
//! calls the flusher does not slow down.
//!
//! Before the flusher sleeps, it lets the clock fall asleep, and looks once more three milliseconds later: a call
//! that read the clock before it fell asleep wakes nobody, and has recorded itself by then. If that call's thread
//! lost its core for just that time, the call waits for the next look.
//!
//! Knows no threads and no clock. What stays true: the flusher sleeps only if nothing waits.

use std::time::Duration;

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// The pause after urgent calls.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// The pause after many other calls.
const PAUSE_MANY: Duration = Duration::from_millis(1);

/// The pause after few other calls, and the longest pause while awake: the bound on how far the cached clock is
/// behind. A wake-up costs some 20 us, which at a thousand calls a second is most of what a call costs an agent.
const PAUSE_MAX: Duration = Duration::from_millis(3);

/// The pause while asleep. What ends by the cached clock ends that much later; that no call is refused for, because the
/// real clock is read before.
const PAUSE_ASLEEP: Duration = Duration::from_millis(250);

/// For this long after an urgent call the flusher expects further urgent calls; after a call of a pair near its limit
/// it visits as if further calls were made.
const PRESSING_FOR: Span = Span::from_millis(20);

/// After this long without calls the flusher sleeps. If it were shorter, most calls of a service with a few dozen
/// calls a second would have to wake it; if it were longer, it would look in vain dozens of times for each of them.
const SILENCE: Span = Span::from_millis(20);

/// Calls a millisecond from which on the flusher visits every millisecond.
const SOME_A_MS: u64 = 4;

/// Calls a millisecond from which on there are very many.
const MANY_A_MS: u64 = 1_000;

/// What the flusher found on a visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) at: Mono,
    /// Calls.
    pub(super) events: usize,
    /// How full the fullest buffer was, in thousandths.
    pub(super) filled: usize,
    /// Notices of holds.
    pub(super) notice_count: usize,
    /// When a call of a pair near its limit was last made.
    pub(super) near_called: Mono,
    /// When an urgent call was last found.
    pub(super) urgent_at: Option<Mono>,
    /// Whether nothing waits to be handed over.
    pub(super) is_empty: bool,
    /// Whether a call has woken the clock, if it was asleep.
    pub(super) is_woken: bool,
}

/// What to do until the next visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Pause for this long.
    For(Duration),
    /// Let the clock fall asleep, and pause for at most this long.
    FallAsleep(Duration),
    /// Sleep on, for at most this long.
    Sleep(Duration),
}

/// The pace of one flusher.
#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    came: Mono,
    /// When anything was last found.
    found: Mono,
    is_asleep: bool,
}

impl Pace {
    /// A pace that is awake.
    pub(super) fn new(now: Mono) -> Self {
        Self {
            pause: PAUSE_MIN,
            came: now,
            found: now,
            is_asleep: false,
        }
    }

    /// What to do after a visit.
    pub(super) fn after(&mut self, visit: &Visit) -> Pause {
        let gathered = visit.at.since(self.came);
        self.came = visit.at;
        let is_woken = self.is_asleep && visit.is_woken;
        if 0 < visit.events + visit.notice_count || !visit.is_empty || is_woken {
            self.found = visit.at;
            self.is_asleep = false;
        }
        if visit.at.since(self.found) < SILENCE {
            // The call that woke the flusher is about to record itself.
            self.pause = match is_woken {
                true => PAUSE_MIN,
                false => self.awake(visit, gathered),
            };
            return Pause::For(self.pause);
        }
        match std::mem::replace(&mut self.is_asleep, true) {
            false => Pause::FallAsleep(PAUSE_MAX),
            true => Pause::Sleep(PAUSE_ASLEEP),
        }
    }

    /// The pause after a visit, if `gathered` is the time since the visit before it.
    fn awake(&self, visit: &Visit, gathered: Span) -> Duration {
        let is_recent = |at: Mono| visit.at.since(at) < PRESSING_FOR;
        let is_near = is_recent(visit.near_called);
        if 0 < visit.notice_count {
            // Notices of holds have no large buffers, and callers wait for their results.
            return PAUSE_MIN;
        }
        if visit.events == 0 {
            return match is_near {
                true => PAUSE_MIN,
                false => (self.pause * 2).min(PAUSE_MAX),
            };
        }
        let is_pressing = is_near || visit.urgent_at.is_some_and(is_recent);
        let (events, filled) = (visit.events as u64, visit.filled as u64);
        let gathered_us = gathered.as_micros();
        let is_many = MANY_A_MS * gathered_us <= 1_000 * events && MANY_A_MS / 10 <= events;
        // The calls of a millisecond must not fill any buffer by more than half. If a buffer is already that full, it
        // is unknown for how long it has been.
        let have_room = filled <= 500 && 1_000 * filled <= 500 * gathered_us;
        let are_few = 1_000 * events < SOME_A_MS * gathered_us;
        match (have_room && (is_many || !is_pressing), are_few) {
            (false, _) => PAUSE_MIN,
            (true, false) => PAUSE_MANY,
            (true, true) => PAUSE_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(5_000_000);

    fn nothing(at: Mono) -> Visit {
        Visit {
            at,
            events: 0,
            filled: 0,
            notice_count: 0,
            near_called: Mono::ZERO,
            urgent_at: None,
            is_empty: true,
            is_woken: false,
        }
    }

    /// The pause after an earlier pause, if this much had gathered for this many microseconds.
    fn after(before_us: u64, (events, filled): (usize, usize), us: u64, is_urgent: bool) -> u128 {
        let mut pace = Pace::new(NOW);
        pace.pause = Duration::from_micros(before_us);
        let at = NOW.plus(Span::from_micros(us));
        let visit = Visit {
            events,
            filled,
            urgent_at: is_urgent.then_some(at),
            ..nothing(at)
        };
        match pace.after(&visit) {
            Pause::For(pause) => pause.as_micros(),
            asleep => panic!("{asleep:?}"),
        }
    }

    #[test]
    fn the_flusher_looks_often_after_a_few_urgent_calls() {
        // Some calls, however long ago the last ones were.
        assert_eq!(after(1_000, (1, 0), 1_100, true), 100);
        assert_eq!(after(100, (149, 5), 150, true), 100);
        assert_eq!(after(1_000, (1_099, 40), 1_100, true), 100);
        // A million a second and more.
        assert_eq!(after(100, (150, 5), 150, true), 1_000);
        assert_eq!(after(1_000, (1_100, 40), 1_100, true), 1_000);
        // So many that in a millisecond a buffer would be more than half full.
        assert_eq!(after(100, (1_500, 75), 150, true), 1_000);
        assert_eq!(after(100, (1_500, 76), 150, true), 100);
        assert_eq!(after(100, (50_000, 1_000), 5_000, true), 100);
        // A few at once, after no time at all, are not many.
        assert_eq!(after(100, (99, 0), 0, true), 100);
    }

    #[test]
    fn the_flusher_looks_every_few_ms_while_calls_come() {
        assert_eq!(after(1_000, (5, 0), 1_100, false), 1_000);
        assert_eq!(after(100, (1, 0), 150, false), 1_000);
        // Less than four in a millisecond.
        assert_eq!(after(1_000, (4, 0), 1_100, false), 3_000);
        assert_eq!(after(3_000, (3, 0), 3_100, false), 3_000);
        assert_eq!(after(3_000, (13, 0), 3_100, false), 1_000);
        assert_eq!(after(100, (0, 0), 150, false), 200);
        assert_eq!(after(2_000, (0, 0), 2_100, false), 3_000);
        // A buffer has no room for a millisecond more.
        assert_eq!(after(1_000, (9_000, 600), 1_100, false), 100);
    }

    #[test]
    fn the_flusher_looks_often_after_a_call_near_its_limit() {
        let mut pace = Pace::new(NOW);
        let mut pause_at = |ms| {
            let at = NOW.plus(Span::from_millis(ms));
            let visit = Visit {
                events: (ms % 2) as usize,
                near_called: NOW,
                ..nothing(at)
            };
            pace.after(&visit)
        };
        assert_eq!(pause_at(18), Pause::For(PAUSE_MIN), "although none is made");
        assert_eq!(pause_at(19), Pause::For(PAUSE_MIN));
        assert_eq!(pause_at(21), Pause::For(PAUSE_MAX));
    }

    #[test]
    fn after_a_silence_the_flusher_sleeps_until_a_call() {
        let mut pace = Pace::new(NOW);
        let at = |ms| NOW.plus(Span::from_millis(ms));
        let with_notice = Visit {
            notice_count: 1,
            ..nothing(at(0))
        };
        assert_eq!(pace.after(&with_notice), Pause::For(PAUSE_MIN));
        assert_eq!(pace.after(&nothing(at(19))), Pause::For(PAUSE_MIN * 2));
        // It looks once more before it sleeps for long.
        let first = pace.after(&nothing(at(20)));
        assert_eq!(first, Pause::FallAsleep(PAUSE_MAX));
        assert_eq!(pace.after(&nothing(at(21))), Pause::Sleep(PAUSE_ASLEEP));
        assert_eq!(pace.after(&nothing(at(71))), Pause::Sleep(PAUSE_ASLEEP));
        let woken = Visit {
            is_woken: true,
            ..nothing(at(80))
        };
        assert_eq!(pace.after(&woken), Pause::For(PAUSE_MIN));
        // A call that woke nobody is found all the same.
        pace.after(&nothing(at(100)));
        let found = Visit {
            events: 1,
            ..nothing(at(101))
        };
        assert_eq!(pace.after(&found), Pause::For(PAUSE_MAX));
    }

    #[test]
    fn the_flusher_does_not_sleep_while_a_call_waits() {
        let mut pace = Pace::new(NOW);
        let waiting = Visit {
            is_empty: false,
            ..nothing(NOW.plus(Span::from_secs(60)))
        };
        assert_eq!(pace.after(&waiting), Pause::For(PAUSE_MIN * 2));
    }
}
