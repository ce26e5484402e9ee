//! Feed frames: messages of a publisher to the subscribers of one topic.
//!
//! ```text
//! message  topic (33 bytes), frame
//! topic    'r' resource | 'n' its notices | 'c' control | 'a' agent, then a keyed 128-bit hash of the name in hexadecimal
//! frame    [version][seal 0][ [instance (16 bytes), sequence, sent (us), resource,
//!                              [watermark, ...], [[partition, remaining (us), statement], ...]] ]
//! watermark [partition, generation, random, ruled up to, appended (us), current]
//! ```
//!
//! `sent` is on the publisher's own monotonic clock, counted from its start: only differences of it mean anything. A
//! seal of 1 is reserved for frames encrypted under a key; today TLS on the connection protects frames from others. A
//! frame without statements is a heartbeat; it takes a sequence number like any other, so that a loss before it is
//! detected.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher as _;

use super::reader::{DecodeError, FieldFault, Reader};
use super::record::{read_log_id, write_log_id};
use super::statement::Statement;
use super::writer::Writer;
use crate::log_position::LogId;
use crate::names::NAME_BYTES_MAX;
use crate::time::{Span, Timestamp};

/// Bytes of a topic. Text, because subscriptions are text for the `zeromq` crate.
pub const TOPIC_BYTES: usize = 33;

/// The seal byte of a frame that is not encrypted.
pub const PLAIN: u8 = 0;

/// A topic to which subscribers subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic([u8; TOPIC_BYTES]);

impl Topic {
    /// Topic for every agent: heartbeats with watermarks, bans of whole domains.
    pub const CONTROL: Self = {
        let mut bytes = [b'0'; TOPIC_BYTES];
        bytes[0] = b'c';
        Self(bytes)
    };

    /// Topic for one resource.
    pub fn of_resource(key: &[u8; 16], resource: &str) -> Self {
        Self::hashed(b'r', key, resource)
    }

    /// Topic for what pairs of one resource have left: see [`super::notice`].
    pub fn of_notices(key: &[u8; 16], resource: &str) -> Self {
        Self::of_resource(key, resource).notices()
    }

    /// The topic of notices for a resource's topic.
    #[must_use]
    pub const fn notices(mut self) -> Self {
        self.0[0] = b'n';
        self
    }

    /// Whether it is a topic of notices.
    pub const fn is_of_notices(&self) -> bool {
        self.0[0] == b'n'
    }

    /// Topic for one agent: verdicts on its holds.
    pub fn of_agent(key: &[u8; 16], agent: &str) -> Self {
        Self::hashed(b'a', key, agent)
    }

    /// The text to subscribe to.
    pub fn as_str(&self) -> &str {
        // Every constructor accepts only ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The same as bytes.
    pub const fn as_bytes(&self) -> &[u8; TOPIC_BYTES] {
        &self.0
    }

    /// The topic as text, for libraries that can subscribe only to text.
    pub fn as_text(&self) -> &str {
        // Seven-bit bytes are UTF-8; bytes from elsewhere may be invalid, and then name no topic.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The topic with these bytes, if they are valid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes
            .try_into()
            .ok()
            .filter(|bytes: &[u8; TOPIC_BYTES]| bytes.is_ascii())
            .map(Self)
    }

    fn hashed(kind: u8, key: &[u8; 16], name: &str) -> Self {
        let mut hasher = SipHasher13::new_with_key(key);
        hasher.write(name.as_bytes());
        let hash = hasher.finish128().as_u128();
        let mut bytes = [kind; TOPIC_BYTES];
        for (index, digit) in bytes[1..].iter_mut().enumerate() {
            let nibble = (hash >> (4 * (TOPIC_BYTES - 2 - index))) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        Self(bytes)
    }
}

/// How far a partition has been ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The partition.
    pub partition: u32,
    /// Its log.
    pub log: LogId,
    /// All records below this offset have been ruled.
    pub ruled: u64,
    /// The append time of the last of them.
    pub appended: Timestamp,
    /// Whether the ruling aggregator ruled the last of them within a second of its append. If not, it is catching up,
    /// and its statements may be old.
    pub current: bool,
}

/// A statement on its way to agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementNotice {
    /// The partition to which the statement's log position belongs.
    pub partition: u32,
    /// How long a denial still lasts, as the ruling aggregator computed it at `sent`; [`Span::MAX`]: for ever.
    pub remaining: Span,
    /// The statement.
    pub statement: Statement,
}

