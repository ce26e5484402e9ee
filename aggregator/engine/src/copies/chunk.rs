//! A piece of a table, which a frozen copy shares until one side changes it.
//!
//! ```text
//! own      [entry entry …]                  read and written where it lies
//! shared   own after a freeze               the first change copies this piece alone, or takes it
//!                                           back where the frozen copy is gone
//! ```
//!
//! A freeze costs a count for each piece, whatever lies in it, so that it is no pause; what it saves is
//! paid piece by piece by the changes behind it. Knows nothing of what lies in it. What stays true:
//! nobody sees a change that the other side made.

use std::sync::Arc;

/// Entries that are copied together.
pub(super) enum Chunk<T> {
    Own(Vec<T>),
    Shared(Arc<Vec<T>>),
}

impl<T: Copy> Chunk<T> {
    /// Nothing yet, and room for so many entries.
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

    /// The entries, to be changed.
    #[inline]
    pub(super) fn all_mut(&mut self) -> &mut Vec<T> {
        if let Self::Shared(_) = self {
            self.make_own();
        }
        match self {
            Self::Own(own) => own,
            // Its own by now; the copy would be made here otherwise.
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

/// With the same room: what is not full goes on being filled.
fn copy_of<T: Copy>(entries: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(entries.capacity());
    copy.extend_from_slice(entries);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_side_sees_what_the_other_changes() {
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
    fn what_nobody_shares_any_more_is_taken_back_without_a_copy() {
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
