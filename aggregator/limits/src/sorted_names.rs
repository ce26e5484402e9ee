//! Names in order, which versions share.
//!
//! ```text
//! version 18    [ acme … globex ][ hooli … stark ][ umbrella … ]
//! version 19    [ acme … globex ][ hooli … tyrell ][ umbrella … ]      shares the first and the third chunk
//! ```
//!
//! A version that adds or removes a name copies one chunk and the list of chunks, not the names. Knows nothing of what
//! the names stand for. What stays true: names ascend, and each is there once.

use std::sync::Arc;

/// The most names in a chunk.
const CHUNK_MAX: usize = 256;

/// The names.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedNames {
    /// Ascending, and never empty.
    chunks: Arc<Vec<Arc<Vec<Arc<str>>>>>,
}

impl SortedNames {
    /// All names, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let names = self.chunks.iter().flat_map(|chunk| chunk.iter());
        names.map(|name| &**name)
    }

    /// The chunk that a name belongs to, and the name's position in it: `Ok` if the name is there.
    fn find(&self, name: &str) -> (usize, Result<usize, usize>) {
        let is_before =
            |chunk: &Arc<Vec<Arc<str>>>| chunk.first().is_some_and(|one| **one <= *name);
        let at = self.chunks.partition_point(is_before).saturating_sub(1);
        let found = self.chunks.get(at).map_or(Err(0), |chunk| {
            chunk.binary_search_by(|other| (**other).cmp(name))
        });
        (at, found)
    }

    /// Adds a name; clones of this value stay as they are.
    pub fn insert(&mut self, name: &str) {
        let (at, Err(place)) = self.find(name) else {
            return;
        };
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(at).map(Arc::make_mut) else {
            chunks.push(Arc::new(vec![name.into()]));
            return;
        };
        chunk.insert(place, name.into());
        if CHUNK_MAX < chunk.len() {
            let upper = chunk.split_off(CHUNK_MAX / 2);
            chunks.insert(at + 1, Arc::new(upper));
        }
    }

    /// Removes a name, if it is there; clones of this value stay as they are.
    pub fn remove(&mut self, name: &str) {
        let (at, Ok(place)) = self.find(name) else {
            return;
        };
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[at]);
        chunk.remove(place);
        if chunk.is_empty() {
            chunks.remove(at);
        }
    }
}

impl PartialEq for SortedNames {
    fn eq(&self, other: &Self) -> bool {
        // Chunks depend on the order of the changes.
        Arc::ptr_eq(&self.chunks, &other.chunks) || self.iter().eq(other.iter())
    }
}

impl Eq for SortedNames {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    #[test]
    fn names_ascend_whatever_the_order_of_changes() {
        let mut random = StdRng::seed_from_u64(1);
        let (mut names, mut expected) = (SortedNames::default(), BTreeSet::new());
        for n in 0..20_000 {
            let name = format!("d{}", random.random_range(0..2_000));
            // First mostly additions, at the end mostly removals.
            if random.random_range(0..20_000) < n {
                names.remove(&name);
                expected.remove(&name);
            } else {
                names.insert(&name);
                expected.insert(name);
            }
            if n % 500 == 0 {
                assert!(names.iter().eq(expected.iter()));
                assert!(names.chunks.iter().all(|chunk| !chunk.is_empty()));
            }
        }
        let mut again = SortedNames::default();
        expected.iter().rev().for_each(|name| again.insert(name));
        assert_eq!(names, again);
        expected.iter().for_each(|name| names.remove(name));
        assert_eq!(names, SortedNames::default());
    }

    #[test]
    fn a_change_copies_one_chunk() {
        let mut before = SortedNames::default();
        (0..10_000).for_each(|n| before.insert(&format!("d{n:05}")));
        let mut after = before.clone();
        after.insert("d05000x");
        after.remove("d05001");
        after.remove("d05001");
        assert_eq!(
            (before.iter().count(), after.iter().count()),
            (10_000, 10_000)
        );
        let is_shared = |chunk: &&Arc<Vec<Arc<str>>>| {
            before.chunks.iter().any(|other| Arc::ptr_eq(chunk, other))
        };
        let copied = after.chunks.iter().filter(|chunk| !is_shared(chunk));
        assert!(copied.count() <= 2);
        assert!(39 <= after.chunks.len());
    }
}
