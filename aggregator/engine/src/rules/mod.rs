//! The rules, one file each: pure functions of limits, state, instant and copies.
