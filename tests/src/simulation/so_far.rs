//! How far a swarm came, in a file, so that it can be left at any time and gone on with.
//!
//! ```text
//! {"schema": "tollgate.simulation-state/1", "plans": 6, "first": 1, "next": 4711, "left": [[4709, null]], ...}
//! ```
//!
//! Knows nothing of how seeds are run. What stays true: a file is written whole or not at all; each seed
//! counts once, however often a swarm was left; what belongs to another order is not gone on with.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::coverage::{Coverage, WANTED};
use super::held::Returns;
use super::kept::PLANS;
use super::swarm::{Order, Report, Task};

const SCHEMA: &str = "tollgate.simulation-state/1";

/// What is wrong with such a file.
#[derive(Debug, thiserror::Error)]
pub enum SoFarFault {
    /// It cannot be read or written.
    #[error("{path}: {why}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is not one.
    #[error("{path}: {why}, expected what a simulation wrote with `--state`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: serde_json::Error,
    },
    /// It is of another order, or another build.
    #[error("{path}: found {what} {found}, expected {expected}")]
    Other {
        /// The file.
        path: PathBuf,
        /// Of what there is another.
        what: &'static str,
        /// What it says.
        found: String,
        /// What was asked for.
        expected: String,
    },
}

/// How far it came.
#[derive(Debug)]
pub struct SoFar {
    /// What it came to.
    pub report: Report,
    /// The next seed.
    pub next: u64,
    /// What was begun and not ended, or is to be run before all others.
    pub left: Vec<Task>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    schema: String,
    plans: u32,
    first: u64,
    only_kills: bool,
    anew: bool,
    next: u64,
    left: Vec<(u64, Option<u32>)>,
    seeds: u64,
    decisions: u64,
    refusals: u64,
    faults: u64,
    elapsed_us: u64,
    worked_us: u64,
    died_holding: u64,
    back_within_us: u64,
    failed: Vec<u64>,
    coverage: BTreeMap<String, u64>,
}

/// Writes how far it came.
///
/// # Errors
///
/// [`SoFarFault::Io`].
pub fn write(
    path: &Path,
    order: &Order,
    report: &Report,
    next: u64,
    left: Vec<Task>,
) -> Result<(), SoFarFault> {
    let written = Written {
        schema: SCHEMA.to_owned(),
        plans: PLANS,
        first: order.first,
        only_kills: order.kills.is_some(),
        anew: order.anew,
        next,
        left: left
            .into_iter()
            .map(|task| (task.seed, task.plans))
            .collect(),
        seeds: report.seeds,
        decisions: report.decisions,
        refusals: report.refusals,
        faults: report.faults,
        elapsed_us: report.elapsed.as_micros() as u64,
        worked_us: report.worked.as_micros() as u64,
        died_holding: report.returns.kills,
        back_within_us: report.returns.longest_us,
        failed: report.failed.clone(),
        coverage: report
            .cover
            .all()
            .map(|(what, times)| (what.to_owned(), times))
            .collect(),
    };
    let fault = |why| SoFarFault::Io {
        path: path.to_owned(),
        why,
    };
    let text = serde_json::to_vec(&written).map_err(|why| fault(why.into()))?;
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).map_err(fault)?;
    std::fs::rename(&beside, path).map_err(fault)
}

/// Reads how far an order came; none: it has not been begun.
///
/// # Errors
///
/// [`SoFarFault`].
pub fn read(path: &Path, order: &Order) -> Result<Option<SoFar>, SoFarFault> {
    let Some(written) = read_any(path)? else {
        return Ok(None);
    };
    let same = |what, found: String, expected: String| match found == expected {
        true => Ok(()),
        false => Err(SoFarFault::Other {
            path: path.to_owned(),
            what,
            found,
            expected,
        }),
    };
    same("schema", written.schema, SCHEMA.to_owned())?;
    same(
        "a way of drawing plans",
        written.plans.to_string(),
        PLANS.to_string(),
    )?;
    same(
        "first seed",
        written.first.to_string(),
        order.first.to_string(),
    )?;
    let kinds = |kills: bool, anew: bool| format!("kills: {kills}, topics made anew: {anew}");
    same(
        "a swarm of",
        kinds(written.only_kills, written.anew),
        kinds(order.kills.is_some(), order.anew),
    )?;
    let mut cover = Coverage::default();
    for what in WANTED {
        cover.add(what, written.coverage.get(what).copied().unwrap_or(0));
    }
    Ok(Some(SoFar {
        report: Report {
            seeds: written.seeds,
            decisions: written.decisions,
            refusals: written.refusals,
            elapsed: Duration::from_micros(written.elapsed_us),
            worked: Duration::from_micros(written.worked_us),
            cover,
            faults: written.faults,
            returns: Returns {
                kills: written.died_holding,
                longest_us: written.back_within_us,
            },
            only_kills: written.only_kills,
            failure: None,
            failed: written.failed,
        },
        next: written.next,
        left: written
            .left
            .into_iter()
            .map(|(seed, plans)| Task { seed, plans })
            .collect(),
    }))
}

/// The first seed of what a file is about, for an order that names none.
///
/// # Errors
///
/// [`SoFarFault`].
pub fn first_seed(path: &Path) -> Result<Option<u64>, SoFarFault> {
    Ok(read_any(path)?.map(|written| written.first))
}

fn read_any(path: &Path) -> Result<Option<Written>, SoFarFault> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => {
            return Err(SoFarFault::Io {
                path: path.to_owned(),
                why,
            });
        }
    };
    let written = serde_json::from_slice(&text).map_err(|why| SoFarFault::Unreadable {
        path: path.to_owned(),
        why,
    });
    written.map(Some)
}
