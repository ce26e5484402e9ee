//! The agent's time: a wall clock for stamps, and a monotonic clock for everything that ends.
//!
//! Reading the machine's clock costs as much as a whole call. So while many calls are made, they read two cached numbers,
//! which the flusher updates at least every three milliseconds. The real clock is read only before a call is refused,
//! because a process that was suspended wakes up with an old cache.
//!
//! ```text
//! awake      many calls, or urgent ones       the flusher updates both numbers
//! dozing     few calls                        calls read the real clock; the flusher comes every 60 ms
//! asleep     no call for 20 ms                the first call reads the real clock, and makes it doze
//! ```
//!
//! Waking a thread costs more than a hundred readings of the clock. So with few calls nobody updates the cached wall
//! clock: a special value of it says so to calls, which pay nothing for that while it is awake, because they read the
//! cached number anyway. A call that finds it at rest reads the clock, and wakes the flusher if the call is urgent. While
//! the wall clock dozes or sleeps, the cached monotonic clock is up to 25 or 250 ms behind; what ends by it ends that much
//! later for the next call.
//!
//! The wall clock is the monotonic one and a [`Distance`], which the flusher compares with the machine's wall clock.
//!
//! Knows nothing of denials, and not what makes a call urgent. What stays true: neither cached number is ever ahead of
//! its clock.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_shared::time::{Span, Timestamp};

use self::distance::{Distance, micros};

mod distance;

/// An instant in microseconds on the agent's own monotonic clock; 0 is before the agent's start.
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

    /// The span from `earlier` to this instant; zero if this instant is not later.
    pub(crate) const fn since(self, earlier: Self) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The agent's monotonic clock at its start; not 0, so that instants before its start can be expressed.
const BEGIN_US: u64 = 1_000_000;

/// The value of the cached wall clock while the flusher sleeps. No real wall clock shows it.
const ASLEEP: u64 = 0;

/// Its value while the flusher comes now and then.
const DOZING: u64 = 1;

/// The clock of one agent.
#[derive(Debug)]
pub(crate) struct Clock {
    mono_us: AtomicU64,
    wall_us: AtomicU64,
    /// The thread that updates the cached numbers: the flusher's.
    timekeeper: OnceLock<Thread>,
    machine: MachineClocks,
    distance: Distance,
}

/// The clocks of the machine.
#[derive(Debug)]
enum MachineClocks {
    Real {
        origin: Instant,
    },
    #[cfg_attr(
        not(any(test, feature = "testing")),
        allow(dead_code, reason = "only tests move clocks")
    )]
    ByHand {
        mono_us: AtomicU64,
        wall_us: AtomicU64,
    },
}

impl MachineClocks {
    fn mono(&self) -> Mono {
        match self {
            Self::Real { origin } => Mono(BEGIN_US.saturating_add(micros(origin.elapsed()))),
            Self::ByHand { mono_us, .. } => Mono(mono_us.load(Ordering::Relaxed)),
        }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(match self {
            Self::Real { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, micros)
            }
            Self::ByHand { wall_us, .. } => wall_us.load(Ordering::Relaxed),
        })
    }
}

impl Clock {
    /// The machine's clocks.
    pub(crate) fn of_the_machine() -> Self {
        Self::of(MachineClocks::Real {
            origin: Instant::now(),
        })
    }

    fn of(machine: MachineClocks) -> Self {
        let clock = Self {
            mono_us: AtomicU64::new(0),
            wall_us: AtomicU64::new(0),
            timekeeper: OnceLock::new(),
            machine,
            distance: Distance::default(),
        };
        clock.follow();
        clock.set_cached(clock.read(), clock.read_wall());
        clock
    }

