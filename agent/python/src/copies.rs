//! Copies, and holds of them.

use std::borrow::Cow;

use pyo3::prelude::*;
use tollgate_agent as agent;

use crate::answers::of_refused;
use crate::domains;
use crate::forks;
use crate::numbers;
use crate::process::ProcessAgent;

/// A resource that is limited by copies.
#[pyclass(module = "tollgate", name = "Copies")]
pub(crate) struct PyCopies {
    agent: Py<ProcessAgent>,
    resource: String,
    inner: agent::Copies,
    forks: u64,
}

impl PyCopies {
    pub(crate) fn new(
        agent: Py<ProcessAgent>,
        resource: String,
        inner: agent::Copies,
        forks: u64,
    ) -> Self {
        Self {
            agent,
            resource,
            inner,
            forks,
        }
    }

    fn current(&mut self, py: Python<'_>) -> PyResult<&agent::Copies> {
        if self.forks != forks() {
            let mut agent = self.agent.borrow_mut(py);
            let inner = agent.current()?.copies(&self.resource);
            // See `Rate`.
            std::mem::forget(std::mem::replace(&mut self.inner, inner));
            self.forks = agent.forks;
        }
        Ok(&self.inner)
    }
}

#[pymethods]
impl PyCopies {
    /// Takes copies. Returns a Hold, which is true and gives them back at the end of its `with`, or Denied, which is
    /// false.
    #[pyo3(signature = (domain, copies=1))]
    fn reserve(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
        #[pyo3(from_py_with = numbers::copies)] copies: u32,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (answer, made) = {
            let mut of = slf.borrow_mut();
            (of.current(py)?.reserve(&domain, copies), of.forks)
        };
        match answer {
            Ok(hold) => {
                let hold = PyHold {
                    inner: Some(hold),
                    forks: made,
                };
                Ok(hold.into_pyobject(py)?.into_any().unbind())
            }
            Err(error) => of_refused(py, &error),
        }
    }

    /// How many copies of a domain this process holds.
    fn held(&self, #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>) -> u64 {
        match self.forks == forks() {
            true => self.inner.held(&domain),
            false => 0,
        }
    }

    /// The resource's name.
    #[getter]
    fn resource(&self) -> &str {
        &self.resource
    }

    fn __repr__(&self) -> String {
        format!("Copies({:?})", self.resource)
    }
}

/// Copies that are held. `release`, the end of `with`, or the end of the object gives them back.
#[pyclass(module = "tollgate", name = "Hold")]
pub(crate) struct PyHold {
    inner: Option<agent::Hold>,
    forks: u64,
}

#[pymethods]
impl PyHold {
    /// Gives all copies back; a second call does nothing.
    fn release(&mut self) {
        let held = self.inner.take();
        if self.forks != forks() {
            // The copies are the parent's.
            std::mem::forget(held);
        }
    }

    /// How many copies are held.
    #[getter]
    fn copies(&self) -> u32 {
        self.inner.as_ref().map_or(0, agent::Hold::copies)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&mut self, _args: &Bound<'_, PyAny>) {
        self.release();
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("Hold(copies={})", self.copies())
    }
}

impl Drop for PyHold {
    fn drop(&mut self) {
        self.release();
    }
}
