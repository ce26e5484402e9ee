//! Message authentication of records that only aggregators may write: ticks, totals, limits activations.
//!
//! Agents may write to the same topic but do not have the key, so they cannot bring in time, limits or totals.
//! Knows nothing of what a record means. The tag covers the partition as well, so that a record cannot be copied
//! to another partition.

/// Bytes of a tag.
pub const MAC_BYTES: usize = 16;

/// A key under which aggregators sign. For which keys count, and where, see [`crate::keyring`].
#[derive(Clone, PartialEq, Eq)]
pub struct MacKey([u8; 32]);

impl MacKey {
    /// The key of a fleet without keys: tags are checksums, which protect against mistakes, not against
    /// attackers.
    pub const UNPROTECTED: Self = Self([0; 32]);

    /// A signing key of a fleet, derived from the text of a key in its key file.
    pub fn derive(fleet_key: &[u8]) -> Self {
        Self(blake3::derive_key(
            "tollgate 2026-11 aggregator record mac",
            fleet_key,
        ))
    }

    /// The tag of a record's bytes in a partition.
    pub fn tag(&self, partition: u32, record: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&partition.to_le_bytes());
        hasher.update(record);
        let mut tag = [0; MAC_BYTES];
        hasher.finalize_xof().fill(&mut tag);
        tag
    }
}

impl std::fmt::Debug for MacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key in a log file is a leaked key.
        f.write_str("MacKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_binds_key_partition_and_bytes() {
        let key = MacKey::derive(b"fleet");
        let tag = key.tag(3, b"record");
        assert_eq!(tag, key.tag(3, b"record"));
        assert_ne!(tag, key.tag(4, b"record"));
        assert_ne!(tag, key.tag(3, b"recore"));
        assert_ne!(tag, MacKey::UNPROTECTED.tag(3, b"record"));
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", MacKey::derive(b"fleet")), "MacKey(..)");
    }
}