    /// A clock that stands still until a test moves it.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn by_hand(wall: Timestamp) -> Self {
        Self::of(MachineClocks::ByHand {
            mono_us: AtomicU64::new(BEGIN_US),
            wall_us: AtomicU64::new(wall.as_micros()),
        })
    }

    /// The cached monotonic instant.
    pub(crate) fn cached(&self) -> Mono {
        Mono(self.mono_us.load(Ordering::Relaxed))
    }

    /// The cached wall clock, for the stamp of a record that must not wait: if it is at rest, this wakes the flusher.
    #[inline]
    pub(crate) fn cached_wall(&self) -> Timestamp {
        self.wall_if_awake()
            .unwrap_or_else(|| self.wall_at_rest(true, self.read()))
    }

    /// The cached wall clock, unless it is at rest.
    #[inline]
    pub(crate) fn wall_if_awake(&self) -> Option<Timestamp> {
        match self.wall_us.load(Ordering::Relaxed) {
            ASLEEP | DOZING => None,
            wall_us => Some(Timestamp::from_micros(wall_us)),
        }
    }

    /// The wall clock itself, for the stamp of a record while the cached one is at rest. An urgent record wakes the
    /// flusher, any other makes it doze if it is asleep: one system call in both cases, and nothing that waits. `now` is the
    /// monotonic clock, just read.
    #[cold]
    #[inline(never)]
    pub(crate) fn wall_at_rest(&self, is_urgent: bool, now: Mono) -> Timestamp {
        let wall = self.read_wall_anew(now);
        self.mono_us.fetch_max(now.0, Ordering::Relaxed);
        let changed = match is_urgent {
            true => self.wall_us.swap(wall.as_micros(), Ordering::Relaxed) <= DOZING,
            false => self.turn(ASLEEP, DOZING),
        };
        if changed {
            self.wake_timekeeper();
        }
        wall
    }

    /// Turns one rest into the other. Returns whether it was the first.
    fn turn(&self, from: u64, to: u64) -> bool {
        let order = Ordering::Relaxed;
        let turned = self.wall_us.compare_exchange(from, to, order, order);
        turned.is_ok()
    }

    /// Declares that this thread updates the cached numbers.
    pub(crate) fn keep_by_this_thread(&self) {
        // There is one flusher.
        let _ = self.timekeeper.set(std::thread::current());
    }

    /// Wakes the thread that updates the cached numbers.
    pub(crate) fn wake_timekeeper(&self) {
        if let Some(timekeeper) = self.timekeeper.get() {
            timekeeper.unpark();
        }
    }

    /// Stops updating the wall clock until an urgent call. Only the timekeeper may call this, with whether the clock was
    /// awake on its last visit: if it was at rest, and an urgent call has woken it since, it stays awake. A call that has
    /// read the clock just before records itself some nanoseconds later and wakes nobody, so the timekeeper has to look for
    /// records once more, soon.
    pub(crate) fn doze(&self, was_awake: bool) {
        self.rest(was_awake, ASLEEP, DOZING);
    }

    /// The same until any call.
    pub(crate) fn fall_asleep(&self, was_awake: bool) {
        self.rest(was_awake, DOZING, ASLEEP);
    }

    fn rest(&self, was_awake: bool, other: u64, rest: u64) {
        match was_awake {
            true => self.wall_us.store(rest, Ordering::Relaxed),
            false => drop(self.turn(other, rest)),
        }
    }

    /// Whether it is neither asleep nor dozing.
    pub(crate) fn is_awake(&self) -> bool {
        DOZING < self.wall_us.load(Ordering::Relaxed)
    }

    /// Whether it is asleep: no call has been stamped since it fell asleep.
    pub(crate) fn is_asleep(&self) -> bool {
        self.wall_us.load(Ordering::Relaxed) == ASLEEP
    }

    /// Reads the monotonic clock itself.
    pub(crate) fn read(&self) -> Mono {
        self.machine.mono()
    }

    /// Reads the wall clock itself.
    pub(crate) fn read_wall(&self) -> Timestamp {
        self.distance.wall(self.read())
    }

    /// The wall clock at a monotonic instant that was just read, also if the machine has slept, and the flusher has not come
    /// since.
    pub(crate) fn read_wall_anew(&self, now: Mono) -> Timestamp {
        self.distance.rise(&self.machine);
        self.distance.wall(now)
    }

    /// Updates the cached numbers, and returns the new values. A wall clock that is at rest stays so.
    pub(crate) fn refresh(&self) -> (Mono, Timestamp) {
        self.follow();
        let mono = self.read();
        let wall = self.distance.wall(mono);
        match self.is_awake() {
            false => self.mono_us.store(mono.0, Ordering::Relaxed),
            true => self.set_cached(mono, wall),
        }
        (mono, wall)
    }

    /// Compares the wall clock with the machine's.
    fn follow(&self) {
        self.distance.follow_the_machine(&self.machine);
    }

    fn set_cached(&self, mono: Mono, wall: Timestamp) {
        self.wall_us.store(wall.as_micros(), Ordering::Relaxed);
        self.mono_us.store(mono.0, Ordering::Relaxed);
    }

    /// Wakes the wall clock if it is at rest.
    pub(crate) fn wake(&self) {
        if !self.is_awake() {
            self.set_cached(self.read(), self.read_wall());
        }
    }

    /// Moves a clock that is moved by hand; has no effect on the machine's clock.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn advance(&self, by: Span) {
        if let MachineClocks::ByHand { mono_us, wall_us } = &self.machine {
            mono_us.fetch_add(by.as_micros(), Ordering::Relaxed);
            wall_us.fetch_add(by.as_micros(), Ordering::Relaxed);
        }
        self.set_cached(self.read(), self.read_wall());
    }

    /// Sets a clock that is moved by hand, forwards or backwards; the cached numbers stay.
    #[cfg(feature = "simulation")]
    pub(crate) fn set(&self, since_start_us: u64, wall: Timestamp) {
        if let MachineClocks::ByHand { mono_us, wall_us } = &self.machine {
            mono_us.store(BEGIN_US.saturating_add(since_start_us), Ordering::Relaxed);
            wall_us.store(wall.as_micros(), Ordering::Relaxed);
        }
    }

    /// The machine's instant of a monotonic instant, for measurements.
    pub(crate) fn instant(&self, at: Mono) -> Instant {
        match &self.machine {
            MachineClocks::Real { origin } => {
                let since = Duration::from_micros(at.0.saturating_sub(BEGIN_US));
                origin.checked_add(since).unwrap_or(*origin)
            }
            MachineClocks::ByHand { .. } => Instant::now(),
        }
    }
}

