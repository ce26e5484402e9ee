//! Shared by the model's tests: short ways to write limits, random limits, and a simpler model.
//!
//! Knows nothing of the model's internals. What stays true: nothing here is shared with `src/`.

#![allow(dead_code, reason = "each test file uses the part that it needs")]

pub mod log;
pub mod plain;

use proptest::prelude::*;
use tollgate_model::{Bucket, Calendar, DomainLimits, Quota, Tier, Window, Zone};

#[allow(unused_imports, reason = "each test file uses the part that it needs")]
pub use plain::Plain;

/// One second in microseconds.
pub const SECOND: u64 = 1_000_000;
/// One millisecond in microseconds.
pub const MS: u64 = 1_000;

/// A tier that is not skippable.
pub fn tier(limit: u64, window_us: u64, active_us: u64, cooldown_us: u64) -> Tier {
    Tier {
        limit,
        window_us,
        active_us,
        cooldown_us,
        skippable: false,
    }
}

/// The same, skippable.
pub fn skippable(limit: u64, window_us: u64, active_us: u64, cooldown_us: u64) -> Tier {
    Tier {
        skippable: true,
        ..tier(limit, window_us, active_us, cooldown_us)
    }
}

/// A sliding window.
pub fn window(limit: u64, window_us: u64) -> Window {
    Window { limit, window_us }
}

/// Limits of these tiers and no hard limit.
pub fn limits(tiers: &[Tier]) -> DomainLimits {
    DomainLimits::of_tiers(tiers)
}

/// Limits of these tiers and a hard limit.
pub fn limits_hard(tiers: &[Tier], hard: u64) -> DomainLimits {
    DomainLimits {
        hard: Some(hard),
        ..DomainLimits::of_tiers(tiers)
    }
}

/// Normalised limits over spans of a few microseconds, so that many things happen at once; with tiers and a hard
/// limit only, or with all constraints.
pub fn any_limits(span_us: u64, hard: bool) -> impl Strategy<Value = DomainLimits> {
    let hard = match hard {
        true => prop::option::of(0u64..9).boxed(),
        false => Just(None).boxed(),
    };
    let all = (any_windows(span_us), any_bucket(span_us), any_quotas());
    let some = (
        prop::bool::weighted(0.5),
        prop::option::weighted(0.7, any_tiers(span_us)),
    );
    (any_tiers(span_us), hard, all, some).prop_map(|(tiers, hard, all, (is_tiers_alone, some))| {
        if is_tiers_alone {
            return DomainLimits {
                hard,
                ..DomainLimits::of_tiers(&tiers)
            };
        }
        let (windows, bucket, quotas) = all;
        DomainLimits {
            hard,
            windows,
            quotas,
            bucket,
            tiers: some,
            no_refunds: false,
        }
    })
}

fn any_tiers(span_us: u64) -> impl Strategy<Value = Vec<Tier>> {
    let tier = (
        0u64..5,
        1..=span_us,
        1u64..4,
        0..=2 * span_us,
        any::<bool>(),
    );
    let tier = tier.prop_map(|(limit, window_us, windows, cooldown_us, skippable)| Tier {
        limit,
        window_us,
        active_us: window_us * windows,
        cooldown_us,
        skippable,
    });
    prop::collection::vec(tier, 0..4)
}

fn any_windows(span_us: u64) -> impl Strategy<Value = Vec<Window>> {
    let window = (0u64..7, 1..=span_us);
    let window = window.prop_map(|(limit, window_us)| Window { limit, window_us });
    prop::collection::vec(window, 0..3)
}

fn any_bucket(span_us: u64) -> impl Strategy<Value = Option<Bucket>> {
    let bucket = (1u64..5, 1..=span_us, 1u64..7, 0u64..7);
    let bucket = bucket.prop_map(|(tokens, period_us, burst, debt)| Bucket {
        tokens,
        period_us,
        burst,
        debt,
    });
    prop::option::of(bucket)
}

fn any_quotas() -> impl Strategy<Value = Vec<Quota>> {
    let zone = prop::sample::select(&[0, 7_200, -19_800][..]);
    let quota = (0u64..12, zone).prop_map(|(limit, offset_s)| Quota {
        limit,
        unit: Calendar::Day,
        zone: Zone::fixed(offset_s),
    });
    prop::collection::vec(quota, 0..2)
}
