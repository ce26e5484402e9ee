//! How often the flusher visits.
//!
//! ```text
//! urgent calls, notices of holds    every 100 µs, at growing pauses for 2 ms after the last one
//! other calls                       every 60 ms, or when one of them wakes it: because it is urgent, or there are many
//! many calls, 16 a millisecond      every millisecond, while buffers have room and no urgent call is recent: all calls of
//!                                   one pair in between become one entry of the log; urgent ones that may wait shortly
//!                                   wait for 5 ms
//! no calls for 20 ms                asleep, with a look every 250 ms; after the first call in 60 ms, or when one wakes it
//! ```
//!
//! A visit costs some 50 µs, which at a thousand calls a second was most of what a call cost an agent. So with few calls
//! the flusher rests, and the calls themselves decide whether it has to come: [`crate::urgency`]. The sooner the last call
//! that has room is in the log, the fewer calls are let through after it; one that wakes the flusher is there as soon as
//! one that is found by looking every 100 µs. After an urgent call it does look for a while, so that of many urgent calls
//! few have to wake it.
//!
//! A call that reads the clock just before that goes to rest wakes nobody. So the flusher looks once more, soon after it
//! has let the clock doze or fall asleep. If that call's thread lost its core for just that time, the call waits for the
//! next look.
//!
//! Knows no threads and no clock. What stays true: the flusher sleeps only if nothing waits.

use std::time::Duration;

use tollgate_shared::time::Span;

use super::packer::UrgentAt;
use crate::clock::Mono;

/// The pause after urgent calls.
const PAUSE_MIN: Duration = Duration::from_micros(100);

/// The pause after many other calls.
const PAUSE_MANY: Duration = Duration::from_millis(1);

/// The longest pause while further urgent calls are expected.
const PAUSE_PRESSING: Duration = Duration::from_micros(400);

/// The longest pause while awake, for what is due and cannot go yet: the bound on how far the cached clock is behind.
const PAUSE_MAX: Duration = Duration::from_millis(3);

/// The longest pause while few calls are made and none is urgent.
const DOZE_MAX: Duration = Duration::from_millis(60);

/// The pause while asleep. What ends by the cached clock ends that much later; that no call is refused for, because the
/// real clock is read before.
const PAUSE_ASLEEP: Duration = Duration::from_millis(250);

/// For this long after an urgent call the flusher looks for further ones; and for a call that has woken it, which may not
/// have recorded itself.
const PRESSING_FOR: Span = Span::from_millis(2);

/// After this long without calls the flusher sleeps.
const SILENCE: Span = Span::from_millis(20);

/// Calls a millisecond from which on the flusher visits every millisecond.
const SOME_A_MS: u64 = 16;

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
    /// When urgent calls were last found.
    pub(super) urgent: UrgentAt,
    /// Whether urgent calls wait, shortly.
    pub(super) waits_shortly: bool,
    /// Whether nothing waits to be handed over.
    pub(super) is_empty: bool,
    /// Whether something is due, and could not be handed over.
    pub(super) is_held_up: bool,
    /// Whether the clock is awake. If it was at rest, a call has woken it.
    pub(super) is_awake: bool,
    /// Whether the clock is asleep. If it was, and no longer is, a call has been made.
    pub(super) is_asleep: bool,
}

/// What to do until the next visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Pause for this long.
    For(Duration),
    /// Let the clock doze, and pause for at most this long.
    Doze(Duration),
    /// Let the clock fall asleep, and pause for at most this long.
    FallAsleep(Duration),
    /// Sleep on, for at most this long.
    Sleep(Duration),
}

/// The pace of one flusher.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long it dozes.
    doze: Duration,
    pause: Duration,
    came: Mono,
    /// When anything was last found.
    found: Mono,
    /// When a call last woke the flusher.
    woken: Option<Mono>,
    rest: Rest,
    rate: CallRate,
}

/// Whether many calls are made, measured over a millisecond at least: a single visit finds too few to say.
#[derive(Clone, Copy, Debug, Default)]
struct CallRate {
    calls: u64,
    over: Span,
    are_many: bool,
}

impl CallRate {
    /// So many calls were found on a visit, that long after the visit before it.
    fn count(&mut self, calls: u64, after: Span) {
        self.calls += calls;
        self.over = self.over.saturating_add(after);
        if Span::from_millis(1) <= self.over {
            self.are_many = SOME_A_MS * self.over.as_micros() <= 1_000 * self.calls;
            (self.calls, self.over) = (0, Span::ZERO);
        }
    }
}

/// Whether the flusher has rested since its last visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Awake,
    Dozing,
    Asleep,
}

