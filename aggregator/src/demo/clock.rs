//! The two clocks of a demonstration: the monotonic one, which all processes of the machine share, for delays; and
//! the wall clock, for a common start.

/// The monotonic clock that all processes of a machine share, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

/// The wall clock in microseconds since the Unix epoch.
pub fn wall_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64)
        .saturating_mul(1_000_000)
        .saturating_add(now.tv_nsec as u64 / 1_000)
}
