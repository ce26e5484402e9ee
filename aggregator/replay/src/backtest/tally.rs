//! What is counted while a recording is played against one limits file.
//!
//! Knows nothing of rules. What stays true: everything granted and everything refused add up to
//! everything asked for, by pair, by resource and over time.

use tollgate_engine::rules::request::LimitedBy;
use tollgate_shared::time::{Span, Timestamp};

/// Steps of how full a limit is: tenths of a percent.
pub const USE_STEPS: usize = 1_000;

/// The greatest number of stretches that a recording's time is divided into.
const STRETCHES_MAX: u64 = 240;

/// A number of calls and of their hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Calls.
    pub calls: u64,
    /// Hits that the calls asked for, or got.
    pub hits: u64,
}

/// Refused calls by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Causes {
    /// No tier had room.
    pub tier: u64,
    /// The hard limit: the domain's hits a second.
    pub hard: u64,
    /// The global limit: all domains' hits a second.
    pub global: u64,
    /// A sliding window.
    pub window: u64,
    /// A quota of a calendar period.
    pub quota: u64,
    /// The token bucket.
    pub bucket: u64,
    /// The resource is not configured in a namespace that refuses such resources.
    pub unconfigured: u64,
}

impl Causes {
    /// Counts calls under the limit that refused them.
    pub fn count(&mut self, limited_by: Option<LimitedBy>, calls: u64) {
        let cause = match limited_by {
            Some(LimitedBy::Tier) => &mut self.tier,
            Some(LimitedBy::Hard) => &mut self.hard,
            Some(LimitedBy::Global) => &mut self.global,
            Some(LimitedBy::Window(_)) => &mut self.window,
            Some(LimitedBy::Quota(_)) => &mut self.quota,
            Some(LimitedBy::Bucket) => &mut self.bucket,
            None => &mut self.unconfigured,
        };
        *cause += calls;
    }
}

/// A stretch of refused calls of one pair, in which no call was granted, nor would have been: there is no granted call
/// between two of its calls, and no pause that outlasts the denial. Where pairs share a limit, the denial lasts as long
/// as calls of others take what becomes free: see `super::shared_limits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The first refused call.
    pub from: Timestamp,
    /// The last one.
    pub to: Timestamp,
    /// How many calls it has.
    pub calls: u64,
}

impl Stretch {
    /// The time from the first call to the last.
    pub fn span(&self) -> Span {
        self.to.since(self.from)
    }
}

/// The result of one call, or of several at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TallyOutcome {
    /// The instant at which it was ruled.
    pub at: Timestamp,
    /// What was asked for.
    pub asked: Amount,
    /// What was granted.
    pub granted: Amount,
    /// The limit that kept it from getting more.
    pub limited_by: Option<LimitedBy>,
    /// Whether it was refused when it was recorded.
    pub was_refused: bool,
    /// How full the pair's limits are afterwards, in steps; `None` if it has no limits.
    pub used: Option<u16>,
    /// If it was refused: when one hit would be granted; the last instant if that is not known, or never.
    pub opens: Timestamp,
    /// Since when a limit that the pair shares with others has been full; the instant of the outcome if none is.
    pub full_since: Timestamp,
}

impl TallyOutcome {
    /// Calls that were refused.
    pub fn refused_calls(&self) -> u64 {
        self.asked.calls - self.granted.calls
    }
}

/// The counts of one pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTally {
    /// What was asked for.
    pub asked: Amount,
    /// What was granted.
    pub granted: Amount,
    /// Calls refused here that were let through when they were recorded.
    pub excess: u64,
    /// The first refused call; meaningful only if there is one.
    pub first_refused: Timestamp,
    /// The longest stretch of refused calls.
    pub longest: Stretch,
    now: Stretch,
    /// When the last refused call would have been granted.
    opens: Timestamp,
    /// The fullest that its limits were, in steps.
    pub used_max: u16,
}

impl PairTally {
    /// Calls that were refused.
    pub fn refused(&self) -> u64 {
        self.asked.calls - self.granted.calls
    }

    /// Counts the result of a call.
    pub fn count(&mut self, outcome: &TallyOutcome) {
        let refused = outcome.refused_calls();
        self.used_max = self.used_max.max(outcome.used.unwrap_or_default());
        let is_paused = self.opens < outcome.at && self.now.to < outcome.full_since;
        if 0 < outcome.granted.calls || is_paused {
            self.now = Stretch::default();
        }
        if 0 < refused {
            self.opens = outcome.opens;
            if self.refused() == 0 {
                self.first_refused = outcome.at;
            }
            if self.now.calls == 0 {
                self.now.from = outcome.at;
            }
            self.now.to = outcome.at;
            self.now.calls += refused;
            let longer = |a: &Stretch, b: &Stretch| (b.span(), b.calls) < (a.span(), a.calls);
            if longer(&self.now, &self.longest) {
                self.longest = self.now;
            }
            if !outcome.was_refused {
                self.excess += refused;
            }
        }
        self.asked += outcome.asked;
        self.granted += outcome.granted;
    }
}

/// The counts of one resource that its pairs do not have.
#[derive(Clone, Debug)]
pub struct ResourceTally {
    /// Why calls were refused.
    pub causes: Causes,
    /// Calls by how full the pair's limits were after them. Empty where there are no limits.
    pub used: Vec<u64>,
}

