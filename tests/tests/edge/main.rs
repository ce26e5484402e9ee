//! The edge: what anybody who can connect may do, against the built program and its library.
//!
//! Each test attacks, and asserts the same four things as far as they apply: the process lives, its
//! memory stays within the stated bound, an agent receives its denials meanwhile, and the counter
//! of the right reason rose. Attackers are raw sockets that write arbitrary bytes.

mod attacked;
mod by_http;
mod by_records;
mod descriptors;
mod interop;
mod lengths;
mod peer;
mod readers;
mod silence;
mod snapshots;
mod unfinished;
