//! The identity of a pair: a 128-bit keyed hash of its names.
//!
//! ```text
//! SipHash-1-3-128( resource, FF, domain )   keyed by the log's id
//! ```
//!
//! Keyed, so that nobody who chooses domain names can cause a collision; by the log's id, so that
//! it is a function of the log. With ten million pairs the chance of a collision is 10^-25. Knows
//! nothing of the state of a pair.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_shared::log_position::LogId;
use tollgate_shared::names::PAIR_SEPARATOR;

/// A pair, or anything else that is known by a keyed hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity(pub u128);

/// Identities within one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identities {
    key: LogId,
}

/// The identities of all pairs of one resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix(SipHasher13);

impl Identities {
    /// Identities keyed by a log's id.
    pub fn new(key: LogId) -> Self {
        Self { key }
    }

    /// The key.
    pub fn key(&self) -> LogId {
        self.key
    }

    /// The part common to all pairs of a resource, hashed once.
    pub fn of_resource(&self, resource: &str) -> Prefix {
        let mut hasher = self.hasher();
        hasher.write(resource.as_bytes());
        hasher.write(&[PAIR_SEPARATOR]);
        Prefix(hasher)
    }

    /// The identity of an agent's process: its name and its epoch.
    pub fn of_agent(&self, agent: &str, epoch: u128) -> Identity {
        let mut hasher = self.hasher();
        hasher.write(&epoch.to_le_bytes());
        hasher.write(agent.as_bytes());
        Identity(hasher.finish128().as_u128())
    }

    /// The identity of a name with a number.
    pub fn of_numbered(&self, name: &str, number: u64) -> Identity {
        self.of_agent(name, u128::from(number))
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.key.random, u64::from(self.key.generation))
    }
}

impl Prefix {
    /// The identity of the resource's pair with `domain`.
    #[inline]
    pub fn of(&self, domain: &str) -> Identity {
        let mut hasher = self.0;
        hasher.write(domain.as_bytes());
        Identity(hasher.finish128().as_u128())
    }
}

/// Mixes a word into a digest. Two rounds of folded multiplication: every bit of both affects every
/// bit of the result. It matters that unequal states differ; nobody is kept from constructing two
/// that do not.
#[inline]
pub(crate) fn mix(digest: u128, word: u64) -> u128 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xd6e8_feb8_6659_fd93;
    let (low, high) = (digest as u64, (digest >> 64) as u64);
    let first = fold(low ^ word ^ A, high ^ B);
    let second = fold(high.wrapping_add(word) ^ B, first ^ A);
    (u128::from(second) << 64) | u128::from(first ^ low.rotate_left(23))
}

/// The length of a state of `len` bytes, padded with zeros to a whole word.
pub(super) const fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// Pads a state with zeros to a whole word.
pub(super) fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(padded(bytes.len()), 0);
}

/// Sums up a state's words for a digest. Each pair of words is one multiplication under keys of its
/// own, and none depends on another, so that a state costs a few nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    sum: u128,
    key: u64,
}

impl Words {
    /// No words yet.
    pub fn new() -> Self {
        const FIRST_KEY: u64 = 0x2545_f491_4f6c_dd1d;
        Self {
            sum: 0,
            key: FIRST_KEY,
        }
    }

    /// Adds the next two words.
    #[inline]
    pub fn add(&mut self, a: u64, b: u64) {
        const NEXT_KEY: u64 = 0x9e37_79b9_7f4a_7c15;
        let a = u128::from(a.wrapping_add(self.key));
        let b = u128::from(b.wrapping_add(self.key.rotate_left(31)));
        self.sum = self.sum.wrapping_add(a.wrapping_mul(b));
        self.key = self.key.wrapping_add(NEXT_KEY);
    }

    /// Adds bytes, eight at a time. Bytes after the last eight do not count: see [`pad`].
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, rest) = words.as_chunks::<2>();
        for [a, b] in pairs {
            self.add(u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        }
        if let [last] = rest {
            self.add(u64::from_le_bytes(*last), 0);
        }
    }

    /// The digest of the words of this identity.
    #[inline]
    pub fn of(self, identity: Identity) -> u128 {
        let (low, high) = (self.sum as u64, (self.sum >> 64) as u64);
        let (who, whose) = (identity.0 as u64, (identity.0 >> 64) as u64);
        let first = fold(low ^ who, high ^ whose ^ self.key);
        let second = fold(
            high ^ who.rotate_left(32),
            low ^ whose.wrapping_add(self.key),
        );
        (u128::from(second) << 64) | u128::from(first)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn log(random: u64) -> Identities {
        Identities::new(LogId {
            generation: 1,
            random,
        })
    }

    #[test]
    fn every_part_of_a_pair_distinguishes_it() {
        let of =
            |log: &Identities, resource: &str, domain: &str| log.of_resource(resource).of(domain);
        let one = log(1);
        assert_eq!(of(&one, "ab", "c"), of(&one, "ab", "c"));
        assert_ne!(of(&one, "ab", "c"), of(&one, "a", "bc"));
        assert_ne!(of(&one, "ab", "c"), of(&log(2), "ab", "c"));
    }

    #[test]
    fn mixing_distinguishes_neighbours_and_orders() {
        let mut seen = BTreeSet::new();
        for a in 0..100 {
            for b in 0..100 {
                assert!(seen.insert(mix(mix(0, a), b)), "{a} {b}");
            }
        }
    }
}
