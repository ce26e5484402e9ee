//! This process's agent; the child of a fork makes one of its own.
//!
//! What stays true: the child of a fork neither uses nor ends anything of its parent's agent.

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tollgate_agent as agent;

use crate::{forks, lines, watch_forks};

/// An agent's settings, kept for another agent after a fork.
#[derive(Clone, Default)]
pub(crate) struct AgentSettings {
    pub from_env: bool,
    pub name: Option<String>,
    pub aggregators: Vec<String>,
    pub domain_key_file: Option<String>,
    pub tls_ca_file: Option<String>,
    pub tls_server_name: Option<String>,
    /// The agent's own certificate, and its key.
    pub tls_identity: Option<(String, String)>,
    pub token_file: Option<String>,
    pub trusts_network: bool,
}

impl AgentSettings {
    fn build(&self) -> Result<agent::Agent, agent::BuildError> {
        let mut builder = match self.from_env {
            true => agent::AgentBuilder::from_env()?,
            false => agent::Agent::builder(),
        };
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        for address in &self.aggregators {
            builder = builder.aggregator(address);
        }
        if let Some(path) = &self.domain_key_file {
            builder = builder.domain_key_file(path);
        }
        if let Some(path) = &self.tls_ca_file {
            builder = builder.tls_ca_file(path);
        }
        if let Some(name) = &self.tls_server_name {
            builder = builder.tls_server_name(name);
        }
        if let Some((cert, key)) = &self.tls_identity {
            builder = builder.tls_identity(cert, key);
        }
        if let Some(path) = &self.token_file {
            builder = builder.token_file(path);
        }
        if self.trusts_network {
            builder = builder.trust_network();
        }
        builder.build()
    }

    /// On a thread of its own: after a fork, the forking thread's random numbers continue in the child as in the
    /// parent, so an agent made there would draw the same secret as its siblings.
    fn build_apart(&self) -> PyResult<agent::Agent> {
        let settings = self.clone();
        let made = std::thread::Builder::new().spawn(move || {
            // Python ignores the signal by itself, but a service may have restored its action, which ends the process.
            tollgate_forks::block_sigpipe();
            settings.build()
        });
        match made.map(JoinHandle::join) {
            Ok(Ok(made)) => made.map_err(|error| PyValueError::new_err(error.to_string())),
            Ok(Err(_)) => Err(PyRuntimeError::new_err("the agent could not be created")),
            Err(error) => Err(PyRuntimeError::new_err(format!("the agent: {error}"))),
        }
    }

    /// Settings of an agent that reaches no aggregator, so that it lets every call through.
    fn unreachable() -> Self {
        Self {
            aggregators: vec![NOWHERE.to_owned()],
            ..Self::default()
        }
    }
}

/// A port of this machine at which nothing listens.
const NOWHERE: &str = "127.0.0.1:1";

/// The agent, and the process in which it was made. A class, so that it is only borrowed under the interpreter's
/// lock; `tollgate._exit` keeps all of them until they are shut down.
#[pyclass(module = "tollgate")]
pub(crate) struct ProcessAgent {
    pub settings: AgentSettings,
    pub inner: Option<agent::Agent>,
    /// How many forks lay before the process that made `inner`, and has its threads.
    made_in: u64,
    /// How many lay before the process that called last: a child that makes no agent goes on with that of its parent.
    pub forks: u64,
    /// Whether it was shut down, or there was no thread for another one: then the child of a fork makes none.
    pub ended: bool,
    /// The resources whose handles were taken. The child's agent takes them again, so that it learns their limits before
    /// the first call, and `ready` waits for them.
    taken: BTreeSet<(ResourceKind, String)>,
}

/// By what a resource is limited, as far as the service knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResourceKind {
    Rate,
    Copies,
}

/// The most resources that the child's agent takes again at once; it takes others with their first call.
const TAKEN_MAX: usize = 1_024;

impl ProcessAgent {
    pub fn new(settings: AgentSettings) -> PyResult<Self> {
        watch_forks();
        let inner = settings.build_apart()?;
        Ok(Self {
            settings,
            inner: Some(inner),
            made_in: forks(),
            forks: forks(),
            ended: false,
            taken: BTreeSet::new(),
        })
    }

    /// A handle of this resource was taken.
    pub fn took(&mut self, kind: ResourceKind, resource: &str) {
        if self.taken.len() < TAKEN_MAX {
            self.taken.insert((kind, resource.to_owned()));
        }
    }

