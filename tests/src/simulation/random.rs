//! Randomness as a function of a seed: splitmix64, with one stream for each part that draws.
//!
//! Each part of the world has its own stream, so that leaving out a fault changes the draws of others as little as
//! possible; shrinking depends on that. Not for secrets.

/// A chance of one, in parts of a million.
pub const CERTAIN_PPM: u32 = 1_000_000;

/// A stream of numbers.
#[derive(Clone, Debug, Default)]
pub struct Random(u64);

impl Random {
    /// The stream of one part of the world.
    pub fn of(seed: u64, part: &str, number: u64) -> Self {
        let mut state = seed ^ 0x5851_f42d_4c95_7f2d;
        for byte in part.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Self(mix(state ^ mix(number.wrapping_add(1))))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product: the bias is below 2^-32 for the bounds that occur here.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with a chance of `ppm` in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        0 < ppm && self.below(1_000_000) < u64::from(ppm)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If the slice is empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// A span that is mostly short: evenly distributed over the powers of two between `low` and `high`.
    pub fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let powers = u64::from((high / low).max(1).ilog2());
        let base = low << self.below(powers + 1);
        self.between(base, (base * 2).min(high).max(base))
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_function_of_seed_part_and_number() {
        let draw = |seed, part, number| {
            let mut random = Random::of(seed, part, number);
            [random.draw(), random.draw()]
        };
        assert_eq!(draw(1, "net", 0), draw(1, "net", 0));
        assert_ne!(draw(1, "net", 0), draw(2, "net", 0));
        assert_ne!(draw(1, "net", 0), draw(1, "nets", 0));
        assert_ne!(draw(1, "net", 0), draw(1, "net", 1));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut random = Random::of(7, "bounds", 0);
        assert!((0..1_000).all(|_| random.below(3) < 3));
        assert!((0..1_000).all(|_| (5..=9).contains(&random.between(5, 9))));
        assert!((0..1_000).all(|_| (10..=1_000).contains(&random.spread(10, 1_000))));
        assert!((0..1_000).all(|_| !random.chance(0)));
    }
}
