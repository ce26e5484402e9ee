//! A pair's state, as cases show it.

use serde::Serialize;
use serde_json::{Map, Value, json};
use tollgate_shared::time::Timestamp;

use tollgate_engine::inline::tier_counts;
use tollgate_engine::rules::{State, Until, tiers};
use tollgate_limits::{Bucket, RateClass};

/// An end as cases write it.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum CaseEnd {
    At(u64),
    Never(&'static str),
}

impl CaseEnd {
    pub fn of(end: Timestamp) -> Self {
        match end {
            Timestamp::MAX => Self::Never("never"),
            end => Self::At(end.as_micros()),
        }
    }

    pub fn of_until(until: Until) -> Option<Self> {
        match until {
            Until::Now => None,
            Until::At(end) => Some(Self::of(end)),
            Until::Never => Some(Self::of(Timestamp::MAX)),
        }
    }
}

/// Adds what counts in each constraint at `now` to a result.
pub(super) fn counts(
    result: &mut Map<String, Value>,
    class: &RateClass,
    state: &State,
    now: Timestamp,
    more: bool,
) {
    let hard = class.hard.map(|_| "hard".to_owned());
    let windows = (0..class.windows.len()).map(|index| format!("window:{index}"));
    let names = hard.into_iter().chain(windows);
    let held = class.sliding().zip(state.windows.iter());
    let held = held.map(|(window, stamps)| json!(stamps.held(window.window, now)));
    let held: Map<String, Value> = names.zip(held).collect();
    result.insert("window_hits".to_owned(), held.into());
    let quotas: Vec<u64> = state
        .quotas
        .iter()
        .map(|quota| quota.counted(now))
        .collect();
    result.insert("quota_hits".to_owned(), json!(quotas));
    let level = class.bucket.as_ref().zip(state.bucket.first());
    let level = level.map(|(bucket, state)| (bucket, state.level_at(bucket, now)));
    let fraction = level.map(|(bucket, level)| fraction(bucket, level));
    result.insert("bucket_level".to_owned(), json!(fraction));
    if more {
        let units = level.map(|(bucket, level)| (level, bucket.copy_units()));
        result.insert("bucket_units".to_owned(), json!(units));
    }
    let tier = tiers::current(class, state, now);
    result.insert("tier".to_owned(), json!(tier));
    let hits = tier_counts(class, state, tier, now).1;
    result.insert("tier_hits".to_owned(), json!(hits));
}

/// A level in copies, as a reduced fraction.
fn fraction(bucket: &Bucket, level: i64) -> String {
    let (mut divisor, mut rest) = (bucket.copy_units(), level.abs());
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    format!("{}/{}", level / divisor, bucket.copy_units() / divisor)
}
