//! This process's agent; the child of a fork makes one of its own.
//!
//! What stays true: the child of a fork neither uses nor ends anything of its parent's agent.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tollgate_agent as agent;

use crate::forks;

/// An agent's settings, kept for another agent after a fork.
#[derive(Clone)]
pub(crate) struct AgentSettings {
    pub from_env: bool,
    pub name: Option<String>,
    pub aggregators: Vec<String>,
    pub domain_key_file: Option<String>,
    pub key_file: Option<String>,
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
        if let Some(path) = &self.key_file {
            builder = builder.key_file(path);
        }
        builder.build()
    }

    /// On a thread of its own: after a fork, the forking thread's random numbers continue in the child as in the
    /// parent, so an agent made there would draw the same secret as its siblings.
    fn build_apart(&self) -> PyResult<agent::Agent> {
        let settings = self.clone();
        let made = std::thread::spawn(move || settings.build()).join();
        match made {
            Ok(made) => made.map_err(|error| PyValueError::new_err(error.to_string())),
            Err(_) => Err(PyRuntimeError::new_err("the agent could not be created")),
        }
    }
}

/// The agent, and the process in which it was made. A class, so that it is only borrowed under the interpreter's
/// lock.
#[pyclass]
pub(crate) struct ProcessAgent {
    pub settings: AgentSettings,
    pub inner: Option<agent::Agent>,
    pub forks: u64,
}

impl ProcessAgent {
    pub fn new(settings: AgentSettings) -> PyResult<Self> {
        let inner = settings.build_apart()?;
        Ok(Self {
            settings,
            inner: Some(inner),
            forks: forks(),
        })
    }

    /// This process's agent.
    pub fn current(&mut self) -> PyResult<&agent::Agent> {
        if self.forks != forks() || self.inner.is_none() {
            // The parent's agent has no threads here, and dropping it would wait for them.
            std::mem::forget(self.inner.take());
            self.inner = Some(self.settings.build_apart()?);
            self.forks = forks();
        }
        let inner = self.inner.as_ref();
        inner.ok_or_else(|| PyRuntimeError::new_err("the agent has ended"))
    }
}
