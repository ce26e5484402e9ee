//! Bugs for a copy of the tree: they fit the sources, and the sources contain no trace of them.
//!
//! What stays true: nothing is built here. `.ci/run planted` builds the copy and checks that the
//! bugs are found.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_planted::Planting;

use super::{root, sources};

/// The directories of shipped code.
const SHIPPED: [&str; 3] = ["shared", "aggregator", "agent"];

#[test]
fn every_planted_bug_fits_the_sources() {
    let planting = Planting::read(&root()).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(60 <= planting.bugs.len(), "{} bugs", planting.bugs.len());
    let faults = planting.faults(&root());
    assert!(
        faults.is_empty(),
        "a source changed where a bug is put in: write the bug anew (tests/planted/bugs):\n{}",
        faults.join("\n")
    );
}

#[test]
fn shipped_crates_have_no_planted_bugs() {
    let mut files = Vec::new();
    for room in SHIPPED {
        sources(&root().join(room), &mut files);
        manifests(&root().join(room), &mut files);
    }
    assert!(400 <= files.len(), "{} files", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for word in [
            "planted(",
            "planted!",
            "bugs = [",
            "feature = \"bugs\"",
            "wrong-engine",
        ] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
}

fn manifests(dir: &Path, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).expect("a directory");
    for entry in entries.map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().unwrap_or_default();
        if entry.is_dir() && name != "target" {
            manifests(&entry, into);
        } else if name == "Cargo.toml" {
            into.push(entry);
        }
    }
}
