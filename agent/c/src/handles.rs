//! Handles: numbers for what the caller opened.
//!
//! ```text
//! handle    0x0000_0000_02a0_0003      serial 42, slot 3
//! slot 3    serial 42 -> an agent      found
//! slot 3    serial 57 -> a rate        not found: 42 was freed, and the slot taken again
//! ```
//!
//! A pointer would be shorter; but a freed or invented one could not be told from a valid one. Looking a handle up
//! takes no lock and writes to no memory that threads share. Nothing here is ever in a state that another thread has
//! to finish, so a fork at any point leaves a table that works: at worst a slot is lost.
//!
//! Knows nothing of what handles stand for. What stays true: a number is used once, and never changes its meaning.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use once_cell::race::OnceBox;

/// Bits of a handle for its slot: a million handles at a time, four times as many as an agent's holds by default. The
/// other bits are the serial: at a million handles a second they last for half a year.
const SLOT_BITS: u32 = 20;
const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// Slots that are allocated together: 4 KiB.
const CHUNK: usize = 256;
const CHUNKS: usize = SLOTS_MAX as usize / CHUNK;

/// A handle and what it stands for.
pub(crate) struct Handled<T> {
    handle: u64,
    value: T,
}

impl<T> Handled<T> {
    pub(crate) const fn value(&self) -> &T {
        &self.value
    }
}

struct HandleSlot<T> {
    handled: ArcSwapOption<Handled<T>>,
    /// While the slot is free: the number of the next free slot plus one, or 0.
    next_free: AtomicU32,
}

impl<T> Default for HandleSlot<T> {
    fn default() -> Self {
        Self {
            handled: ArcSwapOption::empty(),
            next_free: AtomicU32::new(0),
        }
    }
}

/// All handles of one process.
pub(crate) struct HandleTable<T> {
    chunks: [OnceBox<[HandleSlot<T>; CHUNK]>; CHUNKS],
    /// Slots from this one on were never used.
    fresh: AtomicU32,
    /// The number of the first free slot plus one, or 0; in the upper half a count of changes, by which a thread
    /// notices that the list has changed since it read it.
    free: AtomicU64,
    serial: AtomicU64,
    live: AtomicU64,
}

