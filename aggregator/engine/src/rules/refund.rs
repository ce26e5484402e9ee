//! Taking back copies that counted: a settlement of an estimate, and an operator's refund.
//!
//! ```text
//! 9 in 10s, 50 a day    four at 0.0 as an estimate, three more at 1.0
//! settled at 2.0: it was one, so three with the stamp 0.0 are taken out of the window and of the day
//! settled at 11.0       0.0 has left the window, which refunds nothing; the day refunds three
//! refund of 5 at 2.0    the newest five: three of 1.0, two of 0.0; of the day five, so a settlement may refund two more
//! ```
//!
//! Each constraint by itself refunds at most what counts in it under that stamp: a window while the stamp is in
//! it, a quota within its period, a bucket unless it has been full since, tiers from the highest down. Tiers
//! stay as they were entered. Where quotas and buckets keep more than 4,096 stamps, all estimates of 0.6 s have one: if
//! one of them counted less than it was, its settlement may refund copies of another, which refunds so many less. Knows
//! nothing of operators and agents. What stays true: after a settlement an estimate that has its stamp for itself counts
//! as the lesser of what it counted and its actual cost.

use tollgate_shared::time::Timestamp;

use super::quota::{QuotaState, estimates_at, keep_estimates, take_out_estimate};
use super::state::State;
use super::window::CountsStamps as _;
use tollgate_limits::{RateClass, Tier};

/// A settlement that refunds copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The stamp of the estimate.
    pub made: Timestamp,
    /// Copies to refund: the estimate less the actual cost.
    pub copies: u64,
    /// The actual cost, which stays counted where it counted.
    pub actual: u64,
}

impl Settlement {
    /// How many are taken out of a constraint that counted `counted` under the stamp.
    fn part(self, counted: u64) -> u64 {
        self.copies.min(counted.saturating_sub(self.actual))
    }
}

/// Applies a settlement at the pair's time `now`, to which the state has advanced. Returns what the constraint
/// that refunded most took out.
pub fn settle(class: &RateClass, state: &mut State, now: Timestamp, settlement: Settlement) -> u64 {
    let made = settlement.made;
    let mut most = 0;
    for (window, stamps) in class.sliding().zip(state.windows.iter_mut()) {
        if !window.has_left(made, now) {
            let stamp = window.rounded(made);
            let counted = stamps.hits_at(stamp);
            most = most.max(stamps.take_out(stamp, settlement.part(counted)));
        }
    }
    for (quota, limit) in state.quotas.iter_mut().zip(&class.quotas) {
        if !QuotaState::holds(limit, made, now) {
            continue;
        }
        let counted = estimates_at(&quota.estimates, made, now).min(quota.count);
        let part = settlement.part(counted);
        let taken = take_out_estimate(&mut quota.estimates, made, part);
        quota.count = quota.count.saturating_sub(taken);
        most = most.max(taken);
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        let part = settlement.part(estimates_at(&level.estimates, made, now));
        let taken = take_out_estimate(&mut level.estimates, made, part);
        level.give_back(bucket, taken);
        most = most.max(taken);
    }
    most.max(settle_tiers(class, state, now, settlement))
}

/// The same for tiers, from the highest down.
fn settle_tiers(
    class: &RateClass,
    state: &mut State,
    now: Timestamp,
    settlement: Settlement,
) -> u64 {
    let made = settlement.made;
    let windows = || {
        let windows = class.tiers().iter().map(Tier::sliding);
        windows.map(|window| (window.rounded(made), !window.has_left(made, now)))
    };
    let tiers = windows().zip(state.tiers.iter());
    let counted = tiers.map(|((stamp, counts), tier)| match counts {
        true => tier.window.hits_at(stamp),
        false => 0,
    });
    let part = settlement.part(counted.fold(0, u64::saturating_add));
    let mut left = part;
    let tiers: Vec<_> = windows().zip(state.tiers.iter_mut()).collect();
    for ((stamp, counts), tier) in tiers.into_iter().rev() {
        if counts {
            left -= tier.window.take_out(stamp, left);
        }
    }
    part - left
}

/// An operator's refund: each constraint refunds at most `copies` copies, windows the newest ones.
pub fn refund(class: &RateClass, state: &mut State, now: Timestamp, copies: u64) {
    state.forget(class, now);
    for stamps in state.windows.iter_mut() {
        stamps.take_out_newest(copies);
    }
    for quota in state.quotas.iter_mut() {
        quota.count = quota.count.saturating_sub(copies);
        keep_estimates(&mut quota.estimates, quota.count);
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        level.give_back(bucket, copies);
        let missing = level.missing(bucket);
        keep_estimates(&mut level.estimates, missing);
    }
    let mut left = copies;
    while 0 < left {
        // At one instant a higher tier refunds before a lower one.
        let newest = state.tiers.iter().enumerate();
        let newest = newest.filter_map(|(index, tier)| Some((tier.window.newest()?, index)));
        let Some((at, index)) = newest.max() else {
            break;
        };
        left -= state.tiers[index].window.take_out(at, left);
    }
}

