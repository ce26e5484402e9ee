//! The least and the greatest log time that an aggregator may assume.
//!
//! ```text
//! its own tick, sent at 9.0, accepted by the log at 9.2        ahead by 0.2 until the next tick arrives
//! it is frozen, and the log's clock is put forward             behind by that until the next tick arrives
//! ```
//!
//! An aggregator goes by its newest own tick; the plan tells which faults hold ticks up or make them late. Knows
//! nothing of denials. What stays true: faults that follow one another, or overlap, add up.

use super::faults::{Episode, Fault, LogWay};
use super::plan::{LogPlan, Plan};
use super::watch::Ruled;

/// By how much two clocks may differ, each way, over the time counted down on them.
const SLACK_PPM: u64 = 400;

/// Append times are rounded to a millisecond; one more millisecond as a margin.
const SLACK_US: u64 = 2_000;

/// How old the tick that an aggregator goes by may be: in most plans the longest freeze.
const BEHIND_US: u64 = 30_000_000;

/// The time of an append without faults.
const APPEND_US: u64 = 3_000;

/// The time until an aggregator that continues has seen a tick of its own.
const SOON_US: u64 = 2_000_000;

/// How late aggregators' ticks may be: an aggregator takes log time to be ahead by as much. `is_meant` decides
/// which faults count, each with the lateness that it causes: appends that are held up may have been slow before.
pub(super) fn ticks_late_us(plan: &Plan, is_meant: impl Fn(&Episode, u64) -> bool) -> u64 {
    let (mut held_us, mut slow_us) = (0, 0);
    for one in &plan.episodes {
        let (of, late_us) = match one.fault {
            Fault::LogCut {
                way: LogWay::Appends,
                lost: false,
                ..
            } => (&mut held_us, one.to_us - one.from_us),
            Fault::SlowAppends { by_us } => (&mut slow_us, by_us),
            // A journal stamps records in its turn.
            Fault::SlowLog { by_us } if matches!(plan.log, LogPlan::Journal { .. }) => {
                (&mut slow_us, by_us)
            }
            _ => continue,
        };
        if is_meant(one, late_us) {
            *of = late_us.max(*of);
        }
    }
    held_us + slow_us + APPEND_US
}

/// The times, in order, in which no tick reaches the log or returns from it, because of one fault after another
/// with no room for a tick between them.
pub(super) fn without_ticks(plan: &Plan) -> Vec<(u64, u64)> {
    let is_one = |one: &&Episode| {
        matches!(
            one.fault,
            Fault::Stall { .. }
                | Fault::LogCut { .. }
                | Fault::Appends { .. }
                | Fault::DiskFull { .. }
                | Fault::SyncsFail
                | Fault::SlowLog { .. }
                | Fault::SlowAppends { .. }
        )
    };
    let mut all: Vec<_> = plan.episodes.iter().filter(is_one).collect();
    all.sort_by_key(|one| one.from_us);
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for one in all {
        match spans
            .last_mut()
            .filter(|(_, to_us)| one.from_us <= *to_us + SOON_US)
        {
            Some((_, to_us)) => *to_us = one.to_us.max(*to_us),
            None => spans.push((one.from_us, one.to_us)),
        }
    }
    spans
}

/// How old the tick may be that an aggregator goes by, if ticks fail for longer: it goes by the last one
/// until one of its own arrives.
pub(super) fn behind_us(without_ticks: &[(u64, u64)]) -> u64 {
    let longest = without_ticks.iter().map(|(from_us, to_us)| to_us - from_us);
    BEHIND_US.max(longest.max().unwrap_or(0) + SOON_US)
}

/// When ticks come again after the log's clock is right: at once, if no fault holds them up.
pub(super) fn ticks_come_again_us(without_ticks: &[(u64, u64)], since_us: u64) -> u64 {
    let is_then =
        |(from_us, to_us): &&(u64, u64)| *from_us <= since_us + SOON_US && since_us < *to_us;
    let span = without_ticks.iter().find(is_then);
    span.map_or(since_us, |(_, to_us)| *to_us)
}

impl Ruled {
    /// The latest time that the log's clock may have shown to an aggregator by now.
    pub(super) fn log_shown_us(&self, now_us: u64, behind_us: u64) -> u64 {
        let since_us = now_us.saturating_sub(behind_us);
        let since = self.ticks.partition_point(|(at, _)| *at <= since_us);
        let ticks = self.ticks[since.saturating_sub(1)..].iter();
        let shown = ticks.map(|(at_us, log_us)| log_us + now_us.saturating_sub(*at_us));
        shown.max().unwrap_or(0) + SLACK_US
    }

    /// The latest true time at which an agent may still take the log's clock to show less than `end_us`,
    /// if it received the denial at any time since the record that caused it, from an aggregator whose
    /// newest tick was `behind_us` old.
    pub(super) fn true_time_of(
        &self,
        end_us: u64,
        cause: u64,
        (now_us, behind_us): (u64, u64),
    ) -> u64 {
        if end_us == u64::MAX {
            return u64::MAX;
        }
        let caused = self.taken.get(cause as usize);
        let (caused_us, log_us) = caused.copied().unwrap_or_default();
        let since_us = caused_us.saturating_sub(behind_us);
        let since = self.ticks.partition_point(|(at, _)| *at <= since_us);
        let mut latest = end_us.saturating_add(caused_us).saturating_sub(log_us);
        let mut begin_us = caused_us;
        // If the log's clock is put forward, an aggregator learns it from its next own tick.
        for (at_us, log_us) in &self.ticks[since.saturating_sub(1)..] {
            latest = latest.max(end_us.saturating_add(*at_us).saturating_sub(*log_us));
            begin_us = begin_us.min(*at_us);
        }
        let run_down_us = latest.min(now_us).saturating_sub(begin_us);
        latest
            .saturating_add(SLACK_US)
            .saturating_add(run_down_us / 1_000_000 * SLACK_PPM + SLACK_PPM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_one_after_another_keep_ticks_back_as_one() {
        let mut plan = Plan::draw(1);
        let from = |from_us, to_us, fault| Episode {
            from_us,
            to_us,
            fault,
        };
        let s = 1_000_000;
        plan.episodes = vec![
            from(100 * s, 140 * s, Fault::Stall { owner: 0 }),
            from(60 * s, 99 * s, Fault::DiskFull { room_bytes: 0 }),
            from(10 * s, 20 * s, Fault::SyncsFail),
            from(70 * s, 80 * s, Fault::SyncsFail),
            from(140 * s, 300 * s, Fault::NoSnapshots),
        ];
        let spans = without_ticks(&plan);
        assert_eq!(spans, [(10 * s, 20 * s), (60 * s, 140 * s)]);
        assert_eq!(behind_us(&spans), 82 * s);
        assert_eq!(behind_us(&spans[..1]), BEHIND_US);
        let again = |at| ticks_come_again_us(&spans, at * s);
        assert_eq!((again(15), again(30)), (20 * s, 30 * s));
        assert_eq!(
            (again(58), again(90), again(140)),
            (140 * s, 140 * s, 140 * s)
        );
    }
}
