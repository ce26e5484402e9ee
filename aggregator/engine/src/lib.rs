//! The pure core of Tollgate: limits as checked types, and the rules that a log is ruled by.
//!
//! One door: a record of the log goes in, rulings come out; plus snapshot and restore. No I/O, no
//! clock, no randomness, no logging. Time enters on a record. What stays true: rulings are a
//! function of the log alone, on any machine and in the next release.

pub mod limits;
pub mod rules;
