//! Forged totals: totals that no ruling aggregator of their source can have appended, as far as is known here.
//!
//! ```text
//! total of partition 3's record 17, 40 hits     this process rules partition 3 beyond 17, and its last
//!                                               record with a total for the resource is 12: forged
//! ```
//!
//! Without a key a record's tag is a checksum, which anybody who can write to the log can make. A forged total
//! is applied all the same, since rulings depend on the log alone and other aggregators may not recognise it.
//! It is counted, so that operators check who may write to the log. The hits that it counts leave within a second; but
//! totals of records before the one that it names count nothing from then on. Only record keys prevent that. Knows
//! nothing of keys. What stays true: no ruling depends on what is found here.

use super::partition::{Partition, Stage};
use super::totals::TotalsKey;

/// Logs that a partition has met a forged total, and how many before it were not logged.
pub(super) fn log_forged(partition: u32, key: &TotalsKey, offset: u64, unsaid: u64) {
    tracing::warn!(
        partition,
        resource = ?key.resource,
        source_partition = key.source,
        source_offset = offset,
        unsaid,
        "a total that its source partition never had: another process writes to the log"
    );
}

/// Whether a total names a record for which its source made no total, as far as is known here.
pub(super) fn is_forged(partitions: &[Partition], key: &TotalsKey, offset: u64) -> bool {
    let source = partitions.get(key.source as usize);
    source.is_none_or(|source| source.never_totalled(&key.resource, offset))
}

impl Partition {
    /// Whether this process ruled the record at `offset`, and made no total for this resource from it.
    pub(super) fn never_totalled(&self, resource: &str, offset: u64) -> bool {
        // Another aggregator may have ruled records that this process has not ruled yet.
        let is_ruled =
            self.announcing && self.stage == Stage::Ruling && offset < self.position.next;
        let mut totalled = self.ruler.totalled();
        let last = totalled.find(|(of, _)| *of == resource);
        is_ruled && last.is_none_or(|(_, last)| last < offset)
    }
}
