//! Skips one MessagePack value of any type, and checks that it contains the elements that its heads announce.
//!
//! Knows nothing of what values mean. What stays true: a value that passes has at least a byte for each element of
//! each array and map in it, so that a decoder may trust their lengths; nesting uses no stack.

use rmp::Marker;

use super::reader::{DecodeError, FieldFault, Reader};

impl<'a> Reader<'a> {
    /// One value of any type, not decoded. For each element of its arrays and maps there is at least a byte.
    ///
    /// # Errors
    ///
    /// [`FieldFault::Truncated`]; [`FieldFault::Type`] for MessagePack extensions, which no message contains.
    pub fn value(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let start = *self;
        let mut due: usize = 1;
        while 0 < due {
            let before = *self;
            let (bytes, values) = self.head(field)?;
            self.take(before, field, bytes)?;
            due = (due - 1).saturating_add(values);
            if self.remaining() < due {
                return Err(before.error(field, FieldFault::Truncated));
            }
        }
        Ok(self.since(&start))
    }

    /// Reads the head of a value: how many bytes belong to it, and how many values follow as its elements.
    fn head(&mut self, field: &'static str) -> Result<(usize, usize), DecodeError> {
        let before = *self;
        Ok(match Marker::from_u8(self.byte(field)?) {
            Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
            Marker::Null | Marker::True | Marker::False => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 => (2, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixStr(len) => (usize::from(len), 0),
            Marker::Str8 | Marker::Bin8 => (self.len(field, 1)?, 0),
            Marker::Str16 | Marker::Bin16 => (self.len(field, 2)?, 0),
            Marker::Str32 | Marker::Bin32 => (self.len(field, 4)?, 0),
            Marker::FixArray(len) => (0, usize::from(len)),
            Marker::Array16 => (0, self.len(field, 2)?),
            Marker::Array32 => (0, self.len(field, 4)?),
            Marker::FixMap(len) => (0, 2 * usize::from(len)),
            Marker::Map16 => (0, self.len(field, 2)?.saturating_mul(2)),
            Marker::Map32 => (0, self.len(field, 4)?.saturating_mul(2)),
            _ => {
                let expected = "a value of MessagePack without extensions";
                return Err(before.error(field, FieldFault::Type { expected }));
            }
        })
    }

    /// Reads a length of `bytes` bytes.
    fn len(&mut self, field: &'static str, bytes: usize) -> Result<usize, DecodeError> {
        let found = self.take(*self, field, bytes)?;
        let digits = found.iter().map(|byte| usize::from(*byte));
        Ok(digits.fold(0, |len, byte| len << 8 | byte))
    }
}
