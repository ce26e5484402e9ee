//! The worst span of a run: sums of copies let through, compared with sums of copies offered.
//!
//! ```text
//! calls      0.0  0.1  0.2 …                     each the end of a span of length w
//! offered    in any delay that overlaps the span, its greatest sum
//! ```
//!
//! Knows nothing of constraints except their runs. What stays true: each call is the end of one span, so the
//! fullest span of a length is among those that are checked.

use std::collections::VecDeque;

use super::bound::{ConstraintRun, Length};
use super::{EffectParams, EffectViolation, OfferedCall};

/// For each call the copies offered within one delay before and with it.
pub(super) struct Offered {
    within_delay: Vec<u64>,
}

impl Offered {
    /// Sums the offered copies; the calls are in order of time.
    pub fn new(calls: &[OfferedCall], delay_us: u64) -> Self {
        let (mut first, mut sum) = (0, 0u64);
        let mut within_delay = Vec::with_capacity(calls.len());
        for call in calls {
            sum = sum.saturating_add(call.copies);
            while calls[first].at_us.saturating_add(delay_us) < call.at_us {
                sum -= calls[first].copies;
                first += 1;
            }
            within_delay.push(sum);
        }
        Self { within_delay }
    }
}

/// The divisor of a span's length that bounds lateness: copies that are later are not checked, and spans are
/// shorter by the lateness of the others, because a late copy leaves earlier by as much.
const LATE_PART: u64 = 8;

/// The span of a run that exceeds its bound most, if any does.
pub(super) fn worst(
    run: &ConstraintRun,
    calls: &[OfferedCall],
    offered: &Offered,
    params: EffectParams,
) -> Option<EffectViolation> {
    let late_max_us = match &run.length {
        Length::Sliding(length_us) => length_us / LATE_PART,
        Length::Periods(_) => 0,
    };
    let counts = |call: &OfferedCall| {
        let is_judged = call.is_let_through && !call.is_unguarded && call.late_us <= late_max_us;
        if is_judged { call.copies } else { 0 }
    };
    let judged = calls.iter().filter(|call| 0 < counts(call));
    let late_us = judged.map(|call| call.late_us).max().unwrap_or(0);
    let begin = calls.partition_point(|call| call.at_us < run.from_us);
    let end = calls.partition_point(|call| call.at_us < run.to_us);
    let mut worst: Option<EffectViolation> = None;
    let (mut first, mut let_through) = (begin, 0u64);
    // Indices of calls with falling sums of one delay, so that the greatest sum of a span comes first.
    let mut greatest: VecDeque<usize> = VecDeque::new();
    for (i, call) in calls.iter().enumerate().take(end).skip(begin) {
        let_through = let_through.saturating_add(counts(call));
        while is_outside(
            &run.length,
            calls[first].at_us.saturating_sub(late_us),
            call.at_us,
        ) {
            let_through -= counts(&calls[first]);
            first += 1;
        }
        let sums = &offered.within_delay;
        while greatest.back().is_some_and(|last| sums[*last] <= sums[i]) {
            greatest.pop_back();
        }
        greatest.push_back(i);
        while greatest.front().is_some_and(|of| *of < first) {
            greatest.pop_front();
        }
        if counts(call) == 0 {
            continue;
        }
        let sum = greatest.front().map_or(0, |of| sums[*of]);
        let (from_us, to_us) = (calls[first].at_us, call.at_us);
        let allowed = allowed(run, from_us, to_us, sum, params);
        let above = let_through.saturating_sub(allowed);
        if worst.is_none_or(|worst| worst.let_through - worst.allowed < above) && 0 < above {
            worst = Some(EffectViolation {
                constraint: run.constraint,
                from_us,
                to_us,
                let_through,
                allowed,
            });
        }
    }
    worst
}

fn is_outside(length: &Length, at_us: u64, now_us: u64) -> bool {
    match length {
        Length::Sliding(length_us) => at_us.saturating_add(*length_us) < now_us,
        Length::Periods(quota) => {
            let period = |at_us| quota.zone.period(quota.unit, at_us);
            period(at_us) < period(now_us)
        }
    }
}

/// The constraint's own bound. For each debt, as often as it may be filled, it adds the copies offered within one
/// delay and one call of each agent; copies above the debt are forgiven, and may be let through once more.
fn allowed(run: &ConstraintRun, from_us: u64, to_us: u64, sum: u64, params: EffectParams) -> u64 {
    let begun = run
        .limits
        .partition_point(|(since_us, _)| *since_us <= from_us);
    let in_span = run.limits.iter().skip(begun.saturating_sub(1));
    let in_span = in_span.take_while(|(since_us, _)| *since_us <= to_us);
    let limit = in_span.map(|(_, limit)| *limit).max().unwrap_or(0);
    let delayed = sum.saturating_add(params.agents.saturating_mul(params.call_max));
    let debts = run.debts.iter().map(|(debt, times)| {
        let forgiven = delayed.saturating_sub(*debt);
        delayed.saturating_add(forgiven).saturating_mul(*times)
    });
    let gaps = delayed.saturating_mul(run.gaps);
    debts.fold(limit.saturating_add(gaps), u64::saturating_add)
}
