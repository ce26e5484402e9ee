//! Quotas that another quota keeps from ever being reached.
//!
//! ```text
//! 60/day, 50/month        a day has at most the 50 of its month: 60 are never reached
//! 50/day, 9000/month      a month has at most 31 days: 1,550 of 9,000
//! 100/week, 60/month      a week may extend over two months: 100 are reached only there
//! ```
//!
//! Knows nothing of zones: all quotas of a class have the same zone.

use super::path::PathStep;
use super::rate::{Calendar, Quota};
use super::warning::WarningKind;

/// The quotas that another one keeps from being reached, each with the first that does.
pub(super) fn idle(
    quotas: &[Quota],
) -> impl Iterator<Item = (PathStep<'static>, WarningKind)> + '_ {
    quotas.iter().enumerate().filter_map(|(index, quota)| {
        let others = quotas.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != index);
        let kind = others.find_map(|(other, of)| beside(quota, of, other < index))?;
        let step = match quotas.len() {
            1 => PathStep::Field("quota"),
            _ => PathStep::item("quota", index),
        };
        Some((step, kind))
    })
}

fn beside(quota: &Quota, of: &Quota, is_before: bool) -> Option<WarningKind> {
    let (limit, unit) = (of.limit, of.unit);
    let most = limit.saturating_mul(periods_in(quota.unit, unit));
    // Of two quotas with the same effect the first is the one that binds.
    if most < quota.limit || (most == quota.limit && (is_before || quota.unit < unit)) {
        return Some(WarningKind::QuotaNeverBinds { most, limit, unit });
    }
    let is_above = quota.unit < unit && limit <= quota.limit;
    is_above.then_some(WarningKind::QuotaAboveLonger { limit, unit })
}

/// How many periods of `unit` at most overlap one of `within`.
const fn periods_in(within: Calendar, unit: Calendar) -> u64 {
    match (within, unit) {
        (Calendar::Day, _) => 1,
        (Calendar::Week, Calendar::Day) => 7,
        (Calendar::Week, Calendar::Week) => 1,
        (Calendar::Week, Calendar::Month | Calendar::Year) => 2,
        (Calendar::Month, Calendar::Day) => 31,
        (Calendar::Month, Calendar::Week) => 6,
        (Calendar::Month, Calendar::Month | Calendar::Year) => 1,
        (Calendar::Year, Calendar::Day) => 366,
        (Calendar::Year, Calendar::Week) => 54,
        (Calendar::Year, Calendar::Month) => 12,
        (Calendar::Year, Calendar::Year) => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::zone::Zone;

    fn warnings(quotas: &[(u64, Calendar)]) -> Vec<String> {
        let zone = Arc::new(Zone::fixed("UTC", 0));
        let quota = |&(limit, unit)| Quota {
            limit,
            unit,
            zone: Arc::clone(&zone),
        };
        let quotas: Vec<Quota> = quotas.iter().map(quota).collect();
        let all = idle(&quotas).map(|(step, kind)| format!("{step:?} {}", kind.code()));
        all.collect()
    }

    #[test]
    fn a_quota_that_is_never_reached_is_named() {
        use Calendar::{Day, Month, Week, Year};

        let nothing: [&str; 0] = [];
        assert_eq!(warnings(&[(50, Day), (1_000, Month)]), nothing);
        assert_eq!(
            warnings(&[(50, Day), (1_550, Month)]),
            ["Item(\"quota\", 1) quota_never_binds"]
        );
        assert_eq!(
            warnings(&[(50, Day), (50, Year)]),
            ["Item(\"quota\", 0) quota_never_binds"]
        );
        assert_eq!(
            warnings(&[(60, Month), (100, Week)]),
            ["Item(\"quota\", 1) quota_above_longer"]
        );
        assert_eq!(
            warnings(&[(60, Month), (120, Week)]),
            ["Item(\"quota\", 1) quota_never_binds"]
        );
        assert_eq!(
            warnings(&[(5, Day), (9, Day), (5, Day)]),
            [
                "Item(\"quota\", 1) quota_never_binds",
                "Item(\"quota\", 2) quota_never_binds"
            ]
        );
        assert_eq!(warnings(&[(5, Day)]), nothing);
    }
}
