//! The model compared with a second, simpler model, and with brute force.
//!
//! The model counts hits at once, forgets old stamps and finds instants by bisection. Each of these may be
//! wrong, so everything is compared with [`support::Plain`], which does none of it, over random limits, entries
//! in and out of order, and versions.

mod agreement;
mod log_plain;
#[path = "../support/mod.rs"]
mod support;

use proptest::prelude::*;
use support::plain::DAY;
use support::{Plain, any_limits};
use tollgate_model::{Cause, DomainLimits, InlineLimiter, ResourceLimits, StreamPair, Until};

#[derive(Clone, Debug)]
enum Step {
    Entry {
        shift_us: i64,
        n: u64,
        unguarded: bool,
    },
    Limits {
        shift_us: i64,
        limits: usize,
    },
}

fn any_step(span_us: i64) -> impl Strategy<Value = Step> {
    let n = prop_oneof![4 => Just(1u64), 1 => 1u64..14];
    let entry = (-span_us..span_us, n, prop::bool::weighted(0.2));
    prop_oneof![
        9 => entry.prop_map(|(shift_us, n, unguarded)| Step::Entry {
            shift_us,
            n,
            unguarded,
        }),
        1 => (-span_us..2 * span_us, 0usize..3)
            .prop_map(|(shift_us, limits)| Step::Limits { shift_us, limits }),
    ]
}

/// Versions that share much of their shape, as real versions do.
fn any_versions(span_us: u64) -> impl Strategy<Value = Vec<DomainLimits>> {
    (
        any_limits(span_us, true),
        0u64..6,
        any_limits(span_us, true),
        0usize..4,
    )
        .prop_map(|(first, limit, other, changed)| {
            let mut second = first.clone();
            if let Some(tier) = second.tiers.as_mut().and_then(|tiers| tiers.last_mut()) {
                tier.limit = limit;
            }
            second.windows.reverse();
            second.quotas.clone_from(&other.quotas);
            let mut third = first.clone();
            let tiers = third.tiers.as_mut();
            let tier = tiers.and_then(|tiers| tiers.get_mut(changed));
            if let (Some(tier), Some(new)) = (tier, other.tiers().first()) {
                *tier = *new;
            }
            third.hard = other.hard;
            third.bucket = other.bucket;
            vec![first, second, third]
        })
}

