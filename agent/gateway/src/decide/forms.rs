//! Forms of a question's values: whole numbers, in any notation, since some languages only write `5.0`; and objects,
//! which may not be given as a list of their values.
//!
//! Knows nothing of their meaning. What stays true: a number that is not whole, negative, or too great is refused,
//! and none is rounded.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Number;

/// Up to this number every whole number is an exact float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads a number.
pub(super) fn whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    of_number(&Number::deserialize(deserializer)?)
}

/// Reads a number, or null.
pub(super) fn whole_or_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let number = Option::<Number>::deserialize(deserializer)?;
    number.map(|number| of_number(&number)).transpose()
}

fn of_number<T: TryFrom<u64>, E: Error>(number: &Number) -> Result<T, E> {
    let is_exact = |float: &f64| (0.0..=EXACT_MAX).contains(float) && float.fract() == 0.0;
    let of_float = || number.as_f64().filter(is_exact).map(|float| float as u64);
    let whole = number.as_u64().or_else(of_float);
    whole
        .and_then(|whole| T::try_from(whole).ok())
        .ok_or_else(|| {
            let bits = 8 * size_of::<T>();
            E::custom(format!("{number}: expected a whole number below 2^{bits}"))
        })
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

/// A value that is only read from an object.
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
