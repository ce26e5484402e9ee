//! The stream reading of one pair: copies that were let through already, in log order.
//!
//! ```text
//! 3 in 1s
//! entry    2 copies at 0.0     granted
//! entry    5 copies at 0.1     1 granted, 4 excess, of which 3 count: six do then, twice the limit.
//!                              Denied until 1.100001, when fewer than three are left
//! entry    1 copy at 0.9       excess, only tallied; the pair's time is 0.9
//! entry    1 copy at 0.5       late, and excess
//! entry    1 copy at 1.2       unguarded: its agent had no new watermark. There is room: granted
//! ```
//!
//! The log's copies were used and cannot be refused any more. For each entry this returns how many copies
//! had room, which are granted, and how many had none, which are excess. Both count, excess up to a debt of
//! the limit; excess of unguarded entries is only tallied. Knows nothing of agents, clocks, records or
//! names: instants are corrected before. What stays true: the pair's time is the greatest instant among its
//! own entries and never runs backwards, and the state has always advanced to it.

use tollgate_shared::time::{Span, Timestamp};

use crate::rules::calendar::period;
use crate::rules::late::LateGrant;
use crate::rules::refund::{self, Settlement};
use crate::rules::request::{self, LimitedBy, Request};
use crate::rules::{Left, Near, State, Until, carry_over, excess, late, left, open_again, tiers};
use tollgate_limits::RateClass;
use tollgate_limits::SECOND;

/// How long after its own time a pair stays at least. Older hits are only counted by then, so no hit finds
/// its pair gone and its time forgotten.
pub const STAYS: Span = Span::from_secs(600);

/// Copies that were let through at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How many.
    pub copies: u64,
    /// Its agent had received no new watermark, or refused nothing: its excess is no debt.
    pub unguarded: bool,
    /// A settlement may follow: the copies that count are remembered by their stamp.
    pub estimated: bool,
}

/// An event of a pair, from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairEvent {
    /// Copies were let through, or charged afterwards.
    Entry(Entry),
    /// Some copies of an estimate are refunded.
    Settlement(Settlement),
}

impl PairEvent {
    /// Copies that were let through.
    pub fn copies(self) -> u64 {
        match self {
            Self::Entry(entry) => entry.copies,
            Self::Settlement(_) => 0,
        }
    }
}

/// Which constraint closed a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closed {
    /// Its copies of the last second.
    Hard,
    /// A sliding window, counted from 0.
    Window(u8),
    /// A quota, counted from 0.
    Quota(u8),
    /// Its token bucket.
    Bucket,
    /// Its tiers; the number is the current one's, 0 for none.
    Tier(usize),
    /// It has no tiers at all.
    Inaccessible,
}

/// Until when a pair is closed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closure {
    /// The first instant at which it is open again; [`Timestamp::MAX`]: never.
    pub end: Timestamp,
    /// What keeps it closed until then: the first constraint that has no room just before that instant. If it never
    /// opens again, the first that has no room now.
    pub by: Closed,
}

/// The ruling on an entry's copies. `granted`, `excess` and `late` add up to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruled {
    /// Every constraint had room.
    pub granted: u64,
    /// Some constraint had no room.
    pub excess: u64,
    /// Too late to rule; only tallied.
    pub late: u64,
    /// How much of the excess every constraint counted. It counts against the global limit as well.
    pub counted: u64,
    /// What the constraint that refunded most took out for a settlement.
    pub refunded: u64,
    /// The constraint that had no room for the first copy of the excess.
    pub limited_by: Option<LimitedBy>,
    /// Whether the pair is known to be open at its time; if false, use [`Pair::closure`].
    pub open: bool,
}

/// One pair after its entries so far. Always used with the limits for which its state was shaped.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// The state of its constraints.
    pub state: State,
    /// Its time; `None` before its first entry.
    pub time: Option<Timestamp>,
}

impl Pair {
    /// A pair without entries.
    pub fn of(class: &RateClass) -> Self {
        Self {
            state: State::of(class),
            time: None,
        }
    }

    /// Rules an event at `at`, on a pair that is banned then or not.
    #[inline]
    pub fn rule(
        &mut self,
        class: &RateClass,
        at: Timestamp,
        event: PairEvent,
        banned: bool,
    ) -> Ruled {
        match event {
            PairEvent::Entry(entry) if banned => self.banned(class, at, entry),
            PairEvent::Entry(entry) => self.entry(class, at, entry),
            PairEvent::Settlement(settlement) => Ruled {
                refunded: self.settle(class, at, settlement),
                ..Ruled::default()
            },
        }
    }

    /// Rules an entry: copies at `at`.
    ///
    /// It is late if its stamp is before the pair's time; an equal stamp is not late.
    #[inline]
    pub fn entry(&mut self, class: &RateClass, at: Timestamp, entry: Entry) -> Ruled {
        let now = self.come_to(class, at);
        let Entry {
            copies, estimated, ..
        } = entry;
        let mut ruled = if at < now {
            match late::late(class, &mut self.state, (at, now), copies, estimated) {
                Some(LateGrant { hits, limited_by }) => Ruled {
                    granted: hits,
                    excess: copies - hits,
                    limited_by,
                    ..Ruled::default()
                },
                None => Ruled {
                    late: copies,
                    ..Ruled::default()
                },
            }
        } else {
            let request = Request { copies, min: 0 };
            let state = &mut self.state;
            let grant = request::request(class, state, now, request, u64::MAX, estimated);
            Ruled {
                granted: grant.hits,
                excess: copies - grant.hits,
                limited_by: grant.limited_by,
                open: grant.room_left,
                ..Ruled::default()
            }
        };
        if 0 < ruled.excess && !entry.unguarded {
            let state = &mut self.state;
            ruled.counted = excess::count(class, state, (at, now), ruled.excess, estimated);
        }
        if !ruled.open {
            self.state.aim(class);
        }
        ruled
    }

