//! How much of each constraint of a pair is used, tiers apart: hard limit, windows, quotas, bucket.
//!
//! ```text
//! hard = "20/s", windows = ["100/m"], a bucket of 500      hard 7 of 20, window:0 61 of 100, bucket 3 of 500
//! ```
//!
//! For pictures, which show tiers in lanes of their own. Knows nothing of drawing. What stays true: the numbers
//! are the engine's own state; names and numbers come in the order in which the rules check them.

use std::borrow::Cow;

use tollgate_engine::engine::{BucketView, Count};
use tollgate_engine::rules::State;
use tollgate_engine::rules::request::LimitedBy;
use tollgate_limits::{RateClass, print_span};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Cause;

/// One constraint, as a picture names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its name in denials: `window:0`.
    pub name: Cow<'static, str>,
    /// Its limit, in copies.
    pub limit: u64,
    /// The span that it counts over, or how it refills: `in 1m`, `a day`, `at 100 in 1s`.
    pub over: Cow<'static, str>,
}

fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

impl Lane {
    /// Its kind: `window`.
    pub fn kind(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }
}

/// The constraints of a class, without tiers.
pub fn lanes(class: &RateClass) -> Vec<Lane> {
    let over = |span: Span| format!("in {}", print_span(span)).into();
    let hard = class.hard.map(|limit| Lane {
        name: LimitedBy::Hard.name(),
        limit,
        over: over(Span::from_secs(1)),
    });
    let windows = class.windows.iter().enumerate();
    let windows = windows.map(|(index, window)| Lane {
        name: LimitedBy::Window(number(index)).name(),
        limit: window.limit,
        over: over(window.window),
    });
    let quotas = class.quotas.iter().enumerate();
    let quotas = quotas.map(|(index, quota)| Lane {
        name: LimitedBy::Quota(number(index)).name(),
        limit: quota.limit,
        over: format!("a {}", quota.unit.name()).into(),
    });
    let bucket = class.bucket.as_ref().map(|bucket| Lane {
        name: LimitedBy::Bucket.name(),
        limit: bucket.burst,
        over: format!("at {} in {}", bucket.tokens, print_span(bucket.period)).into(),
    });
    let all = hard.into_iter().chain(windows).chain(quotas).chain(bucket);
    all.collect()
}

/// The lane that a cause names.
pub fn lane_of(class: &RateClass, cause: Cause) -> Option<usize> {
    let hard = usize::from(class.hard.is_some());
    let (windows, quotas) = (class.windows.len(), class.quotas.len());
    match cause {
        Cause::Hard => class.hard.map(|_| 0),
        Cause::Window(index) => Some(hard + usize::from(index)),
        Cause::Quota(index) => Some(hard + windows + usize::from(index)),
        Cause::Bucket => Some(hard + windows + quotas),
        _ => None,
    }
}

/// How many copies of each are used at an instant. Debt counts, so this may exceed the limit.
pub fn used(class: &RateClass, state: &State, now: Timestamp) -> Vec<u64> {
    let counts = Count::of(class, state, now).into_iter();
    let bucket = BucketView::of(class, state, now).map(|view| used_of(&view));
    counts.map(|count| count.counted).chain(bucket).collect()
}

/// How many whole copies are missing in a bucket.
pub fn used_of(view: &BucketView) -> u64 {
    let level = view.level.div_euclid(view.bucket.copy_units().max(1));
    let burst = i64::try_from(view.bucket.burst).unwrap_or(i64::MAX);
    u64::try_from(burst.saturating_sub(level)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tollgate_engine::rules::request::{Request, request};
    use tollgate_limits::Limits;

    use super::*;

    #[test]
    fn every_constraint_has_a_lane_with_its_use() {
        let text = "version = 1\nrules = 2\n[rate.r]\nhard = \"20/s\"\nwindows = [\"100/m\"]\nquota = [\"300/day\"]\n\
                    bucket = { rate = \"10/s\", burst = 50 }\n";
        let limits = Limits::parse(text).expect("good limits");
        let class = limits.class_of("r", "d").expect("limited");
        let mut state = State::of(class);
        let now = Timestamp::from_micros(1_000_000_000_000);
        let asked = Request { copies: 7, min: 7 };
        state.forget(class, now);
        let _ = request(class, &mut state, now, asked, u64::MAX, false);
        let lanes: Vec<String> = lanes(class)
            .iter()
            .map(|lane| format!("{} {} {}", lane.name, lane.limit, lane.over))
            .collect();
        let expected = [
            "hard 20 in 1s",
            "window:0 100 in 1m",
            "quota:0 300 a day",
            "bucket 50 at 1 in 100ms",
        ];
        assert_eq!(lanes, expected);
        assert_eq!(used(class, &state, now), [7, 7, 7, 7]);
        // A second later the bucket is full again, and the hard limit's second is over.
        let later = now.saturating_add(Span::from_micros(1_000_001));
        assert_eq!(used(class, &state, later), [0, 7, 7, 0]);
    }
}
