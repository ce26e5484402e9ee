//! A cursor over MessagePack bytes that never allocates and knows its position.
//!
//! Every fault has the byte at which it occurred and the name of the expected field, so that the fault in a refused
//! record can be found in a hex dump. Short values, which are the most frequent, are read here, and all others by
//! the `rmp` crate.

use rmp::decode::{self, Bytes, NumValueReadError, ValueReadError};

use super::{MESSAGE_BYTES_MAX, VERSION};
use crate::names::{EVERYBODY, NAME_BYTES_MAX};

/// Why bytes were refused: which field, where, and what was wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {field}: {fault}")]
pub struct DecodeError {
    /// How many bytes into the message the field begins.
    pub at: usize,
    /// The field that was being read.
    pub field: &'static str,
    /// The fault of the field.
    pub fault: FieldFault,
}

/// A fault of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// The message ends before the field does.
    #[error("cut off")]
    Truncated,
    /// Written by another version.
    #[error("version {found}, expected {VERSION}")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// A kind that is not valid here.
    #[error("unknown kind {found}")]
    Kind {
        /// The kind.
        found: u8,
    },
    /// The whole message is larger than allowed.
    #[error("{bytes} bytes, expected at most {MESSAGE_BYTES_MAX}")]
    Oversized {
        /// Its size.
        bytes: usize,
    },
    /// Another MessagePack type.
    #[error("another type, expected {expected}")]
    Type {
        /// What was expected.
        expected: &'static str,
    },
    /// A number outside its range.
    #[error("outside its range, expected {expected}")]
    Range {
        /// What was expected.
        expected: &'static str,
    },
    /// An array or text of the wrong length.
    #[error("length {found}, expected {expected}")]
    Length {
        /// The length found.
        found: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// The domain that stands for all domains: agents may only record calls of a single one.
    #[error("`*` stands for all domains, expected one domain")]
    Everybody,
    /// A text that is not UTF-8.
    #[error("not UTF-8")]
    Utf8,
    /// A message of named fields in which a field is missing or invalid.
    #[error("{0}")]
    Form(Box<str>),
    /// There are bytes after the end.
    #[error("{bytes} bytes behind the end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// A cursor over the bytes of one message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of a message, after checking its size and its version byte.
    ///
    /// # Errors
    ///
    /// [`FieldFault::Oversized`], [`FieldFault::Truncated`] for no byte at all, [`FieldFault::Version`].
    pub fn of_message(whole: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Self { whole, at: 0 };
        if MESSAGE_BYTES_MAX < whole.len() {
            return Err(reader.error("message", FieldFault::Oversized { bytes: whole.len() }));
        }
        let version = reader.byte("version")?;
        if version != VERSION {
            return Err(DecodeError {
                at: 0,
                field: "version",
                fault: FieldFault::Version { found: version },
            });
        }
        Ok(reader)
    }

    /// A cursor after the head of a message of this kind.
    ///
    /// # Errors
    ///
    /// As [`of_message`](Self::of_message), and [`FieldFault::Kind`].
    pub fn of_kind(whole: &'a [u8], kind: u8) -> Result<Self, DecodeError> {
        let mut reader = Self::of_message(whole)?;
        let before = reader;
        let found = reader.byte("kind")?;
        if found != kind {
            return Err(before.error("kind", FieldFault::Kind { found }));
        }
        Ok(reader)
    }

    /// The same message cut off at `end` bytes, to read the part before a tag.
    pub fn up_to(mut self, end: usize) -> Self {
        self.whole = &self.whole[..end.min(self.whole.len())];
        self
    }

    /// The offset of the cursor.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The bytes between an earlier position in the same message and this one.
    pub(super) fn since(&self, before: &Self) -> &'a [u8] {
        &self.whole[before.at..self.at]
    }

    /// How many bytes are left.
    pub const fn remaining(&self) -> usize {
        self.whole.len() - self.at
    }

    /// An error about the field that begins here.
    pub const fn error(&self, field: &'static str, fault: FieldFault) -> DecodeError {
        DecodeError {
            at: self.at,
            field,
            fault,
        }
    }

    /// One raw byte.
    ///
    /// # Errors
    ///
    /// [`FieldFault::Truncated`].
    pub fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        let byte = *self
            .whole
            .get(self.at)
            .ok_or(self.error(field, FieldFault::Truncated))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads an array's head; `expected` describes the allowed lengths.
    ///
    /// # Errors
    ///
    /// Faults of the head, and [`FieldFault::Length`] for a length that is not allowed.
    pub fn fixed_array(
        &mut self,
        field: &'static str,
        len: u32,
        expected: &'static str,
    ) -> Result<(), DecodeError> {
        let before = *self;
        let found = self.read(field, "an array", decode::read_array_len)?;
        if found != len {
            return Err(before.error(
                field,
                FieldFault::Length {
                    found: u64::from(found),
                    expected,
                },
            ));
        }
        Ok(())
    }

    /// Reads the length of an array of elements of at least one byte each. The length never exceeds the remaining
    /// bytes, so that it can be trusted for an allocation.
    ///
    /// # Errors
    ///
    /// Faults of the head, and [`FieldFault::Truncated`] if the rest cannot contain that many.
    pub fn array(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let before = *self;
        let found = match self.short_len(0x90, 0x0f) {
            Some(len) => len as u32,
            None => self.read(field, "an array", decode::read_array_len)?,
        };
        if self.remaining() < found as usize {
            return Err(before.error(field, FieldFault::Truncated));
        }
        Ok(found)
    }

    /// A whole number.
    ///
    /// # Errors
    ///
    /// Faults of the number; [`FieldFault::Range`] if it is negative or does not fit into 64 bits.
    #[inline]
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        if let Some(value) = self.short() {
            return Ok(u64::from(value));
        }
        self.number(field, "a whole number of at most 64 bits", |bytes| {
            decode::read_int(bytes)
        })
    }

    /// A whole number of 32 bits.
    ///
    /// # Errors
    ///
    /// As [`Reader::u64`].
    #[inline]
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        if let Some(value) = self.short() {
            return Ok(value);
        }
        self.number(field, "a whole number of at most 32 bits", |bytes| {
            decode::read_int(bytes)
        })
    }

    /// A whole number of 8 bits.
    ///
    /// # Errors
    ///
    /// As [`Reader::u64`].
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.number(field, "a whole number of at most 8 bits", |bytes| {
            decode::read_int(bytes)
        })
    }

    /// A signed number.
    ///
    /// # Errors
    ///
    /// As [`Reader::u64`].
    #[inline]
    pub fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        if let Some(value) = self.short() {
            return Ok(i64::from(value));
        }
        self.number(field, "a number of at most 64 bits", |bytes| {
            decode::read_int(bytes)
        })
    }

    /// A boolean.
    ///
    /// # Errors
    ///
    /// Faults of the value.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.read(field, "true or false", decode::read_bool)
    }

    /// A text of `min..=max` bytes, borrowed from the message.
    ///
    /// # Errors
    ///
    /// Faults of the text; [`FieldFault::Length`], [`FieldFault::Utf8`].
    pub fn text(
        &mut self,
        field: &'static str,
        min: usize,
        max: usize,
    ) -> Result<&'a str, DecodeError> {
        let before = *self;
        let len = match self.short_len(0xa0, 0x1f) {
            Some(len) => len,
            None => self.read(field, "a text", decode::read_str_len)? as usize,
        };
        if len < min || max < len {
            return Err(before.error(
                field,
                FieldFault::Length {
                    found: len as u64,
                    expected: "a text within its bounds",
                },
            ));
        }
        let bytes = self.take(before, field, len)?;
        std::str::from_utf8(bytes).map_err(|_| before.error(field, FieldFault::Utf8))
    }

    /// The domain of a call. It is never everybody: agents rename a domain with that name.
    ///
    /// # Errors
    ///
    /// As [`Self::text`]; [`FieldFault::Everybody`].
    pub fn domain(&mut self) -> Result<&'a str, DecodeError> {
        let before = *self;
        match self.text("domain", 1, NAME_BYTES_MAX)? {
            EVERYBODY => Err(before.error("domain", FieldFault::Everybody)),
            domain => Ok(domain),
        }
    }

    /// Raw bytes, at most `max`, borrowed from the message.
    ///
    /// # Errors
    ///
    /// Faults of the field; [`FieldFault::Length`].
    pub fn bytes(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], DecodeError> {
        let before = *self;
        let len = self.read(field, "bytes", decode::read_bin_len)? as usize;
        if max < len {
            return Err(before.error(
                field,
                FieldFault::Length {
                    found: len as u64,
                    expected: "bytes within their bound",
                },
            ));
        }
        self.take(before, field, len)
    }

    /// Exactly `N` raw bytes.
    ///
    /// # Errors
    ///
    /// As [`Reader::bytes`].
    pub fn array_of_bytes<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let before = *self;
        let bytes = self.bytes(field, N)?;
        bytes.try_into().map_err(|_| {
            before.error(
                field,
                FieldFault::Length {
                    found: bytes.len() as u64,
                    expected: "bytes of one fixed length",
                },
            )
        })
    }

    /// Whether the next value is nil; if so, it is consumed.
    pub fn nil(&mut self) -> bool {
        const NIL: u8 = 0xc0;
        let nil = self.whole.get(self.at) == Some(&NIL);
        if nil {
            self.at += 1;
        }
        nil
    }

    /// Checks that the message ends here.
    ///
    /// # Errors
    ///
    /// [`FieldFault::Trailing`].
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            bytes => Err(self.error("end", FieldFault::Trailing { bytes })),
        }
    }

    /// Reads an unsigned number of at most 32 bits in one of the usual encodings. `None`, and nothing is read, for
    /// any other value: then [`Self::number`] reads it.
    #[inline]
    fn short(&mut self) -> Option<u32> {
        let (value, len) = match *self.whole.get(self.at..)? {
            [value @ ..0x80, ..] => (u32::from(value), 1),
            [0xcc, value, ..] => (u32::from(value), 2),
            [0xcd, a, b, ..] => (u32::from(u16::from_be_bytes([a, b])), 3),
            [0xce, a, b, c, d, ..] => (u32::from_be_bytes([a, b, c, d]), 5),
            _ => return None,
        };
        self.at += len;
        Some(value)
    }

    /// The length of an array or a text that is encoded in its type byte: `kind`, and the bits of `mask`.
    #[inline]
    fn short_len(&mut self, kind: u8, mask: u8) -> Option<usize> {
        let head = *self.whole.get(self.at)?;
        if head & !mask != kind {
            return None;
        }
        self.at += 1;
        Some(usize::from(head & mask))
    }

    #[cold]
    fn number<T, E: decode::RmpReadErr>(
        &mut self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&mut Bytes<'a>) -> Result<T, NumValueReadError<E>>,
    ) -> Result<T, DecodeError> {
        let mut bytes = Bytes::new(&self.whole[self.at..]);
        let value = read(&mut bytes).map_err(|error| {
            self.error(
                field,
                match error {
                    NumValueReadError::TypeMismatch(_) => FieldFault::Type { expected },
                    NumValueReadError::OutOfRange => FieldFault::Range { expected },
                    _ => FieldFault::Truncated,
                },
            )
        })?;
        self.at = self.whole.len() - bytes.remaining_slice().len();
        Ok(value)
    }

    fn read<T, E>(
        &mut self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&mut Bytes<'a>) -> Result<T, ValueReadError<E>>,
    ) -> Result<T, DecodeError>
    where
        E: decode::RmpReadErr,
    {
        let mut bytes = Bytes::new(&self.whole[self.at..]);
        let value = read(&mut bytes).map_err(|error| {
            self.error(
                field,
                match error {
                    ValueReadError::TypeMismatch(_) => FieldFault::Type { expected },
                    _ => FieldFault::Truncated,
                },
            )
        })?;
        self.at = self.whole.len() - bytes.remaining_slice().len();
        Ok(value)
    }

    pub(super) fn take(
        &mut self,
        before: Self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let end = self.at.saturating_add(len);
        let bytes = self
            .whole
            .get(self.at..end)
            .ok_or(before.error(field, FieldFault::Truncated))?;
        self.at = end;
        Ok(bytes)
    }
}
