//! The agent for Python: the classes of `tollgate._tollgate`.
//!
//! No call waits, so none releases the interpreter's lock but `ready` and `shutdown`. After a fork the child has
//! none of the agent's threads: its copies of these objects notice, and the child's first call makes an agent of
//! its own, with the same settings. What stays true: an object is borrowed under the interpreter's lock alone, so
//! that no fork can find one in use.

mod agent;
mod answers;
mod copies;
mod process;
mod rate;

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

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
    use super::copies::{PyCopies, PyHold};
    #[pymodule_export]
    use super::rate::{PyEstimate, PyRate};
}
