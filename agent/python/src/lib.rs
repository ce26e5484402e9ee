//! The agent for Python: the classes of `tollgate._tollgate`.
//!
//! No call waits, so none releases the interpreter's lock but `ready` and `shutdown`. After a fork the child has
//! none of the agent's threads: its copies of these objects notice, and the child's first call makes an agent of
//! its own, with the same settings. What stays true: an object is borrowed under the interpreter's lock alone, so
//! that no fork can find one in use.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tollgate_agent as agent;
use tollgate_agent::HttpAnswer;

/// How often this process is the child of a fork since the module was loaded.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Told by the interpreter in the child of a fork.
#[pyfunction]
fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("{seconds} seconds: expected a number from 0 on"))
    })
}

/// What an agent is made of, to be made again after a fork.
#[derive(Clone)]
struct Settings {
    from_env: bool,
    name: Option<String>,
    aggregators: Vec<String>,
    domain_key_file: Option<String>,
    key_file: Option<String>,
}

impl Settings {
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
        if let Some(path) = &self.key_file {
            builder = builder.key_file(path);
        }
        builder.build()
    }

    /// On a thread of its own: random numbers of the forking thread go on in the child as in the parent, so that
    /// an agent made there would draw the secret that its siblings draw.
    fn build_apart(&self) -> PyResult<agent::Agent> {
        let settings = self.clone();
        let made = std::thread::spawn(move || settings.build()).join();
        match made {
            Ok(made) => made.map_err(|error| PyValueError::new_err(error.to_string())),
            Err(_) => Err(PyRuntimeError::new_err("the agent could not be made")),
        }
    }
}

/// An agent: decides in this process, and streams what it decided to the aggregators in the background.
#[pyclass(module = "tollgate")]
struct Agent {
    settings: Settings,
    inner: Option<agent::Agent>,
    forks: u64,
}

impl Agent {
    fn made(settings: Settings) -> PyResult<Self> {
        let inner = settings.build_apart()?;
        Ok(Self {
            settings,
            inner: Some(inner),
            forks: forks(),
        })
    }

    /// This process's.
    fn current(&mut self) -> PyResult<&agent::Agent> {
        if self.forks != forks() || self.inner.is_none() {
            // The parent's has no threads here, and whoever drops it would wait for them.
            std::mem::forget(self.inner.take());
            self.inner = Some(self.settings.build_apart()?);
            self.forks = forks();
        }
        let inner = self.inner.as_ref();
        inner.ok_or_else(|| PyRuntimeError::new_err("the agent has ended"))
    }
}

#[pymethods]
impl Agent {
    /// Of these settings. Fails on bad ones (ValueError), never because of the network.
    #[new]
    #[pyo3(signature = (aggregators=None, *, name=None, key_file=None, domain_key_file=None))]
    fn new(
        aggregators: Option<Vec<String>>,
        name: Option<String>,
        key_file: Option<String>,
        domain_key_file: Option<String>,
    ) -> PyResult<Self> {
        Self::made(Settings {
            from_env: false,
            name,
            aggregators: aggregators.unwrap_or_default(),
            domain_key_file,
            key_file,
        })
    }

    /// By the environment: TOLLGATE_AGGREGATORS and the other variables of the guide.
    #[staticmethod]
    fn from_env() -> PyResult<Self> {
        Self::made(Settings {
            from_env: true,
            name: None,
            aggregators: Vec::new(),
            domain_key_file: None,
            key_file: None,
        })
    }

    /// A resource that is limited by rate.
    fn rate(slf: Bound<'_, Self>, resource: String) -> PyResult<Rate> {
        let (inner, made) = {
            let mut agent = slf.borrow_mut();
            let inner = agent.current()?.rate(&resource);
            (inner, agent.forks)
        };
        Ok(Rate {
            agent: slf.unbind(),
            resource,
            inner,
            forks: made,
        })
    }

    /// A resource that is limited by copies.
    fn copies(slf: Bound<'_, Self>, resource: String) -> PyResult<Copies> {
        let (inner, made) = {
            let mut agent = slf.borrow_mut();
            let inner = agent.current()?.copies(&resource);
            (inner, agent.forks)
        };
        Ok(Copies {
            agent: slf.unbind(),
            resource,
            inner,
            forks: made,
        })
    }

    /// Waits until it has heard of the aggregators, at most so many seconds; whether it has.
    #[pyo3(signature = (timeout=0.5))]
    fn ready(slf: Bound<'_, Self>, timeout: f64) -> PyResult<bool> {
        let inner = slf.borrow_mut().current()?.clone();
        let timeout = seconds(timeout)?;
        slf.py().detach(|| block_on(inner.ready(timeout)))
    }