/// What one call sees of the clock: the cached value, until it has read the clock itself, and then that.
#[derive(Debug)]
pub(crate) struct Reading<'c> {
    clock: &'c Clock,
    read: Cell<Option<Mono>>,
    stamp: Cell<Option<Timestamp>>,
}

impl<'c> Reading<'c> {
    pub(crate) const fn of(clock: &'c Clock) -> Self {
        Self {
            clock,
            read: Cell::new(None),
            stamp: Cell::new(None),
        }
    }

    /// The monotonic clock itself, read once.
    pub(crate) fn now(&self) -> Mono {
        self.read.get().unwrap_or_else(|| {
            let now = self.clock.read();
            self.read.set(Some(now));
            now
        })
    }

    /// The latest instant that the call has seen.
    pub(crate) fn latest(&self) -> Mono {
        self.read.get().unwrap_or_else(|| self.clock.cached())
    }

    /// The stamp of the call, which `cached` finds; determined once. If the call has read the clock itself (because a
    /// denial had just ended), its stamp comes from the real clock, too: the cached one may be before that end.
    pub(crate) fn stamp(&self, cached: impl FnOnce() -> Timestamp) -> Timestamp {
        self.stamp.get().unwrap_or_else(|| {
            // Called in either case, because it may wake the flusher.
            let cached = cached();
            let stamp = match self.read.get() {
                Some(now) => self.clock.distance.wall(now),
                None => cached,
            };
            self.stamp.set(Some(stamp));
            stamp
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_clock_is_never_ahead_and_stands_until_refreshed() {
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
        let clock = Clock::by_hand(Timestamp::from_millis(5_000));
        if let MachineClocks::ByHand { mono_us, .. } = &clock.machine {
            mono_us.fetch_add(300, Ordering::Relaxed);
        }
        let stamp = |reading: &Reading<'_>| reading.stamp(|| clock.cached_wall());
        let reading = Reading::of(&clock);
        assert_eq!(stamp(&reading), Timestamp::from_millis(5_000));
        reading.now();
        assert_eq!(stamp(&reading), Timestamp::from_millis(5_000), "it has one");
        let reading = Reading::of(&clock);
        reading.now();
        assert_eq!(stamp(&reading), Timestamp::from_micros(5_000_300));
    }

    #[test]
    fn an_urgent_stamp_wakes_a_clock_at_rest_and_its_thread() {
        let clock = Clock::of_the_machine();
        clock.keep_by_this_thread();
        for rest in [Clock::fall_asleep, Clock::doze] {
            rest(&clock, true);
            let (mono, _) = clock.refresh();
            assert!(!clock.is_awake() && clock.cached() == mono);
            let before = clock.read_wall();
            let stamp = clock.cached_wall();
            assert!(before <= stamp && clock.is_awake());
            // It was woken already, so this returns at once; otherwise the test hangs.
            std::thread::park();
            assert_eq!(clock.cached_wall(), stamp, "it stands until it is moved on");
            rest(&clock, false);
            assert!(clock.is_awake(), "it was woken since the last visit");
        }
    }

    #[test]
    fn another_stamp_makes_a_sleeping_clock_doze() {
        let clock = Clock::of_the_machine();
        clock.keep_by_this_thread();
        clock.fall_asleep(true);
        let before = clock.read_wall();
        assert!(before <= clock.wall_at_rest(false, clock.read()));
        assert!(!clock.is_asleep() && !clock.is_awake());
        std::thread::park();
        let asleep = Instant::now();
        assert!(before <= clock.wall_at_rest(false, clock.read()));
        assert!(!clock.is_asleep() && !clock.is_awake());
        std::thread::park_timeout(Duration::from_millis(20));
        assert!(Duration::from_millis(20) <= asleep.elapsed(), "nobody woke");
        assert!(before <= clock.cached_wall() && clock.is_awake());
    }

    #[test]
    fn a_clock_by_hand_moves_both_its_clocks() {
        let clock = Clock::by_hand(Timestamp::from_millis(5_000));
        let before = clock.read();
        clock.advance(Span::from_millis(2));
        assert_eq!(clock.cached().since(before), Span::from_millis(2));
        assert_eq!(clock.cached_wall(), Timestamp::from_millis(5_002));
    }
}
