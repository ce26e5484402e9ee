//! Testimonies: what an owner says the state of a partition was, so that other owners of it can compare.
//!
//! ```text
//! testimony  136  [offset, rules, form, digest (16 bytes), group, owner, instance (16 bytes)]  tag
//! ```
//!
//! They stand in the partition that they are about, behind the record that they speak of: so whoever
//! reads them has ruled that record too, in the same order. They are no input of the rules, and may be
//! skipped. Knows nothing of how a digest is made.

use super::reader::{DecodeError, Reader};
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;

/// What one owner says of the state that a partition had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateDigest<'a> {
    /// The state is that behind the record at this offset.
    pub offset: u64,
    /// The rule set that was in force.
    pub rules: u32,
    /// What the digest covers, and how: digests of different forms say nothing about each other.
    pub form: u32,
    /// The digest.
    pub digest: u128,
    /// The owner's consumer group.
    pub group: &'a str,
    /// The owner's name.
    pub owner: &'a str,
    /// Drawn at random when the owner started, so that it knows its own testimonies again.
    pub instance: u128,
}

impl<'a> StateDigest<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("testimony", 7, "7")?;
        Ok(Self {
            offset: reader.u64("offset")?,
            rules: reader.u32("rules")?,
            form: reader.u32("form")?,
            digest: u128::from_be_bytes(reader.array_of_bytes("digest")?),
            group: reader.text("group", 1, NAME_BYTES_MAX)?,
            owner: reader.text("owner", 1, NAME_BYTES_MAX)?,
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
        writer.text(self.owner);
        writer.bytes(&self.instance.to_be_bytes());
    }
}
