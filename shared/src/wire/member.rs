//! A statement in the `members` topic: which aggregators there are, what they rule, and where they are found.
//!
//! ```text
//! key     group/name
//! value   1  [instance (16 bytes), group, address for agents, address for HTTP, [partition, ...]]
//! ```
//!
//! The topic is compacted; an empty value takes a member out. Aggregators follow it, and agents that know
//! nothing but Kafka. Knows nothing of who states what, and when.

use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;
use crate::time::Span;

/// After so long without a word, by the topic's own time, a member is passed over: four of its statements.
pub const SILENCE_MAX: Span = Span::from_secs(8);

/// The number of this kind, behind the version byte.
pub const KIND: u8 = 1;

/// One aggregator of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Drawn at random when it started.
    pub instance: u128,
    /// The group that it belongs to.
    pub group: Box<str>,
    /// Its address for agents, as `host:port`.
    pub agents: Box<str>,
    /// Its address for HTTP, as `host:port`.
    pub http: Box<str>,
    /// The partitions that it rules.
    pub partitions: Vec<u32>,
}

impl MemberRecord {
    /// Writes one.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.begin(KIND);
        writer.array(5);
        writer.bytes(&self.instance.to_be_bytes());
        writer.text(&self.group);
        writer.text(&self.agents);
        writer.text(&self.http);
        writer.array(self.partitions.len());
        for partition in &self.partitions {
            writer.u64(u64::from(*partition));
        }
        writer.as_slice().to_vec()
    }

    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(bytes)?;
        let before = reader;
        let found = reader.byte("kind")?;
        if found != KIND {
            return Err(before.error("kind", FieldFault::Kind { found }));
        }
        reader.fixed_array("member", 5, "5")?;
        let mut member = Self {
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            group: reader.text("group", 1, NAME_BYTES_MAX)?.into(),
            agents: reader.text("agents", 1, NAME_BYTES_MAX)?.into(),
            http: reader.text("http", 1, NAME_BYTES_MAX)?.into(),
            partitions: Vec::new(),
        };
        for _ in 0..reader.array("partitions")? {
            member.partitions.push(reader.u32("partition")?);
        }
        reader.end()?;
        Ok(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(instance: u128) -> MemberRecord {
        MemberRecord {
            instance,
            group: "a".into(),
            agents: "h:1".into(),
            http: "h:2".into(),
            partitions: vec![0, 7, 1_023],
        }
    }

    #[test]
    fn golden_bytes_are_read_and_written_for_ever() {
        let hex: String = member(5)
            .encode()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(
            hex,
            "010195c41000000000000000000000000000000005a161a3683a31a3683a32930007cd03ff"
        );
    }

    #[test]
    fn a_member_is_read_as_it_was_written_and_nothing_else_is_one() {
        let whole = member(u128::MAX).encode();
        assert_eq!(MemberRecord::decode(&whole), Ok(member(u128::MAX)));
        for len in 0..whole.len() {
            assert!(MemberRecord::decode(&whole[..len]).is_err(), "{len}");
        }
    }
}
