//! A limits document as it was pushed, with its digest.
//!
//! Shared by all versions that have this document. Knows nothing of its content, except for the tables of time
//! zones.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::digest;
use crate::without_zone_tables;

/// The text of a document.
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    digest: [u8; 32],
    text: Arc<str>,
}

impl Text {
    /// BLAKE3 of the text.
    pub const fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Whether it differs from a document only in the tables of time zones: a newer build has newer offsets, which
    /// is no change by an operator.
    pub fn differs_in_zones_alone(&self, document: &str) -> bool {
        document.contains("[zones.") && without_zone_tables(self) == without_zone_tables(document)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self {
            digest: digest(text.as_bytes()),
            text: text.into(),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.text.len())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}
