//! Under which key a record is written, and whether a record that was read counts.
//!
//! ```text
//! limits version in force in the partition ── record_keys ──> ids ── security.key_file ──> keys
//! ```
//!
//! The version in force is that of the partition in which a record stands, so that the record counts, or does not,
//! alike on every machine. Knows nothing of key files. What stays true: a partition is not ruled under a version that
//! names a key which is missing here; an aggregator that lacks one of a version's keys does not activate the version.

use tollgate_limits::Limits;
use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::{CHECKSUM_ID, Keyring};
use tollgate_shared::mac::MacKey;

use super::environment::Environment;
use super::partition::Partition;
use super::partition::event::{PartitionContext, PartitionStep};

/// Nothing is written under it if a key is missing: a partition that lacks one is stopped.
static CHECKSUM: MacKey = MacKey::UNPROTECTED;

/// The key to write with in a partition that this version rules.
pub(super) fn writer<'k>(keys: &'k Keyring, book: &LimitsBook, version: u64) -> &'k MacKey {
    keys.writer(book.record_keys(version)).unwrap_or(&CHECKSUM)
}

/// What is wrong with limits that name a key which is missing here.
pub(super) fn why_missing(keys: &Keyring, limits: &Limits) -> Option<String> {
    let id = keys.missing(limits.record_keys())?;
    Some(format!(
        "record_keys names \"{id}\", and security.key_file has no key of this id here: put its line there, as the \
         fleet's other aggregators have it, and start this one again"
    ))
}

impl PartitionContext<'_> {
    /// The key to write with in a partition that this version rules.
    pub(super) fn writer(&self, version: u64) -> &MacKey {
        writer(&self.settings.keys, &self.limits.book, version)
    }
}

impl Partition {
    /// Whether an own activation is on its way after which the current writing key no longer counts: a record
    /// behind it would be refused.
    pub(super) fn is_ending_its_key(&self, context: &PartitionContext<'_>) -> bool {
        if self.pointing.slot.ticket.is_none() {
            return false;
        }
        let ids = |version| context.limits.book.record_keys(version);
        let written = ids(self.ruler.version()).first();
        let written = written.map_or(CHECKSUM_ID, |id| &**id);
        match ids(self.pointing.version) {
            [] => written != CHECKSUM_ID,
            counted => counted.iter().all(|id| **id != *written),
        }
    }

    /// Why this process cannot rule the partition under a limits version: a key is missing.
    pub(super) fn why_no_key(&self, version: u64, step: &PartitionStep<'_>) -> Option<String> {
        let context = step.context;
        let limits = &context.limits.book.get(version)?.limits;
        let why = why_missing(&context.settings.keys, limits)?;
        Some(format!("limits version {version}: {why}"))
    }
}

/// Logs at start how aggregators' records are tagged, once the limits are known.
pub(super) fn log_missing(book: &LimitsBook, env: &Environment) {
    let keys = &env.settings.keys;
    if keys.is_empty() {
        return;
    }
    let at_hand: Vec<&str> = keys.ids().collect();
    match book.record_keys(book.latest_number()) {
        [] => tracing::warn!(
            ?at_hand,
            "limits state no record_keys: aggregators' records carry checksums, which any process can compute, whatever \
             security.key_file has"
        ),
        ids if ids.iter().any(|id| **id == *CHECKSUM_ID) => tracing::warn!(
            ?ids,
            "record_keys also accepts checksums, which any process can compute"
        ),
        ids => tracing::info!(?ids, ?at_hand, "aggregators' records are signed"),
    }
}
