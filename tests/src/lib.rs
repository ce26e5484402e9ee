//! What the tests of whole promises share: the means to run the other side for real.
//!
//! Knows no rules of Tollgate; the tests beside it do. What stays true: whatever a helper of this
//! crate starts ends with the value that stands for it, or with the process, however that ends.

pub mod binary;
pub mod conformance;
pub mod holders;
pub mod http;
pub mod kafka;
pub mod serving;
pub mod simulation;
pub mod twin;
