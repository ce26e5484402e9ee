//! A limits document in the `limits` topic.
//!
//! ```text
//! limits  9  [push (16 bytes), expected version, who, why, at (us), text]
//! ```
//!
//! Earlier builds wrote `[push, 0, 1, expected version, digest, who, why, at, text as bytes]`, which can be read as
//! well; they wrote longer documents in several records, which cannot.
//!
//! The record's offset is the version's number. Of two documents that expect the same version, the first one in the
//! log becomes the next version, and the other one is void. Knows nothing of the content of the text.

use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The number of this kind, after the version byte.
pub const KIND: u8 = 9;

/// The most bytes of a document: it fits into one record, and reading it takes as long as some thousand rows do. Many
/// domains' own limits are in rows beside it.
pub const DOCUMENT_BYTES_MAX: usize = 512 * 1024;

/// The most bytes that a reason may have.
pub const REASON_BYTES_MAX: usize = 1024;

/// Number of elements of a record, and of one of an earlier build.
const ELEMENTS: u32 = 6;
const EARLIER_ELEMENTS: u32 = 9;

/// A pushed document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsDocument<'a> {
    /// Drawn at random for each push.
    pub push: u128,
    /// The version that the pusher expected to be in force; 0: none.
    pub expected: u64,
    /// Name of the pusher.
    pub who: &'a str,
    /// The pusher's reason.
    pub why: &'a str,
    /// The pusher's clock.
    pub at: Timestamp,
    /// The document.
    pub text: &'a str,
}

impl<'a> LimitsDocument<'a> {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one document.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_kind(message, KIND)?;
        let before = reader;
        let elements = reader.array("limits document")?;
        let is_earlier = elements == EARLIER_ELEMENTS;
        if elements != ELEMENTS && !is_earlier {
            let (found, expected) = (u64::from(elements), "6");
            return Err(before.error("limits document", FieldFault::Length { found, expected }));
        }
        let push = u128::from_be_bytes(reader.array_of_bytes("push")?);
        if is_earlier {
            let before = reader;
            if (reader.u32("index")?, reader.u32("count")?) != (0, 1) {
                let expected = "0 of 1: a document is one record";
                return Err(before.error("index", FieldFault::Range { expected }));
            }
        }
        let expected = reader.u64("expected version")?;
        if is_earlier {
            let _digest: [u8; 32] = reader.array_of_bytes("digest")?;
        }
        let document = Self {
            push,
            expected,
            who: reader.text("who", 0, NAME_BYTES_MAX)?,
            why: reader.text("why", 0, REASON_BYTES_MAX)?,
            at: Timestamp::from_micros(reader.u64("at")?),
            text: text_of(&mut reader, is_earlier)?,
        };
        reader.end()?;
        Ok(document)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(KIND);
        writer.array(ELEMENTS as usize);
        writer.bytes(&self.push.to_be_bytes());
        writer.u64(self.expected);
        writer.text(self.who);
        writer.text(self.why);
        writer.u64(self.at.as_micros());
        writer.text(self.text);
    }
}

fn text_of<'a>(reader: &mut Reader<'a>, is_earlier: bool) -> Result<&'a str, DecodeError> {
    if !is_earlier {
        return reader.text("text", 0, DOCUMENT_BYTES_MAX);
    }
    let before = *reader;
    let bytes = reader.bytes("text", DOCUMENT_BYTES_MAX)?;
    std::str::from_utf8(bytes).map_err(|_| before.error("text", FieldFault::Utf8))
}