    /// The agent, if this process made it.
    pub fn own(&self) -> Option<agent::Agent> {
        match self.made_in == forks() {
            true => self.inner.clone(),
            false => None,
        }
    }

    /// Makes no agent in this process, which has made none. Its calls are let through: an agent that has ended takes
    /// the place of the parent's, whose denials would be kept for a minute, and whose locks may be held for ever.
    pub fn leave(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        if let Ok(inner) = AgentSettings::unreachable().build_apart() {
            // It has nothing to send. Without memory for a runtime it goes on, and lets calls through, too.
            let _ = block_on(inner.shutdown(Duration::ZERO));
            // See `current`.
            std::mem::forget(self.inner.replace(inner));
        }
    }

    /// This process's agent.
    pub fn current(&mut self) -> PyResult<&agent::Agent> {
        if self.forks != forks() && !self.ended {
            let made = self
                .settings
                .build_apart()
                .or_else(|fault| stand_in(&fault));
            match made {
                Ok(inner) => {
                    for (kind, resource) in &self.taken {
                        match kind {
                            ResourceKind::Rate => drop(inner.rate(resource)),
                            ResourceKind::Copies => drop(inner.copies(resource)),
                        }
                    }
                    // The parent's agent has no threads here, and dropping it would wait for them.
                    std::mem::forget(self.inner.replace(inner));
                    self.made_in = forks();
                }
                // The parent's has no threads: its denials end within a minute, and all calls pass.
                Err(_) => self.ended = true,
            }
        }
        self.forks = forks();
        let inner = self.inner.as_ref();
        inner.ok_or_else(|| PyRuntimeError::new_err("the agent has ended"))
    }
}

#[pymethods]
impl ProcessAgent {
    /// Sends what was recorded, for at most this many seconds. That of a parent, which continues there, is left alone.
    fn end(slf: Py<Self>, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let Some(inner) = slf.borrow(py).own() else {
            return Ok(());
        };
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
        shut_down(py, &inner, timeout)?;
        Ok(())
    }
}

/// An agent in place of that of a child whose settings cannot be used any more: a worker that has another user than the
/// process in which the settings were read may not read the token. A call is no place for that fault, which would answer
/// every request with an error, so it is printed, once in a process.
fn stand_in(fault: &PyErr) -> PyResult<agent::Agent> {
    lines::print(&format!(
        "tollgate: after a fork this process reaches no aggregator, and lets calls through: {fault}"
    ));
    AgentSettings::unreachable().build_apart()
}

/// How much longer than its timeout an agent may take to end, on a busy machine.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Sends what was recorded. Returns two numbers of calls: those acknowledged by the log, and those whose record was
/// dropped. After a call that a signal interrupted the agent goes on to that call's timeout, and the next call would
/// wait for it: a process that was told to end twice would not end.
pub(crate) fn shut_down(
    py: Python<'_>,
    inner: &agent::Agent,
    timeout: Duration,
) -> PyResult<(u64, u64)> {
    let within = timeout.saturating_add(END_WITHIN);
    let ended = async { tokio::time::timeout(within, inner.shutdown(timeout)).await };
    Ok(match wait_for(py, ended)? {
        Ok(flushed) => (flushed.sent, flushed.dropped),
        Err(_) => {
            let stats = inner.stats();
            (stats.hits_acknowledged, stats.hits_dropped())
        }
    })
}

/// How long a signal waits for its handler: nobody notices, and a waiting thread wakes only a few times a second.
const SIGNALS_WAIT: Duration = Duration::from_millis(100);

/// Waits without the interpreter's lock. Handlers of signals run meanwhile; if one raises, as that of Ctrl-C does, the
/// waiting ends with what it raised.
pub(crate) fn wait_for<F: Future<Output: Send> + Send>(
    py: Python<'_>,
    future: F,
) -> PyResult<F::Output> {
    let runtime = runtime()?;
    let mut future = std::pin::pin!(future);
    loop {
        let slice = async { tokio::time::timeout(SIGNALS_WAIT, future.as_mut()).await };
        if let Ok(output) = py.detach(|| runtime.block_on(slice)) {
            return Ok(output);
        }
        py.check_signals()?;
    }
}

fn block_on<F: Future>(future: F) -> PyResult<F::Output> {
    Ok(runtime()?.block_on(future))
}

fn runtime() -> PyResult<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
