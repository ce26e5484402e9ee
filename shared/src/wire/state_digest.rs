//! State digests: an aggregator's record of the state of a partition, so that others that rule it can
//! compare.
//!
//! ```text
//! state digest 136  [offset, rules, form, digest (16 bytes), group, owner, instance (16 bytes)]  tag
//! ```
//!
//! A state digest is in the partition that it is about, after the record up to which it covers the
//! state. So an aggregator that reads it has ruled that record too, in the same order. The rules ignore
//! it, and a build may skip it. Knows nothing of how a digest is made.

use super::reader::{DecodeError, Reader};
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;

/// One aggregator's digest of the state of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateDigest<'a> {
    /// The offset of the last record that the state includes.
    pub offset: u64,
    /// The rule set that was in force.
    pub rules: u32,
    /// What the digest covers, and how: digests of different forms cannot be compared.
    pub form: u32,
    /// The digest.
    pub digest: u128,
    /// The aggregator's consumer group.
    pub group: &'a str,
    /// The aggregator's name.
    pub aggregator: &'a str,
    /// Drawn at random when the aggregator started, so that it recognises its own state digests.
    pub instance: u128,
}

impl<'a> StateDigest<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("state digest", 7, "7")?;
        Ok(Self {
            offset: reader.u64("offset")?,
            rules: reader.u32("rules")?,
            form: reader.u32("form")?,
            digest: u128::from_be_bytes(reader.array_of_bytes("digest")?),
            group: reader.text("group", 1, NAME_BYTES_MAX)?,
            aggregator: reader.text("owner", 1, NAME_BYTES_MAX)?,
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(7);
        writer.u64(self.offset);
        writer.u64(u64::from(self.rules));
        writer.u64(u64::from(self.form));
        writer.bytes(&self.digest.to_be_bytes());
        writer.text(self.group);
        writer.text(self.aggregator);
        writer.bytes(&self.instance.to_be_bytes());
    }
}
