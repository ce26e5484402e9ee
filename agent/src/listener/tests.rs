//! What the listener promises.
