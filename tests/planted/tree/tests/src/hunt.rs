//! Whether bugs would be found: each of those that were put in is looked for, seed by seed.
//!
//! ```text
//! older-wins     12 seeds    law 3, a refusal is justified
//! ```
//!
//! Knows nothing of what a bug does. What stays true: after a search no bug is turned on, and a seed that fails
//! without the bug has not found it.

use tollgate_shared::bugs::{Bug, plant};

use crate::simulation::plan::Plan;
use crate::simulation::run;

/// How a bug was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How many seeds that took.
    pub seeds: u64,
    /// The law; [`crate::simulation::trace::NO_LAW`]: the program gave up by itself.
    pub law: u8,
    /// What was checked.
    pub check: String,
}

/// Looks for a bug in so many seeds at most; `None`: it was not found.
pub fn hunt(bug: Bug, first: u64, seeds_max: u64) -> Option<Found> {
    (0..seeds_max).find_map(|number| {
        let (law, check) = found(Some(bug), first + number)?;
        let is_its = found(None, first + number).is_none();
        is_its.then_some(Found {
            seeds: number + 1,
            law,
            check,
        })
    })
}

/// What one seed finds with a bug in the code, or without.
fn found(bug: Option<Bug>, seed: u64) -> Option<(u8, String)> {
    plant(bug);
    let run = run(Plan::draw(seed), false);
    plant(None);
    run.violation
        .map(|found| (found.law, found.check.into_owned()))
}
