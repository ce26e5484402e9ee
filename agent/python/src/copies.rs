//! Copies, and holds of them.
//!
//! Knows nothing of limits. What stays true: an object is borrowed once a call's arguments are read, as in `rate`.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
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
    fn held(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = domains::domain)] domain: Cow<'_, str>,
    ) -> u64 {
        let of = slf.borrow();
        match of.forks == forks() {
            true => of.inner.held(&domain),
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

/// Why a hold, or some of its copies, should be given up.
#[pyclass(module = "tollgate", name = "Revoked", frozen)]
pub(crate) struct PyRevoked {
    /// "give-back": these copies were too many, and the resource asks for them back. "ended": the hold reached its
    /// greatest age, an operator ended it, or the agent was shut down. "uncounted": no aggregator counts the hold.
    #[pyo3(get)]
    reason: &'static str,
    /// How many of the hold's copies should be given up.
    #[pyo3(get)]
    copies: u32,
    text: String,
}

impl PyRevoked {
    fn of(hold: &agent::Hold) -> Option<Self> {
        let all = hold.copies();
        let (reason, copies, text) = match hold.revoked_now()? {
            agent::Revoked::GiveBack { copies, scope } => {
                let of = scope.map_or_else(String::new, |scope| format!(" for {scope}"));
                (
                    "give-back",
                    copies,
                    format!("{copies} copies are too many{of}"),
                )
            }
            agent::Revoked::Ended(by) => ("ended", all, format!("the hold was ended {by}")),
            agent::Revoked::Uncounted(why) => {
                ("uncounted", all, format!("the hold is not counted: {why}"))
            }
            _ => ("ended", all, "the agent was shut down".to_owned()),
        };
        Some(Self {
            reason,
            copies,
            text,
        })
    }
}

#[pymethods]
impl PyRevoked {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("Revoked(reason={:?}, copies={})", self.reason, self.copies)
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
    /// Gives so many of the copies back, or all of them; after that a call does nothing. Returns False, and changes
    /// nothing, if some are to be given back of a hold that is known not to count any more. Raises ValueError for 0
    /// copies, and for more than the hold has. In a forked child it does nothing: the copies are the parent's.
    #[pyo3(signature = (copies=None))]
    fn release(slf: &Bound<'_, Self>, copies: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let copies = copies.map(numbers::copies).transpose()?;
        let mut held = slf.borrow_mut();
        let Some(copies) = copies else {
            held.release_all();
            return Ok(true);
        };
        let Some(hold) = held.own() else {
            return Ok(true);
        };
        match hold.release(copies) {
            Ok(()) => Ok(true),
            Err(agent::HoldFault::Ended(_) | agent::HoldFault::Uncounted(_)) => Ok(false),
            Err(fault) => Err(PyValueError::new_err(fault.to_string())),
        }
    }

    /// Why the hold, or some of its copies, should be given up: a Revoked; or None. Never waits.
    #[getter]
    fn revoked(slf: &Bound<'_, Self>) -> Option<PyRevoked> {
        PyRevoked::of(slf.borrow_mut().own()?)
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
        self.release_all();
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("Hold(copies={})", self.copies())
    }
}

impl PyHold {
    /// The hold, if it was taken in this process and not given back.
    fn own(&mut self) -> Option<&mut agent::Hold> {
        self.inner.as_mut().filter(|_| self.forks == forks())
    }

    fn release_all(&mut self) {
        let held = self.inner.take();
        if self.forks != forks() {
            // The copies are the parent's.
            std::mem::forget(held);
        }
    }
}

impl Drop for PyHold {
    fn drop(&mut self) {
        self.release_all();
    }
}
