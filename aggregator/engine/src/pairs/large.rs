//! States that outgrew blocks: kept decoded, so that a pair of a thousand hits is ruled without
//! reading and writing them all.
//!
//! Knows nothing of how pairs are found. What stays true: a frozen copy does not see later changes.

use std::sync::Arc;

use super::codec::Stored;

/// States that outgrew blocks, by number. Shared with a frozen copy until they change.
#[derive(Clone, Default)]
pub(super) struct Large {
    /// Each with its part in the digest.
    states: Vec<(Arc<Stored>, u128)>,
    free: Vec<u32>,
}

impl Large {
    /// The state with this number.
    pub fn get(&self, number: u32) -> Option<&Stored> {
        self.states.get(number as usize).map(|(state, _)| &**state)
    }

    /// Reserves a number for a state.
    pub fn insert(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        self.states.push(Default::default());
        self.states.len() as u32 - 1
    }

    /// Frees a number.
    pub fn remove(&mut self, number: u32) {
        if let Some(state) = self.states.get_mut(number as usize) {
            *state = Default::default();
            self.free.push(number);
        }
    }

    /// Swaps a state with the working copy; stores the new digest and returns the old one.
    pub fn swap(&mut self, number: u32, working: &mut Stored, digest: u128) -> u128 {
        let Some((state, digest_before)) = self.states.get_mut(number as usize) else {
            return 0;
        };
        match Arc::get_mut(state) {
            Some(state) => std::mem::swap(state, working),
            None => {
                let copy = (**state).clone();
                *state = Arc::new(std::mem::replace(working, copy));
            }
        }
        std::mem::replace(digest_before, digest)
    }
}
