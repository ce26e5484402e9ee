//! Changes of one domain after another, layered over a table that stays unchanged.
//!
//! ```text
//! table     a million domains, shared by all versions that come from one document
//! layers    [ 500 changed ][ 40 ][ 3 ][ 1 ]      the newest last; each far smaller than the one before it
//! ```
//!
//! A version differs from the one before it by one domain or by some thousands, and both are kept, so neither
//! may cost as much as the table. The changes of one version are a layer. A layer that is not [`RATIO`] times
//! larger than the one above it is merged with that one. So on average a version adds the memory of a few
//! entries for each change, and a look-up goes through as many layers as the number of changes has digits.
//! Knows nothing of what is changed.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

/// How many times larger each layer is, at least, than the next.
const RATIO: usize = 8;

/// One layer; `None`: the domain has no value of its own any more. Only looked up, never iterated in its
/// order.
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
    /// The last change of a domain: a value, or that it has none any more; `None`: it was never changed.
    #[inline]
    pub fn get(&self, domain: &str) -> Option<Option<&V>> {
        if self.layers.is_empty() {
            return None;
        }
        let found = self.layers.iter().rev().find_map(|layer| layer.get(domain));
        found.map(Option::as_ref)
    }

    /// All changes, by domain.
    pub fn all(&self) -> BTreeMap<&str, Option<&V>> {
        let layers = self.layers.iter().flat_map(|layer| layer.iter());
        // The newest layer comes last, and wins.
        layers.map(|(of, value)| (&**of, value.as_ref())).collect()
    }

    /// Changes one domain; clones of this value stay as they are.
    ///
    /// A layer that no other version shares is changed in place, so that many changes for one version cost no
    /// more than themselves. Look-ups give the same result either way.
    pub fn put(&mut self, domain: &str, value: Option<V>) {
        let ours = self.layers.pop_if(|newest| Arc::get_mut(newest).is_some());
        let mut newest = ours.and_then(Arc::into_inner).unwrap_or_default();
        newest.insert(domain.into(), value);
        let layers = &mut self.layers;
        while let Some(below) = layers.pop_if(|below| below.len() < RATIO * newest.len()) {
            let mut both = Arc::unwrap_or_clone(below);
            both.extend(newest);
            newest = both;
        }
        layers.push(Arc::new(newest));
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
            // Some versions differ by one domain from the one before, some by many.
            let before = (n < 1_500).then(|| changed.clone());
            changed.put(&domain, value);
            drop(before);
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
    fn an_earlier_clone_does_not_change() {
        let mut before = Changed::default();
        before.put("a", Some(1));
        let mut after = before.clone();
        after.put("a", None);
        after.put("b", Some(2));
        assert_eq!((before.get("a"), before.get("b")), (Some(Some(&1)), None));
        assert_eq!(
            (after.get("a"), after.get("b")),
            (Some(None), Some(Some(&2)))
        );
    }
}
