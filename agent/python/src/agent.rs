//! The class `Agent` of Python.

use std::collections::HashMap;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::copies::PyCopies;
use crate::lines;
use crate::process::{AgentSettings, ProcessAgent, ResourceKind, shut_down, wait_for};
use crate::rate::PyRate;

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{seconds} seconds: expected a number from 0 on"))
    })
}

/// The agents that the end of the interpreter shuts down.
fn opened(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("tollgate._exit")?.getattr("opened")
}

/// An agent: decides calls in this process, and sends them to the aggregators in the background.
#[pyclass(module = "tollgate", name = "Agent", frozen)]
pub(crate) struct PyAgent {
    process: Py<ProcessAgent>,
}

impl PyAgent {
    fn made(py: Python<'_>, settings: AgentSettings, log: Option<&str>) -> PyResult<Self> {
        match log {
            None | Some("" | "off") => {}
            Some("stderr") => lines::print_to_stderr(),
            Some(log) => {
                let message = format!("log {log:?}: expected \"stderr\" or \"off\"");
                return Err(PyValueError::new_err(message));
            }
        }
        let process = Py::new(py, ProcessAgent::new(settings)?)?;
        opened(py)?.call_method1("add", (process.clone_ref(py),))?;
        Ok(Self { process })
    }
}

#[pymethods]
impl PyAgent {
    /// An agent with these settings. Raises ValueError for invalid settings; never fails because of the network.
    ///
    /// Aggregators on other machines need tls_ca_file, and mostly token_file. `log="stderr"` prints the agent's
    /// warnings.
    #[new]
    #[pyo3(signature = (aggregators=None, *, name=None, domain_key_file=None, tls_ca_file=None, tls_server_name=None,
        tls_identity=None, token_file=None, trust_network=false, log=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        aggregators: Option<Vec<String>>,
        name: Option<String>,
        domain_key_file: Option<String>,
        tls_ca_file: Option<String>,
        tls_server_name: Option<String>,
        tls_identity: Option<(String, String)>,
        token_file: Option<String>,
        trust_network: bool,
        log: Option<&str>,
    ) -> PyResult<Self> {
        if aggregators.as_ref().is_some_and(Vec::is_empty) {
            let message =
                "aggregators []: expected at least one address, or None for 127.0.0.1:7401";
            return Err(PyValueError::new_err(message));
        }
        let settings = AgentSettings {
            from_env: false,
            name,
            aggregators: aggregators.unwrap_or_default(),
            domain_key_file,
            tls_ca_file,
            tls_server_name,
            tls_identity,
            token_file,
            trusts_network: trust_network,
        };
        Self::made(py, settings, log)
    }

    /// An agent with settings from the environment: TOLLGATE_AGGREGATORS and the other variables of the guide, and
    /// TOLLGATE_AGENT_LOG=stderr.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Self> {
        let settings = AgentSettings {
            from_env: true,
            ..AgentSettings::default()
        };
        let log = std::env::var_os("TOLLGATE_AGENT_LOG").unwrap_or_default();
        Self::made(py, settings, Some(&log.to_string_lossy()))
    }

    /// A resource that is limited by rate.
    fn rate(&self, py: Python<'_>, resource: String) -> PyResult<PyRate> {
        let (inner, made) = {
            let mut agent = self.process.borrow_mut(py);
            let inner = agent.current()?.rate(&resource);
            agent.took(ResourceKind::Rate, &resource);
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
            agent.took(ResourceKind::Copies, &resource);
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
    /// Take the rates and copies before: an agent learns a resource's limits once its handle was taken.
    #[pyo3(signature = (timeout=0.5))]
    fn ready(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let inner = self.process.borrow_mut(py).current()?.clone();
        let timeout = seconds(timeout)?;
        wait_for(py, inner.ready(timeout))
    }

    /// Sends what calls have recorded, for at most this many seconds. Returns two numbers of calls that were let
    /// through since the agent's start: those acknowledged by the log, and those whose record was dropped. Calls
    /// after this are let through and not recorded.
    #[pyo3(signature = (timeout=2.0))]
    fn shutdown(&self, py: Python<'_>, timeout: f64) -> PyResult<(u64, u64)> {
        let timeout = seconds(timeout)?;
        let Some(inner) = self.process.borrow(py).own() else {
            // It belongs to the parent: this process has sent nothing.
            self.process.borrow_mut(py).leave();
            return Ok((0, 0));
        };
        let counts = shut_down(py, &inner, timeout)?;
        self.process.borrow_mut(py).ended = true;
        opened(py)?.call_method1("discard", (self.process.clone_ref(py),))?;
        Ok(counts)
    }

    /// The agent's name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.process.borrow_mut(py).current()?.name().to_owned())
    }

    /// The agent's counters: hits_accepted, hits_dropped, hits_acknowledged, refused_accepted (calls that were refused
    /// and recorded), denials_live, holds_live, holds_unrecorded (let through beyond the bound on holds, or after the
    /// agent's end), blind_for (seconds, or None). Where no limit is applied, these tell why: connections_refused
    /// (because of TLS or tokens), connections_ended (because of what was received), links_lost, names_not_resolved,
    /// feeds_opened, welcomes (0: no aggregator was ever reached), resources_without_room (beyond the agent's bound;
    /// their calls are let through), threads_panicked (not 0: the agent has ended by a fault of its own).
    fn stats(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, Option<f64>>> {
        let stats = self.process.borrow_mut(py).current()?.stats();
        let count = |count: u64| Some(count as f64);
        Ok(HashMap::from([
            ("hits_accepted", count(stats.hits_accepted)),
            ("hits_dropped", count(stats.hits_dropped())),
            ("hits_acknowledged", count(stats.hits_acknowledged)),
            ("refused_accepted", count(stats.refused_accepted)),
            ("denials_live", count(stats.denials_live)),
            ("holds_live", count(stats.holds_live)),
            ("holds_unrecorded", count(stats.holds_unrecorded)),
            ("threads_panicked", count(stats.threads_panicked)),
            (
                "resources_without_room",
                count(stats.resources_without_room),
            ),
            ("connections_refused", count(stats.connections_refused)),
            ("connections_ended", count(stats.connections_ended)),
            ("links_lost", count(stats.links_lost)),
            ("names_not_resolved", count(stats.names_not_resolved)),
            ("feeds_opened", count(stats.feeds_opened)),
            ("welcomes", count(stats.welcomes)),
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
