//! A list that is filled for one pair after another and keeps its memory in between.
//!
//! ```text
//! fill(3)        three items as new, whatever the last pair left in them
//! truncate(1)    the first stays; the memory of the other two is kept for the next pair
//! ```
//!
//! Knows nothing of what its items remember. What stays true: an item beyond the length is as new.

/// An item that can be reset to new without freeing its memory.
pub trait Renew: Default {
    /// Forgets everything.
    fn renew(&mut self);
}

/// Items of one pair.
#[derive(Clone, Debug, Default)]
pub struct Pool<T> {
    items: Vec<T>,
    len: usize,
}

impl<T: Renew> Pool<T> {
    /// Makes this a list of `len` new items.
    #[inline]
    pub fn fill(&mut self, len: usize) {
        self.truncate(0);
        self.extend(len);
    }

    /// Drops all items from `keep` on.
    pub fn truncate(&mut self, keep: usize) {
        for item in self.items[..self.len].iter_mut().skip(keep) {
            item.renew();
        }
        self.len = self.len.min(keep);
    }

    /// Adds new items until there are `len`.
    #[inline]
    pub fn extend(&mut self, len: usize) {
        if self.items.len() < len {
            self.items.resize_with(len, T::default);
        }
        self.len = self.len.max(len);
    }

    /// Replaces all items.
    pub fn replace(&mut self, items: Vec<T>) {
        self.len = items.len();
        self.items = items;
    }
}

impl<T> std::ops::Deref for Pool<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[..self.len]
    }
}

impl<T> std::ops::DerefMut for Pool<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[..self.len]
    }
}