    /// Sends what calls have left behind, for at most so many seconds. Calls that were let through since the agent's
    /// start: how many the log has acknowledged, and of how many the record was dropped. Calls after it are let
    /// through and recorded nowhere.
    #[pyo3(signature = (timeout=2.0))]
    fn shutdown(slf: Bound<'_, Self>, timeout: f64) -> PyResult<(u64, u64)> {
        let timeout = seconds(timeout)?;
        let inner = {
            let agent = slf.borrow();
            match agent.forks == forks() {
                true => agent.inner.clone(),
                // The parent's: this process has sent nothing.
                false => None,
            }
        };
        let Some(inner) = inner else {
            return Ok((0, 0));
        };
        let flushed = slf.py().detach(|| block_on(inner.shutdown(timeout)))?;
        Ok((flushed.sent, flushed.dropped))
    }

    /// Its name.
    #[getter]
    fn name(slf: Bound<'_, Self>) -> PyResult<String> {
        Ok(slf.borrow_mut().current()?.name().to_owned())
    }

    /// What became of calls so far: hits_accepted, hits_dropped, hits_acknowledged, denials_live, blind_for
    /// (seconds, or None).
    fn stats(slf: Bound<'_, Self>) -> PyResult<HashMap<&'static str, Option<f64>>> {
        let stats = slf.borrow_mut().current()?.stats();
        let count = |count: u64| Some(count as f64);
        Ok(HashMap::from([
            ("hits_accepted", count(stats.hits_accepted)),
            ("hits_dropped", count(stats.hits_dropped())),
            ("hits_acknowledged", count(stats.hits_acknowledged)),
            ("denials_live", count(stats.denials_live)),
            ("holds_live", count(stats.holds_live)),
            ("blind_for", stats.blind_for.map(|blind| blind.as_secs_f64())),
        ]))
    }

    fn __repr__(&self) -> String {
        format!("Agent(aggregators={:?})", self.settings.aggregators)
    }
}

fn block_on<F: Future>(future: F) -> PyResult<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(runtime.block_on(future))
}

/// A resource that is limited by rate.
#[pyclass(module = "tollgate")]
struct Rate {
    agent: Py<Agent>,
    resource: String,
    inner: agent::Rate,
    forks: u64,
}

impl Rate {
    fn current(&mut self, py: Python<'_>) -> PyResult<&agent::Rate> {
        if self.forks != forks() {
            let mut agent = self.agent.borrow_mut(py);
            let inner = agent.current()?.rate(&self.resource);
            // The parent's agent is kept: its threads are not here to end it.
            std::mem::forget(std::mem::replace(&mut self.inner, inner));
            self.forks = agent.forks;
        }
        Ok(&self.inner)
    }
}

#[pymethods]
impl Rate {
    /// Counts a call of a domain: Allowed, which is true, or Denied, which is false.
    #[pyo3(signature = (domain, copies=1))]
    fn hit(slf: &Bound<'_, Self>, domain: &str, copies: u32) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        // Borrowed for no longer than the call: to make an object may run whatever the interpreter collects.
        let answer = {
            let mut rate = slf.borrow_mut();
            let rate = rate.current(py)?;
            match copies {
                1 => rate.hit(domain).map_err(agent::HitError::Denied),
                copies => rate.hit_n(domain, copies),
            }
        };
        of_answer(py, answer)
    }

    /// Whether a call would be let through now; counts nothing.
    fn peek(slf: &Bound<'_, Self>, domain: &str) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let answer = slf.borrow_mut().current(py)?.peek(domain);
        of_answer(py, answer.map_err(agent::HitError::Denied))
    }

    /// Counts copies that were used whatever the limits say.
    #[pyo3(signature = (domain, copies=1))]
    fn record(&mut self, py: Python<'_>, domain: &str, copies: u32) -> PyResult<()> {
        self.current(py)?.record(domain, copies);
        Ok(())
    }

    /// Counts a call whose cost is known afterwards: an Estimate, which is true, or Denied, which is false.
    fn hit_estimated(slf: &Bound<'_, Self>, domain: &str, copies: u32) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let answer = slf.borrow_mut().current(py)?.hit_estimated(domain, copies);
        match answer {
            Ok(estimate) => Ok(Estimate(Some(estimate)).into_pyobject(py)?.into_any().unbind()),
            Err(error) => of_refused(py, &error),
        }
    }

    /// Its name.
    #[getter]
    fn resource(&self) -> &str {
        &self.resource
    }

    fn __repr__(&self) -> String {
        format!("Rate({:?})", self.resource)
    }
}

