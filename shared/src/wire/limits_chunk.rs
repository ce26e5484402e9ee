//! A chunk of a limits document in the `limits` topic.
//!
//! ```text
//! chunk  9  [push (16 bytes), index, count, expected version, digest (32 bytes), who, why, at (us), bytes]
//! ```
//!
//! A version exists once its last chunk is appended; the offset of that chunk is its number and
//! decides who won where two pushed at once. Chunks of one push carry its random id, so that those of
//! two pushes may stand mixed; a push whose chunks are not all there is void.

use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The number of this kind, behind the version byte.
pub const KIND: u8 = 9;

/// The most bytes of text that one chunk carries: well below what a message may have.
pub const CHUNK_BYTES_MAX: usize = 512 * 1024;

/// The most bytes that a reason may have.
pub const REASON_BYTES_MAX: usize = 1024;

/// One chunk of a pushed document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsChunk<'a> {
    /// Drawn at random for each push.
    pub push: u128,
    /// Which chunk it is, counted from 0.
    pub index: u32,
    /// How many there are; at least 1.
    pub count: u32,
    /// The version that the pusher took to be in force; 0: none.
    pub expected: u64,
    /// BLAKE3 of the whole text.
    pub digest: [u8; 32],
    /// Who pushed.
    pub who: &'a str,
    /// And why.
    pub why: &'a str,
    /// The pusher's clock.
    pub at: Timestamp,
    /// This chunk's part of the text.
    pub bytes: &'a [u8],
}

impl<'a> LimitsChunk<'a> {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_message(message)?;
        let before = reader;
        let found = reader.byte("kind")?;
        if found != KIND {
            return Err(before.error("kind", FieldFault::Kind { found }));
        }
        reader.fixed_array("limits chunk", 9, "9")?;
        let push = u128::from_be_bytes(reader.array_of_bytes("push")?);
        let before = reader;
        let (index, count) = (reader.u32("index")?, reader.u32("count")?);
        if count <= index {
            return Err(before.error(
                "index",
                FieldFault::Range {
                    expected: "less than the count",
                },
            ));
        }
        let chunk = Self {
            push,
            index,
            count,
            expected: reader.u64("expected version")?,
            digest: reader.array_of_bytes("digest")?,
            who: reader.text("who", 0, NAME_BYTES_MAX)?,
            why: reader.text("why", 0, REASON_BYTES_MAX)?,
            at: Timestamp::from_micros(reader.u64("at")?),
            bytes: reader.bytes("bytes", CHUNK_BYTES_MAX)?,
        };
        reader.end()?;
        Ok(chunk)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(KIND);
        writer.array(9);
        writer.bytes(&self.push.to_be_bytes());
        writer.u64(u64::from(self.index));
        writer.u64(u64::from(self.count));
        writer.u64(self.expected);
        writer.bytes(&self.digest);
        writer.text(self.who);
        writer.text(self.why);
        writer.u64(self.at.as_micros());
        writer.bytes(self.bytes);
    }
}