fn check_stream(versions: &[DomainLimits], steps: &[Step], start_us: u64) {
    let mut pair = StreamPair::new(&versions[0]);
    let mut plain = Plain::new(&versions[0]);
    let mut around_us = start_us;
    for (i, step) in steps.iter().enumerate() {
        match *step {
            Step::Entry {
                shift_us,
                n,
                unguarded,
            } => {
                let at_us = around_us.saturating_add_signed(shift_us);
                around_us = around_us.max(at_us);
                let got = pair.entry(at_us, n, unguarded);
                let expected = plain.entry(at_us, n, unguarded);
                let tier = plain.current(plain.time);
                assert_eq!(
                    (got.granted, got.excess, got.late, got.counted),
                    (
                        expected.granted,
                        expected.excess,
                        expected.late,
                        expected.counted
                    ),
                    "step {i}"
                );
                assert_eq!(
                    (got.tier, got.tier_hits),
                    (tier, plain.in_tier(tier, plain.time)),
                    "step {i}"
                );
                assert_eq!(got.denied_until(), plain.denied, "step {i}");
                assert_eq!(got.granted + got.excess + got.late, n);
            }
            Step::Limits { shift_us, limits } => {
                let at_us = around_us.saturating_add_signed(shift_us);
                let got = pair.new_limits(at_us, &versions[limits]);
                let expected = plain.new_limits(at_us, &versions[limits]);
                assert_eq!(got.map(|denial| denial.end), expected, "step {i}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_pair_is_ruled_as_the_plainest_model_rules_it(
        versions in any_versions(30),
        steps in prop::collection::vec(any_step(25), 1..60),
    ) {
        check_stream(&versions, &steps, DAY - 100);
    }

    #[test]
    fn the_same_where_windows_are_about_a_second(
        versions in any_versions(2_000_000),
        steps in prop::collection::vec(any_step(700_000), 1..60),
    ) {
        check_stream(&versions, &steps, DAY - 1_500_000);
    }

    #[test]
    fn a_pair_opens_at_the_first_microsecond_with_room(
        limits in any_limits(20, false),
        requests in prop::collection::vec((0u64..25, 1u64..9), 1..25),
    ) {
        let default = DomainLimits { quotas: Vec::new(), ..limits };
        let resource = ResourceLimits { default, ..ResourceLimits::default() };
        let mut limiter = InlineLimiter::new(resource);
        let mut now_us = 0;
        for (pause_us, copies) in requests {
            now_us += pause_us;
            let got = limiter.request(now_us, "d", copies, 0);
            // No span is above 20 x 3 + 40 microseconds, and a bucket fills within 20 x 20, so nothing
            // changes after the horizon.
            let first = (now_us..now_us + 600)
                .find(|at_us| limiter.clone().request(*at_us, "d", 1, 1).granted == 1);
            let expected = match first {
                Some(at_us) if at_us == now_us => Until::Now,
                Some(at_us) => Until::At(at_us),
                None => Until::Never,
            };
            prop_assert_eq!(got.domain_until, expected);
        }
    }

    #[test]
    fn a_request_grants_what_its_hits_one_by_one_would_get(
        default in any_limits(30, true),
        global in prop::option::of(0u64..12),
        requests in prop::collection::vec((0u64..300_000, 0usize..2, 1u64..15), 1..30),
    ) {
        let resource = ResourceLimits { default, global, ..ResourceLimits::default() };
        let mut at_once = InlineLimiter::new(resource.clone());
        let mut one_by_one = InlineLimiter::new(resource);
        let mut now_us = 0;
        for (pause_us, domain, copies) in requests {
            now_us += pause_us % 40 * if pause_us % 3 == 0 { 10_000 } else { 1 };
            let domain = ["a", "b"][domain];
            let got = at_once.request(now_us, domain, copies, 0);
            let mut granted = 0;
            let mut limited_by: Option<Cause> = None;
            let mut burst = false;
            for _ in 0..copies {
                let hit = one_by_one.request(now_us, domain, 1, 1);
                granted += hit.granted;
                burst |= hit.burst;
                limited_by = limited_by.or(hit.limited_by);
            }
            let after = one_by_one.request(now_us, domain, 0, 0);
            prop_assert_eq!((got.granted, got.burst, got.limited_by), (granted, burst, limited_by));
            prop_assert_eq!(&got.standing, &after.standing);
            prop_assert_eq!(got.domain_until, after.domain_until);
            prop_assert_eq!(got.global_until, after.global_until);
        }
    }

    #[test]
    fn a_request_refused_below_its_min_changes_nothing(
        default in any_limits(30, true),
        requests in prop::collection::vec((0u64..40, 1u64..12, 1u64..12), 1..30),
    ) {
        let resource = ResourceLimits { default, ..ResourceLimits::default() };
        let mut limiter = InlineLimiter::new(resource);
        let mut now_us = 0;
        for (pause_us, a, b) in requests {
            now_us += pause_us;
            let mut untouched = limiter.clone();
            let got = limiter.request(now_us, "d", a.max(b), a.min(b));
            if got.granted == 0 {
                for at_us in [now_us, now_us + 7, now_us + 31, now_us + 90] {
                    let left = limiter.clone().request(at_us, "d", 20, 0);
                    prop_assert_eq!(left, untouched.clone().request(at_us, "d", 20, 0));
                }
            } else {
                let all = untouched.request(now_us, "d", a.max(b), 0);
                prop_assert_eq!(got.granted, all.granted);
            }
        }
    }
}
