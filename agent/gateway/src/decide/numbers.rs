//! Whole numbers of a question, in any notation, since some languages only write `5.0`.
//!
//! What stays true: a number that is not whole, negative, or too great is refused, and none is rounded.

use serde::de::{Deserialize, Deserializer, Error};
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
