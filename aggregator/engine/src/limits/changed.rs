//! What was changed of one domain after another, laid over a table that stays as it is.
//!
//! ```text
//! table     a million domains, shared by all versions that came of one document
//! layers    [ 500 changed ][ 40 ][ 3 ][ 1 ]      the newest last; each far smaller than the one before it
//! ```
//!
//! A version differs from the one before it by one domain, and both are kept, so neither may cost what
//! the table costs. A change is a layer of one; layers that are not [`RATIO`] times larger than what lies
//! over them are put together with it. So a version adds a few entries' memory on the average, and a domain
//! is looked up in as many layers as the number of changes has digits. Knows nothing of what is changed.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

/// How many times larger a layer is than the next at least.
const RATIO: usize = 8;

/// One layer; none: the domain has nothing of its own any more. Looked up and never walked in its order.
type Layer<V> = HashMap<Box<str>, Option<V>, BuildHasherDefault<SipHasher13>>;

/// The layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed<V> {
    layers: Vec<Arc<Layer<V>>>,
}

impl<V> Default for Changed<V> {
    fn default() -> Self {
        Self { layers: Vec::new() }
    }
}

impl<V: Clone> Changed<V> {
    /// What was changed of a domain last: a value, or that it has none any more; none: nothing was.
    #[inline]
    pub fn get(&self, domain: &str) -> Option<Option<&V>> {
        if self.layers.is_empty() {
            return None;
        }
        let found = self.layers.iter().rev().find_map(|layer| layer.get(domain));
        found.map(Option::as_ref)
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Everything that was changed, by domain.
    pub fn all(&self) -> BTreeMap<&str, Option<&V>> {
        let layers = self.layers.iter().flat_map(|layer| layer.iter());
        // The newest comes last.
        layers.map(|(of, value)| (&**of, value.as_ref())).collect()
    }

    /// The same with one domain changed.
    pub fn with(&self, domain: &str, value: Option<V>) -> Self {
        let mut layers = self.layers.clone();
        let mut newest = Layer::default();
        newest.insert(domain.into(), value);
        while let Some(below) = layers.pop_if(|below| below.len() < RATIO * newest.len()) {
            let mut both = (*below).clone();
            both.extend(newest);
            newest = both;
        }
        layers.push(Arc::new(newest));
        Self { layers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_counts_and_layers_stay_few() {
        let mut changed: Changed<u64> = Changed::default();
        let mut expected = BTreeMap::new();
        for n in 0..3_000u64 {
            let domain = format!("d{}", n * 7_919 % 1_000);
            let value = (n % 5 != 0).then_some(n);
            changed = changed.with(&domain, value);
            expected.insert(domain, value);
        }
        assert!(changed.layers.len() <= 4, "{}", changed.layers.len());
        let all = changed.all();
        assert_eq!(all.len(), expected.len());
        for (domain, value) in &expected {
            assert_eq!(changed.get(domain), Some(value.as_ref()));
            assert_eq!(all[&**domain], value.as_ref());
        }
        assert_eq!(changed.get("nobody"), None);
    }

    #[test]
    fn what_came_before_stays_as_it_was() {
        let before = Changed::default().with("a", Some(1));
        let after = before.with("a", None);
        assert_eq!(before.get("a"), Some(Some(&1)));
        assert_eq!(after.get("a"), Some(None));
    }
}
