//! The clocks: one that all processes of the machine share, and one that runs only while this
//! thread does.
//!
//! Pauses are measured in thread CPU time, since wall time on a busy machine would include the
//! scheduler's own pauses.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// An instant of the monotonic clock that all processes of this machine share, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// The CPU time of this thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// The CPU time of this process with all its threads so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// The wall clock, in microseconds since the Unix epoch.
pub fn wall_us() -> u64 {
    nanos(clock_gettime(ClockId::Realtime)) / 1_000
}

/// How long something took this thread, in wall time and in CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Thread CPU time in nanoseconds.
    pub cpu_ns: u64,
}

/// Runs something and measures how long it took.
pub fn took<R>(run: impl FnOnce() -> R) -> (R, Took) {
    let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
    let result = run();
    let (cpu_ns, wall_ns) = (thread_cpu_ns() - cpu, monotonic_ns() - wall);
    (result, Took { wall_ns, cpu_ns })
}

/// Whole nanoseconds of a duration.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_does_not_run() {
        let (_, waited) = took(|| {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let _ = receiver.recv_timeout(Duration::from_millis(30));
            drop(sender);
        });
        assert!(30_000_000 <= waited.wall_ns, "{waited:?}");
        assert!(waited.cpu_ns < 15_000_000, "{waited:?}");
    }
}
