//! A piece of a table, which a frozen copy of the table shares until one side changes it.
//!
//! ```text
//! own      [entry entry …]                  read and written in place
//! shared   own after a freeze               the first change copies this piece alone, or takes it
//!                                           back if the frozen copy has been dropped
//! ```
//!
//! A freeze costs one reference count for each piece, whatever its size, so it causes no pause. The
//! copying is paid later, piece by piece, by the changes. Knows nothing of what the entries mean. What
//! stays true: neither side sees a change that the other side made.

use std::sync::Arc;

/// Entries that are copied together.
pub(super) enum Chunk<T> {
    Own(Vec<T>),
    Shared(Arc<Vec<T>>),
}

impl<T: Copy> Chunk<T> {
    /// An empty chunk with room for `entries` entries.
    pub(super) fn with_room(entries: usize) -> Self {
        Self::Own(Vec::with_capacity(entries))
    }

    /// The entries.
    #[inline]
    pub(super) fn all(&self) -> &[T] {
        match self {
            Self::Own(own) => own,
            Self::Shared(shared) => shared,
        }
    }

    /// The entries, for changes.
    #[inline]
    pub(super) fn all_mut(&mut self) -> &mut Vec<T> {
        if let Self::Shared(_) = self {
            self.make_own();
        }
        match self {
            Self::Own(own) => own,
            // The chunk is its own by now; otherwise the copy would be made here.
            Self::Shared(shared) => Arc::make_mut(shared),
        }
    }

    /// Shares the entries with a copy.
    pub(super) fn share(&mut self) -> Self {
        let shared = match std::mem::replace(self, Self::Own(Vec::new())) {
            Self::Own(own) => Arc::new(own),
            Self::Shared(shared) => shared,
        };
        *self = Self::Shared(Arc::clone(&shared));
        Self::Shared(shared)
    }

    #[cold]
    fn make_own(&mut self) {
        if let Self::Shared(shared) = std::mem::replace(self, Self::Own(Vec::new())) {
            *self = Self::Own(Arc::try_unwrap(shared).unwrap_or_else(|shared| copy_of(&shared)));
        }
    }
}

impl<T: Copy> Clone for Chunk<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Own(own) => Self::Own(copy_of(own)),
            Self::Shared(shared) => Self::Shared(Arc::clone(shared)),
        }
    }
}

impl<T> std::fmt::Debug for Chunk<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Own(_) => "Own(…)",
            Self::Shared(_) => "Shared(…)",
        })
    }
}

/// A copy with the same capacity, so that a chunk that is not full can still be filled.
fn copy_of<T: Copy>(entries: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(entries.capacity());
    copy.extend_from_slice(entries);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_chunks_do_not_see_each_others_changes() {
        let mut chunk = Chunk::with_room(8);
        chunk.all_mut().extend([1, 2, 3]);
        let mut frozen = chunk.share();
        let mut again = chunk.share();
        chunk.all_mut().push(4);
        frozen.all_mut()[0] = 9;
        assert_eq!(chunk.all(), [1, 2, 3, 4]);
        assert_eq!(frozen.all(), [9, 2, 3]);
        assert_eq!(again.all_mut().as_slice(), [1, 2, 3]);
        assert!(8 <= chunk.all_mut().capacity(), "it has the room it had");
    }

    #[test]
    fn a_chunk_that_is_no_longer_shared_is_not_copied() {
        let mut chunk = Chunk::with_room(8);
        chunk.all_mut().push(1);
        let at = chunk.all().as_ptr();
        let frozen = chunk.share();
        assert_eq!(frozen.all().as_ptr(), at, "shared and not copied");
        drop(frozen);
        chunk.all_mut().push(2);
        assert_eq!(chunk.all().as_ptr(), at);
        assert!(matches!(chunk, Chunk::Own(_)));
    }
}
