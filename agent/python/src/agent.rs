//! The class `Agent` of Python.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::copies::PyCopies;
use crate::forks;
use crate::process::{AgentSettings, ProcessAgent};
use crate::rate::PyRate;

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{seconds} seconds: expected a number from 0 on"))
    })
}

/// An agent: decides calls in this process, and sends them to the aggregators in the background.
#[pyclass(module = "tollgate", name = "Agent", frozen)]
pub(crate) struct PyAgent {
    process: Py<ProcessAgent>,
}

impl PyAgent {
    fn made(py: Python<'_>, settings: AgentSettings) -> PyResult<Self> {
        let process = Py::new(py, ProcessAgent::new(settings)?)?;
        Ok(Self { process })
    }
}

#[pymethods]
impl PyAgent {
    /// An agent with these settings. Raises ValueError for invalid settings; never fails because of the network.
    #[new]
    #[pyo3(signature = (aggregators=None, *, name=None, key_file=None, domain_key_file=None))]
    fn new(
        aggregators: Option<Vec<String>>,
        name: Option<String>,
        key_file: Option<String>,
        domain_key_file: Option<String>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        Self::made(
            py,
            AgentSettings {
                from_env: false,
                name,
                aggregators: aggregators.unwrap_or_default(),
                domain_key_file,
                key_file,
            },
        )
    }

    /// An agent with settings from the environment: TOLLGATE_AGGREGATORS and the other variables of the guide.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Self> {
        Self::made(
            py,
            AgentSettings {
                from_env: true,
                name: None,
                aggregators: Vec::new(),
                domain_key_file: None,
                key_file: None,
            },
        )
    }

    /// A resource that is limited by rate.
    fn rate(&self, py: Python<'_>, resource: String) -> PyResult<PyRate> {
        let (inner, made) = {
            let mut agent = self.process.borrow_mut(py);
            let inner = agent.current()?.rate(&resource);
            (inner, agent.forks)
        };
        Ok(PyRate::new(
            self.process.clone_ref(py),
            resource,
            inner,
            made,
        ))
    }

    /// A resource that is limited by copies.
    fn copies(&self, py: Python<'_>, resource: String) -> PyResult<PyCopies> {
        let (inner, made) = {
            let mut agent = self.process.borrow_mut(py);
            let inner = agent.current()?.copies(&resource);
            (inner, agent.forks)
        };
        Ok(PyCopies::new(
            self.process.clone_ref(py),
            resource,
            inner,
            made,
        ))
    }

    /// Waits until the agent has received watermarks and limits, at most this many seconds. Returns whether it has.
    #[pyo3(signature = (timeout=0.5))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let inner = self.process.borrow_mut(py).current()?.clone();
        let timeout = seconds(timeout)?;
        py.detach(|| block_on(inner.ready(timeout)))
    }

    /// Sends what calls have recorded, for at most this many seconds. Returns two numbers of calls that were let
    /// through since the agent's start: those acknowledged by the log, and those whose record was dropped. Calls
    /// after this are let through and not recorded.
    #[pyo3(signature = (timeout=2.0))]
    fn shutdown(&self, py: Python<'_>, timeout: f64) -> PyResult<(u64, u64)> {
        let timeout = seconds(timeout)?;
        let inner = {
            let agent = self.process.borrow(py);
            match agent.forks == forks() {
                true => agent.inner.clone(),
                // It belongs to the parent: this process has sent nothing.
                false => None,
            }
        };
        let Some(inner) = inner else {
            return Ok((0, 0));
        };
        let flushed = py.detach(|| block_on(inner.shutdown(timeout)))?;
        Ok((flushed.sent, flushed.dropped))
    }

    /// The agent's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.process.borrow_mut(py).current()?.name().to_owned())
    }

    /// The agent's counters: hits_accepted, hits_dropped, hits_acknowledged, denials_live, blind_for (seconds, or
    /// None).
    fn stats(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, Option<f64>>> {
        let stats = self.process.borrow_mut(py).current()?.stats();
        let count = |count: u64| Some(count as f64);
        Ok(HashMap::from([
            ("hits_accepted", count(stats.hits_accepted)),
            ("hits_dropped", count(stats.hits_dropped())),
            ("hits_acknowledged", count(stats.hits_acknowledged)),
            ("denials_live", count(stats.denials_live)),
            ("holds_live", count(stats.holds_live)),
            (
                "blind_for",
                stats.blind_for.map(|blind| blind.as_secs_f64()),
            ),
        ]))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let aggregators = &self.process.borrow(py).settings.aggregators;
        format!("Agent(aggregators={aggregators:?})")
    }
}

fn block_on<F: Future>(future: F) -> PyResult<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(runtime.block_on(future))
}
