//! The bytes of a segment file: its header, and one frame per record.
//!
//! ```text
//! segment header, 32 bytes, integers little-endian
//!   0  magic                8   "TGSEG01\n"
//!   8  base offset      u64     offset of the first record
//!  16  time floor       u64     append time of the record before it, ms since the epoch; 0 for none
//!  24  tag              u32     stream << 24 | partition   (0 hits, 1 limits, 2 denials)
//!  28  crc32            u32     of bytes 0..28
//!
//! record frame, 20 bytes and the payload
//!   0  length           u32     of the payload, in bytes
//!   4  append time      u64     ms since the epoch
//!  12  header crc32     u32     of the tag (u32), the record's offset (u64) and bytes 0..12
//!  16  payload crc32    u32
//!  20  payload
//! ```
//!
//! The header has a checksum of its own to tell a damaged length from a torn end: a frame is torn
//! only if its header is sound and it reaches beyond the end of the file. The header checksum also
//! covers tag and offset, so that a frame is never taken for another record. Knows nothing of
//! files.

use std::ops::Range;

use super::super::Stream;

/// The length of a segment's header, in bytes.
pub const SEGMENT_HEADER_BYTES: usize = 32;

/// The length of a record's header, in bytes.
pub const RECORD_HEADER_BYTES: usize = 20;

const MAGIC: &[u8; 8] = b"TGSEG01\n";

/// Identifies a stream and partition within a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u32);

impl Tag {
    /// The tag of a partition.
    pub fn of(stream: Stream, partition: u32) -> Self {
        let code: u32 = match stream {
            Stream::Hits => 0,
            Stream::Limits => 1,
            Stream::Denials => 2,
        };
        Self(code << 24 | partition & 0x00ff_ffff)
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The stream and partition of the records.
    pub tag: Tag,
    /// The offset of the first record.
    pub base: u64,
    /// The append time of the record before it, in milliseconds since the epoch.
    pub floor_ms: u64,
}

impl SegmentHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.base.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.floor_ms.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.tag.0.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err("the segment's header is cut short");
        }
        if &bytes[..8] != MAGIC {
            return Err("no segment begins here");
        }
        if crc32fast::hash(&bytes[..28]) != u32_at(bytes, 28) {
            return Err("the segment's header does not match its sum");
        }
        Ok(Self {
            tag: Tag(u32_at(bytes, 24)),
            base: u64_at(bytes, 8),
            floor_ms: u64_at(bytes, 16),
        })
    }
}

/// Appends a record's frame to `into`.
pub fn encode(into: &mut Vec<u8>, tag: Tag, offset: u64, append_ms: u64, payload: &[u8]) {
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..12].copy_from_slice(&append_ms.to_le_bytes());
    let sum = header_sum(tag, offset, &header[..12]);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    header[16..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    into.extend_from_slice(&header);
    into.extend_from_slice(payload);
}

/// What some bytes begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole, sound frame.
    Frame {
        /// When it was appended, in milliseconds since the epoch.
        append_ms: u64,
        /// The payload's range within the bytes.
        payload: Range<usize>,
    },
    /// The bytes end before the frame does.
    Short {
        /// How many bytes are needed to decide.
        needed: usize,
    },
    /// The bytes do not begin with a sound frame of this record.
    Bad(&'static str),
}

/// Parses the frame of the record at `offset`. With `skim`, only the header is checked; the payload
/// is neither needed nor read.
pub fn parse(bytes: &[u8], tag: Tag, offset: u64, skim: bool) -> Parsed {
    let Some(header) = bytes.get(..RECORD_HEADER_BYTES) else {
        return Parsed::Short {
            needed: RECORD_HEADER_BYTES,
        };
    };
    if header_sum(tag, offset, &header[..12]) != u32_at(header, 12) {
        return Parsed::Bad("the record's header does not match its sum");
    }
    let end = RECORD_HEADER_BYTES + u32_at(header, 0) as usize;
    let payload = RECORD_HEADER_BYTES..end;
    if !skim {
        let Some(content) = bytes.get(payload.clone()) else {
            return Parsed::Short { needed: end };
        };
        if crc32fast::hash(content) != u32_at(header, 16) {
            return Parsed::Bad("the record's payload does not match its sum");
        }
    }
    Parsed::Frame {
        append_ms: u64_at(header, 4),
        payload,
    }
}

fn header_sum(tag: Tag, offset: u64, header: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&tag.0.to_le_bytes());
    sum.update(&offset.to_le_bytes());
    sum.update(header);
    sum.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_version_1() {
        let tag = Tag::of(Stream::Denials, 3);
        let header = SegmentHeader {
            tag,
            base: 18_250,
            floor_ms: 1_700_000_000_000,
        };
        let mut bytes = header.encode().to_vec();
        encode(&mut bytes, tag, 18_250, 1_700_000_000_001, b"hit");
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // The expected checksums come from another implementation of CRC-32 (IEEE), zlib's.
        let expected = "54 47 53 45 47 30 31 0a 4a 47 00 00 00 00 00 00 00 68 e5 cf 8b 01 00 00 \
                        03 00 00 02 0e dd f4 77 \
                        03 00 00 00 01 68 e5 cf 8b 01 00 00 e4 7b fb 6f 41 26 d2 5a 68 69 74";
        assert_eq!(hex.join(" "), expected);
        let read = SegmentHeader::decode(&bytes).expect("sound");
        assert_eq!(read, header);
        let frame = Parsed::Frame {
            append_ms: 1_700_000_000_001,
            payload: 20..23,
        };
        assert_eq!(parse(&bytes[32..], tag, 18_250, false), frame);
    }

    #[test]
    fn a_frame_never_passes_for_another_record() {
        let tag = Tag::of(Stream::Hits, 3);
        let mut bytes = Vec::new();
        encode(&mut bytes, tag, 7, 1, b"hit");
        let elsewhere = [
            (Tag::of(Stream::Hits, 2), 7),
            (Tag::of(Stream::Denials, 3), 7),
            (tag, 8),
        ];
        for (tag, offset) in elsewhere {
            assert!(matches!(parse(&bytes, tag, offset, true), Parsed::Bad(_)));
        }
    }
}