impl Pace {
    /// A pace that is awake, of a flusher whose calls may wait for this long.
    pub(super) fn new(now: Mono, relaxed: Duration) -> Self {
        Self {
            // If nothing may wait, each call wakes it.
            doze: match relaxed.is_zero() {
                true => DOZE_MAX,
                false => relaxed.min(DOZE_MAX),
            },
            pause: PAUSE_MIN,
            came: now,
            found: now,
            woken: None,
            rest: Rest::Awake,
            rate: CallRate::default(),
        }
    }

    /// Whether so many calls are made that those wait which may wait shortly.
    pub(super) fn is_busy(&self) -> bool {
        self.rest == Rest::Awake && self.rate.are_many
    }

    /// What to do after a visit.
    pub(super) fn after(&mut self, visit: &Visit) -> Pause {
        let gathered = visit.at.since(self.came);
        self.came = visit.at;
        self.rate.count(visit.events as u64, gathered);
        if self.rest != Rest::Awake && visit.is_awake {
            self.woken = Some(visit.at);
            self.pause = PAUSE_MIN / 2;
        }
        let is_called = match self.rest {
            Rest::Awake => false,
            Rest::Dozing => visit.is_awake,
            Rest::Asleep => !visit.is_asleep,
        };
        if 0 < visit.events + visit.notice_count || !visit.is_empty || is_called {
            self.found = visit.at;
            self.rest = Rest::Awake;
        }
        if visit.at.since(self.found) < SILENCE {
            if let Some(pause) = self.awake(visit, gathered) {
                (self.pause, self.rest) = (pause, Rest::Awake);
                return Pause::For(pause);
            }
            self.rest = Rest::Dozing;
            return Pause::Doze(match visit.is_awake {
                true => PAUSE_MIN,
                false => self.doze,
            });
        }
        match std::mem::replace(&mut self.rest, Rest::Asleep) {
            Rest::Asleep => Pause::Sleep(PAUSE_ASLEEP),
            Rest::Awake | Rest::Dozing => Pause::FallAsleep(PAUSE_MAX),
        }
    }

