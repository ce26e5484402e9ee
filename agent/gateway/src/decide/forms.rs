//! Forms that the parts of a question have: whole numbers, however they are written, since some languages have no others
//! than `5.0`; and objects, for which a list of their values does not stand.
//!
//! Knows nothing of what they mean. What stays true: a number that is not whole, negative, or too great is refused, and
//! none is rounded.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

/// Up to here every whole number is a float of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads a number.
pub(super) fn whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_u64(Whole(PhantomData))
}

/// Reads a number, or null.
pub(super) fn whole_or_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    deserializer.deserialize_option(OrNull(PhantomData))
}

/// Reads a list of objects.
pub(super) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let objects = Vec::<JsonObject<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// What is read from an object alone.
pub(super) struct JsonObject<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = JsonObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
    }
}

struct Whole<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Whole<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match size_of::<T>() {
            4 => f.write_str("a whole number below 4294967296"),
            _ => f.write_str("a whole number below 18446744073709551616"),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let unexpected = || E::invalid_value(Unexpected::Unsigned(number), &self);
        T::try_from(number).map_err(|_| unexpected())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        match (0.0..=EXACT_MAX).contains(&number) && number.fract() == 0.0 {
            // Exact, as it is whole and within the bound.
            true => self.visit_u64(number as u64),
            false => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }
}

struct OrNull<T>(PhantomData<T>);

impl<'de, T: TryFrom<u64>> Visitor<'de> for OrNull<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        whole(deserializer).map(Some)
    }
}
