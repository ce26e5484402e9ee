//! Time as an agent needs it: a wall clock for stamps and a monotonic one for everything that ends.
//!
//! Reading the machine's clock costs as much as a whole call, so calls read two cached numbers, which
//! the flusher moves on at least every three milliseconds while calls are made. Only where a call is about to be
//! refused the real clock is read: a process that was suspended wakes up with a cache from before.
//!
//! ```text
//! calls                        the flusher moves both numbers on
//! a tenth of a second of none  the flusher falls asleep, and so does the cached wall clock
//! a call                       finds it asleep: reads the real clock, sets both numbers, wakes the flusher
//! ```
//!
//! So an idle agent has no clock to keep, and a call costs nothing more: a sleeping clock is a number that it
//! reads anyway. Who stamps a call by it records the call, which is what the flusher is woken for. The cached
//! monotonic clock is moved on every 100 ms meanwhile; what ends by it ends so much later for that one call.
//!
//! Knows nothing of denials. What stays true: neither cached number is ever ahead of its clock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_shared::time::{Span, Timestamp};

/// An instant in microseconds on the agent's own monotonic clock; 0 lies before anything it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mono(pub(crate) u64);

impl Mono {
    /// Before everything.
    pub(crate) const ZERO: Self = Self(0);
    /// Never.
    pub(crate) const MAX: Self = Self(u64::MAX);

    pub(crate) const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_micros()))
    }

    /// How long after `earlier` this is; nothing where it is not after it.
    pub(crate) const fn since(self, earlier: Self) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Where an agent's monotonic clock begins, so that spans before its start can be written down.
const BEGIN_US: u64 = 1_000_000;

/// The cached wall clock while the flusher sleeps. No clock that was ever set shows it.
const ASLEEP: u64 = 0;

/// The clock of one agent.
#[derive(Debug)]
pub(crate) struct Clock {
    mono_us: AtomicU64,
    wall_us: AtomicU64,
    /// The thread that moves the numbers on: the flusher's.
    keeper: OnceLock<Thread>,
    source: ClockSource,
}

#[derive(Debug)]
enum ClockSource {
    Machine {
        origin: Instant,
    },
    #[cfg_attr(
        not(any(test, feature = "testing")),
        allow(dead_code, reason = "only tests move clocks")
    )]
    Hand {
        mono_us: AtomicU64,
        wall_us: AtomicU64,
    },
}

impl Clock {
    /// The machine's clocks.
    pub(crate) fn of_the_machine() -> Self {
        let clock = Self {
            mono_us: AtomicU64::new(0),
            wall_us: AtomicU64::new(0),
            keeper: OnceLock::new(),
            source: ClockSource::Machine {
                origin: Instant::now(),
            },
        };
        clock.set_cached(clock.read(), clock.read_wall());
        clock
    }

    /// A clock that stands still until it is moved.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn by_hand(wall: Timestamp) -> Self {
        Self {
            mono_us: AtomicU64::new(BEGIN_US),
            wall_us: AtomicU64::new(wall.as_micros()),
            keeper: OnceLock::new(),
            source: ClockSource::Hand {
                mono_us: AtomicU64::new(BEGIN_US),
                wall_us: AtomicU64::new(wall.as_micros()),
            },
        }
    }

    /// The cached monotonic instant.
    pub(crate) fn cached(&self) -> Mono {
        Mono(self.mono_us.load(Ordering::Relaxed))
    }

    /// The cached wall clock, for stamps of what is recorded: where it is asleep, the flusher is woken.
    #[inline]
    pub(crate) fn cached_wall(&self) -> Timestamp {
        match self.wall_us.load(Ordering::Relaxed) {
            ASLEEP => self.rouse(),
            wall_us => Timestamp::from_micros(wall_us),
        }
    }

    /// What the first call after a silence does: one system call, and nothing that waits.
    #[cold]
    #[inline(never)]
    fn rouse(&self) -> Timestamp {
        let wall = self.read_wall();
        self.mono_us.store(self.read().0, Ordering::Relaxed);
        let before = self.wall_us.swap(wall.as_micros(), Ordering::Relaxed);
        if before == ASLEEP {
            self.wake_keeper();
        }
        wall
    }

    /// This thread moves the cached numbers on.
    pub(crate) fn keep_by_this_thread(&self) {
        // There is one flusher.
        let _ = self.keeper.set(std::thread::current());
    }

    /// Ends the pause of the thread that moves the numbers on.
    pub(crate) fn wake_keeper(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }

    /// The wall clock is not moved on any more until a call asks for it. By the keeper alone. Who has read it
    /// just before records its call in some nanoseconds, so that the keeper looks for it once more.
    pub(crate) fn fall_asleep(&self) {
        self.wall_us.store(ASLEEP, Ordering::Relaxed);
    }

    /// Whether no call has asked for it since it fell asleep.
    pub(crate) fn is_asleep(&self) -> bool {
        self.wall_us.load(Ordering::Relaxed) == ASLEEP
    }

    /// The monotonic clock itself.
    pub(crate) fn read(&self) -> Mono {
        match &self.source {
            ClockSource::Machine { origin } => {
                Mono(BEGIN_US.saturating_add(micros(origin.elapsed())))
            }
            ClockSource::Hand { mono_us, .. } => Mono(mono_us.load(Ordering::Relaxed)),
        }
    }

    /// The wall clock itself.
    pub(crate) fn read_wall(&self) -> Timestamp {
        match &self.source {
            ClockSource::Machine { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                Timestamp::from_micros(since.map_or(0, micros).max(ASLEEP + 1))
            }
            ClockSource::Hand { wall_us, .. } => {
                Timestamp::from_micros(wall_us.load(Ordering::Relaxed))
            }
        }
    }

    /// Brings the cached numbers up to date, and says what they are. A wall clock that is asleep stays so.
    pub(crate) fn refresh(&self) -> (Mono, Timestamp) {
        let (mono, wall) = (self.read(), self.read_wall());
        match self.is_asleep() {
            true => self.mono_us.store(mono.0, Ordering::Relaxed),
            false => self.set_cached(mono, wall),
        }
        (mono, wall)
    }

    fn set_cached(&self, mono: Mono, wall: Timestamp) {
        self.wall_us.store(wall.as_micros(), Ordering::Relaxed);
        self.mono_us.store(mono.0, Ordering::Relaxed);
    }

    /// The wall clock is moved on from now, if it slept.
    pub(crate) fn wake(&self) {
        if self.is_asleep() {
            self.set_cached(self.read(), self.read_wall());
        }
    }

    /// Moves a clock that is moved by hand; the machine's takes no notice.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn advance(&self, by: Span) {
        if let ClockSource::Hand { mono_us, wall_us } = &self.source {
            mono_us.fetch_add(by.as_micros(), Ordering::Relaxed);
            wall_us.fetch_add(by.as_micros(), Ordering::Relaxed);
        }
        self.set_cached(self.read(), self.read_wall());
    }

    /// Sets a clock that is moved by hand, whichever way; what is cached stays.
    #[cfg(feature = "simulation")]
    pub(crate) fn set(&self, since_start_us: u64, wall: Timestamp) {
        if let ClockSource::Hand { mono_us, wall_us } = &self.source {
            mono_us.store(BEGIN_US.saturating_add(since_start_us), Ordering::Relaxed);
            wall_us.store(wall.as_micros(), Ordering::Relaxed);
        }
    }

    /// The machine's instant that a monotonic one is, for those who measure.
    pub(crate) fn instant(&self, at: Mono) -> Instant {
        match &self.source {
            ClockSource::Machine { origin } => {
                let since = Duration::from_micros(at.0.saturating_sub(BEGIN_US));
                origin.checked_add(since).unwrap_or(*origin)
            }
            ClockSource::Hand { .. } => Instant::now(),
        }
    }
}

