//! A digest, in eight bytes, of the holds of an agent, and the ids of transfers.
//!
//! Agent and aggregator compute the same digest: an agent's heartbeat lists all holds now and then, and has this
//! digest in between. It is a sum, so that taking, changing or releasing a hold costs one mix, and the order does not
//! matter. It detects differences from lost messages, not forged ones; what an agent reports about itself is believed
//! anyway. Knows nothing of resources: there is one digest for each. What stays true: equal holds give equal digests.

use std::fmt;
use std::str::FromStr;

/// A digest of holds: their numbers and their copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings(u64);

impl Holdings {
    /// The digest for a number that was received.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number to send.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The digest with one more hold.
    #[must_use]
    pub const fn with(self, number: u64, copies: u32) -> Self {
        Self(self.0.wrapping_add(mark(number, copies)))
    }

    /// The digest without a hold, which must have been added with the same copies.
    #[must_use]
    pub const fn without(self, number: u64, copies: u32) -> Self {
        Self(self.0.wrapping_sub(mark(number, copies)))
    }
}

/// Two rounds of splitmix64's finaliser: one hold's part of the sum.
const fn mark(number: u64, copies: u32) -> u64 {
    mix(mix(number).wrapping_add(copies as u64))
}

const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Id of staged copies, which any agent that knows it may seize. The agent that stages them draws it at random.
///
/// Written and read as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u128);

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What is wrong with the text of a [`TransferId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of a transfer, expected 32 hexadecimal digits")]
pub struct TransferIdFault;

impl FromStr for TransferId {
    type Err = TransferIdFault;

    fn from_str(text: &str) -> Result<Self, TransferIdFault> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(TransferIdFault);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| TransferIdFault)?;
        Ok(Self(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_transfer_survives_being_written_down() {
        for id in [0, 1, 0xab << 100, u128::MAX].map(TransferId) {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for wrong in [
            "",
            "1",
            "+0000000000000000000000000000001",
            "g0000000000000000000000000000001",
        ] {
            assert_eq!(wrong.parse::<TransferId>(), Err(TransferIdFault), "{wrong}");
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_changes() {
        let one = Holdings::default().with(1, 5).with(2, 3);
        let other = Holdings::default().with(2, 3).with(9, 1).with(1, 5);
        assert_eq!(one, other.without(9, 1));
        assert_eq!(Holdings::from_bits(one.bits()), one);
    }

    #[test]
    fn numbers_and_copies_distinguish_holds() {
        let held = |number, copies| Holdings::default().with(number, copies);
        assert_ne!(held(1, 2), held(2, 1));
        assert_ne!(held(1, 2).with(1, 2), held(1, 4));
        assert_ne!(held(0, 1), Holdings::default());
    }

    #[test]
    fn the_digest_is_the_same_in_every_release() {
        // Agents and aggregators of different releases compare it.
        assert_eq!(Holdings::default().with(1, 1).bits(), 0x86d6_fd95_3217_ae03);
    }
}