    /// Rules an entry of a banned pair: copies at `at`, all of which are excess.
    pub fn banned(&mut self, class: &RateClass, at: Timestamp, entry: Entry) -> Ruled {
        let now = self.come_to(class, at);
        let (copies, estimated) = (entry.copies, entry.estimated);
        let counted = match entry.unguarded {
            true => 0,
            false => excess::count(class, &mut self.state, (at, now), copies, estimated),
        };
        Ruled {
            excess: copies,
            counted,
            ..Ruled::default()
        }
    }

    /// Applies a settlement at `at`; returns what the constraint that refunded most took out.
    pub fn settle(&mut self, class: &RateClass, at: Timestamp, settlement: Settlement) -> u64 {
        let now = self.come_to(class, at);
        match class.refunds {
            true => refund::settle(class, &mut self.state, now, settlement),
            false => 0,
        }
    }

    /// An operator's refund: each constraint takes out the newest copies that count at the pair's time.
    pub fn refund(&mut self, class: &RateClass, copies: u64) {
        let now = self.now();
        refund::refund(class, &mut self.state, now, copies);
    }

    /// Reduces debt to the limit.
    pub fn forgive(&mut self, class: &RateClass) {
        let now = self.now();
        refund::forgive(class, &mut self.state, now);
    }

    /// Forgets everything that counted, but not the pair's time.
    pub fn reset(&mut self, class: &RateClass) {
        let now = self.now();
        self.state.begin(class);
        self.state.forget(class, now);
    }

    /// Brings the pair under another class of limits.
    pub fn new_limits(&mut self, old: &RateClass, new: &RateClass) {
        let time = self.now();
        carry_over::carry_over(old, new, &mut self.state, time);
    }

    /// Whether the pair is closed at `now`, and until when.
    pub fn closure(&self, class: &RateClass, now: Timestamp) -> Option<Closure> {
        let end = match open_again::open_again(class, &self.state, now) {
            Until::Now => return None,
            Until::At(end) => end,
            Until::Never => Timestamp::MAX,
        };
        let last = match end {
            Timestamp::MAX => now,
            end => end.saturating_sub(Span::from_micros(1)),
        };
        let room = request::room(class, &self.state, last, u64::MAX);
        let by = match room.by {
            Some(by) if room.copies == 0 => Closed::of(by),
            _ if class.is_inaccessible() => Closed::Inaccessible,
            _ => Closed::Tier(tiers::current(class, &self.state, now)),
        };
        Some(Closure { end, by })
    }

    /// What is left at `now`; `None` if nothing limits the pair.
    pub fn room(&self, class: &RateClass, now: Timestamp) -> Option<Left> {
        left::left(class, &self.state, now)
    }

    /// Whether the pair is near its limit at its time: at most `from` copies are left, which [`left::near_from`]
    /// determines.
    #[inline]
    pub fn is_near(&self, class: &RateClass, from: u64) -> bool {
        left::is_near(class, &self.state, self.now(), from)
    }

    /// What is left at its time, and how long the pair stays near its limit, if it is near.
    pub fn near(&self, class: &RateClass, percent: u8) -> Option<Near> {
        left::near(class, &self.state, self.now(), percent)
    }

    /// The pair's time; the Unix epoch before its first entry.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.time.unwrap_or_default()
    }

    /// The last instant at which something of the pair still matters, apart from its denials.
    pub fn matters_until(&self, class: &RateClass) -> Timestamp {
        self.state.matters_until(class)
    }

    /// The end of the ten minutes that the pair stays whatever it remembers.
    #[inline]
    pub fn stays_until(&self) -> Timestamp {
        self.now().saturating_add(STAYS)
    }

    /// Advances the pair's time and its state to an entry's instant, unless that is late.
    #[inline]
    fn come_to(&mut self, class: &RateClass, at: Timestamp) -> Timestamp {
        let now = self.time.map_or(at, |time| time.max(at));
        self.time = Some(now);
        self.state.forget(class, now);
        now
    }
}

impl Closed {
    fn of(by: LimitedBy) -> Self {
        match by {
            LimitedBy::Hard => Self::Hard,
            LimitedBy::Window(index) => Self::Window(index),
            LimitedBy::Quota(index) => Self::Quota(index),
            LimitedBy::Bucket => Self::Bucket,
            // The global limit rules a pair of its own; the caller determines the current tier.
            LimitedBy::Global | LimitedBy::Tier => Self::Tier(0),
        }
    }

    /// The limit that closed the pair, and the span over which it counts at `now`: for a bucket its burst,
    /// and how long that takes to refill.
    pub fn limit(self, class: &RateClass, now: Timestamp) -> (u64, Span) {
        let none = (0, Span::ZERO);
        match self {
            Self::Hard => (class.hard.unwrap_or(0), SECOND),
            Self::Window(index) => {
                let window = class.windows.get(usize::from(index));
                window.map_or(none, |window| (window.limit, window.window))
            }
            Self::Quota(index) => {
                let quota = class.quotas.get(usize::from(index));
                quota.map_or(none, |quota| {
                    let period = period(quota.unit, &quota.zone, now);
                    (quota.limit, period.ends.since(period.begins))
                })
            }
            Self::Bucket => {
                let bucket = class.bucket.as_ref();
                bucket.map_or(none, |bucket| (bucket.burst, bucket.fills_in()))
            }
            Self::Tier(tier) => {
                let tier = tier.checked_sub(1).and_then(|i| class.tiers().get(i));
                tier.map_or(none, |tier| (tier.limit, tier.window))
            }
            Self::Inaccessible => none,
        }
    }
}
