//! What services link: decides rate limits in-process and never waits.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
#![allow(dead_code, reason = "rooms of the agent are being put together")]

mod blind;
mod clock;
mod deny;
mod resource;
mod flusher;
mod recorder;
