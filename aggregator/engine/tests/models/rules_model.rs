//! Compares the rules with the slow model: both readings, over random limits and requests, at
//! scales from single microseconds to seconds.

use proptest::prelude::*;
use tollgate_engine::engine::{BucketView, Count};
use tollgate_engine::inline::Inline;
use tollgate_engine::rules::refund::Settlement;
use tollgate_engine::rules::request::{LimitedBy, Request};
use tollgate_engine::rules::{Until, tiers};
use tollgate_engine::stream::{Closed, Closure, Entry, Pair};
use tollgate_limits::RateClass;
use tollgate_model as model;
use tollgate_shared::time::Timestamp;

use crate::support::{self, any_constraints, any_domain_limits, any_resource, at, class_of, like};

fn until(until: model::Until) -> Until {
    match until {
        model::Until::Now => Until::Now,
        model::Until::At(end_us) => Until::At(at(end_us)),
        model::Until::Never => Until::Never,
    }
}

fn end_us(end: model::End) -> u64 {
    match end {
        model::End::At(end_us) => end_us,
        model::End::Never => u64::MAX,
    }
}

/// Microseconds, milliseconds and seconds: the last second of the hard limit is long compared with
/// the first, and short compared with the last.
fn any_unit() -> impl Strategy<Value = u64> {
    prop::sample::select(&[1, 7, 50_000, 400_000, 3_000_000][..])
}

#[derive(Clone, Debug)]
struct Call {
    pause: u64,
    domain: usize,
    copies: u64,
    min: u64,
}

fn any_call() -> impl Strategy<Value = Call> {
    let copies = prop_oneof![4 => Just(1u64), 2 => 1u64..5, 1 => 1u64..30];
    (
        prop_oneof![2 => 0u64..3, 2 => 0u64..12, 1 => 0u64..90],
        0usize..3,
        copies,
        0u64..8,
    )
        .prop_map(|(pause, domain, copies, min)| Call {
            pause,
            domain,
            copies,
            min: min.min(copies + 1),
        })
}

