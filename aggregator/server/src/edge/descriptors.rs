//! How many connections the process has descriptors for.
//!
//! Connections are bounded by the limit on open files, less a reserve for files, HTTP and brokers: a
//! process without a descriptor can neither write its log nor answer health checks. Only aggregators raise
//! the soft limit to the hard limit, which the operator set; an agent does not, since it is a guest in its
//! process.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The limit is not raised above this, since some programs iterate over every possible descriptor.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// For HTTP (256 connections), segments and snapshots of partitions, and brokers.
const RESERVE: u64 = 512;

/// For what a process opens whatever its log is: listeners, epoll, standard streams.
const OTHERS: u64 = 32;

/// Raises the limit on open files, and returns how many connections of agents there may be.
pub fn raise() -> usize {
    connections(raised())
}

/// Raises the limit on open files, and checks that it leaves room for the files of a journal.
///
/// # Errors
///
/// A description of the fault, with the limit that is needed.
pub fn check_room_for_journal(partitions: u32) -> Result<(), String> {
    let (limit, needed) = (raised(), needed_for_journal(partitions));
    if limit < needed {
        return Err(format!(
            "the process may open {limit} files: a journal of {partitions} partitions needs {needed} \
             (ulimit -n, LimitNOFILE)"
        ));
    }
    Ok(())
}

/// Each partition has a segment of hits and one of denials open for writing, and one of hits for reading; limits
/// have two. Connections may use the other half of the limit.
fn needed_for_journal(partitions: u32) -> u64 {
    2 * (3 * u64::from(partitions) + 2 + OTHERS)
}

/// Raises the limit on open files, and returns it.
fn raised() -> u64 {
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
    limit.current.unwrap_or(DESCRIPTORS_MAX)
}

/// How many connections a limit on open files allows: of a small limit half is reserved.
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
