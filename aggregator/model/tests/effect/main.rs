//! A limit limits: closed loops over the model stay within the bound, and the check detects the invalid reading,
//! in which excess uses nothing.
//!
//! What stays true: every loop is judged by the same check.

mod closed_loop;

use std::collections::VecDeque;

use closed_loop::{Global, Load, Played, Ruler, START_US, WithoutDebt, pair, play};
use tollgate_model::effect::{
    EffectParams, EffectViolation, InForce, OfferedCall, effect_violations,
};
use tollgate_model::log::WholeResource;
use tollgate_model::{
    Bucket, Calendar, Cause, DomainLimits, InlineLimiter, Quota, ResourceLimits, Tier, Window, Zone,
};

const SECOND: u64 = 1_000_000;

fn window(limit: u64, window_us: u64) -> DomainLimits {
    DomainLimits {
        windows: vec![Window { limit, window_us }],
        ..DomainLimits::default()
    }
}

fn bucket(tokens: u64, burst: u64) -> DomainLimits {
    DomainLimits {
        bucket: Some(Bucket {
            tokens,
            period_us: SECOND,
            burst,
            debt: Bucket::default_debt(tokens, SECOND, burst),
        }),
        ..DomainLimits::default()
    }
}

fn tier(limit: u64, active_us: u64, cooldown_us: u64) -> Tier {
    Tier {
        limit,
        window_us: SECOND,
        active_us,
        cooldown_us,
        skippable: false,
    }
}

fn since_start(limits: &DomainLimits) -> Vec<InForce> {
    vec![InForce {
        from_us: 0,
        limits: limits.clone(),
        starts_anew: false,
    }]
}

fn check(limits: &DomainLimits, load: Load, calls: &[OfferedCall]) -> Vec<EffectViolation> {
    let params = EffectParams {
        delay_us: load.delay_us,
        agents: load.agents,
        call_max: load.n,
    };
    effect_violations(&since_start(limits), calls, params)
}

/// Runs the loop with one and with eight agents, with short and long delays: it stays within the bound, and where
/// the delay admits little, at least 85 % of the overload is refused.
fn holds(limits: &DomainLimits, load: Load, mut ruler: impl FnMut() -> Box<dyn RulerBox>) {
    for agents in [1, 8] {
        for delay_us in [1_000, 5_000, 20_000] {
            let load = Load {
                agents,
                delay_us,
                ..load
            };
            let played = ruler().play(load);
            assert_eq!(check(limits, load, &played.calls), [], "{load:?}");
            let delayed = 10 * load.limit * delay_us / load.w_us + agents * load.n;
            if 2 * delayed <= load.limit {
                let refused = played.offered - played.let_through;
                assert!(
                    85 * played.offered <= 100 * refused,
                    "{} of {} let through: {load:?}",
                    played.let_through,
                    played.offered
                );
            }
        }
    }
}

/// A ruler that plays a loop.
trait RulerBox {
    fn play(&mut self, load: Load) -> Played;
}

impl<R: Ruler> RulerBox for R {
    fn play(&mut self, load: Load) -> Played {
        play(self, load)
    }
}

fn pair_holds(limits: &DomainLimits, load: Load) {
    holds(limits, load, || Box::new(pair(limits)));
}

#[test]
fn windows_hold() {
    for (limit, window_us) in [
        (10, SECOND),
        (100, SECOND),
        (1_000, SECOND),
        (1_000, 10 * SECOND),
    ] {
        pair_holds(&window(limit, window_us), Load::of(limit, window_us));
    }
}

#[test]
fn a_window_above_4096_holds() {
    let load = Load {
        spans: 2,
        ..Load::of(5_000, 10 * SECOND)
    };
    pair_holds(&window(5_000, 10 * SECOND), load);
}

#[test]
fn several_windows_hold() {
    let mut limits = window(50, SECOND);
    limits.windows.push(Window {
        limit: 200,
        window_us: 10 * SECOND,
    });
    limits.hard = Some(60);
    pair_holds(&limits, Load::of(200, 10 * SECOND));
}

#[test]
fn small_and_large_buckets_hold() {
    for (tokens, burst) in [(100, 5), (1_000, 500), (100, 3_000)] {
        let limits = bucket(tokens, burst);
        let load = Load {
            spans: 10,
            ..Load::of(tokens, SECOND)
        };
        // The even part is below the rate, so the bucket is full when the overload begins.
        for agents in [1, 8] {
            let load = Load { agents, ..load };
            let played = play(&mut pair(&limits), load);
            assert_eq!(check(&limits, load, &played.calls), [], "{load:?}");
        }
    }
    // The burst is small beside the copies offered in ten seconds.
    pair_holds(&bucket(1_000, 50), Load::of(1_000, SECOND));
}

