//! The shared-memory types of the agent's sources, here loom's.

pub use loom::sync::{Arc, Mutex, MutexGuard, atomic};

/// A static with one value for each of loom's threads.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $init:expr;) => {
        loom::thread_local! {
            $(#[$attribute])*
            static $name: $type = $init;
        }
    };
}
pub(crate) use per_thread;

pub mod ring {
    //! Rings like those of `rtrb`, as far as the recorder uses them: two counts and a flag determine what is visible,
    //! stored with Release and read with Acquire, as in `rtrb`. The words are behind a lock that loom does not see,
    //! so that nothing else orders accesses.

    use std::collections::VecDeque;
    use std::marker::PhantomData;
    use std::sync::Mutex;

    use super::Arc;
    use super::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    struct RingShared {
        words: Mutex<VecDeque<u64>>,
        written: AtomicUsize,
        taken: AtomicUsize,
        abandoned: AtomicBool,
    }

    /// Makes rings.
    #[derive(Debug)]
    pub struct RingBuffer;

    impl RingBuffer {
        /// The two ends of a new ring.
        #[allow(clippy::new_ret_no_self)]
        pub fn new<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let shared = Arc::new(RingShared::default());
            let producer = Producer {
                shared: Arc::clone(&shared),
                capacity,
                written: 0,
                of: PhantomData,
            };
            let consumer = Consumer {
                shared,
                taken: 0,
                of: PhantomData,
            };
            (producer, consumer)
        }
    }

    /// The writing end. Its words are `u64`; the parameter matches `rtrb`'s type.
    #[derive(Debug)]
    pub struct Producer<T> {
        shared: Arc<RingShared>,
        capacity: usize,
        written: usize,
        of: PhantomData<T>,
    }

    /// The reading end.
    #[derive(Debug)]
    pub struct Consumer<T> {
        shared: Arc<RingShared>,
        taken: usize,
        of: PhantomData<T>,
    }

    /// No room.
    #[derive(Debug)]
    pub struct Full;

    impl<T> Producer<T> {
        /// Room for this many words.
        ///
        /// # Errors
        ///
        /// [`Full`].
        pub fn write_chunk_uninit(&mut self, words: usize) -> Result<RingRoom<'_>, Full> {
            let waiting = self.written - self.shared.taken.load(Ordering::Acquire);
            if self.capacity < waiting + words {
                return Err(Full);
            }
            let Self {
                shared, written, ..
            } = self;
            Ok(RingRoom { shared, written })
        }

        /// Whether the reading end is dropped.
        pub fn is_abandoned(&self) -> bool {
            self.shared.abandoned.load(Ordering::Acquire)
        }
    }

    impl<T> Drop for Producer<T> {
        fn drop(&mut self) {
            self.shared.abandoned.store(true, Ordering::Release);
        }
    }

    /// Room for words in a ring.
    #[derive(Debug)]
    pub struct RingRoom<'p> {
        shared: &'p RingShared,
        written: &'p mut usize,
    }

    impl RingRoom<'_> {
        /// Writes the words, and then shows them all at once. Returns how many there are.
        pub fn fill_from_iter(self, words: impl Iterator<Item = u64>) -> usize {
            let mut list = self.shared.words.lock().expect("no poison");
            let before = list.len();
            list.extend(words);
            let filled = list.len() - before;
            drop(list);
            *self.written += filled;
            self.shared.written.store(*self.written, Ordering::Release);
            filled
        }
    }

    impl<T> Consumer<T> {
        /// How many words may be read.
        pub fn slots(&self) -> usize {
            self.shared.written.load(Ordering::Acquire) - self.taken
        }

        /// Whether no word may be read.
        pub fn is_empty(&self) -> bool {
            self.slots() == 0
        }

        /// Whether the writing end is dropped.
        pub fn is_abandoned(&self) -> bool {
            self.shared.abandoned.load(Ordering::Acquire)
        }

        /// The first `words` words.
        ///
        /// # Errors
        ///
        /// Never, here.
        pub fn read_chunk(&mut self, words: usize) -> Result<Chunk<'_>, Full> {
            let list = self.shared.words.lock().expect("no poison");
            let read = list.iter().take(words).copied().collect();
            drop(list);
            let Self { shared, taken, .. } = self;
            Ok(Chunk {
                shared,
                taken,
                read,
            })
        }
    }

    impl<T> Drop for Consumer<T> {
        fn drop(&mut self) {
            self.shared.abandoned.store(true, Ordering::Release);
        }
    }

    /// Words that were read; `commit_all` removes them.
    #[derive(Debug)]
    pub struct Chunk<'c> {
        shared: &'c RingShared,
        taken: &'c mut usize,
        read: Vec<u64>,
    }

    impl Chunk<'_> {
        /// The words, in two pieces.
        pub fn as_slices(&self) -> (&[u64], &[u64]) {
            (&self.read, &[])
        }

        /// Removes them.
        pub fn commit_all(self) {
            let mut list = self.shared.words.lock().expect("no poison");
            list.drain(..self.read.len());
            drop(list);
            *self.taken += self.read.len();
            self.shared.taken.store(*self.taken, Ordering::Release);
        }
    }
}
