//! Messages that can evolve: their fields have names, and `rmp-serde` reads and writes them.
//!
//! ```text
//! {"nonce": 7, "agent": "web-1", "secret": (32 bytes), "speaks": 2}     a hello of a later release: `speaks` is skipped
//! [7, "web-1", (32 bytes), nil]                                         a hello from before fields had names
//! ```
//!
//! A field that this build does not know is skipped, and a field that may be missing has a default, so releases of
//! different age can read each other's messages. Three rules keep that true: a field never changes its meaning; a new
//! field may be missing; and it comes after all older ones, because an array is read as the fields in their order.
//!
//! No peer can make a decoder take more memory than in proportion to the message: before anything is decoded,
//! [`Reader::value`] has checked that there is a byte for each element that a head announces, and [`DEPTH_MAX`]
//! bounds the stack. Knows nothing of what fields mean.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::log_lines::excerpt;
use crate::names::NAME_BYTES_MAX;

/// How deeply arrays and maps may be nested, twice as deep as in any message of this build.
const DEPTH_MAX: usize = 16;

/// Reads one value, which errors name `field`.
///
/// # Errors
///
/// Faults of the bytes; [`FieldFault::Form`] for a value that is not a `T`.
pub fn read<'a, T: Deserialize<'a>>(
    reader: &mut Reader<'a>,
    field: &'static str,
) -> Result<T, DecodeError> {
    let before = *reader;
    let bytes = reader.value(field)?;
    let mut decoder = rmp_serde::Deserializer::from_read_ref(bytes);
    decoder.set_max_depth(DEPTH_MAX);
    serde_path_to_error::deserialize(&mut decoder)
        .map_err(|fault| before.error(field, FieldFault::Form(described(&fault))))
}

/// Writes one value with its fields by name.
pub fn write<T: Serialize>(writer: &mut Writer, value: &T) {
    // Writing to memory cannot fail, and every type here can be serialised.
    let _ = value.serialize(&mut rmp_serde::Serializer::new(writer.sink()).with_struct_map());
}

/// Reads a message that is one value after a version byte and its kind.
///
/// # Errors
///
/// [`DecodeError`] for bytes that are not exactly one such message.
pub fn read_message<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    kind: u8,
    field: &'static str,
) -> Result<T, DecodeError> {
    let mut reader = Reader::of_kind(bytes, kind)?;
    let value = read(&mut reader, field)?;
    reader.end()?;
    Ok(value)
}

/// Writes such a message.
pub fn message<T: Serialize>(kind: u8, value: &T) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.begin(kind);
    write(&mut writer, value);
    writer.as_slice().to_vec()
}

/// The place of a fault in a value, and the fault, shortened: a decoder quotes what it found, however long that is.
fn described(fault: &serde_path_to_error::Error<rmp_serde::decode::Error>) -> Box<str> {
    let what = match fault.inner() {
        // `rmp-serde` does not report which type it expected.
        rmp_serde::decode::Error::TypeMismatch(found) => {
            format!("found a value of type {found:?}, expected one of the field's type")
        }
        other => other.to_string(),
    };
    let text = match fault.path().iter().next() {
        Some(_) => format!("{}: {what}", fault.path()),
        None => what,
    };
    excerpt(&text).to_string().into_boxed_str()
}

/// Exactly `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> Serialize for Bytes<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Bytes<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = <&[u8]>::deserialize(deserializer)?;
        let expected = format!("{N} bytes");
        let bytes = found.try_into();
        bytes
            .map(Self)
            .map_err(|_| D::Error::invalid_length(found.len(), &&*expected))
    }
}

/// A number of 128 bits, as 16 bytes in big-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u128);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Bytes(self.0.to_be_bytes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Bytes::deserialize(deserializer).map(|Bytes(bytes)| Self(u128::from_be_bytes(bytes)))
    }
}

/// A name or another text of 1 to [`NAME_BYTES_MAX`] bytes, borrowed from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Name<'a>(pub &'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match <&str>::deserialize(deserializer)? {
            name if (1..=NAME_BYTES_MAX).contains(&name.len()) => Ok(Self(name)),
            other => {
                let expected = format!("a text of 1 to {NAME_BYTES_MAX} bytes");
                Err(D::Error::invalid_length(other.len(), &&*expected))
            }
        }
    }
}

/// Reads a [`Name`] as an owned text. For `deserialize_with`.
pub(super) fn name<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<&'de str>,
{
    Name::deserialize(deserializer).map(|Name(name)| name.into())
}

/// Reads a list of at most `MAX` elements. For `deserialize_with`.
pub(super) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Box<[T]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Elements::<T, MAX>(PhantomData))
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = Box<[T]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let found = elements.size_hint().unwrap_or(usize::MAX);
        if MAX < found {
            return Err(A::Error::invalid_length(found, &self));
        }
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(list.into_boxed_slice())
    }
}

/// Reads a choice among named values; `None` for one that this build does not know. A number is the position of the
/// value, from before values had names.
pub(super) fn choice<'de, D, T>(
    deserializer: D,
    choices: &[(&str, T)],
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Copy,
{
    let found = match Choice::deserialize(deserializer)? {
        Choice::Name(found) => choices.iter().find(|(name, _)| *name == found),
        Choice::Position(position) => choices.get(position),
    };
    Ok(found.map(|(_, value)| *value))
}

/// The name of a value.
pub(super) fn name_of<T: PartialEq>(value: &T, choices: &[(&'static str, T)]) -> &'static str {
    let found = choices.iter().find(|(_, other)| other == value);
    found.map_or("", |(name, _)| name)
}

enum Choice<'a> {
    Name(&'a str),
    Position(usize),
}

impl<'de: 'a, 'a> Deserialize<'de> for Choice<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Choice<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a choice")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Choice::Name(name))
            }

            fn visit_u64<E>(self, position: u64) -> Result<Self::Value, E> {
                Ok(Choice::Position(
                    usize::try_from(position).unwrap_or(usize::MAX),
                ))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads and writes a type by the names in a table of its values. A name that this build does not know is read as the
/// default.
macro_rules! by_name {
    ($type:ty, $choices:expr) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::wire::named::name_of(self, $choices))
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let found = $crate::wire::named::choice(deserializer, $choices)?;
                Ok(found.unwrap_or_default())
            }
        }
    };
}

pub(super) use by_name;

/// Whether a field need not be written. For `skip_serializing_if`.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
