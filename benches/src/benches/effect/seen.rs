//! The results of a row's calls, beside an ideal limiter.
//!
//! Pure arithmetic over lists. What stays true: the ideal limiter gets exactly the calls that were
//! offered, in the order in which they were made.

use std::collections::VecDeque;

use tollgate::demo::figures::{Overshoot, WindowCount, overshoot};
use tollgate_model::{InlineLimiter, ResourceLimits};

/// One call of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Microseconds after the start.
    pub at_us: u64,
    /// The flow that it belongs to.
    pub flow: usize,
    pub domain: &'static str,
    pub copies: u64,
    pub is_let_through: bool,
}

/// The results of a row's calls.
#[derive(Debug, Default)]
pub struct Seen {
    /// Copies of the last flow.
    pub offered: u64,
    pub let_through: u64,
    /// Copies of that flow that an ideal limiter lets through.
    pub ideal: u64,
    /// The most copies of all flows that one span of the window let through.
    pub peak: Peak,
    /// Hits that agents dropped.
    pub dropped: u64,
    /// Copies of all flows, by windows from the start on.
    windows: Vec<WindowCount>,
}

/// The fullest span of a row's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    pub copies: u64,
    /// When its first call was made, in microseconds after the start.
    pub from_us: u64,
}

impl Seen {
    /// Counts calls, in any order. Calls after `length_us` belong to no window.
    pub fn of(
        mut calls: Vec<Call>,
        limits: ResourceLimits,
        window_us: u64,
        length_us: u64,
        dropped: u64,
    ) -> Self {
        calls.sort_unstable();
        let judged = calls.iter().map(|call| call.flow).max().unwrap_or(0);
        let mut limiter = InlineLimiter::new(limits);
        let mut seen = Self {
            peak: peak(&calls, window_us),
            dropped,
            windows: vec![WindowCount::default(); length_us.div_ceil(window_us) as usize],
            ..Self::default()
        };
        for call in &calls {
            // A call is let through whole or not at all, by an ideal limiter too.
            let ideal = limiter.grant(call.at_us, call.domain, call.copies, call.copies);
            let let_through = if call.is_let_through { call.copies } else { 0 };
            if call.flow == judged {
                seen.offered += call.copies;
                seen.let_through += let_through;
                seen.ideal += ideal;
            }
            if let Some(count) = seen.windows.get_mut((call.at_us / window_us) as usize) {
                count.let_through += let_through;
                count.ideal += ideal;
            }
        }
        seen
    }

    /// The overshoot by window; `None` if an ideal limiter lets nothing through.
    pub fn overshoot(&self) -> Option<Overshoot> {
        overshoot(self.windows.iter().copied())
    }
}

/// The first of the spans of `window_us` that let most copies through; a copy leaves the span when now > copy + window.
/// The calls are in ascending order.
fn peak(calls: &[Call], window_us: u64) -> Peak {
    let (mut inside, mut copies, mut most) = (VecDeque::new(), 0, Peak::default());
    for call in calls.iter().filter(|call| call.is_let_through) {
        while let Some(&(oldest_us, left)) = inside.front()
            && oldest_us + window_us < call.at_us
        {
            copies -= left;
            inside.pop_front();
        }
        inside.push_back((call.at_us, call.copies));
        copies += call.copies;
        if let Some(&(from_us, _)) = inside.front()
            && most.copies < copies
        {
            most = Peak { copies, from_us };
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use tollgate_model::{DomainLimits, Window};

    use super::*;

    fn call(at_us: u64, copies: u64, is_let_through: bool) -> Call {
        Call {
            at_us,
            flow: 0,
            domain: "acme",
            copies,
            is_let_through,
        }
    }

    fn limits(limit: u64, window_us: u64) -> ResourceLimits {
        let default = DomainLimits {
            windows: vec![Window { limit, window_us }],
            ..DomainLimits::default()
        };
        ResourceLimits {
            default,
            ..ResourceLimits::default()
        }
    }

    #[test]
    fn the_peak_is_of_the_fullest_span() {
        let peak = |calls: &[(u64, u64)]| {
            let calls: Vec<Call> = calls.iter().map(|(at, n)| call(*at, *n, true)).collect();
            let peak = peak(&calls, 10);
            (peak.copies, peak.from_us)
        };
        assert_eq!(peak(&[]), (0, 0));
        // At 10 the first call still counts, at 11 it does not.
        assert_eq!(peak(&[(0, 3), (10, 4)]), (7, 0));
        assert_eq!(peak(&[(0, 3), (11, 4), (12, 2), (30, 6)]), (6, 11));
    }

    #[test]
    fn every_window_is_compared_with_an_ideal_limiter() {
        const WINDOW_US: u64 = 10_000_000;
        // The first window has 1,100 calls, 1,050 of them let through; the second as many as the
        // ideal limiter lets through.
        let first = (0..1_100).map(|at| call(at * 100, 1, at < 1_050));
        let second = (0..500).map(|at| call(WINDOW_US + 1_000_000 + at * 100, 1, true));
        let calls = first.chain(second).collect();
        let seen = Seen::of(calls, limits(1_000, WINDOW_US), WINDOW_US, 2 * WINDOW_US, 0);
        assert_eq!(
            (seen.offered, seen.let_through, seen.ideal),
            (1_600, 1_550, 1_500)
        );
        let over = seen.overshoot().expect("two windows");
        assert_eq!((over.median, over.worst, over.least), (0.0, 5.0, 0.0));
    }

    #[test]
    fn an_ideal_limiter_grants_a_call_whole_or_not_at_all() {
        let calls = vec![call(0, 60, true), call(1, 60, true), call(2, 40, true)];
        let seen = Seen::of(calls, limits(100, 10), 10, 10, 0);
        let found = (seen.let_through, seen.ideal, seen.peak.copies);
        assert_eq!(found, (160, 100, 160));
    }
}
