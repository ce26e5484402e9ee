//! The global limit in the stream reading: copies of all domains, on a pair of their own.
//!
//! ```text
//! global 3   2 copies in ms 0 and 2 in ms 400: one of the latter is excess, and counts
//!            denied until 1.000001, when the two of ms 0 have left
//! ```
//!
//! As on any pair, copies that were let through count, granted or not, as long as fewer than twice the
//! limit count; unguarded excess does not. A copy is late only if it has left its second at the pair's
//! time; any other counts under its own stamp. Knows nothing of totals and where they come from.

use tollgate_shared::time::Timestamp;

use super::open_again::Until;
use super::stamps::Stamps;
use super::window::CountsStamps as _;
use tollgate_limits::SECOND;
use tollgate_limits::Window;
use tollgate_limits::rate::has_left;

/// The ruling on copies. The three numbers add up to all copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Under the limit.
    pub granted: u64,
    /// Above it.
    pub excess: u64,
    /// Too late to rule.
    pub late: u64,
}

/// Counts `copies` stamped `at` at the pair's time `now`, which must not be before `at`.
pub fn count(
    limit: u64,
    second: &mut Stamps,
    (at, now): (Timestamp, Timestamp),
    copies: u64,
    unguarded: bool,
) -> Share {
    if has_left(SECOND, at, now) {
        return Share {
            late: copies,
            ..Share::default()
        };
    }
    let window = Window::of_second(limit);
    let granted = copies.min(window.late_room(second, at, now));
    window.take(second, (at, now), granted);
    let excess = copies - granted;
    if !unguarded {
        window.take_excess(second, (at, now), excess);
    }
    Share {
        granted,
        excess,
        late: 0,
    }
}

/// When the global limit is open for one more copy.
pub fn open_again(limit: u64, second: &Stamps, now: Timestamp) -> Until {
    match Window::of_second(limit).opens(second, now) {
        Timestamp::MAX => Until::Never,
        opens if opens <= now => Until::Now,
        opens => Until::At(opens),
    }
}