#[test]
fn tiers_hold() {
    let one = DomainLimits::of_tiers(&[tier(100, 3_600 * SECOND, 0)]);
    pair_holds(&one, Load::of(100, SECOND));
    let two = [
        tier(100, 3_600 * SECOND, 0),
        tier(150, 2 * SECOND, 60 * SECOND),
    ];
    let two = DomainLimits::of_tiers(&two);
    for agents in [1, 8] {
        let load = Load {
            agents,
            ..Load::of(100, SECOND)
        };
        let played = play(&mut pair(&two), load);
        assert_eq!(check(&two, load, &played.calls), [], "{load:?}");
        assert!(played.let_through < 18 * 100, "{}", played.let_through);
    }
}

#[test]
fn hits_of_short_tiers_count_in_a_long_tiers_span() {
    // Each window of the first tier allows its limit and the copies of one delay. Twenty such
    // windows make one of the second.
    let first = Tier {
        limit: 5,
        window_us: 50_000,
        active_us: 3_600 * SECOND,
        cooldown_us: 0,
        skippable: false,
    };
    let second = Tier {
        limit: 10,
        window_us: SECOND,
        active_us: SECOND,
        ..first
    };
    let limits = DomainLimits::of_tiers(&[first, second]);
    let load = Load {
        delay_us: 1_000,
        ..Load::of(1_000, SECOND)
    };
    let played = play(&mut pair(&limits), load);
    assert_eq!(check(&limits, load, &played.calls), []);
    // The check detects a limiter that lets six times as much through in each window.
    let more = Tier { limit: 30, ..first };
    let more = DomainLimits::of_tiers(&[more, second]);
    let played = play(&mut pair(&more), load);
    assert_ne!(check(&limits, load, &played.calls), []);
}

#[test]
fn a_quota_holds() {
    let limits = DomainLimits {
        quotas: vec![Quota {
            limit: 200,
            unit: Calendar::Day,
            zone: Zone::fixed(0),
        }],
        ..DomainLimits::default()
    };
    pair_holds(&limits, Load::of(200, 86_400 * SECOND));
}

#[test]
fn a_global_limit_holds() {
    // The stamps of totals are the starts of milliseconds, so a span may hold one more millisecond.
    let limits = DomainLimits {
        hard: Some(1_000),
        ..DomainLimits::default()
    };
    holds(&limits, Load::of(1_000, SECOND), || {
        Box::new(Global {
            limit: 1_000,
            whole: WholeResource::default(),
        })
    });
}

#[test]
fn weighted_calls_hold() {
    for n in [7, 33, 51, 60, 101] {
        let load = Load {
            n,
            ..Load::of(100, SECOND)
        };
        pair_holds(&window(100, SECOND), load);
        pair_holds(&bucket(100, 100), load);
    }
}

#[test]
fn an_in_line_limiter_holds_without_any_delay() {
    let limits = window(100, SECOND);
    let mut limiter = InlineLimiter::new(ResourceLimits {
        default: limits.clone(),
        ..ResourceLimits::default()
    });
    let calls: Vec<OfferedCall> = (0..30_000)
        .map(|i| START_US + i * 333)
        .map(|at_us| OfferedCall {
            at_us,
            copies: 3,
            is_let_through: limiter.grant(at_us, "d", 3, 3) == 3,
            is_unguarded: false,
            late_us: 0,
        })
        .collect();
    let params = EffectParams {
        delay_us: 0,
        agents: 0,
        call_max: 0,
    };
    assert_eq!(effect_violations(&since_start(&limits), &calls, params), []);
    // Three copies are offered at one instant: with them a limit of 96 explains the calls, and 95 does not.
    let found = |limit| effect_violations(&since_start(&window(limit, SECOND)), &calls, params);
    assert_eq!((found(96).len(), found(95).len()), (0, 1));
}

#[test]
fn the_void_reading_is_found_from_one_and_from_eight_agents() {
    for (limit, window_us) in [(1_000, SECOND), (100, SECOND), (1_000, 10 * SECOND)] {
        for agents in [1, 8] {
            let load = Load {
                agents,
                delay_us: 5_000,
                ..Load::of(limit, window_us)
            };
            let mut ruler = WithoutDebt {
                limit,
                window_us,
                stamps: VecDeque::new(),
            };
            let played = play(&mut ruler, load);
            let [found] = check(&window(limit, window_us), load, &played.calls)[..] else {
                panic!("not found: {load:?}");
            };
            assert_eq!(found.constraint, Cause::Window(0));
            assert!(2 * found.allowed < found.let_through, "{found:?} {load:?}");
        }
    }
}