impl<T> HandleTable<T> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { OnceBox::new() }; CHUNKS],
            fresh: AtomicU32::new(0),
            free: AtomicU64::new(0),
            serial: AtomicU64::new(1),
            live: AtomicU64::new(0),
        }
    }

    /// A new handle for `value`. `None` at the bound.
    pub(crate) fn insert(&self, value: T) -> Option<u64> {
        let index = match self.pop_free() {
            Some(index) => index,
            None => {
                let more = |fresh: u32| (fresh < SLOTS_MAX).then(|| fresh + 1);
                let relaxed = Ordering::Relaxed;
                self.fresh.fetch_update(relaxed, relaxed, more).ok()?
            }
        };
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let chunk = chunk.get_or_init(|| Box::new(std::array::from_fn(|_| HandleSlot::default())));
        let slot = chunk.get(index as usize % CHUNK)?;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let handle = (serial << SLOT_BITS) | u64::from(index);
        slot.handled
            .store(Some(Arc::new(Handled { handle, value })));
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(handle)
    }

    /// Calls `look` with what the handle stands for. `None` if the handle is not open.
    #[inline]
    pub(crate) fn with<R>(&self, handle: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        let slot = self.slot(slot_of(handle))?;
        let handled = slot.handled.load();
        match &*handled {
            Some(handled) if handled.handle == handle => Some(look(&handled.value)),
            _ => None,
        }
    }

    /// Takes a handle back; of several simultaneous calls one gets it. Its value is dropped with the last call that
    /// looks at it.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<Handled<T>>> {
        let index = slot_of(handle);
        let slot = self.slot(index)?;
        let handled = slot.handled.load_full()?;
        if handled.handle != handle {
            return None;
        }
        let before = slot.handled.compare_and_swap(&handled, None);
        let was = before
            .as_ref()
            .is_some_and(|was| Arc::ptr_eq(was, &handled));
        drop(before);
        if !was {
            return None;
        }
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.push_free(index, slot);
        Some(handled)
    }

    /// The number of open handles.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&HandleSlot<T>> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.get()?;
        chunk.get(index as usize % CHUNK)
    }

    fn pop_free(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = first_free(head)?;
            let next = self.slot(index)?.next_free.load(Ordering::Relaxed);
            match self.change_free(head, next) {
                Ok(()) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    fn push_free(&self, index: u32, slot: &HandleSlot<T>) {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            slot.next_free.store(
                first_free(head).map_or(0, |first| first + 1),
                Ordering::Relaxed,
            );
            match self.change_free(head, index + 1) {
                Ok(()) => return,
                Err(now) => head = now,
            }
        }
    }

    fn change_free(&self, head: u64, first: u32) -> Result<(), u64> {
        let changed = ((head >> 32).wrapping_add(1) << 32) | u64::from(first);
        self.free
            .compare_exchange(head, changed, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
    }
}

#[inline]
const fn slot_of(handle: u64) -> u32 {
    (handle & (SLOTS_MAX as u64 - 1)) as u32
}

/// The slot in the head of the list of free ones.
const fn first_free(head: u64) -> Option<u32> {
    (head as u32).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_stays_invalid_when_its_slot_is_reused() {
        let table = HandleTable::new();
        let first = table.insert("first").unwrap();
        assert_eq!(table.with(first, |value| *value), Some("first"));
        assert_eq!(*table.remove(first).unwrap().value(), "first");
        let second = table.insert("second").unwrap();
        assert_eq!(slot_of(first), slot_of(second), "the slot is used again");
        assert_eq!(table.with(first, |value| *value), None);
        assert!(table.remove(first).is_none());
        assert_eq!(table.with(second, |value| *value), Some("second"));
        assert_eq!(table.live(), 1);
    }

    #[test]
    fn any_number_can_be_looked_up() {
        let table = HandleTable::new();
        let handle = table.insert(()).unwrap();
        for number in [0, 1, handle + 1, handle - 1, !handle, u64::MAX, 1 << 63] {
            assert!(table.with(number, |()| ()).is_none(), "{number:#x}");
            assert!(table.remove(number).is_none(), "{number:#x}");
        }
        assert!(table.with(handle, |()| ()).is_some());
    }

    #[test]
    fn slots_are_used_again_across_chunks() {
        let table = HandleTable::new();
        let handles: Vec<u64> = (0..2 * CHUNK).map(|n| table.insert(n).unwrap()).collect();
        for handle in &handles {
            table.remove(*handle).unwrap();
        }
        let again: Vec<u64> = (0..2 * CHUNK).map(|n| table.insert(n).unwrap()).collect();
        assert_eq!(table.fresh.load(Ordering::Relaxed) as usize, 2 * CHUNK);
        for (n, handle) in again.iter().enumerate() {
            assert_eq!(table.with(*handle, |value| *value), Some(n));
        }
        assert!(handles.iter().all(|old| table.with(*old, |_| ()).is_none()));
    }

    #[test]
    fn the_table_has_an_end() {
        let table = HandleTable::new();
        table.fresh.store(SLOTS_MAX - 1, Ordering::Relaxed);
        let last = table.insert(1).unwrap();
        assert_eq!(table.insert(2), None);
        table.remove(last).unwrap();
        assert!(table.insert(3).is_some(), "room that was given back");
    }

    #[test]
    fn of_threads_that_free_one_handle_one_succeeds() {
        const THREADS: usize = 4;
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        let (dropped, shared) = (AtomicU64::new(0), AtomicU64::new(0));
        let (dropped, shared) = (&dropped, &shared);
        let table = &HandleTable::new();
        struct Counted<'c>(&'c AtomicU64);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || {
                    for _ in 0..rounds {
                        // Each thread frees the handle that another one has just made.
                        let handle = table.insert(Counted(dropped)).unwrap();
                        let other = shared.swap(handle, Ordering::Relaxed);
                        table.with(other, |_| ());
                        table.remove(other);
                    }
                });
            }
        });
        table.remove(shared.load(Ordering::Relaxed));
        let made = (THREADS * rounds) as u64;
        assert_eq!((table.live(), dropped.load(Ordering::Relaxed)), (0, made));
    }
}
