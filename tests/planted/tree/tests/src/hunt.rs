//! Looks for each planted bug, seed by seed, to see whether the checks find it.
//!
//! ```text
//! older-wins     12 seeds    law 3, a refusal is justified
//! ```
//!
//! Knows nothing of the effects of a bug. What stays true: after a search no bug is switched on, and a seed that
//! fails without the bug has not found it.

use tollgate_shared::bugs::{Bug, plant};

use crate::simulation::plan::Plan;
use crate::simulation::run;

/// How a bug was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of seeds it took.
    pub seeds: u64,
    /// The violated law; [`crate::simulation::trace::NO_LAW`] if the program panicked.
    pub law: u8,
    /// The check.
    pub check: String,
}

/// Looks for a bug in at most this many seeds; `None`: it was not found.
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

/// The law and check that one seed violates with a bug in the code, or without.
fn found(bug: Option<Bug>, seed: u64) -> Option<(u8, String)> {
    plant(bug);
    let run = run(Plan::draw(seed), false);
    plant(None);
    run.violation
        .map(|found| (found.law, found.check.into_owned()))
}
