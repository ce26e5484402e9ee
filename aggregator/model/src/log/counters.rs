//! What the model counts of a partition's entries.

use super::input::{EntryKind, NotRuled};
use crate::stream::EntryOutcome;

/// Counts of ruled entries, and of everything that was not ruled in the ordinary way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounters {
    /// Entries that were ruled.
    pub entries_ruled: u64,
    /// Granted hits.
    pub hits_granted: u64,
    /// Hits of excess.
    pub hits_excess: u64,
    /// Hits that were too late to be granted or counted as excess.
    pub hits_late: u64,
    /// Copies that settlements took back.
    pub copies_refunded: u64,
    /// Downward settlements that found nothing to take back.
    pub refunds_empty: u64,
    /// Entries in batches that were received before.
    pub entries_duplicate: u64,
    /// Entries in batches older than the window of duplicates.
    pub entries_older: u64,
    /// Entries stamped more than 10 minutes before their append.
    pub entries_too_old: u64,
    /// Entries on resources without limits.
    pub entries_unconfigured: u64,
    /// Entries of new pairs at the cap.
    pub entries_at_cap: u64,
    /// Totals that did not follow the last applied total.
    pub totals_out_of_order: u64,
    /// Ticks in a slot of which a tick had been counted already.
    pub ticks_ignored: u64,
}

impl ModelCounters {
    /// Counts an entry that was ruled.
    pub(super) fn ruled(&mut self, kind: EntryKind, ruled: &EntryOutcome) {
        self.entries_ruled += 1;
        self.hits_granted = self.hits_granted.saturating_add(ruled.granted);
        self.hits_excess = self.hits_excess.saturating_add(ruled.excess);
        self.hits_late = self.hits_late.saturating_add(ruled.late);
        if matches!(kind, EntryKind::Refund { .. }) {
            self.copies_refunded = self.copies_refunded.saturating_add(ruled.refunded);
            self.refunds_empty += u64::from(ruled.refunded == 0);
        }
    }

    /// Counts an entry that was not ruled.
    pub(super) fn not_ruled(&mut self, why: NotRuled) {
        *match why {
            NotRuled::Duplicate => &mut self.entries_duplicate,
            NotRuled::OlderThanWindow => &mut self.entries_older,
            NotRuled::TooOld => &mut self.entries_too_old,
            NotRuled::Unconfigured => &mut self.entries_unconfigured,
            NotRuled::AtCap => &mut self.entries_at_cap,
        } += 1;
    }
}