fn check_inline(unit_us: u64, odd_us: u64, limits: &model::ResourceLimits, calls: &[Call]) {
    let mut slow = model::InlineLimiter::new(limits.clone());
    let mut fast = Inline::new(limits.global);
    let mut now_us = 10_000_000;
    for call in calls {
        now_us += call.pause * unit_us + odd_us * (call.pause % 2);
        let domain = support::DOMAINS[call.domain];
        let expected = slow.request(now_us, domain, call.copies, call.min);
        let class = class_of(&limits.of(domain));
        let request = Request {
            copies: call.copies,
            min: call.min,
        };
        let got = fast.request(&class, at(now_us), domain, request);
        let limited_by = expected.limited_by.map(|by| match by {
            model::Cause::Hard => LimitedBy::Hard,
            model::Cause::Global => LimitedBy::Global,
            model::Cause::Window(index) => LimitedBy::Window(index as u8),
            model::Cause::Quota(index) => LimitedBy::Quota(index as u8),
            model::Cause::Bucket => LimitedBy::Bucket,
            model::Cause::Tier(_) => LimitedBy::Tier,
            model::Cause::Banned => panic!("nobody is banned here"),
        });
        assert_eq!(got.granted, expected.granted);
        assert_eq!(got.burst, expected.burst);
        assert_eq!(got.limited_by, limited_by);
        assert_eq!(
            (got.tier, got.tier_limit),
            (expected.standing.tier, expected.tier_limit)
        );
        assert_eq!(got.tier_hits, expected.standing.tier_hits);
        assert_eq!(got.domain_last_second, expected.domain_last_second);
        assert_eq!(got.global_last_second, expected.global_last_second);
        assert_eq!(got.domain_until, until(expected.domain_until));
        assert_eq!(got.global_until, until(expected.global_until));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Entry {
        later: u64,
        earlier: u64,
        hits: u64,
        unguarded: bool,
    },
    /// Settles an entry, counted back from the newest.
    Settle {
        later: u64,
        back: usize,
        actual: u64,
    },
    Limits {
        later: u64,
        limits: model::DomainLimits,
    },
}

fn any_op(unit_us: u64, limits: model::DomainLimits) -> impl Strategy<Value = Op> {
    let copies = prop_oneof![4 => Just(1u64), 2 => 1u64..5, 1 => 1u64..30];
    let later = || prop_oneof![12 => 0u64..3, 12 => 0u64..12, 6 => 0u64..90, 1 => 0u64..90_000];
    let earlier = prop_oneof![3 => Just(0u64), 1 => 0u64..6, 1 => 0u64..40];
    let new = prop_oneof![2 => Just(limits.clone()), 2 => like(limits.clone()), 2 => any_constraints(unit_us), 1 => any_domain_limits(unit_us)];
    prop_oneof![
        8 => (later(), earlier, copies, prop::bool::weighted(0.2)).prop_map(
            |(later, earlier, hits, unguarded)| Op::Entry { later, earlier, hits, unguarded },
        ),
        2 => (later(), 0usize..4, 0u64..9).prop_map(
            |(later, back, actual)| Op::Settle { later, back, actual },
        ),
        1 => (0u64..40, new).prop_map(|(later, limits)| Op::Limits { later, limits }),
    ]
}

/// One pair in the order of a log, by the model and by the engine. Engine time never runs backwards, stamps do.
struct Stream {
    unit_us: u64,
    odd_us: u64,
    slow: model::StreamPair,
    fast: Pair,
    class: RateClass,
    now_us: u64,
    /// The stamps and hits of all entries.
    made: Vec<(u64, u64)>,
    /// The end of the newest denial by the model.
    denied_until: Option<u64>,
}

fn check_stream(unit_us: u64, odd_us: u64, limits: &model::DomainLimits, ops: &[Op]) {
    let class = class_of(limits);
    let mut stream = Stream {
        unit_us,
        odd_us,
        slow: model::StreamPair::new(limits),
        fast: Pair::of(&class),
        class,
        now_us: 500_000_000,
        made: Vec::new(),
        denied_until: None,
    };
    for op in ops {
        match op {
            Op::Settle {
                later,
                back,
                actual,
            } => stream.settle(*later, *back, *actual),
            Op::Entry {
                later,
                earlier,
                hits,
                unguarded,
            } => stream.entry((*later, *earlier), *hits, *unguarded),
            Op::Limits { later, limits } => stream.new_limits(*later, limits),
        }
    }
}

impl Stream {
    fn settle(&mut self, later: u64, back: usize, actual: u64) {
        let Some(&(made_us, estimated)) = self.made.iter().rev().nth(back) else {
            return;
        };
        self.now_us += later * self.unit_us;
        let actual = actual.min(estimated);
        let expected = self.slow.settle(self.now_us, made_us, estimated, actual);
        let settlement = Settlement {
            made: at(made_us),
            copies: estimated - actual,
            actual,
        };
        let got = self.fast.settle(&self.class, at(self.now_us), settlement);
        assert_eq!(got, expected.refunded);
        self.denied_until = expected.denied_until().map(end_us);
        self.closure_ends_with_the_denial(self.fast.closure(&self.class, self.fast.now()));
    }

    fn entry(&mut self, (later, earlier): (u64, u64), hits: u64, unguarded: bool) {
        self.now_us += later * self.unit_us;
        let at_us = self.now_us - earlier * self.unit_us - self.odd_us * (earlier % 3);
        // Every third entry is no estimate: quotas and buckets refund nothing of it.
        let estimated = !self.made.len().is_multiple_of(3);
        let expected = match estimated {
            true => self.slow.estimate(at_us, hits, unguarded),
            false => self.slow.entry(at_us, hits, unguarded),
        };
        self.made.push((at_us, hits));
        let entry = Entry {
            copies: hits,
            unguarded,
            estimated,
        };
        let got = self.fast.entry(&self.class, at(at_us), entry);
        let now = self.fast.now();
        assert_eq!(
            (got.granted, got.excess, got.late, got.counted),
            (
                expected.granted,
                expected.excess,
                expected.late,
                expected.counted
            )
        );
        let tier = tiers::current(&self.class, &self.fast.state, now);
        assert_eq!(tier, expected.tier);
        counts_are_the_models(&self.class, &self.fast, &self.slow.standing());
        self.retention_is_the_models(denied_us(&expected).map_or(Timestamp::ZERO, at));
        let closure = self.fast.closure(&self.class, now);
        self.denied_until = expected.denied_until().map(end_us);
        self.closure_ends_with_the_denial(closure);
        let by = expected.denied.map(|denial| match denial.cause {
            model::Cause::Hard => Closed::Hard,
            model::Cause::Window(index) => Closed::Window(index as u8),
            model::Cause::Quota(index) => Closed::Quota(index as u8),
            model::Cause::Bucket => Closed::Bucket,
            model::Cause::Tier(_) if self.class.is_inaccessible() => Closed::Inaccessible,
            model::Cause::Tier(tier) => Closed::Tier(tier),
            model::Cause::Global => panic!("a pair has no global limit"),
            model::Cause::Banned => panic!("nobody is banned here"),
        });
        assert_eq!(closure.map(|closure| closure.by), by);
    }

    fn new_limits(&mut self, later: u64, limits: &model::DomainLimits) {
        let at_us = self.now_us + later * self.unit_us;
        let expected = self.slow.new_limits(at_us, limits);
        let new = class_of(limits);
        self.fast.new_limits(&self.class, &new);
        self.class = new;
        let now = self.fast.now().max(at(at_us));
        let in_force = self.denied_until.is_some_and(|end_us| now < at(end_us));
        let closure = self.fast.closure(&self.class, now).filter(|_| in_force);
        self.denied_until = expected.map(|denial| end_us(denial.end));
        self.closure_ends_with_the_denial(closure);
    }

    fn closure_ends_with_the_denial(&self, closure: Option<Closure>) {
        let end = closure.map(|closure| closure.end.as_micros());
        assert_eq!(end, self.denied_until);
    }

    /// How long the pair stays known and remembers anything, after an entry that denied it until `denied`.
    fn retention_is_the_models(&self, denied: Timestamp) {
        let (fast, class) = (&self.fast, &self.class);
        if let Some(stays_us) = self.slow.stays_until_us() {
            let stays = fast.stays_until().max(fast.matters_until(class));
            assert_eq!(stays.max(denied), at(stays_us));
        }
        if let Some(matters_us) = self.slow.matters_until_us() {
            let now = fast.now();
            let matters = fast.matters_until(class).max(denied).max(now);
            assert_eq!(matters, at(matters_us).max(now));
        }
    }
}

fn denied_us(outcome: &model::EntryOutcome) -> Option<u64> {
    outcome.denied_until().map(end_us)
}

fn counts_are_the_models(class: &RateClass, pair: &Pair, standing: &model::Standing) {
    let now = pair.now();
    let counts: Vec<u64> = Count::of(class, &pair.state, now)
        .iter()
        .map(|count| count.counted)
        .collect();
    let expected = standing.hard.iter().chain(&standing.windows);
    let expected: Vec<u64> = expected.chain(&standing.quotas).copied().collect();
    assert_eq!(counts, expected);
    let bucket = BucketView::of(class, &pair.state, now);
    let level = bucket.map(|of| (i128::from(of.level), i128::from(of.bucket.copy_units())));
    assert_eq!(level, standing.bucket);
}

proptest! {
    #![proptest_config(support::cases(2_000))]

    #[test]
    fn in_line_rulings_equal_the_models(
        (unit_us, limits) in any_unit().prop_flat_map(|unit| (Just(unit), any_resource(unit))),
        odd_us in 0u64..2,
        calls in prop::collection::vec(any_call(), 1..60),
    ) {
        check_inline(unit_us, odd_us, &limits, &calls);
    }

    #[test]
    fn stream_rulings_equal_the_models(
        (unit_us, limits, ops) in any_unit()
            .prop_flat_map(|unit| {
                // Without a tier nobody is let in, and charges count all the same.
                let closed = any_constraints(unit).prop_map(|limits| model::DomainLimits {
                    tiers: Some(Vec::new()),
                    ..limits
                });
                let limits = prop_oneof![2 => any_domain_limits(unit), 6 => any_constraints(unit), 1 => closed];
                (Just(unit), limits)
            })
            .prop_flat_map(|(unit, limits)| {
                let ops = prop::collection::vec(any_op(unit, limits.clone()), 1..60);
                (Just(unit), Just(limits), ops)
            }),
        odd_us in 0u64..2,
    ) {
        check_stream(unit_us, odd_us, &limits, &ops);
    }
}

/// Windows of more than 4,096 copies round stamps down, so a copy of exactly one window ago leaves when its pair comes
/// under one.
#[test]
fn what_leaves_by_being_rounded_does_not_count_again() {
    let hard = model::DomainLimits {
        hard: Some(7),
        ..model::DomainLimits::default()
    };
    let rounded = model::DomainLimits {
        windows: vec![model::Window {
            limit: 4_097,
            window_us: 150_000,
        }],
        ..model::DomainLimits::default()
    };
    let entry = |later| Op::Entry {
        later,
        earlier: 0,
        hits: 1,
        unguarded: false,
    };
    let limits = |limits: &model::DomainLimits| Op::Limits {
        later: 0,
        limits: limits.clone(),
    };
    let calls = [entry(0), entry(3), entry(3)];
    let versions = [limits(&rounded), limits(&hard)];
    let ops: Vec<Op> = calls
        .into_iter()
        .chain(versions)
        .chain([entry(0)])
        .collect();
    check_stream(50_000, 1, &hard, &ops);
}
