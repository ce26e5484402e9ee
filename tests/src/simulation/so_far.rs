//! How far a swarm came, in a file, so that it can be left at any time and gone on with.
//!
//! ```text
//! {"schema": "tollgate.simulation-state/3", "plans": 9, "first": 1, "next": 4711, "left": [[4709, null]], ...}
//! ```
//!
//! Knows nothing of how seeds are run. What stays true: a file is written whole or not at all; each seed
//! counts once, however often a swarm was left; what belongs to another order, or is drawn in another way, is not
//! gone on with. What another build began is: the file names all builds that took part, and so does the report.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::built;
use super::coverage::{Coverage, WANTED};
use super::faults::Fault;
use super::held::Returns;
use super::kept::PLANS;
use super::plan::PLAN_WAYS;
pub use super::so_far_fault::SoFarFault;
use super::swarm::{Failed, Order, Report, Task};

const SCHEMA: &str = "tollgate.simulation-state/3";

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

/// What every version of such a file has.
#[derive(Debug, Deserialize)]
struct Version {
    schema: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    schema: String,
    plans: u32,
    way: u32,
    builds: Vec<String>,
    first: u64,
    only_kills: bool,
    anew: bool,
    rates: Vec<String>,
    next: u64,
    left: Vec<(u64, Option<u32>)>,
    seeds: u64,
    kept: u64,
    decisions: u64,
    refusals: u64,
    faults: BTreeMap<String, u64>,
    elapsed_us: u64,
    worked_us: u64,
    died_holding: u64,
    back_within_us: u64,
    failed: Vec<Failed>,
    coverage: BTreeMap<String, u64>,
}

/// Writes how far it came.
///
/// # Errors
///
/// [`SoFarFault::Write`].
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
        way: order.way(),
        builds: report.builds.clone(),
        first: order.first,
        only_kills: order.kills.is_some(),
        anew: order.anew,
        rates: order.rates_told(),
        next,
        left: left
            .into_iter()
            .map(|task| (task.seed, task.plans))
            .collect(),
        seeds: report.seeds,
        kept: report.kept,
        decisions: report.decisions,
        refusals: report.refusals,
        faults: report
            .faults
            .iter()
            .map(|(kind, times)| ((*kind).to_owned(), *times))
            .collect(),
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
    let fault = |why| SoFarFault::Write {
        path: path.to_owned(),
        why,
    };
    let text = serde_json::to_vec(&written).map_err(|why| fault(why.into()))?;
    let beside = beside(path);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|why| {
        // A part of it is of no use to anybody, and fills a disk that may be full already.
        let _ = std::fs::remove_file(&beside);
        fault(why)
    })
}

