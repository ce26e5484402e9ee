//! Tags of aggregators' records in a log that is read, with or without the fleet's keys.
//!
//! Knows nothing of what a record means. What stays true: whatever is taken as good without having been checked is
//! said, by the ids of the missing keys.

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::{CHECKSUM_ID, Keyring};

use crate::source::{Source, SourceError, limits_of};

/// What is at hand to check the tags of a log, whatever limits are in force where a record stands.
#[derive(Clone, Debug)]
pub struct Tags {
    keys: Keyring,
    /// The ids that count anywhere in the log.
    ids: Vec<Box<str>>,
}

impl Tags {
    /// Those of a log.
    ///
    /// # Errors
    ///
    /// Where its limits cannot be read.
    pub fn of(source: &dyn Source, keys: &Keyring) -> Result<Self, SourceError> {
        let book = limits_of(source)?;
        let mut ids: Vec<Box<str>> = book.record_keys_named().map(Box::from).collect();
        // Before the first limits nothing else counts.
        ids.push(CHECKSUM_ID.into());
        ids.sort_unstable();
        ids.dedup();
        Ok(Self {
            keys: keys.clone(),
            ids,
        })
    }

    /// Whether a record may be of an aggregator.
    pub fn are_good(&self, bytes: &[u8], partition: u32) -> bool {
        self.keys.authentic(&self.ids, bytes, partition)
    }

    /// The ids of the keys that are missing.
    pub fn unchecked(&self) -> Vec<String> {
        self.keys.unchecked(self.ids.iter().map(|id| &**id))
    }
}

/// The ids of the keys that limits name and that are missing.
pub fn unchecked(keys: &Keyring, book: &LimitsBook) -> Vec<String> {
    keys.unchecked(book.record_keys_named())
}

/// What to say of them, where there are any.
pub fn unchecked_line(ids: &[String]) -> Option<String> {
    let named = ids.join(", ");
    (!ids.is_empty()).then(|| {
        format!(
            "aggregators' records under the keys {named} are taken as good: their tags cannot be checked without the \
             keys (--key-file)"
        )
    })
}
