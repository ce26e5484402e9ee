//! How many connections the process has descriptors for.
//!
//! Connections are kept to what the limit on open files allows, less a reserve for files, for HTTP and
//! for the brokers: a process without a descriptor can neither write its log nor say that it is alive.
//! The limit is raised to the hard one, which the operator set, in aggregators alone: an agent is a
//! guest in its process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Above this the limit is not raised, since some programs look at every descriptor that may be open.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// For HTTP (256 connections), segments and snapshots of partitions, and brokers.
const RESERVE: u64 = 512;

/// Raises the limit on open files, and returns how many connections of agents there may be.
pub fn raise() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .unwrap_or(DESCRIPTORS_MAX)
        .min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "the limit on open files cannot be raised");
            limit = getrlimit(Resource::Nofile);
        }
    }
    connections(limit.current.unwrap_or(DESCRIPTORS_MAX))
}

/// How many connections a limit on open files allows: half of a small one is kept.
fn connections(limit: u64) -> usize {
    let reserve = RESERVE.min(limit / 2);
    usize::try_from(limit - reserve)
        .unwrap_or(usize::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_kept_whatever_the_limit() {
        assert_eq!(connections(1 << 20), (1 << 20) - 512);
        assert_eq!(connections(1_024), 512);
        assert_eq!(connections(256), 128);
        assert_eq!(connections(0), 1);
    }
}