#[test]
fn weighted_calls_of_the_void_reading_are_found() {
    for n in [7, 33, 51, 60, 101] {
        let load = Load {
            n,
            delay_us: 1_000,
            ..Load::of(100, SECOND)
        };
        let mut ruler = WithoutDebt {
            limit: 100,
            window_us: SECOND,
            stamps: VecDeque::new(),
        };
        let played = play(&mut ruler, load);
        assert_eq!(
            check(&window(100, SECOND), load, &played.calls).len(),
            1,
            "{n}"
        );
    }
}

#[test]
fn unguarded_excess_is_no_violation() {
    let call = |at_us, is_unguarded| OfferedCall {
        at_us,
        copies: 1,
        is_let_through: true,
        is_unguarded,
        late_us: 0,
    };
    let params = EffectParams {
        delay_us: 0,
        agents: 1,
        call_max: 1,
    };
    let limits = since_start(&window(5, SECOND));
    let blind: Vec<_> = (0..100).map(|i| call(i * 1_000, true)).collect();
    assert_eq!(effect_violations(&limits, &blind, params), []);
    let guarded: Vec<_> = (0..100).map(|i| call(i * 1_000, false)).collect();
    let [found] = effect_violations(&limits, &guarded, params)[..] else {
        panic!("not found");
    };
    // Five, one offered at one instant, and one call of one agent.
    assert_eq!((found.allowed, found.let_through), (7, 100));
    assert_eq!((found.from_us, found.to_us), (0, 99_000));
}

#[test]
fn no_span_crosses_an_eviction() {
    let calls: Vec<_> = (0..20)
        .map(|i| OfferedCall {
            at_us: i * 1_000,
            copies: 1,
            is_let_through: true,
            is_unguarded: false,
            late_us: 0,
        })
        .collect();
    let params = EffectParams {
        delay_us: 0,
        agents: 0,
        call_max: 0,
    };
    let limits = window(10, SECOND);
    let piece = |from_us, starts_anew| InForce {
        from_us,
        limits: limits.clone(),
        starts_anew,
    };
    let reset = [piece(0, false), piece(10_000, true)];
    assert_eq!(effect_violations(&reset, &calls, params), []);
    let same = [piece(0, false), piece(10_000, false)];
    assert_eq!(effect_violations(&same, &calls, params).len(), 1);
}

#[test]
fn a_span_is_allowed_the_greatest_limit_in_it() {
    let calls: Vec<_> = (0..20)
        .map(|i| OfferedCall {
            at_us: i * 1_000,
            copies: 1,
            is_let_through: true,
            is_unguarded: false,
            late_us: 0,
        })
        .collect();
    let params = EffectParams {
        delay_us: 0,
        agents: 0,
        call_max: 0,
    };
    let piece = |from_us, limit| InForce {
        from_us,
        limits: window(limit, SECOND),
        starts_anew: false,
    };
    let lowered = [piece(0, 30), piece(10_000, 5)];
    assert_eq!(effect_violations(&lowered, &calls, params), []);
    let raised_late = [piece(0, 5), piece(25_000, 30)];
    assert_eq!(effect_violations(&raised_late, &calls, params).len(), 1);
}

#[test]
fn excess_forgiven_by_a_quota_may_return_with_a_higher_limit() {
    // Ten copies within a delay under a quota of one a day: two count, eight are forgiven. Then the limit is 20.
    let call = |at_us, copies| OfferedCall {
        at_us,
        copies,
        is_let_through: true,
        is_unguarded: false,
        late_us: 0,
    };
    let piece = |from_us, limit| InForce {
        from_us,
        limits: DomainLimits {
            quotas: vec![Quota {
                limit,
                unit: Calendar::Day,
                zone: Zone::fixed(0),
            }],
            ..DomainLimits::default()
        },
        starts_anew: false,
    };
    let params = EffectParams {
        delay_us: 0,
        agents: 1,
        call_max: 10,
    };
    let found = |raised: u64, later: u64| {
        let calls: Vec<_> = std::iter::once(call(0, 10))
            .chain((0..later).map(|i| call(1_000 + i, 1)))
            .collect();
        effect_violations(&[piece(0, 1), piece(500, raised)], &calls, params).len()
    };
    // 18 more have room, and one delay admits as many on top.
    assert_eq!(found(20, 28), 0);
    assert_eq!(found(20, 60), 1);
    // Where no version raises the limit, the eight are let through once.
    assert_eq!(found(1, 28), 1);
}
