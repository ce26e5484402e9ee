//! A digest of the state that is kept up to date entry by entry.
//!
//! ```text
//! digest = the sum over all entries of (128 bits of hash of the entry's words)
//! ```
//!
//! A sum does not depend on the order of entries, so two aggregators that reached one state in
//! different ways get the same digest, and an operation costs only the hash of the entry that it
//! changes. Knows no state. What stays true: equal states have equal digests under one key of
//! names. The digest shows accidental differences between aggregators; it is no signature.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher128};

/// The sum over all entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum(u128);

/// The content of an entry, as words.
pub(super) type DigestWords = [u64; 5];

/// The kind of an entry; its number is the first byte that is hashed.
#[derive(Clone, Copy, Debug)]
pub(super) enum DigestKind {
    Hold = 1,
    Staged = 2,
    EndedId = 3,
    EpochOver = 4,
    Excess = 5,
}

impl Sum {
    #[inline]
    pub(super) fn add(&mut self, kind: DigestKind, words: DigestWords) {
        self.0 = self.0.wrapping_add(hash(kind, words));
    }

    #[inline]
    pub(super) fn take(&mut self, kind: DigestKind, words: DigestWords) {
        self.0 = self.0.wrapping_sub(hash(kind, words));
    }

    /// The digest of the entries at an instant.
    pub(super) fn at(self, now_us: u64) -> u128 {
        let mut hasher = SipHasher128::new();
        hasher.write(&self.0.to_le_bytes());
        hasher.write_u64(now_us);
        hasher.finish128().as_u128()
    }
}

#[inline]
fn hash(kind: DigestKind, words: DigestWords) -> u128 {
    let mut bytes = [0u8; 48];
    bytes[0] = kind as u8;
    for (to, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let mut hasher = SipHasher128::new();
    hasher.write(&bytes);
    hasher.finish128().as_u128()
}

/// A fingerprint of names in their order.
pub(super) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> u64 {
    let mut hasher = SipHasher13::new();
    for name in names {
        hasher.write(name.as_bytes());
        // No UTF-8 text has this byte, so no two lists of names run together.
        hasher.write(&[0xff]);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_entries_does_not_matter_and_their_content_does() {
        let (mut one, mut other) = (Sum::default(), Sum::default());
        one.add(DigestKind::Hold, [1, 2, 3, 4, 5]);
        one.add(DigestKind::Hold, [1, 2, 3, 4, 6]);
        other.add(DigestKind::Hold, [1, 2, 3, 4, 6]);
        other.add(DigestKind::Hold, [9, 9, 9, 9, 9]);
        other.add(DigestKind::Hold, [1, 2, 3, 4, 5]);
        assert_ne!(one, other);
        other.take(DigestKind::Hold, [9, 9, 9, 9, 9]);
        assert_eq!(one.at(7), other.at(7));
        assert_ne!(one.at(7), one.at(8));
        other.take(DigestKind::Hold, [1, 2, 3, 4, 6]);
        other.add(DigestKind::Staged, [1, 2, 3, 4, 6]);
        assert_ne!(one, other);
        assert_ne!(
            of_names(["a", "b"].into_iter()),
            of_names(["ab"].into_iter())
        );
    }
}
