//! The stream reading of one pair: hits that were let through already, in log order.
//!
//! ```text
//! tier 1   2 per 1s, active 20s
//! entry    1 hit at 0.0     granted
//! entry    5 hits at 0.0    1 granted, 4 excess: denied until 1.000001
//! entry    1 hit at 0.9     excess, and the pair's time is 0.9
//! entry    1 hit at 0.5     late: tier 1 is full at 0.9, so it is excess as well
//! ```
//!
//! The log's hits cannot be refused any more. Of each entry this says what an ideal limiter would
//! have granted, which occupies windows; the rest is excess, counted and never punished. Knows
//! nothing of agents, clocks, records or names: instants come corrected. What stays true: the pair's
//! time is the greatest instant among its own entries and never runs backwards.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::{Span, Timestamp};

use crate::limits::RateClass;
use crate::rules::request::{self, Request};
use crate::rules::second::{self, SECOND};
use crate::rules::{State, Until, carry_over, late, open_again, refund, tiers};

/// How long after its own time a pair stays at least. Older hits are only counted by then, so none
/// can find its pair gone and its time forgotten.
pub const STAYS: Span = Span::from_secs(600);

/// Which limit closed a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closed {
    /// Its hits of the last second.
    Hard,
    /// Its tiers; the number is the current one's, 0 for none.
    Tier(usize),
    /// It has no tiers at all.
    Inaccessible,
}

/// A pair is not open, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closure {
    /// The first instant at which it is open again; [`Timestamp::MAX`]: never.
    pub end: Timestamp,
    /// What closed it.
    pub by: Closed,
}

/// What became of an entry's hits. The three numbers add up to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ruled {
    /// They occupy windows.
    pub granted: u64,
    /// An ideal limiter would have refused them.
    pub excess: u64,
    /// Too late to say; only counted.
    pub late: u64,
    /// The pair is known to be open at its time; if not, ask [`Pair::closure`].
    pub open: bool,
}

/// One pair as its entries left it. Always used with the limits that its state was shaped for.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// What its tiers remember.
    pub state: State,
    /// Its time; none before its first entry.
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

    /// One entry: hits at `at`. A call without a min asks for min 0.
    ///
    /// A hit is late if its stamp is below the pair's time; one that equals it is not.
    pub fn entry(&mut self, class: &RateClass, at: Timestamp, request: Request) -> Ruled {
        let now = self.time.map_or(at, |time| time.max(at));
        self.time = Some(now);
        self.state.forget(class, now);
        if at < now && !planted(Bug::LateClimbs) {
            return Ruled::late(
                late::late(class, &mut self.state, now, at, request),
                request,
            );
        }
        let grant = request::request(class, &mut self.state, now, request, u64::MAX);
        Ruled {
            granted: grant.hits,
            excess: request.copies - grant.hits,
            late: 0,
            open: grant.room_left,
        }
    }

    /// One entry of a banned pair: hits at `at`, none of which an ideal limiter would have granted.
    pub fn banned(&mut self, class: &RateClass, at: Timestamp, request: Request) -> Ruled {
        let now = self.time.map_or(at, |time| time.max(at));
        self.time = Some(now);
        self.state.forget(class, now);
        Ruled {
            excess: request.copies,
            ..Ruled::default()
        }
    }

    /// Takes the newest granted hits out of the windows that hold them at the pair's time.
    pub fn refund(&mut self, class: &RateClass, hits: u64) {
        let now = self.now();
        refund::refund(class, &mut self.state, now, hits);
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
        let by = if class.is_inaccessible() {
            Closed::Inaccessible
        } else if second::room(class.hard, &self.state, now) == 0 {
            Closed::Hard
        } else {
            Closed::Tier(tiers::current(class, &self.state, now))
        };
        Some(Closure { end, by })
    }

    /// The pair's time, or the first instant there is.
    pub fn now(&self) -> Timestamp {
        self.time.unwrap_or_default()
    }

    /// The last instant at which something of the pair still matters, its denials excepted.
    pub fn stays_until(&self, class: &RateClass) -> Timestamp {
        let matters = self.state.matters_until(class).unwrap_or_default();
        let stays = if planted(Bug::PairLeavesEarly) {
            Span::ZERO
        } else {
            STAYS
        };
        matters.max(self.now().saturating_add(stays))
    }
}

impl Ruled {
    fn late(granted: Option<u64>, request: Request) -> Self {
        match granted {
            Some(granted) => Self {
                granted,
                excess: request.copies - granted,
                ..Self::default()
            },
            None => Self {
                late: request.copies,
                ..Self::default()
            },
        }
    }
}

impl Closed {
    /// The limit that closed the pair, and its window.
    pub fn limit(self, class: &RateClass) -> (u64, Span) {
        match self {
            Self::Hard => (class.hard.unwrap_or(0), SECOND),
            Self::Tier(tier) => match tier.checked_sub(1).and_then(|i| class.tiers().get(i)) {
                Some(tier) => (tier.limit, tier.window),
                None => (0, Span::ZERO),
            },
            Self::Inaccessible => (0, Span::ZERO),
        }
    }
}