/// Where it is written before it takes its place: of its whole name, since others may differ in their last part alone.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
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
    of_this_version(
        path,
        "a way of drawing plans",
        written.plans.to_string(),
        PLANS.to_string(),
    )?;
    check_ways(path, &written)?;
    let same = |what, found: String, expected: String| match found == expected {
        true => Ok(()),
        false => Err(SoFarFault::Other {
            path: path.to_owned(),
            what,
            found,
            expected,
        }),
    };
    same(
        "first seed",
        written.first.to_string(),
        order.first.to_string(),
    )?;
    let kinds = |kills: bool, anew: bool, rates: &[String], way: u32| {
        let rates = rates.join(", ");
        format!(
            "kills: {kills}, topics made anew: {anew}, rates: [{rates}], way of drawing plans: {way}"
        )
    };
    same(
        "a swarm of",
        kinds(
            written.only_kills,
            written.anew,
            &written.rates,
            written.way,
        ),
        kinds(
            order.kills.is_some(),
            order.anew,
            &order.rates_told(),
            order.way(),
        ),
    )?;
    let mut cover = Coverage::default();
    for what in WANTED {
        cover.add(what, written.coverage.get(what).copied().unwrap_or(0));
    }
    let of_kind = |kind: &'static str| Some((kind, *written.faults.get(kind)?));
    let faults = Fault::KINDS.into_iter().filter_map(of_kind).collect();
    let mut builds = written.builds;
    builds.retain(|build| build != built::this());
    builds.push(built::this().to_owned());
    Ok(Some(SoFar {
        report: Report {
            seeds: written.seeds,
            kept: written.kept,
            decisions: written.decisions,
            refusals: written.refusals,
            elapsed: Duration::from_micros(written.elapsed_us),
            worked: Duration::from_micros(written.worked_us),
            cover,
            faults,
            returns: Returns {
                kills: written.died_holding,
                longest_us: written.back_within_us,
            },
            only_kills: written.only_kills,
            rates: written.rates,
            failed: written.failed,
            builds,
            unwritten: None,
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
    let unread = |why| SoFarFault::Read {
        path: path.to_owned(),
        why,
    };
    // Looked at before it is opened: a pipe would be waited for, and a device has no end.
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(found) => {
            return Err(SoFarFault::NoFile {
                path: path.to_owned(),
                found: match found.is_dir() {
                    true => "a directory",
                    false => "a device, a pipe or a socket",
                },
            });
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(unread(why)),
    }
    let text = std::fs::read(path).map_err(unread)?;
    let unreadable = |why| SoFarFault::Unreadable {
        path: path.to_owned(),
        why,
    };
    // Of another version the fields are others, too: it says first what it is.
    let version: Version = serde_json::from_slice(&text).map_err(unreadable)?;
    of_this_version(path, "schema", version.schema, SCHEMA.to_owned())?;
    serde_json::from_slice(&text).map(Some).map_err(unreadable)
}

/// Whether every seed is of a way in which plans can be drawn.
fn check_ways(path: &Path, written: &Written) -> Result<(), SoFarFault> {
    let left = (written.left.iter()).filter_map(|(seed, way)| Some((*seed, (*way)?)));
    let failed = written
        .failed
        .iter()
        .map(|failed| (failed.seed, failed.way));
    match left.chain(failed).find(|(_, way)| !PLAN_WAYS.contains(way)) {
        None => Ok(()),
        Some((seed, found)) => Err(SoFarFault::Way {
            path: path.to_owned(),
            seed,
            found,
        }),
    }
}

fn of_this_version(
    path: &Path,
    what: &'static str,
    found: String,
    expected: String,
) -> Result<(), SoFarFault> {
    match found == expected {
        true => Ok(()),
        false => Err(SoFarFault::Version {
            path: path.to_owned(),
            what,
            found,
            expected,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Violation;
    use super::*;

    fn failed() -> Failed {
        Failed {
            seed: 7,
            way: PLANS,
            violation: Violation {
                law: 3,
                at_us: 5,
                check: "a check".into(),
                what: "what".to_owned(),
            },
        }
    }

    /// Writes one, changes its text, and reads it.
    fn changed(from: &str, to: &str) -> Result<Option<SoFar>, SoFarFault> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state.json");
        let order = Order::of(1, None);
        let report = Report {
            seeds: 9,
            kept: 2,
            faults: BTreeMap::from([("cut", 4), ("agent died", 5)]),
            failed: vec![failed()],
            builds: vec![built::this().to_owned()],
            ..Report::default()
        };
        let left = vec![Task {
            seed: 8,
            plans: Some(3),
        }];
        write(&path, &order, &report, 10, left).expect("it is written");
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).expect("it is written");
        assert_eq!(
            first_seed(&path).err().map(|fault| fault.to_string()),
            changed_version(from).then(|| {
                let place = path.display();
                format!("{place}: found schema tollgate.simulation-state/9, expected {SCHEMA}")
            })
        );
        read(&path, &order)
    }

    /// Whether that is the version, which is looked at first of all.
    fn changed_version(from: &str) -> bool {
        from.contains("schema")
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_and_names_that_differ_at_their_end_stay_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let taken = dir.path().join("a.json");
        std::fs::create_dir(&taken).expect("it is made");
        let write = |path: &Path| {
            let (order, report) = (Order::of(1, None), Report::default());
            write(path, &order, &report, 1, Vec::new())
        };
        let fault = write(&taken).expect_err("a directory is in its place");
        assert!(matches!(fault, SoFarFault::Write { .. }), "{fault:?}");
        let names = || -> Vec<_> {
            let entries = std::fs::read_dir(dir.path()).expect("a directory");
            entries
                .map(|entry| entry.expect("an entry").file_name())
                .collect()
        };
        assert_eq!(names(), ["a.json"]);
        // Another's that is being written.
        std::fs::write(dir.path().join("a.new"), "half").expect("it is written");
        write(&dir.path().join("a.txt")).expect("it is written");
        let mut names = names();
        names.sort();
        assert_eq!(names, ["a.json", "a.new", "a.txt"]);
        assert_eq!(beside(&taken), dir.path().join("a.json.new"));
    }

    #[test]
    fn of_another_version_it_says_so_whatever_else_it_has() {
        let from = format!(r#""schema":"{SCHEMA}""#);
        let to = r#""schema":"tollgate.simulation-state/9","nobody_knows":1"#;
        let fault = changed(&from, to).expect_err("another version").to_string();
        let expected = format!("found schema tollgate.simulation-state/9, expected {SCHEMA}");
        assert!(fault.ends_with(&expected), "{fault}");
    }

    #[test]
    fn of_plans_that_are_drawn_otherwise_it_says_so() {
        let (from, to) = (format!(r#""plans":{PLANS}"#), r#""plans":99"#);
        let fault = changed(&from, to).expect_err("other plans").to_string();
        assert!(
            fault.ends_with(&format!(
                "found a way of drawing plans 99, expected {PLANS}"
            )),
            "{fault}"
        );
    }

    #[test]
    fn a_seed_of_plans_that_nobody_can_draw_is_refused() {
        let ways = format!("expected one of {PLAN_WAYS:?}");
        for (from, to, seed) in [
            ("[[8,3]]".to_owned(), "[[8,99]]", 8),
            (
                format!(r#""seed":7,"way":{PLANS}"#),
                r#""seed":7,"way":99"#,
                7,
            ),
        ] {
            let fault = changed(&from, to).expect_err("no such way").to_string();
            let expected = format!("seed {seed}: found a way of drawing plans 99, {ways}");
            assert!(fault.ends_with(&expected), "{fault}");
        }
    }

    #[test]
    fn of_another_build_it_is_gone_on_with_and_both_are_named() {
        let so_far = changed(built::this(), "another").expect("it is read");
        let report = so_far.expect("it is there").report;
        assert_eq!(report.builds, ["another", built::this()]);
        assert_eq!((report.seeds, report.kept), (9, 2));
        assert_eq!(
            report.faults,
            BTreeMap::from([("cut", 4), ("agent died", 5)])
        );
        assert_eq!(report.failed, [failed()]);
    }
}
