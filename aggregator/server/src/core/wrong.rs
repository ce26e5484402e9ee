//! An aggregator that is wrong on purpose, to see that it is found out. Only in builds for tests.
//!
//! It forgets every third batch of hits, as a build with a fault might. Knows nothing of who finds out.
//! What stays true: it is wrong in the same way each time, or testimonies would differ by chance.

use tollgate_shared::wire::record::{Record, kind};

use super::Core;
use super::partition::event::PartitionContext;

impl Core {
    /// From now on it is wrong.
    pub fn go_wrong(&mut self) {
        tracing::warn!("this aggregator is wrong on purpose");
        self.wrong = true;
    }
}

impl PartitionContext<'_> {
    /// A record as it sees it.
    pub(super) fn wrongly<'a>(&self, offset: u64, record: Record<'a>) -> Record<'a> {
        match record {
            Record::Hits(_) if self.wrong && offset.is_multiple_of(3) => Record::Unknown {
                kind: kind::SKIPPABLE,
                skippable: true,
            },
            record => record,
        }
    }
}
