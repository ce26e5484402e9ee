//! The machine's wall clock. A log takes append times from it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_shared::time::{Span, Timestamp};

/// A clock that returns the wall time.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The wall time now, or the Unix epoch if the machine's clock is before it.
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::ZERO.saturating_add(Span::from_std(since.unwrap_or(Duration::ZERO)))
}

/// The machine's wall clock.
pub fn system_clock() -> WallClock {
    Arc::new(wall)
}
