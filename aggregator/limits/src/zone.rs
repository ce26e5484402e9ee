//! A time zone as a table: the instants from which offsets from UTC hold.
//!
//! ```text
//! Europe/Berlin    1970-01-01 00:00 UTC  +3600
//!                  2026-03-29 01:00 UTC  +7200      ...for as many years as the document has them
//! ```
//!
//! Made when a document is normalised, so that the log contains what is applied. Knows nothing of
//! where zones come from. What stays true: the instants rise, and the first offset also holds before
//! its instant.

use tollgate_shared::time::Timestamp;

/// A zone's name and its offsets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone {
    name: Box<str>,
    offsets: Box<[(Timestamp, i32)]>,
}

impl Default for Zone {
    fn default() -> Self {
        Self::fixed("UTC", 0)
    }
}

impl Zone {
    /// A zone with a constant offset east of UTC, in seconds.
    pub fn fixed(name: &str, seconds_east: i32) -> Self {
        Self {
            name: name.into(),
            offsets: [(Timestamp::ZERO, seconds_east)].into(),
        }
    }

    /// A zone with the instants from which its offsets hold, in seconds east of UTC. `None` if there
    /// are no offsets or the instants do not rise.
    pub fn new(name: &str, offsets: &[(Timestamp, i32)]) -> Option<Self> {
        let rises = offsets.windows(2).all(|two| two[0].0 < two[1].0);
        (rises && !offsets.is_empty()).then(|| Self {
            name: name.into(),
            offsets: offsets.into(),
        })
    }

    /// The name as in documents. A quota keeps its count when a zone of the same name gets new tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instants from which offsets hold, and the offsets in seconds east of UTC.
    pub fn offsets(&self) -> &[(Timestamp, i32)] {
        &self.offsets
    }

    /// Seconds by which local time is ahead of UTC at an instant.
    pub fn offset_at(&self, at: Timestamp) -> i32 {
        let after = self.offsets.partition_point(|(from, _)| *from <= at);
        let of = self.offsets.get(after.saturating_sub(1));
        of.map_or(0, |(_, offset)| *offset)
    }
}
