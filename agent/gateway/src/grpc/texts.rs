//! Rate limit requests whose texts may be any bytes: Envoy takes them from headers, which clients write.
//!
//! ```text
//! [tenant: acme, request: FF FE]      invalid in protobuf, whose texts are UTF-8
//! [tenant: acme, request: "\u{FFFD}\u{FFFD}"]      the text that is read instead
//! ```
//!
//! An error would let the request through, so any client could escape its limit by such a byte in a header. Texts
//! that differ only in such bytes become equal, so that no client gets a limit of its own by them. Knows nothing of
//! limits. What stays true: a valid message is read as it is; a message that is invalid for another reason stays an
//! error.

use std::borrow::Cow;

use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use hyper::body::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;
use tonic_prost::prost::Message as _;

/// Decodes requests, and encodes answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RlsCodec;

impl Codec for RlsCodec {
    type Encode = RateLimitResponse;
    type Decode = RateLimitRequest;
    type Encoder = ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for RlsCodec {
    type Item = RateLimitRequest;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<RateLimitRequest>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        let read = RateLimitRequest::decode(bytes.clone()).or_else(|error| {
            let mended = mended(&bytes, Part::Request).ok_or(error)?;
            RateLimitRequest::decode(&*mended)
        });
        let fault = |error| Status::internal(format!("failed to decode a request: {error}"));
        read.map(Some).map_err(fault)
    }
}

/// A part of a request that contains texts.
#[derive(Clone, Copy, Debug)]
enum Part {
    Request,
    Descriptor,
    Entry,
    Text,
}

impl Part {
    /// The kind of the field with this number, if it contains texts.
    const fn field(self, number: u64) -> Option<Self> {
        match (self, number) {
            (Self::Request, 1) | (Self::Entry, 1 | 2) => Some(Self::Text),
            (Self::Request, 2) => Some(Self::Descriptor),
            (Self::Descriptor, 1) => Some(Self::Entry),
            _ => None,
        }
    }
}

/// The same part with texts that are UTF-8. `None` if it is invalid.
fn mended(part: &[u8], kind: Part) -> Option<Cow<'_, [u8]>> {
    if let Part::Text = kind {
        return Some(match String::from_utf8_lossy(part) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        });
    }
    let (mut rest, mut written) = (part, Vec::with_capacity(part.len()));
    while !rest.is_empty() {
        let before = rest;
        let tag = varint(&mut rest)?;
        let len = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let head = before.get(..before.len() - rest.len())?;
        let (value, behind) = rest.split_at_checked(len)?;
        rest = behind;
        match kind.field(tag >> 3).filter(|_| tag & 7 == 2) {
            Some(inner) => {
                let value = mended(value, inner)?;
                write_varint(&mut written, tag);
                write_varint(&mut written, value.len() as u64);
                written.extend_from_slice(&value);
            }
            None => {
                written.extend_from_slice(head);
                written.extend_from_slice(value);
            }
        }
    }
    Some(Cow::Owned(written))
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for at in 0..10 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7F).checked_shl(7 * at)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn write_varint(into: &mut Vec<u8>, mut number: u64) {
    while 0x80 <= number {
        // Seven bits of it, and a bit for "more follow".
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes in it.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        write_varint(&mut bytes, value.len() as u64);
        [&bytes, value].concat()
    }

    /// A request with one entry, with this value and further fields.
    fn request(value: &[u8]) -> Vec<u8> {
        let entry = [field(1, b"request"), field(2, value)].concat();
        // A hits_addend of the descriptor, and negative.
        let more = [&field(3, &[8, 7])[..], &[4 << 3, 1]].concat();
        let descriptor = [field(1, &entry), more].concat();
        [
            &field(1, b"edge")[..],
            &field(2, &descriptor),
            &[3 << 3, 0x80, 1],
        ]
        .concat()
    }

    fn read(bytes: &[u8]) -> Option<RateLimitRequest> {
        RateLimitRequest::decode(&*mended(bytes, Part::Request)?).ok()
    }

    #[test]
    fn texts_may_be_any_bytes_and_other_fields_are_kept() {
        let long = "x".repeat(300);
        for (value, expected) in [
            (&b"\xff\xfe"[..], "\u{FFFD}\u{FFFD}"),
            (b"a\xffb", "a\u{FFFD}b"),
            ("é".as_bytes(), "é"),
            (b"", ""),
            (long.as_bytes(), &long),
        ] {
            let bytes = request(value);
            let read = read(&bytes).expect("a message");
            let descriptor = &read.descriptors[0];
            assert_eq!(descriptor.entries[0].value, expected);
            assert_eq!(descriptor.hits_addend.as_ref().map(|of| of.value), Some(7));
            assert!(descriptor.is_negative_hits);
            assert_eq!((&*read.domain, read.hits_addend), ("edge", 128));
            let is_right = std::str::from_utf8(value).is_ok();
            assert_eq!(RateLimitRequest::decode(&*bytes).is_ok(), is_right);
        }
    }

    #[test]
    fn invalid_messages_are_refused_whatever_their_texts() {
        let right = request(b"\xff");
        for cut in 1..right.len() {
            // If the cut is at the end of a field, the rest is a valid message.
            let _ = read(&right[..cut]);
        }
        for bytes in [&b"\xff\xff\xff"[..], b"\x0b", &[0x0A, 0x7F, 1], &[0x80; 11]] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
