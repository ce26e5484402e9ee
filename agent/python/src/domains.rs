//! Domains from Python, whose texts may have surrogates without a partner, which UTF-8 cannot have.
//!
//! ```text
//! "\ud800"            U+FFFD      from JSON with half a pair
//! "a\udcffb"          a U+FFFD b  from a byte that is not UTF-8 (surrogateescape)
//! "\ud83d\ude00"      U+1F600     a pair is a character
//! ```
//!
//! What stays true: each text is a domain. A client that chooses its domain could otherwise choose to have no limit.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// A domain, with U+FFFD in place of each unpaired surrogate.
pub(crate) fn domain<'a>(text: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, str>> {
    let text = text.cast::<PyString>()?;
    match text.to_str() {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(_) => lossy(text).map(Cow::Owned),
    }
}

#[cold]
fn lossy(text: &Bound<'_, PyString>) -> PyResult<String> {
    let encoded = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?;
    let bytes = encoded.cast::<PyBytes>()?.as_bytes();
    let units = bytes.as_chunks::<2>().0.iter();
    let units = units.map(|unit| u16::from_le_bytes(*unit));
    let characters = char::decode_utf16(units);
    Ok(characters
        .map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect())
}