/// What one call sees of the clock: the cached one, until the clock itself has to be asked, and then that.
#[derive(Debug)]
pub(crate) struct Reading<'c> {
    clock: &'c Clock,
    read: Cell<Option<Mono>>,
}

impl<'c> Reading<'c> {
    pub(crate) const fn of(clock: &'c Clock) -> Self {
        Self {
            clock,
            read: Cell::new(None),
        }
    }

    /// The monotonic clock itself, asked once.
    pub(crate) fn now(&self) -> Mono {
        self.read.get().unwrap_or_else(|| {
            let now = self.clock.read();
            self.read.set(Some(now));
            now
        })
    }

    /// The stamp of the call. Who was let through because a denial has just ended, by the clock itself, is
    /// stamped by the clock itself: the cached one may lie before that end.
    pub(crate) fn stamp(&self) -> Timestamp {
        // Asked in either case: it is by this that the flusher is woken.
        let cached = self.clock.cached_wall();
        match self.read.get() {
            Some(_) => self.clock.read_wall(),
            None => cached,
        }
    }
}

/// Whole microseconds, without the 128-bit division of the standard library: it is on the way of every
/// refusal.
fn micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_clock_stands_until_it_is_refreshed_and_is_never_ahead() {
        let clock = Clock::of_the_machine();
        let cached = clock.cached();
        let read = clock.read();
        assert!(cached <= read);
        assert_eq!(clock.cached(), cached);
        clock.refresh();
        assert!(read <= clock.cached() && clock.cached() <= clock.read());
    }

    #[test]
    fn a_call_that_asked_the_clock_is_stamped_by_the_clock() {
        let clock = Clock::by_hand(Timestamp::from_millis(5));
        if let ClockSource::Hand { wall_us, .. } = &clock.source {
            wall_us.fetch_add(300, Ordering::Relaxed);
        }
        let reading = Reading::of(&clock);
        assert_eq!(reading.stamp(), Timestamp::from_millis(5));
        reading.now();
        assert_eq!(reading.stamp(), Timestamp::from_micros(5_300));
    }

    #[test]
    fn a_sleeping_clock_is_woken_by_the_first_stamp_and_wakes_its_keeper() {
        let clock = Clock::of_the_machine();
        clock.keep_by_this_thread();
        clock.fall_asleep();
        let (mono, _) = clock.refresh();
        assert!(clock.is_asleep() && clock.cached() == mono);
        let before = clock.read_wall();
        let stamp = clock.cached_wall();
        assert!(before <= stamp && !clock.is_asleep());
        // Woken already: this returns at once, or the test does not end in its time.
        std::thread::park();
        assert_eq!(clock.cached_wall(), stamp, "it stands until it is moved on");
        clock.fall_asleep();
        let reading = Reading::of(&clock);
        reading.now();
        assert!(stamp <= reading.stamp() && !clock.is_asleep());
    }

    #[test]
    fn a_clock_by_hand_moves_both_its_clocks() {
        let clock = Clock::by_hand(Timestamp::from_millis(5));
        let before = clock.read();
        clock.advance(Span::from_millis(2));
        assert_eq!(clock.cached().since(before), Span::from_millis(2));
        assert_eq!(clock.cached_wall(), Timestamp::from_millis(7));
    }
}
