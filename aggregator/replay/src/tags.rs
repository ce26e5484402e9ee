//! Tags of aggregators' records in a log that is read, with or without the fleet's keys.
//!
//! Knows nothing of what a record means. What stays true: if tags are trusted unchecked, the ids of
//! the missing keys are reported.

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::{CHECKSUM_ID, Keyring};

use crate::source::{Source, SourceError, limits_of};

/// The keys at hand to check the tags of a log, whatever limits are in force at a record.
#[derive(Clone, Debug)]
pub struct Tags {
    keys: Keyring,
    /// The ids of keys that count anywhere in the log.
    ids: Vec<Box<str>>,
}

impl Tags {
    /// The tags of a log.
    ///
    /// # Errors
    ///
    /// If its limits cannot be read.
    pub fn of(source: &dyn Source, keys: &Keyring) -> Result<Self, SourceError> {
        let book = limits_of(source)?;
        let mut ids: Vec<Box<str>> = book.record_keys_named().map(Box::from).collect();
        // Before the first limits nothing but checksums count.
        ids.push(CHECKSUM_ID.into());
        ids.sort_unstable();
        ids.dedup();
        Ok(Self {
            keys: keys.clone(),
            ids,
        })
    }

    /// Whether an aggregator may have written a record.
    pub fn are_good(&self, bytes: &[u8], partition: u32) -> bool {
        self.keys.authentic(&self.ids, bytes, partition)
    }

    /// The ids of the missing keys.
    pub fn unchecked(&self) -> Vec<String> {
        self.keys.unchecked(self.ids.iter().map(|id| &**id))
    }
}

/// The ids of the keys that limits name and that are missing.
pub fn unchecked(keys: &Keyring, book: &LimitsBook) -> Vec<String> {
    keys.unchecked(book.record_keys_named())
}

/// A message about missing keys, if there are any.
pub fn unchecked_line(ids: &[String]) -> Option<String> {
    let named = ids.join(", ");
    (!ids.is_empty()).then(|| {
        format!(
            "aggregators' records under the keys {named} are accepted unverified: their tags cannot be checked without the \
             keys (--key-file)"
        )
    })
}
