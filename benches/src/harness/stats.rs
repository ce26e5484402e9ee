//! Medians with their ranges, and ratios of interleaved rounds.
//!
//! ```text
//! rounds      ours  41 44 40      peer  80 84 82
//! ratio       each round's own: 80/41, 84/44, 82/40, then the median of those
//! ```
//!
//! A ratio is taken within a round, in which both sides ran under the same conditions; the median
//! is taken of the ratios. Percentiles are defined as in the demonstration. What stays true: no
//! figure is computed from zero values.

pub use tollgate::demo::figures::percentile;

/// The median of some values, with the least and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; of an even number of values the mean of the middle two.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// How many values there were.
    pub count: usize,
}

impl Spread {
    /// The spread of some values; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self {
            median: f64::midpoint(lower, upper),
            low,
            high,
            count: sorted.len(),
        })
    }

    /// The spread of one value.
    pub const fn single(value: f64) -> Self {
        Self {
            median: value,
            low: value,
            high: value,
            count: 1,
        }
    }
}

/// Round by round, `over` divided by `under`: as many ratios as both sides have rounds.
pub fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter()
        .zip(under)
        .map(|(over, under)| over / under)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle_of_odd_and_even_numbers_of_values() {
        let odd = Spread::of(&[9.0, 1.0, 5.0]).expect("three values");
        assert_eq!(
            (odd.median, odd.low, odd.high, odd.count),
            (5.0, 1.0, 9.0, 3)
        );
        let even = Spread::of(&[4.0, 1.0, 2.0, 100.0]).expect("four values");
        assert_eq!((even.median, even.low, even.high), (3.0, 1.0, 100.0));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[7.0]), Some(Spread::single(7.0)));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The second round was three times as slow for both: their ratio stays the same.
        let ratios = ratios(&[80.0, 240.0, 88.0], &[40.0, 120.0, 40.0]);
        assert_eq!(ratios, [2.0, 2.0, 2.2]);
    }
}
