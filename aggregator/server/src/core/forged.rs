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

use tollgate_shared::wire::record::Totals;

use super::Core;
use super::partition::Stage;

impl Core {
    /// Looks at a total that was met, and counts it if its source never had it.
    pub(super) fn look_for_forgery(&mut self, index: u32, totals: &Totals<'_>) {
        // One without hits bridges a chain.
        if totals.counted().next().is_none() || !self.is_forged(totals) {
            return;
        }
        self.counters.totals_forged += 1;
        tracing::warn!(
            partition = index,
            resource = ?totals.resource,
            source_partition = totals.source_partition,
            source_offset = totals.source_offset,
            "a total that its source never had: somebody else writes to the log"
        );
    }

    fn is_forged(&self, totals: &Totals<'_>) -> bool {
        if self.settings.partitions <= totals.source_partition {
            return true;
        }
        let Some(source) = self.partitions.get(totals.source_partition as usize) else {
            return false;
        };
        // What this process has not ruled yet another may have ruled.
        let is_ruled = source.announcing
            && source.stage == Stage::Ruling
            && totals.source_offset < source.next;
        let last = source
            .ruler
            .totalled()
            .find(|(resource, _)| *resource == totals.resource)
            .map(|(_, offset)| offset);
        is_ruled && last.is_none_or(|last| last < totals.source_offset)
    }
}
