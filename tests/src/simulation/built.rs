//! Which build this is, as it stands in reports and in what a swarm left.
//!
//! ```text
//! 0.1.0 (commit a1c764234ba9), executable 70c21b7d2fdb5cf5
//! ```
//!
//! The commit is the one that was built from; what was changed and not committed is told apart by the hash of the
//! executable. What stays true: one executable has one name, wherever it runs.

use std::sync::OnceLock;

use super::trace::hash_of;

/// This build.
pub fn this() -> &'static str {
    static THIS: OnceLock<String> = OnceLock::new();
    THIS.get_or_init(|| {
        let version = tollgate::cli::version();
        let version = version.lines().next().unwrap_or_default();
        // Read once, some tens of megabytes.
        match std::env::current_exe().and_then(std::fs::read) {
            Ok(bytes) => format!("{version}, executable {:016x}", hash_of(&bytes)),
            Err(why) => format!("{version}, executable unknown: {why}"),
        }
    })
}
