//! The keys that count for aggregators' records, version by version.

use super::LimitsBook;

impl LimitsBook {
    /// The ids of the keys under which aggregators' records count in a partition under this version; empty:
    /// checksums count.
    pub fn record_keys(&self, version: u64) -> &[Box<str>] {
        let version = self.get(version);
        version.map_or(&[], |version| version.limits.record_keys())
    }

    /// The ids of all versions, each as often as a version names it.
    pub fn record_keys_named(&self) -> impl Iterator<Item = &str> {
        let versions = self.versions.values();
        versions.flat_map(|version| version.limits.record_keys().iter().map(|id| &**id))
    }
}
