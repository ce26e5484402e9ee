//! Computes the figures of a demonstration, as the project's `formats` defines them.
//!
//! Pure arithmetic over lists. What stays true: a figure that cannot be computed is absent, never
//! zero; and overshoot is taken per pair and window, for pairs that reached a limit.

use std::collections::BTreeMap;

/// Calls of one pair in one window: let through, and what the ideal limiter would have let through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCount {
    /// Let through by the agents.
    pub let_through: u64,
    /// Let through by the ideal limiter.
    pub ideal: u64,
}

impl WindowCount {
    /// How far it is above the ideal, in percent of the ideal.
    fn over_percent(self) -> f64 {
        (self.let_through as f64 - self.ideal as f64) * 100.0 / self.ideal as f64
    }
}

/// The value below which `share` (0 to 1) of the values lie: the nearest rank. `None` without values.
pub fn percentile(values: &mut [u64], share: f64) -> Option<u64> {
    if values.is_empty() {
        return None;
    }
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len()) - 1).copied()
}

/// Overshoot in percent: (let through − ideal) ÷ ideal, the median and the worst of all windows in
/// which the ideal limiter let anything through. Negative: fewer than ideal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overshoot {
    /// The median of the windows.
    pub median: f64,
    /// The greatest of the windows.
    pub worst: f64,
    /// The least: negative where too little was let through.
    pub least: f64,
    /// That of all windows together.
    pub whole: f64,
    /// The number of windows.
    pub windows: usize,
}

/// The overshoot of windows; `None` if the ideal limiter let nothing through in any.
pub fn overshoot(windows: impl Iterator<Item = WindowCount>) -> Option<Overshoot> {
    let mut sum = WindowCount::default();
    let mut percent: Vec<f64> = Vec::new();
    for window in windows.filter(|window| 0 < window.ideal) {
        sum.let_through += window.let_through;
        sum.ideal += window.ideal;
        percent.push(window.over_percent());
    }
    percent.sort_unstable_by(f64::total_cmp);
    let (least, worst) = (*percent.first()?, *percent.last()?);
    Some(Overshoot {
        median: percent[(percent.len() - 1) / 2],
        worst,
        least,
        whole: sum.over_percent(),
        windows: percent.len(),
    })
}

/// Counts by pair and window. Windows are numbered from the start of the demonstration.
#[derive(Debug, Default)]
pub struct Windows(BTreeMap<(u32, u32, u64), WindowCount>);

impl Windows {
    /// The count of a pair (resource, domain) in its window number `window`.
    pub fn of(&mut self, resource: u32, domain: u32, window: u64) -> &mut WindowCount {
        self.0.entry((resource, domain, window)).or_default()
    }

    /// The counts of the selected pairs and windows.
    pub fn select<'a>(
        &'a self,
        wanted: impl Fn(u32, u32, u64) -> bool + 'a,
    ) -> impl Iterator<Item = WindowCount> + 'a {
        self.0
            .iter()
            .filter(move |((r, d, w), _)| wanted(*r, *d, *w))
            .map(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 0.5), Some(50));
        assert_eq!(percentile(&mut values, 0.99), Some(99));
        assert_eq!(percentile(&mut values, 1.0), Some(100));
        assert_eq!(percentile(&mut [7], 0.5), Some(7));
        assert_eq!(percentile(&mut [], 0.5), None);
    }

    #[test]
    fn overshoot_is_per_window_and_may_be_negative() {
        let counts = [(10, 10), (11, 10), (9, 10), (5, 0)];
        let windows = counts.iter().map(|(let_through, ideal)| WindowCount {
            let_through: *let_through,
            ideal: *ideal,
        });
        let overshoot = overshoot(windows).expect("three windows");
        assert_eq!(
            (
                overshoot.median,
                overshoot.worst,
                overshoot.least,
                overshoot.whole,
                overshoot.windows
            ),
            (0.0, 10.0, -10.0, 0.0, 3)
        );
        assert_eq!(super::overshoot(std::iter::empty()), None);
    }
}
