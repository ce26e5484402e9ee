//! A pair's hard limit, windows, quotas and bucket: what counted, and when there was room again.
//!
//! ```text
//! window:0 (1m): 100 of 100, full until 2026-11-25T12:00:41Z
//! bucket: -3 of 500 left, empty until 2026-11-25T12:00:00.04Z
//! ```
//!
//! Knows nothing of statements. What stays true: the numbers are the engine's own state, replayed.

use tollgate_engine::engine::{BucketView, Count};
use tollgate_engine::rules::State;
use tollgate_engine::rules::request::LimitedBy;
use tollgate_limits::{RateClass, print_span};
use tollgate_shared::time::Timestamp;

use super::answer::end_us;
use super::view::ConstraintView;
use crate::fill;
use crate::range::UntilUtc;

/// All of them at an instant, in the order in which the rules check them.
pub(super) fn of(class: &RateClass, state: &State, now: Timestamp) -> Vec<ConstraintView> {
    let counts = Count::of(class, state, now).into_iter();
    let counts = counts.map(|count| ConstraintView {
        name: count.of.name().into_owned(),
        over: Some(over(class, &count)),
        limit: count.limit,
        counted: count.counted,
        level: None,
        full: count.limit <= count.counted,
        room_at_us: end_us(count.opens),
    });
    let bucket = BucketView::of(class, state, now).map(|view| {
        let level = view.level.div_euclid(view.bucket.copy_units().max(1));
        ConstraintView {
            name: LimitedBy::Bucket.name().into_owned(),
            over: None,
            limit: view.bucket.burst,
            counted: fill::used_of(&view),
            level: Some(level),
            full: level < 1,
            room_at_us: end_us(view.opens),
        }
    });
    counts.chain(bucket).collect()
}

/// The span over which a constraint counts, in words.
fn over(class: &RateClass, count: &Count) -> String {
    match count.of {
        LimitedBy::Quota(index) => {
            let quota = class.quotas.get(usize::from(index));
            quota.map_or("period", |quota| quota.unit.name()).to_owned()
        }
        _ => print_span(count.span),
    }
}

/// One constraint in words.
pub(super) fn constraint_text(of: &ConstraintView) -> String {
    let ConstraintView { limit, counted, .. } = of;
    let name = match &of.over {
        Some(over) => format!("{} ({over})", of.name),
        None => of.name.clone(),
    };
    let until = UntilUtc(of.room_at_us.map_or(Timestamp::MAX, Timestamp::from_micros));
    match (of.level, of.full) {
        (Some(level), true) => format!("{name}: {level} of {limit} left, empty {until}"),
        (Some(level), false) => format!("{name}: {level} of {limit} left"),
        (None, true) => format!("{name}: {counted} of {limit}, full {until}"),
        (None, false) => format!("{name}: {counted} of {limit}"),
    }
}

/// The constraints without room, in words; `otherwise` if the state shows none.
pub(super) fn closed_by(all: &[ConstraintView], otherwise: &str) -> String {
    let full: Vec<String> = all
        .iter()
        .filter(|of| of.full)
        .map(constraint_text)
        .collect();
    match full.is_empty() {
        true => otherwise.to_owned(),
        false => full.join("; "),
    }
}
