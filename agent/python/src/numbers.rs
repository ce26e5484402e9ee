//! Numbers from Python, whose integers have no bounds.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// A number of copies. What is no such number is an invalid call, like any other: `ValueError`.
pub(crate) fn copies(number: &Bound<'_, PyAny>) -> PyResult<u32> {
    number.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyOverflowError>(number.py()) {
            true => PyValueError::new_err(format!(
                "{number} copies: expected a number from 0 to {}",
                u32::MAX
            )),
            false => error,
        }
    })
}
