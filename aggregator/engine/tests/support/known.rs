//! The versions that an engine under test may need: documents, and operators' acts.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_engine::engine::Versions;
use tollgate_limits::Limits;
use tollgate_shared::wire::amendment::Act;

/// Limits and operators' acts, by version.
pub struct Known<'a>(
    pub &'a BTreeMap<u64, Arc<Limits>>,
    pub &'a BTreeMap<u64, Arc<Act>>,
);

impl Versions for Known<'_> {
    fn limits(&self, version: u64) -> Option<Arc<Limits>> {
        let (_, limits) = self.0.range(..=version).next_back()?;
        (self.0.contains_key(&version) || self.1.contains_key(&version)).then(|| limits.clone())
    }

    fn next_after(&self, version: Option<u64>) -> Option<u64> {
        let acts = self.1.range(version.map_or(0, |version| version + 1)..);
        let acts = acts.map(|(number, _)| *number).next();
        [self.0.next_after(version), acts]
            .into_iter()
            .flatten()
            .min()
    }

    fn amendment(&self, version: u64) -> Option<Arc<Act>> {
        let act = self.1.get(&version).filter(|act| !act.is_limits());
        act.cloned()
    }

    fn rows(&self, version: u64) -> Option<Arc<Act>> {
        let act = self.1.get(&version).filter(|act| act.is_limits());
        act.cloned()
    }
}