/// Reduces debt to the limit at the pair's time `now`: every window, quota or bucket is then full at most.
///
/// From a window the newest copies are taken out, so that it opens as early as possible.
pub fn forgive(class: &RateClass, state: &mut State, now: Timestamp) {
    for (window, stamps) in class.sliding().zip(state.windows.iter_mut()) {
        window.forgive(stamps, now);
    }
    for (quota, counted) in class.quotas.iter().zip(state.quotas.iter_mut()) {
        counted.count = counted.count.min(quota.limit);
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        level.advance(bucket, now);
        level.level = level.level.max(0);
    }
    for (tier, counted) in class.tiers().iter().zip(state.tiers.iter_mut()) {
        tier.sliding().forgive(&mut counted.window, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::picture::class;
    use crate::rules::request::{Request, request};

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_settlement_keeps_the_actual_cost_counted() {
        let class = class("window 9/10s");
        let mut state = State::of(&class);
        let six = Request { copies: 6, min: 0 };
        request(&class, &mut state, at(5), six, u64::MAX, true);
        // Estimated 10, of which 6 counted; the actual cost was 4.
        let settlement = Settlement {
            made: at(5),
            copies: 6,
            actual: 4,
        };
        assert_eq!(settle(&class, &mut state, at(9), settlement), 2);
        assert_eq!(state.windows[0].hits(), 4);
        assert_eq!(settle(&class, &mut state, at(9), settlement), 0);
    }

    #[test]
    fn a_quota_does_not_refund_an_estimate_twice() {
        let class = class("quota 10/day");
        for (plain, refunded, settled) in
            [(0, 10, 0), (0, 4, 6), (5, 10, 5), (5, 5, 10), (5, 1, 10)]
        {
            let mut state = State::of(&class);
            state.forget(&class, at(5));
            let copies = |copies, min| Request { copies, min };
            let granted = request(&class, &mut state, at(5), copies(10, 10), u64::MAX, true);
            assert_eq!(granted.hits, 10);
            // Excess counts, too.
            state.quotas[0].take(at(6), plain, false);
            refund(&class, &mut state, at(7), refunded);
            state.quotas[0].take(at(8), 10, false);
            let settlement = Settlement {
                made: at(5),
                copies: 10,
                actual: 0,
            };
            let taken = settle(&class, &mut state, at(9), settlement);
            assert_eq!(taken, settled, "{plain} {refunded}");
        }
    }

    fn estimated(class: &RateClass, state: &mut State, now: Timestamp, copies: u64) {
        let all = Request {
            copies,
            min: copies,
        };
        request(class, state, now, all, u64::MAX, true);
    }

    #[test]
    fn however_many_estimates_are_made_each_is_settled() {
        for text in [
            "quota 100000000/day",
            "bucket 1/3600s burst 100000000 debt 0",
        ] {
            let class = class(text);
            let mut state = State::of(&class);
            state.forget(&class, at(1));
            // Through ten minutes, in each step of them.
            let stamps = || (1..=20_000).map(|n| at(n * 29_989));
            let mut most = 0;
            for now in stamps() {
                estimated(&class, &mut state, now, 66);
                let of_quota = state.quotas.iter().map(|of| of.estimates.runs().count());
                let of_bucket = state.bucket.iter().map(|of| of.estimates.runs().count());
                most = most.max(of_quota.chain(of_bucket).sum());
            }
            assert_eq!(most, 4_096, "{text}");
            // Another one at the instant of one that is kept by its step.
            let first = stamps().next().expect("there are");
            for quota in state.quotas.iter_mut() {
                quota.take(first, 66, true);
            }
            for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
                level.take(bucket, first, 66, true);
            }
            for made in stamps().chain([first]) {
                let settlement = Settlement {
                    made,
                    copies: 60,
                    actual: 6,
                };
                let taken = settle(&class, &mut state, at(600_000_000), settlement);
                assert_eq!(taken, 60, "{text}");
            }
        }
    }

    #[test]
    fn an_estimate_is_settled_for_ten_minutes_and_in_its_period() {
        const DAY_US: u64 = 86_400_000_000;
        let settlement = |made| Settlement {
            made,
            copies: 10,
            actual: 0,
        };
        let quota = class("quota 100/day");
        for (made_us, late_us, taken) in [(7, 600_000_000, 10), (7, 600_000_001, 0)] {
            let mut state = State::of(&quota);
            state.forget(&quota, at(made_us));
            estimated(&quota, &mut state, at(made_us), 10);
            let now = at(made_us + late_us);
            state.forget(&quota, now);
            let found = settle(&quota, &mut state, now, settlement(at(made_us)));
            assert_eq!(found, taken, "after {late_us} us");
        }
        // The last estimate of a day, and the first of the next.
        let mut state = State::of(&quota);
        for made in [DAY_US - 1, DAY_US + 1] {
            state.forget(&quota, at(made));
            estimated(&quota, &mut state, at(made), 10);
        }
        let now = at(DAY_US + 5);
        assert_eq!(
            settle(&quota, &mut state, now, settlement(at(DAY_US - 1))),
            0
        );
        assert_eq!(
            settle(&quota, &mut state, now, settlement(at(DAY_US + 1))),
            10
        );
    }

    #[test]
    fn a_bucket_does_not_refund_an_estimate_twice() {
        let class = class("bucket 1/3600s burst 10 debt 0");
        for (refunded, settled) in [(0, 10), (4, 6), (10, 0), (20, 0)] {
            let mut state = State::of(&class);
            let ten = Request {
                copies: 10,
                min: 10,
            };
            request(&class, &mut state, at(5), ten, u64::MAX, true);
            refund(&class, &mut state, at(7), refunded);
            let settlement = Settlement {
                made: at(5),
                copies: 10,
                actual: 0,
            };
            let taken = settle(&class, &mut state, at(9), settlement);
            assert_eq!(taken, settled, "{refunded}");
        }
    }

    #[test]
    fn a_refund_takes_the_newest_of_all_tiers() {
        let class = class("1/10s active 20s | 5/10s active 20s");
        let mut state = State::of(&class);
        for now in [0, 1, 2] {
            let one = Request { copies: 1, min: 1 };
            request(&class, &mut state, at(now), one, u64::MAX, false);
        }
        refund(&class, &mut state, at(3), 2);
        let left: Vec<u64> = state.tiers.iter().map(|tier| tier.window.hits()).collect();
        assert_eq!(left, [1, 0]);
    }
}