impl ResourceTally {
    /// Counts of zero.
    pub fn new() -> Self {
        Self {
            causes: Causes::default(),
            used: Vec::new(),
        }
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.causes.tier += other.causes.tier;
        self.causes.hard += other.causes.hard;
        self.causes.global += other.causes.global;
        self.causes.window += other.causes.window;
        self.causes.quota += other.causes.quota;
        self.causes.bucket += other.causes.bucket;
        self.causes.unconfigured += other.causes.unconfigured;
        if self.used.is_empty() {
            self.used.clone_from(&other.used);
        } else {
            let pairs = self.used.iter_mut().zip(&other.used);
            pairs.for_each(|(here, there)| *here += there);
        }
    }

    /// Counts the result of a call.
    pub fn count(&mut self, outcome: &TallyOutcome) {
        let refused = outcome.refused_calls();
        if 0 < refused {
            self.causes.count(outcome.limited_by, refused);
        }
        if let Some(used) = outcome.used {
            if self.used.is_empty() {
                self.used = vec![0; USE_STEPS + 1];
            }
            self.used[usize::from(used)] += outcome.asked.calls;
        }
    }
}

impl Default for ResourceTally {
    fn default() -> Self {
        Self::new()
    }
}

/// Hits over the time of a recording, in stretches of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Where the first stretch begins.
    pub from: Timestamp,
    /// How long each stretch is.
    pub width: Span,
    /// Hits asked for and granted in each.
    pub stretches: Vec<(u64, u64)>,
}

impl Timeline {
    /// For a time from a first to a last call.
    pub fn new(first: Timestamp, last: Timestamp) -> Self {
        let width = width_of(last.since(first).as_micros() / STRETCHES_MAX + 1);
        // Begin at a multiple of the width, so that stretches are whole minutes or hours of the
        // clock.
        let from = first.as_micros() / width * width;
        let count = (last.as_micros() - from) / width + 1;
        Self {
            from: Timestamp::from_micros(from),
            width: Span::from_micros(width),
            stretches: vec![(0, 0); count as usize],
        }
    }

    /// Adds another count of the same time.
    pub fn add(&mut self, other: &Self) {
        for (here, there) in self.stretches.iter_mut().zip(&other.stretches) {
            here.0 += there.0;
            here.1 += there.1;
        }
    }

    /// Counts the result of a call stamped `at`.
    pub fn count(&mut self, at: Timestamp, outcome: &TallyOutcome) {
        let number = at.since(self.from).as_micros() / self.width.as_micros();
        if let Some((asked, granted)) = self.stretches.get_mut(number as usize) {
            *asked += outcome.asked.hits;
            *granted += outcome.granted.hits;
        }
    }
}

/// The least round duration that is at least `least_us`.
fn width_of(least_us: u64) -> u64 {
    const SECOND: u64 = 1_000_000;
    const ROUND: [u64; 24] = [
        1_000,
        5_000,
        10_000,
        50_000,
        100_000,
        250_000,
        500_000,
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        15 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        600 * SECOND,
        900 * SECOND,
        1_800 * SECOND,
        3_600 * SECOND,
        7_200 * SECOND,
        14_400 * SECOND,
        28_800 * SECOND,
        86_400 * SECOND,
    ];
    let round = ROUND.into_iter().find(|round| least_us <= *round);
    let day = ROUND[ROUND.len() - 1];
    round.unwrap_or_else(|| least_us.div_ceil(day) * day)
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.hits += other.hits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(at: u64, granted: u64) -> TallyOutcome {
        let one = |count| Amount {
            calls: count,
            hits: count,
        };
        TallyOutcome {
            at: Timestamp::from_micros(at),
            asked: one(1),
            granted: one(granted),
            limited_by: (granted == 0).then_some(LimitedBy::Tier),
            was_refused: at == 7,
            used: Some(if granted == 0 { 1_000 } else { 500 }),
            opens: Timestamp::from_micros(at + 9),
            full_since: Timestamp::from_micros(at),
        }
    }

    #[test]
    fn the_longest_stretch_of_refusals_is_kept() {
        let mut tally = PairTally::default();
        for (at, granted) in [
            (1, 1),
            (2, 0),
            (5, 0),
            (6, 1),
            (7, 0),
            (8, 0),
            (9, 0),
            (20, 1),
        ] {
            tally.count(&outcome(at, granted));
        }
        let longest = tally.longest;
        assert_eq!((longest.from.as_micros(), longest.to.as_micros()), (2, 5));
        assert_eq!(longest.calls, 2);
        assert_eq!((tally.refused(), tally.excess), (5, 4));
        assert_eq!(tally.first_refused.as_micros(), 2);
    }

    #[test]
    fn a_pause_after_the_denials_end_ends_a_stretch() {
        let mut tally = PairTally::default();
        // Each is refused for nine microseconds.
        for at in [1, 10, 19, 29, 60] {
            tally.count(&outcome(at, 0));
        }
        let longest = tally.longest;
        assert_eq!((longest.from.as_micros(), longest.to.as_micros()), (1, 19));
        assert_eq!(longest.calls, 3);
    }

    #[test]
    fn every_hit_falls_into_a_stretch_of_a_round_length() {
        for last in [0, 1, 59_000_000, 3_600_000_000, 86_400_000_000 * 400] {
            let (first, last) = (1_455_944_445_123_456, 1_455_944_445_123_456 + last);
            let mut timeline =
                Timeline::new(Timestamp::from_micros(first), Timestamp::from_micros(last));
            for at in [first, last] {
                timeline.count(Timestamp::from_micros(at), &outcome(at, 1));
            }
            let asked: u64 = timeline.stretches.iter().map(|(asked, _)| asked).sum();
            assert_eq!(asked, 2, "{last}");
            assert!(timeline.stretches.len() as u64 <= STRETCHES_MAX + 2);
        }
    }
}
