//! Pairs by Zipf's law with exponent 1.0: the k-th most frequent is 1/k as frequent as the first.
//!
//! A fixed permutation maps ranks to pairs, so that frequent pairs are not adjacent in memory only
//! because they were created first.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand_distr::{Distribution as _, Zipf};

/// Draws pairs.
#[derive(Clone, Debug)]
pub struct Draws {
    ranks: Zipf<f64>,
    pairs: u32,
    random: SmallRng,
}

/// A prime greater than any number of pairs, so that multiplication by it permutes them.
const STEP: u64 = 2_654_435_761;

impl Draws {
    /// Draws among `pairs` pairs (at least one).
    pub fn new(pairs: u32, seed: u64) -> Self {
        let pairs = pairs.max(1);
        // Only sizes below one and negative exponents are refused, and neither occurs here.
        let ranks = Zipf::new(f64::from(pairs), 1.0).unwrap_or_else(|_| unreachable!());
        Self {
            ranks,
            pairs,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// The next pair, by its number from 0.
    pub fn pair(&mut self) -> u32 {
        let rank = self.ranks.sample(&mut self.random) as u32;
        pair_of_rank(rank.clamp(1, self.pairs) - 1, self.pairs)
    }

    /// The next pairs.
    pub fn pairs(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.pair()).collect()
    }
}

/// The pair that has this rank, both from 0.
pub fn pair_of_rank(rank: u32, pairs: u32) -> u32 {
    let product = u64::from(rank) * STEP;
    (product % u64::from(pairs.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pair_has_one_rank() {
        for pairs in [1, 10, 1_000, 10_000] {
            let seen: HashSet<u32> = (0..pairs).map(|rank| pair_of_rank(rank, pairs)).collect();
            assert_eq!(seen.len(), pairs as usize);
        }
    }

    #[test]
    fn the_tenth_rank_is_drawn_a_tenth_as_often_as_the_first() {
        let mut draws = Draws::new(1_000, 7);
        let (mut first, mut tenth) = (0, 0);
        for _ in 0..200_000 {
            match draws.pair() {
                pair if pair == pair_of_rank(0, 1_000) => first += 1,
                pair if pair == pair_of_rank(9, 1_000) => tenth += 1,
                _ => {}
            }
        }
        // 1 / H(1000) = 13.4 % of all draws, and a tenth of that.
        assert!((26_000..27_500).contains(&first), "{first}");
        assert!((2_400..2_950).contains(&tenth), "{tenth}");
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        assert_eq!(Draws::new(50, 1).pairs(100), Draws::new(50, 1).pairs(100));
        assert_ne!(Draws::new(50, 1).pairs(100), Draws::new(50, 2).pairs(100));
    }
}
