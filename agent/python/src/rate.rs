//! Rates, and calls whose cost is known only afterwards.
//!
//! Knows nothing of limits. What stays true: an object is borrowed once a call's arguments are read. Reading one may run
//! Python's code, and so other threads that call the same object.

use std::borrow::Cow;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tollgate_agent as agent;

use crate::answers::{of_answer, of_refused};
use crate::domains;
use crate::forks;
use crate::numbers;
use crate::process::ProcessAgent;

/// A resource that is limited by rate.
#[pyclass(module = "tollgate", name = "Rate")]
pub(crate) struct PyRate {
    agent: Py<ProcessAgent>,
    resource: String,
    inner: agent::Rate,
    forks: u64,
}

impl PyRate {
    pub(crate) fn new(
        agent: Py<ProcessAgent>,
        resource: String,
        inner: agent::Rate,
        forks: u64,
    ) -> Self {
        Self {
            agent,
            resource,
            inner,
            forks,
        }
    }

    fn current(&mut self, py: Python<'_>) -> PyResult<&agent::Rate> {
        if self.forks != forks() {
            let mut agent = self.agent.borrow_mut(py);
            let inner = agent.current()?.rate(&self.resource);
            // The parent's agent is leaked: its threads do not exist here to end it.
            std::mem::forget(std::mem::replace(&mut self.inner, inner));
            self.forks = agent.forks;
        }
        Ok(&self.inner)
    }
}

#[pymethods]
impl PyRate {
    /// Counts a call of a domain. Returns Allowed, which is true, or Denied, which is false.
    #[pyo3(signature = (domain, copies=1))]
    fn hit(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
        #[pyo3(from_py_with = numbers::copies)] copies: u32,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        // Borrowed only for the call: making an object may run the interpreter's garbage collector.
        let answer = {
            let mut rate = slf.borrow_mut();
            let rate = rate.current(py)?;
            match copies {
                1 => rate.hit(&domain).map_err(agent::Refused::Denied),
                copies => rate.hit_n(&domain, copies),
            }
        };
        of_answer(py, answer)
    }

    /// Whether a call would be let through now; counts nothing.
    fn peek(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let answer = slf.borrow_mut().current(py)?.peek(&domain);
        of_answer(py, answer.map_err(agent::Refused::Denied))
    }

    /// Counts copies that were used, whatever the limits are.
    #[pyo3(signature = (domain, copies=1))]
    fn record(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
        #[pyo3(from_py_with = numbers::copies)] copies: u32,
    ) -> PyResult<()> {
        let mut rate = slf.borrow_mut();
        rate.current(slf.py())?.record(&domain, copies);
        Ok(())
    }

    /// Counts a call whose cost is known only afterwards. Returns an Estimate, which is true, or Denied, which is
    /// false.
    fn hit_estimated(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
        #[pyo3(from_py_with = numbers::copies)] copies: u32,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let answer = slf.borrow_mut().current(py)?.hit_estimated(&domain, copies);
        match answer {
            Ok(estimate) => Ok(PyEstimate::new(estimate)
                .into_pyobject(py)?
                .into_any()
                .unbind()),
            Err(error) => of_refused(py, &error),
        }
    }

    /// The resource's name.
    #[getter]
    fn resource(&self) -> &str {
        &self.resource
    }

    fn __repr__(&self) -> String {
        format!("Rate({:?})", self.resource)
    }
}

/// A call whose cost is known only afterwards.
#[pyclass(module = "tollgate", name = "Estimate")]
pub(crate) struct PyEstimate {
    inner: Option<agent::Estimate>,
    forks: u64,
}

impl PyEstimate {
    fn new(estimate: agent::Estimate) -> Self {
        Self {
            inner: Some(estimate),
            forks: forks(),
        }
    }
}

#[pymethods]
impl PyEstimate {
    /// Settles the call by its actual cost: the difference is counted, or given back. Once only.
    fn settle(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = numbers::copies)] actual: u32,
    ) -> PyResult<()> {
        let mut settled = slf.borrow_mut();
        if settled.forks != forks() {
            let message = "it was made before a fork: expected its settling in the parent";
            return Err(PyRuntimeError::new_err(message));
        }
        let Some(estimate) = settled.inner.take() else {
            return Err(PyRuntimeError::new_err("it is settled already"));
        };
        match estimate.settle(actual) {
            Ok(_) => Ok(()),
            Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
        }
    }

    fn __bool__(&self) -> bool {
        true
    }
}
