//! Plans that failed once, each with its story; they run first.
//!
//! ```text
//! kept/545.json     {"story":"2026-11-21: after a kill a power cut took …","agents":[…],…,"episodes":[…],…}
//! ```
//!
//! One file for each plan, as `simulate --shrink` writes it, with a story added by hand. Knows nothing of how plans
//! are drawn. What stays true: a kept plan is data, and does not change when the generator does.

use std::io;
use std::path::{Path, PathBuf};

use super::plan::Plan;

/// The directory of the kept plans.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/simulation/kept");

/// A fault in the file of a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanFault {
    /// The file cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// The file is not a plan.
    #[error("{path}: is no plan: {why}")]
    Form {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: serde_json::Error,
    },
}

/// All kept plans of the tree, by the names of their files.
///
/// # Errors
///
/// [`PlanFault`], if a file has a fault; a test reads all files.
pub fn in_the_tree() -> Result<Vec<Plan>, PlanFault> {
    let directory = PathBuf::from(DIRECTORY);
    let names = |entries: std::fs::ReadDir| -> io::Result<Vec<PathBuf>> {
        entries.map(|entry| entry.map(|one| one.path())).collect()
    };
    let found = std::fs::read_dir(&directory).and_then(names);
    let mut paths = found.map_err(|why| PlanFault::Read {
        path: directory,
        why,
    })?;
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Reads the plan in a file.
///
/// # Errors
///
/// [`PlanFault`].
pub fn read(path: &Path) -> Result<Plan, PlanFault> {
    let path = || path.to_owned();
    let text =
        std::fs::read_to_string(path()).map_err(|why| PlanFault::Read { path: path(), why })?;
    Plan::read(&text).map_err(|why| PlanFault::Form { path: path(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_plan_reads_back_equal_and_has_a_story() {
        let kept = in_the_tree().expect("they read");
        assert!(30 <= kept.len(), "they are found");
        for plan in kept {
            assert!(!plan.story.is_empty(), "seed {}", plan.seed);
            let path = Path::new(DIRECTORY).join(format!("{}.json", plan.seed));
            let text = std::fs::read_to_string(&path).expect("it bears its seed's name");
            assert_eq!(plan.json(), text);
        }
    }
}
