//! Totals that nobody who rules their source has appended, as far as that can be told.
//!
//! ```text
//! total of partition 3's record 17, 40 hits     this process rules partition 3 beyond 17, and its last
//!                                               record with a total for the resource is 12: forged
//! ```
//!
//! Without a key a record's tag is a checksum, which anybody who can write to the log can make. Such a total
//! is applied all the same, since rulings depend on the log alone and others could not tell; it is counted,
//! so that operators look at who may write there. What it refused ends within a second. Knows nothing of
//! keys. What stays true: nothing is ruled by what is found here.

use super::partition::{Partition, Stage};
use super::totals::ChainKey;

/// Says that a partition has met a forged total, and how many of which nothing was said.
pub(super) fn say(partition: u32, key: &ChainKey, offset: u64, unsaid: u64) {
    tracing::warn!(
        partition,
        resource = ?key.resource,
        source_partition = key.source,
        source_offset = offset,
        unsaid,
        "a total that its source never had: somebody else writes to the log"
    );
}

/// Whether a total is of a record that its source never had, as far as that is known here.
pub(super) fn is_forged(partitions: &[Partition], key: &ChainKey, offset: u64) -> bool {
    let source = partitions.get(key.source as usize);
    source.is_none_or(|source| source.never_totalled(&key.resource, offset))
}

impl Partition {
    /// Whether a total is of a record that was ruled here and that had none for this resource.
    pub(super) fn never_totalled(&self, resource: &str, offset: u64) -> bool {
        // What this process has not ruled yet another may have ruled.
        let is_ruled =
            self.announcing && self.stage == Stage::Ruling && offset < self.position.next;
        let mut totalled = self.ruler.totalled();
        let last = totalled.find(|(of, _)| *of == resource);
        is_ruled && last.is_none_or(|(_, last)| last < offset)
    }
}
