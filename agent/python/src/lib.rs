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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;

/// How many forks lie between this process and the one that made the first agent.
static FORKS: AtomicU64 = AtomicU64::new(0);

fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on. Not by `os.register_at_fork`: uWSGI, for one, forks without the interpreter.
fn watch_forks() {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    tollgate_forks::watch(&WATCHING, in_child);
}

/// The classes. On a free-threaded Python the import enables the lock, upon which their borrows rely.
#[pymodule(gil_used = true)]
mod _tollgate {
    #[pymodule_export]
    use super::agent::PyAgent;
    #[pymodule_export]
    use super::answers::{PyAllowed, PyDenied};
    #[pymodule_export]
    use super::copies::{PyCopies, PyHold, PyRevoked};
    #[pymodule_export]
    use super::rate::{PyEstimate, PyRate};
}
