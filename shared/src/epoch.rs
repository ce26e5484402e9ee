//! The epoch of an agent's process, and the secret that proves which process it belongs to.
//!
//! ```text
//! secret   32 bytes, drawn at random when the process starts; shown in the hello of its links
//! epoch    the first 16 bytes of BLAKE3(secret); in every batch, and in frames that every agent can read
//! ```
//!
//! From a secret an aggregator knows, without any state, for which epoch the connection may send. The
//! epoch alone does not entitle to send for it. What stays true: a secret is not printed.

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// The proof that a process may send for its epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EpochSecret([u8; SECRET_BYTES]);

impl EpochSecret {
    /// The secret of these bytes.
    pub const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes, to show to an aggregator or to keep for a successor.
    pub const fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// The epoch that it proves.
    pub fn epoch(&self) -> u128 {
        let mut epoch = [0; 16];
        blake3::Hasher::new()
            .update(&self.0)
            .finalize_xof()
            .fill(&mut epoch);
        u128::from_be_bytes(epoch)
    }
}

impl std::fmt::Debug for EpochSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A secret in a log file is a leaked secret; the epoch is public.
        write!(f, "EpochSecret(of {:032x})", self.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_the_hash_of_its_secret() {
        // `printf '' | b3sum` of 32 zero bytes, its first half.
        let secret = EpochSecret::new([0; SECRET_BYTES]);
        assert_eq!(secret.epoch(), 0x2ada_83c1_819a_5372_dae1_238f_c1de_d123);
        assert_ne!(EpochSecret::new([1; SECRET_BYTES]).epoch(), secret.epoch());
    }

    #[test]
    fn a_secret_is_not_printed() {
        let text = format!("{:?}", EpochSecret::new([0xab; SECRET_BYTES]));
        assert!(!text.contains("abab"), "{text}");
    }
}