/// A resource that is limited by copies.
#[pyclass(module = "tollgate")]
struct Copies {
    agent: Py<Agent>,
    resource: String,
    inner: agent::Copies,
    forks: u64,
}

impl Copies {
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
impl Copies {
    /// Takes copies: a Hold, which is true and gives them back at the end of its `with`, or Denied, which is false.
    #[pyo3(signature = (domain, copies=1))]
    fn reserve(slf: &Bound<'_, Self>, domain: &str, copies: u32) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (answer, made) = {
            let mut of = slf.borrow_mut();
            (of.current(py)?.reserve(domain, copies), of.forks)
        };
        match answer {
            Ok(hold) => {
                let hold = Hold {
                    inner: Some(hold),
                    forks: made,
                };
                Ok(hold.into_pyobject(py)?.into_any().unbind())
            }
            Err(agent::ReserveError::Misuse(misuse)) => {
                Err(PyValueError::new_err(misuse.to_string()))
            }
            Err(error) => denied(py, error.http(), retry_after(denied_of(&error))),
        }
    }

    /// How many copies of a domain this process holds.
    fn held(&self, domain: &str) -> u64 {
        match self.forks == forks() {
            true => self.inner.held(domain),
            false => 0,
        }
    }

    /// Its name.
    #[getter]
    fn resource(&self) -> &str {
        &self.resource
    }

    fn __repr__(&self) -> String {
        format!("Copies({:?})", self.resource)
    }
}

fn denied_of(error: &agent::ReserveError) -> Option<&agent::Denied> {
    match error {
        agent::ReserveError::Denied(denied) => Some(denied),
        _ => None,
    }
}

fn retry_after(denied: Option<&agent::Denied>) -> Option<f64> {
    Some(denied?.retry_after()?.as_secs_f64())
}

/// Copies that are held; given back by `release`, at the end of `with`, or with the object.
#[pyclass(module = "tollgate")]
struct Hold {
    inner: Option<agent::Hold>,
    forks: u64,
}

#[pymethods]
impl Hold {
    /// Gives back all that is held; a second time does nothing.
    fn release(&mut self) {
        let held = self.inner.take();
        if self.forks != forks() {
            // They are the parent's.
            std::mem::forget(held);
        }
    }

    /// How many are held.
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

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

/// A call whose cost is known afterwards.
#[pyclass(module = "tollgate")]
struct Estimate(Option<agent::Estimate>);

#[pymethods]
impl Estimate {
    /// Says what the call really cost: the difference is counted, or taken back. Once only.
    fn settle(&mut self, actual: u32) -> PyResult<()> {
        let Some(estimate) = self.0.take() else {
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

/// A call that was let through. It is true.
#[pyclass(module = "tollgate", frozen)]
struct Allowed(agent::Allowed);

#[pymethods]
impl Allowed {
    /// How many copies were granted.
    #[getter]
    fn copies(&self) -> u32 {
        self.0.copies()
    }

    /// Whether nothing has been heard of the aggregators for a while, or never.
    #[getter]
    fn blind(&self) -> bool {
        self.0.blind()
    }

    /// How many more copies the domain has, where that is known: while it is near its limit.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.0.remaining()
    }

    /// Header fields for the response: RateLimit and RateLimit-Policy, as far as they are known.
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

/// A call that was refused. It is false, and says what to answer.
#[pyclass(module = "tollgate", frozen)]
struct Denied {
    answer: HttpAnswer,
    retry_after: Option<f64>,
}

#[pymethods]
impl Denied {
    /// Seconds to wait, where that is known.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.retry_after
    }

    /// The HTTP status: 429, or 503 where nobody is heard and the policy is closed.
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

fn of_answer(
    py: Python<'_>,
    answer: Result<agent::Allowed, agent::HitError>,
) -> PyResult<Py<PyAny>> {
    match answer {
        Ok(allowed) => Ok(Allowed(allowed).into_pyobject(py)?.into_any().unbind()),
        Err(error) => of_refused(py, &error),
    }
}

fn of_refused(py: Python<'_>, error: &agent::HitError) -> PyResult<Py<PyAny>> {
    match error {
        agent::HitError::Misuse(misuse) => Err(PyValueError::new_err(misuse.to_string())),
        error => denied(py, error.http(), retry_after(error.denied())),
    }
}

fn denied(py: Python<'_>, answer: HttpAnswer, retry_after: Option<f64>) -> PyResult<Py<PyAny>> {
    let denied = Denied {
        answer,
        retry_after,
    };
    Ok(denied.into_pyobject(py)?.into_any().unbind())
}

/// The classes.
#[pymodule]
mod _tollgate {
    #[pymodule_export]
    use super::{Agent, Allowed, Copies, Denied, Estimate, Hold, Rate, after_fork};
}
