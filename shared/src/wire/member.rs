//! A record in the `members` topic: the aggregators of a fleet, the partitions that they rule, and their addresses.
//!
//! ```text
//! key     group/name
//! value   1  {instance (16 bytes), group, agents: address, http: address, partitions: [partition, ...]}
//! ```
//!
//! The topic is compacted; an empty value removes a member. Aggregators read it, and so do agents that know only
//! Kafka. Members of a later release may have more fields ([`named`]). Knows nothing of who writes when.

use serde::{Deserialize, Serialize};

use super::named::{self, Id, Name};
use super::reader::DecodeError;
use crate::time::Span;

/// A member without a statement for so long, by the topic's own time, is ignored: the time of four statements.
pub const SILENCE_MAX: Span = Span::from_secs(8);

/// The number of this kind, after the version byte.
pub const KIND: u8 = 1;

/// One aggregator of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Drawn at random when it started.
    pub instance: u128,
    /// Its consumer group.
    pub group: Box<str>,
    /// Its address for agents, as `host:port`.
    pub agents: Box<str>,
    /// Its address for HTTP, as `host:port`.
    pub http: Box<str>,
    /// The partitions that it rules.
    pub partitions: Vec<u32>,
}

/// The fields of a member, in their written form.
#[derive(Serialize, Deserialize)]
#[serde(expecting = "a member")]
struct MemberFields<'a> {
    instance: Id,
    #[serde(borrow)]
    group: Name<'a>,
    agents: Name<'a>,
    http: Name<'a>,
    #[serde(default)]
    partitions: Vec<u32>,
}

impl MemberRecord {
    /// Writes one.
    pub fn encode(&self) -> Vec<u8> {
        let fields = MemberFields {
            instance: Id(self.instance),
            group: Name(&self.group),
            agents: Name(&self.agents),
            http: Name(&self.http),
            partitions: self.partitions.clone(),
        };
        named::message(KIND, &fields)
    }

    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one member.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let fields: MemberFields<'_> = named::read_message(bytes, KIND, "member")?;
        Ok(Self {
            instance: fields.instance.0,
            group: fields.group.0.into(),
            agents: fields.agents.0.into(),
            http: fields.http.0.into(),
            partitions: fields.partitions,
        })
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

    fn bytes(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn golden_bytes_are_read_and_written_for_ever() {
        let names = bytes(
            "010185a8696e7374616e6365c41000000000000000000000000000000005a567726f7570a161a66167656e7473a3683a31a468747470a3683a32aa706172746974696f6e73930007cd03ff",
        );
        assert_eq!(member(5).encode(), names);
        // From before fields had names.
        let array = "010195c41000000000000000000000000000000005a161a3683a31a3683a32930007cd03ff";
        for bytes in [names, bytes(array)] {
            assert_eq!(MemberRecord::decode(&bytes), Ok(member(5)));
        }
    }

    #[test]
    fn a_member_of_a_later_release_is_read() {
        #[derive(Serialize)]
        struct Later {
            zones: [&'static str; 2],
            instance: Id,
            group: &'static str,
            agents: &'static str,
            http: &'static str,
        }
        let later = named::message(
            KIND,
            &Later {
                zones: ["eu", "us"],
                instance: Id(5),
                group: "a",
                agents: "h:1",
                http: "h:2",
            },
        );
        let expected = MemberRecord {
            partitions: Vec::new(),
            ..member(5)
        };
        assert_eq!(MemberRecord::decode(&later), Ok(expected));
    }

    #[test]
    fn a_member_reads_back_equal_and_other_bytes_are_refused() {
        let whole = member(u128::MAX).encode();
        assert_eq!(MemberRecord::decode(&whole), Ok(member(u128::MAX)));
        for len in 0..whole.len() {
            assert!(MemberRecord::decode(&whole[..len]).is_err(), "{len}");
        }
    }
}
