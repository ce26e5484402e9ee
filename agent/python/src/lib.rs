//! The agent for Python: the classes of `tollgate._tollgate`.
//!
//! No call waits, so only `ready`, `shutdown` and the end of the process release the interpreter's lock. After a fork
//! the child has none of the agent's threads: its copies of these objects notice that, and the child's first call makes
//! an agent of its own, with the same settings. What stays true: an object is only borrowed under the interpreter's
//! lock, so that no fork happens while one is in use.

mod agent;
mod answers;
mod copies;
mod domains;
mod lines;
mod numbers;
mod process;
mod rate;

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

/// How many forks lie between this process and the one that loaded the module.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The interpreter calls this in the child of a fork.
#[pyfunction]
fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// The classes.
#[pymodule]
mod _tollgate {
    #[pymodule_export]
    use super::after_fork;
    #[pymodule_export]
    use super::agent::PyAgent;
    #[pymodule_export]
    use super::answers::{PyAllowed, PyDenied};
    #[pymodule_export]
    use super::copies::{PyCopies, PyHold, PyRevoked};
    #[pymodule_export]
    use super::rate::{PyEstimate, PyRate};
}
