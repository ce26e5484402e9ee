//! Answers to calls: let through, which is true, or refused, which is false.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tollgate_agent as agent;
use tollgate_agent::HttpAnswer;

/// A call that was let through. It is true.
#[pyclass(module = "tollgate", name = "Allowed", frozen)]
pub(crate) struct PyAllowed(agent::Allowed);

#[pymethods]
impl PyAllowed {
    /// How many copies were granted.
    #[getter]
    fn copies(&self) -> u32 {
        self.0.copies()
    }

    /// Whether the agent had received nothing from the aggregators for a while, or ever.
    #[getter]
    fn blind(&self) -> bool {
        self.0.blind()
    }

    /// How many more copies the domain has; known only while it is near its limit.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.0.remaining()
    }

    /// Header fields for the response: RateLimit and RateLimit-Policy, as far as known.
    fn headers(&self) -> HashMap<&'static str, String> {
        self.0.headers().iter().collect()
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("Allowed(remaining={:?})", self.0.remaining())
    }
}

/// A call that was refused. It is false, and has a response for HTTP servers.
#[pyclass(module = "tollgate", name = "Denied", frozen)]
pub(crate) struct PyDenied {
    answer: HttpAnswer,
    retry_after: Option<f64>,
    code: Option<String>,
    most: Option<u64>,
}

#[pymethods]
impl PyDenied {
    /// Seconds to wait, if known.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.retry_after
    }

    /// The code by which `tollgate explain` finds the refusal; None if no aggregator announced it.
    #[getter]
    fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// How many copies can be granted at once, if the call wanted more than that: no wait ends such a refusal.
    #[getter]
    fn most(&self) -> Option<u64> {
        self.most
    }

    /// The HTTP status: 429, or 503 if the agent is blind and the policy is closed.
    #[getter]
    fn status(&self) -> u16 {
        self.answer.status()
    }

    /// Header fields for the response.
    fn headers(&self) -> HashMap<&'static str, String> {
        self.answer.headers().collect()
    }

    /// A body for the response: a problem in JSON.
    fn body(&self) -> String {
        self.answer.body()
    }

    // So that `with copies.reserve(…) as hold: if not hold: …` works.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyAny>) {}

    fn __bool__(&self) -> bool {
        false
    }

    fn __str__(&self) -> &str {
        self.answer.detail()
    }

    fn __repr__(&self) -> String {
        format!("Denied({:?})", self.answer.detail())
    }
}

pub(crate) fn of_answer(
    py: Python<'_>,
    answer: Result<agent::Allowed, agent::Refused>,
) -> PyResult<Py<PyAny>> {
    match answer {
        Ok(allowed) => Ok(PyAllowed(allowed).into_pyobject(py)?.into_any().unbind()),
        Err(error) => of_refused(py, &error),
    }
}

/// A mistake of the service raises; it is nothing that a client could be told.
pub(crate) fn of_refused(py: Python<'_>, error: &agent::Refused) -> PyResult<Py<PyAny>> {
    if error.is_caller_error() {
        return Err(PyValueError::new_err(match error {
            agent::Refused::Denied(_) => {
                "the resource is limited by copies, not by rate: expected Agent.copies".to_owned()
            }
            agent::Refused::Misuse(agent::Misuse::Strict) => {
                "the resource is strict: only the agent for Rust takes its copies".to_owned()
            }
            error => error.to_string(),
        }));
    }
    let denied = error.denied();
    let wait = denied.and_then(agent::Denied::retry_after);
    let code = denied.and_then(agent::Denied::code);
    let denied = PyDenied {
        answer: error.http(),
        retry_after: wait.map(|wait| wait.as_secs_f64()),
        code: code.map(|code| code.to_string()),
        most: match error {
            agent::Refused::TooMany(too_many) => Some(too_many.most()),
            _ => None,
        },
    };
    Ok(denied.into_pyobject(py)?.into_any().unbind())
}