/// One frame of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Drawn at random when the publisher started.
    pub instance: u128,
    /// Counted by topic, without gaps.
    pub sequence: u64,
    /// The publisher's monotonic clock when the frame was sent.
    pub sent: Span,
    /// The resource, if the topic is that of a resource; otherwise empty.
    pub resource: Box<str>,
    /// Watermarks of partitions.
    pub watermarks: Vec<Watermark>,
    /// The statements.
    pub statements: Vec<StatementNotice>,
}

impl Frame {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = begin_frame(bytes, "frame", (6, "6"))?;
        let frame = Self {
            instance: u128::from_be_bytes(reader.array_of_bytes("instance")?),
            sequence: reader.u64("sequence")?,
            sent: Span::from_micros(reader.u64("sent")?),
            resource: reader.text("resource", 0, NAME_BYTES_MAX)?.into(),
            watermarks: read_list(&mut reader, "watermarks", Watermark::read)?,
            statements: read_list(&mut reader, "statements", StatementNotice::read)?,
        };
        reader.end()?;
        Ok(frame)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(PLAIN);
        writer.array(6);
        writer.bytes(&self.instance.to_be_bytes());
        writer.u64(self.sequence);
        writer.u64(self.sent.as_micros());
        writer.text(&self.resource);
        writer.array(self.watermarks.len());
        for watermark in &self.watermarks {
            watermark.write(writer);
        }
        writer.array(self.statements.len());
        for statement in &self.statements {
            statement.write(writer);
        }
    }
}

/// Begins to read a frame of any kind: its seal, and the head of `fields` fields.
pub(super) fn begin_frame<'a>(
    bytes: &'a [u8],
    what: &'static str,
    (fields, expected): (u32, &'static str),
) -> Result<Reader<'a>, DecodeError> {
    let mut reader = Reader::of_message(bytes)?;
    let before = reader;
    let found = reader.byte("seal")?;
    if found != PLAIN {
        return Err(before.error("seal", FieldFault::Kind { found }));
    }
    reader.fixed_array(what, fields, expected)?;
    Ok(reader)
}

/// Reads an array. Memory grows with the elements read, not with the announced number.
pub(super) fn read_list<'a, T>(
    reader: &mut Reader<'a>,
    field: &'static str,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let len = reader.array(field)?;
    let mut list = Vec::new();
    for _ in 0..len {
        list.push(read(reader)?);
    }
    Ok(list)
}

impl Watermark {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("watermark", 6, "6")?;
        Ok(Self {
            partition: reader.u32("partition")?,
            log: read_log_id(reader)?,
            ruled: reader.u64("ruled up to")?,
            appended: Timestamp::from_micros(reader.u64("appended")?),
            current: reader.bool("current")?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(6);
        writer.u64(u64::from(self.partition));
        write_log_id(writer, self.log);
        writer.u64(self.ruled);
        writer.u64(self.appended.as_micros());
        writer.bool(self.current);
    }
}

impl StatementNotice {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("statement notice", 3, "3")?;
        Ok(Self {
            partition: reader.u32("partition")?,
            remaining: Span::from_micros(reader.u64("remaining")?),
            statement: Statement::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(3);
        writer.u64(u64::from(self.partition));
        writer.u64(self.remaining.as_micros());
        self.statement.write(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_text_and_distinguishes_names_kinds_and_keys() {
        let topics = [
            Topic::CONTROL,
            Topic::of_resource(&[0; 16], "api.search"),
            Topic::of_resource(&[0; 16], "api.export"),
            Topic::of_resource(&[1; 16], "api.search"),
            Topic::of_notices(&[0; 16], "api.search"),
            Topic::of_agent(&[0; 16], "api.search"),
        ];
        let different: std::collections::BTreeSet<&str> =
            topics.iter().map(Topic::as_str).collect();
        assert_eq!(different.len(), topics.len());
        for topic in topics {
            assert_eq!(topic.as_str().len(), TOPIC_BYTES);
            assert_eq!(Topic::from_bytes(topic.as_bytes()), Some(topic));
        }
        assert_eq!(Topic::from_bytes(&[0xff; TOPIC_BYTES]), None);
        assert_eq!(Topic::from_bytes(b"c"), None);
    }
}
