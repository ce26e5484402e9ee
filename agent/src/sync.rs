//! The shared-memory types of the agent's lock-free parts: the standard library's, and `rtrb`'s rings.
//!
//! In one place, because `agent/orderings` builds the same sources with loom's types instead, and tries every order
//! that the memory model allows. Knows nothing of what is shared.

pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};

/// Rings of one writer and one reader.
pub(crate) mod ring {
    pub(crate) use rtrb::{Consumer, Producer, RingBuffer};
}

/// A static with one value for each thread.
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $init:expr;) => {
        std::thread_local! {
            $(#[$attribute])*
            static $name: $type = const { $init };
        }
    };
}
pub(crate) use per_thread;
