//! Seeds that failed once, each with its story: they run first.
//!
//! ```text
//! tollgate-simulation-seeds 10
//! 3   118   2026-11-21  what was wrong, and what mended it
//! ```
//!
//! A seed means what it meant only where plans are drawn in the same way as then, which is the number before
//! it, and a hundred more where the plan was about kills; [`PLANS`] counts the ways, and stands in the file's
//! first line.

use std::io;
use std::path::{Path, PathBuf};

use super::plan::{PLAN_WAYS, Plan};

/// In how many ways plans have been drawn so far. To be raised when [`super::plan`] draws otherwise.
pub const PLANS: u32 = 10;

/// A seed that failed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// In which way plans were drawn.
    pub plans: u32,
    /// The seed.
    pub seed: u64,
    /// Its story.
    pub story: String,
}

impl Kept {
    /// Its plan.
    pub fn plan(&self) -> Option<Plan> {
        let plan = Plan::draw_as(self.plans, self.seed)?;
        let story = self.story.clone();
        Some(Plan { story, ..plan })
    }
}

/// What is wrong with a file of seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeedsFault {
    /// It is not one, or of another version.
    #[error("{file}: line 1: found `{found}`, expected `tollgate-simulation-seeds {PLANS}`")]
    Version {
        /// The file.
        file: String,
        /// The first line.
        found: String,
    },
    /// A line does not read.
    #[error(
        "{file}: line {line}: found `{found}`, expected in which way plans are drawn (one of {PLAN_WAYS:?}), \
         a seed, and its story"
    )]
    Line {
        /// The file.
        file: String,
        /// Its number, from 1.
        line: usize,
        /// What it says.
        found: String,
    },
}

/// The seeds that are kept in the tree.
///
/// # Errors
///
/// [`SeedsFault`], where the file in the tree has faults; a test reads it.
pub fn in_the_tree() -> Result<Vec<Plan>, SeedsFault> {
    let kept = parse("seeds.txt", include_str!("seeds.txt"))?;
    Ok(kept.iter().filter_map(Kept::plan).collect())
}

/// What is wrong with the file of a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanFault {
    /// It cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is no plan.
    #[error("{path}: is no plan: {why}")]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        why: serde_json::Error,
    },
}

/// The plan in a file.
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

/// Reads a file of seeds.
///
/// # Errors
///
/// [`SeedsFault`], with the file's name and the line.
pub fn parse(file: &str, text: &str) -> Result<Vec<Kept>, SeedsFault> {
    let mut lines = text.lines().enumerate();
    let first = lines.next().map_or("", |(_, line)| line);
    if first != format!("tollgate-simulation-seeds {PLANS}") {
        return Err(SeedsFault::Version {
            file: file.to_owned(),
            found: first.to_owned(),
        });
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let fault = || SeedsFault::Line {
                file: file.to_owned(),
                line: number + 1,
                found: line.to_owned(),
            };
            let mut words = line.splitn(2, char::is_whitespace);
            let plans = words.next().and_then(|word| word.parse().ok());
            let rest = words.next().map(str::trim_start);
            let (seed, story) = rest
                .and_then(|rest| rest.split_once(char::is_whitespace))
                .ok_or_else(fault)?;
            let kept = Kept {
                plans: plans.ok_or_else(fault)?,
                seed: seed.parse().map_err(|_| fault())?,
                story: story.trim().to_owned(),
            };
            kept.plan().is_some().then_some(kept).ok_or_else(fault)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_in_the_tree_reads() {
        let kept = in_the_tree().expect("it reads");
        assert!(kept.iter().all(|kept| !kept.story.is_empty()));
    }

    #[test]
    fn a_file_of_another_version_or_with_a_bad_line_is_refused_with_its_place() {
        let version = parse("old.txt", "tollgate-simulation-seeds 109\n").unwrap_err();
        assert_eq!(
            version.to_string(),
            format!(
                "old.txt: line 1: found `tollgate-simulation-seeds 109`, expected `tollgate-simulation-seeds {PLANS}`"
            )
        );
        for bad in ["4 x a story", "11 7 a story", "x 7 a story", "4 7", "7"] {
            let text = format!("tollgate-simulation-seeds {PLANS}\n# why\n3  7  a story\n{bad}\n");
            let line = parse("old.txt", &text).unwrap_err();
            let expected = format!("old.txt: line 4: found `{bad}`, expected in which way");
            assert!(line.to_string().starts_with(&expected), "{line}");
        }
    }
}
