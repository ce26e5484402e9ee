//! The terms and the wire formats of Tollgate: what agent, aggregator and engine have in common.
//!
//! Names, instants, log positions, and the bytes of everything that crosses a process boundary: log
//! records, feed frames, and the messages between an agent and an aggregator. This crate knows no
//! socket, no file, no clock and no rule; everything here is a value.
//!
//! What stays true: decoded values are well-formed, so that no other code checks them again; and no
//! decoder panics, or allocates more than a small multiple of the bytes given.

pub mod descriptors;
pub mod domain_key;
pub mod epoch;
pub mod escape;
pub mod file_mode;
pub mod hex;
pub mod holdings;
pub mod hosts;
pub mod kafka_properties;
pub mod keyring;
pub mod log_lines;
pub mod log_position;
pub mod mac;
pub mod names;
pub mod networks;
pub mod object;
pub mod time;
pub mod wire;