    /// The pause after a visit, if `gathered` is the time since the visit before it; `None`: the flusher may doze.
    fn awake(&self, visit: &Visit, gathered: Span) -> Option<Duration> {
        if 0 < visit.notice_count {
            // Notices of holds have no large buffers, and callers wait for their results.
            return Some(PAUSE_MIN);
        }
        let at_once = [Some(visit.near_called), visit.urgent.at_once, self.woken];
        let is_recent = |at: &Mono| visit.at.since(*at) < PRESSING_FOR;
        let is_pressing = at_once.iter().flatten().any(is_recent);
        let presses_shortly = visit.waits_shortly || visit.urgent.shortly.iter().any(is_recent);
        if visit.events == 0 {
            let longest = match is_pressing || presses_shortly {
                true => Some(PAUSE_PRESSING),
                false => visit.is_held_up.then_some(PAUSE_MAX),
            };
            return longest.map(|longest| (self.pause * 2).min(longest));
        }
        let (events, filled) = (visit.events as u64, visit.filled as u64);
        let gathered_us = gathered.as_micros();
        let is_many = MANY_A_MS * gathered_us <= 1_000 * events && MANY_A_MS / 10 <= events;
        // The calls of a millisecond must not fill any buffer by more than half. If a buffer is already that full, it
        // is unknown for how long it has been.
        let have_room = filled <= 500 && 1_000 * filled <= 500 * gathered_us;
        let are_some = self.rate.are_many;
        let presses = is_pressing || (presses_shortly && !are_some);
        match (have_room && (is_many || !presses), is_many || are_some) {
            (false, _) => Some(PAUSE_MIN),
            (true, true) => Some(PAUSE_MANY),
            (true, false) => visit.is_held_up.then_some(PAUSE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::urgency::Wait;

    const NOW: Mono = Mono(5_000_000);
    const RELAXED: Duration = Duration::from_millis(60);

    fn nothing(at: Mono) -> Visit {
        Visit {
            at,
            events: 0,
            filled: 0,
            notice_count: 0,
            near_called: Mono::ZERO,
            urgent: UrgentAt::default(),
            waits_shortly: false,
            is_empty: true,
            is_held_up: false,
            is_awake: true,
            is_asleep: false,
        }
    }

    /// A visit while the clock is at rest.
    fn at_rest(at: Mono, is_asleep: bool) -> Visit {
        Visit {
            is_awake: false,
            is_asleep,
            ..nothing(at)
        }
    }

    /// The pause after an earlier pause, if this much had gathered for this many microseconds.
    fn after(before_us: u64, (events, filled): (usize, usize), us: u64, wait: Wait) -> u128 {
        let mut pace = Pace::new(NOW, RELAXED);
        pace.pause = Duration::from_micros(before_us);
        let at = NOW.plus(Span::from_micros(us));
        let visit = Visit {
            events,
            filled,
            urgent: urgent_at(wait, at),
            ..nothing(at)
        };
        match pace.after(&visit) {
            Pause::For(pause) => pause.as_micros(),
            Pause::Doze(PAUSE_MIN) => RELAXED.as_micros(),
            other => panic!("{other:?}"),
        }
    }

    fn urgent_at(wait: Wait, at: Mono) -> UrgentAt {
        UrgentAt {
            at_once: (wait == Wait::Not).then_some(at),
            shortly: (wait == Wait::Shortly).then_some(at),
        }
    }

    #[test]
    fn the_flusher_looks_often_after_a_few_urgent_calls() {
        // Some calls, however long ago the last ones were.
        assert_eq!(after(1_000, (1, 0), 1_100, Wait::Not), 100);
        assert_eq!(after(100, (149, 5), 150, Wait::Not), 100);
        assert_eq!(after(1_000, (1_099, 40), 1_100, Wait::Not), 100);
        // A million a second and more.
        assert_eq!(after(100, (150, 5), 150, Wait::Not), 1_000);
        assert_eq!(after(1_000, (1_100, 40), 1_100, Wait::Not), 1_000);
        // So many that in a millisecond a buffer would be more than half full.
        assert_eq!(after(100, (1_500, 75), 150, Wait::Not), 1_000);
        assert_eq!(after(100, (1_500, 76), 150, Wait::Not), 100);
        assert_eq!(after(100, (50_000, 1_000), 5_000, Wait::Not), 100);
        // A few at once, after no time at all, are not many.
        assert_eq!(after(100, (99, 0), 0, Wait::Not), 100);
        // Those that may wait shortly are waited for if they are few, less than sixteen in a millisecond.
        assert_eq!(after(1_000, (17, 0), 1_100, Wait::Shortly), 100);
        assert_eq!(after(1_000, (18, 0), 1_100, Wait::Shortly), 1_000);
        assert_eq!(after(100, (2, 0), 150, Wait::Shortly), 100);
        // Less than a millisecond shows nothing.
        assert_eq!(after(800, (18, 0), 850, Wait::Shortly), 100);
        assert_eq!(after(1_000, (9_000, 600), 1_100, Wait::Shortly), 100);
    }

    #[test]
    fn an_agent_is_busy_while_many_calls_come_in_a_millisecond() {
        let mut pace = Pace::new(NOW, RELAXED);
        let mut at = NOW;
        let mut after = |us, events, wait| {
            at = at.plus(Span::from_micros(us));
            let visit = Visit {
                events,
                urgent: urgent_at(wait, at),
                waits_shortly: pace.is_busy(),
                ..nothing(at)
            };
            (pace.after(&visit), pace.is_busy())
        };
        let (often, seldom) = (Pause::For(PAUSE_MIN), Pause::For(PAUSE_MANY));
        for _ in 0..9 {
            assert_eq!(after(110, 2, Wait::Shortly), (often, false));
        }
        assert_eq!(after(110, 2, Wait::Shortly), (seldom, true));
        assert_eq!(after(1_000, 30, Wait::Shortly), (seldom, true));
        // It stays so while calls that may not wait make it look often.
        for _ in 0..20 {
            assert_eq!(after(110, 2, Wait::Not), (often, true));
        }
        // What waits shortly goes on the next visit once it is over.
        assert_eq!(after(1_000, 1, Wait::Shortly), (often, false));
        assert_eq!(after(110, 3, Wait::Shortly), (often, false));
    }

    #[test]
    fn the_flusher_rests_while_few_calls_come() {
        assert_eq!(after(1_000, (18, 0), 1_100, Wait::Relaxed), 1_000);
        assert_eq!(after(60_000, (962, 0), 60_100, Wait::Relaxed), 1_000);
        // Less than sixteen in a millisecond.
        assert_eq!(after(1_000, (17, 0), 1_100, Wait::Relaxed), 60_000);
        assert_eq!(after(60_000, (961, 0), 60_100, Wait::Relaxed), 60_000);
        assert_eq!(after(100, (0, 0), 150, Wait::Relaxed), 60_000);
        // A buffer has no room for a millisecond more.
        assert_eq!(after(1_000, (9_000, 600), 1_100, Wait::Relaxed), 100);
        // It comes as soon as calls may wait; if none may, each wakes it.
        for (relaxed, doze) in [(1_000, 60), (4, 4), (1, 1), (0, 60)] {
            let mut pace = Pace::new(NOW, Duration::from_millis(relaxed));
            let visit = at_rest(NOW.plus(Span::from_millis(1)), false);
            let doze = Pause::Doze(Duration::from_millis(doze));
            assert_eq!(pace.after(&visit), doze, "{relaxed}");
        }
    }

    #[test]
    fn the_flusher_looks_once_more_after_it_let_the_clock_rest() {
        let mut pace = Pace::new(NOW, RELAXED);
        let at = |us| NOW.plus(Span::from_micros(us));
        // A call that had read the clock before may record itself now.
        assert_eq!(pace.after(&nothing(at(0))), Pause::Doze(PAUSE_MIN));
        let found = Visit {
            events: 1,
            ..at_rest(at(150), false)
        };
        assert_eq!(pace.after(&found), Pause::Doze(RELAXED));
    }

    #[test]
    fn what_is_due_and_cannot_go_is_tried_again_soon() {
        let at = |ms| NOW.plus(Span::from_millis(ms));
        for (events, first) in [(0, Duration::from_micros(200)), (1, PAUSE_MAX)] {
            let mut pace = Pace::new(NOW, RELAXED);
            let held_up = |ms| Visit {
                events,
                is_empty: false,
                is_held_up: true,
                ..nothing(at(ms))
            };
            assert_eq!(pace.after(&held_up(1)), Pause::For(first));
            (2..50).for_each(|ms| assert!(pace.after(&held_up(ms)) != Pause::Doze(RELAXED)));
            assert_eq!(pace.after(&held_up(50)), Pause::For(PAUSE_MAX));
        }
    }

    #[test]
    fn after_urgent_calls_the_flusher_looks_for_further_ones() {
        let us = |us| NOW.plus(Span::from_micros(us));
        let near = |at| Visit {
            near_called: NOW,
            ..nothing(at)
        };
        let urgent = |at| Visit {
            urgent: urgent_at(Wait::Not, NOW),
            ..nothing(at)
        };
        let shortly = |at| Visit {
            urgent: urgent_at(Wait::Shortly, NOW),
            ..nothing(at)
        };
        for visit in [near, urgent, shortly] {
            let mut pace = Pace::new(NOW, RELAXED);
            let first = Visit {
                events: 1,
                ..visit(us(100))
            };
            assert_eq!(pace.after(&first), Pause::For(PAUSE_MIN));
            assert_eq!(pace.after(&visit(us(250))), Pause::For(PAUSE_MIN * 2));
            assert_eq!(pace.after(&visit(us(1_999))), Pause::For(PAUSE_MIN * 4));
            assert_eq!(pace.after(&visit(us(2_000))), Pause::Doze(PAUSE_MIN));
            // A call has woken it, and is not found at once.
            assert_eq!(pace.after(&visit(us(2_300))), Pause::For(PAUSE_MIN));
            assert_eq!(pace.after(&visit(us(2_450))), Pause::For(PAUSE_MIN * 2));
            assert_eq!(pace.after(&visit(us(4_300))), Pause::Doze(PAUSE_MIN));
        }
    }

    #[test]
    fn after_a_silence_the_flusher_sleeps_until_a_call() {
        let mut pace = Pace::new(NOW, RELAXED);
        let at = |ms| NOW.plus(Span::from_millis(ms));
        let found = |at| Visit {
            events: 1,
            ..at_rest(at, false)
        };
        assert_eq!(pace.after(&found(at(10))), Pause::Doze(RELAXED));
        // It looks once more before it sleeps for long.
        let first = pace.after(&at_rest(at(35), false));
        assert_eq!(first, Pause::FallAsleep(PAUSE_MAX));
        let asleep = |ms| at_rest(at(ms), true);
        assert_eq!(pace.after(&asleep(38)), Pause::Sleep(PAUSE_ASLEEP));
        assert_eq!(pace.after(&asleep(288)), Pause::Sleep(PAUSE_ASLEEP));
        // A call was made, whether it has recorded itself or not.
        let called = at_rest(at(300), false);
        assert_eq!(pace.after(&called), Pause::Doze(RELAXED));
        let silent = pace.after(&at_rest(at(325), false));
        assert_eq!(silent, Pause::FallAsleep(PAUSE_MAX));
        // An urgent one.
        assert_eq!(pace.after(&nothing(at(326))), Pause::For(PAUSE_MIN));
        // A call that woke nobody is found all the same.
        for ms in [351, 354, 357] {
            pace.after(&asleep(ms));
        }
        assert_eq!(pace.rest, Rest::Asleep);
        let late = Visit {
            events: 1,
            ..asleep(360)
        };
        assert_eq!(pace.after(&late), Pause::Doze(RELAXED));
    }

    #[test]
    fn the_flusher_does_not_sleep_while_a_call_waits() {
        let mut pace = Pace::new(NOW, RELAXED);
        let waiting = Visit {
            is_empty: false,
            ..nothing(NOW.plus(Span::from_secs(60)))
        };
        assert_eq!(pace.after(&waiting), Pause::Doze(PAUSE_MIN));
        let with_notice = Visit {
            notice_count: 1,
            ..waiting
        };
        assert_eq!(pace.after(&with_notice), Pause::For(PAUSE_MIN));
    }
}
