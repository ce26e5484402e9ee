//! Puts known bugs into a copy of the tree, all of them at once, each behind its own switch.
//!
//! ```text
//! bugs/*.toml   the bugs: a description, and the replacements of text in sources
//! tree/         files that only the copy has: the switch, and the tests that set it
//! plant         writes the copy below target/planted
//! ```
//!
//! In inserted text, `PLANTED` stands for "this bug is switched on". Knows nothing of the effects of a bug.
//! What stays true: the sources themselves contain no bug, a text to be replaced occurs exactly once in its
//! file, and no two of them overlap.

mod copy;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The directory of the bugs in the tree.
const BUGS: &str = "tests/planted/bugs";

/// The directory of files that only the copy has.
const TREE: &str = "tests/planted/tree";

/// The list of bugs, included by the switch.
const LIST: &str = "shared/src/bugs_list.rs";

/// The placeholder in inserted text for "this bug is switched on".
const PLANTED: &str = "PLANTED";

/// Why a tree cannot be planted.
#[derive(Debug, thiserror::Error)]
pub enum PlantingFault {
    /// A file or a directory cannot be read or written.
    #[error("{}: {why}", at.display())]
    Io {
        /// The file or directory.
        at: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// A file of bugs is invalid.
    #[error("{}: {why}", at.display())]
    Bugs {
        /// The file.
        at: PathBuf,
        /// The cause.
        why: toml::de::Error,
    },
    /// The bugs do not fit the tree; one line for each reason.
    #[error("{}", .0.join("\n"))]
    Stale(Vec<String>),
}

/// All changes of the copy.
#[derive(Debug)]
pub struct Planting {
    /// The bugs, in the order of their files.
    pub bugs: Vec<Bug>,
    /// Further edits that the copy needs.
    edits: Vec<Edit>,
}

/// A bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// Its name: lowercase words with hyphens between them.
    pub name: String,
    /// What is wrong with it, in one sentence.
    pub what: String,
    #[serde(rename = "edit")]
    edits: Vec<Edit>,
}

/// A change of one source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The source, below the tree.
    file: String,
    /// The text to be replaced; it occurs exactly once.
    before: String,
    /// The text in the copy.
    after: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BugsFile {
    #[serde(default, rename = "bug")]
    bugs: Vec<Bug>,
    #[serde(default, rename = "edit")]
    edits: Vec<Edit>,
}

impl Planting {
    /// Reads the bugs of a tree.
    ///
    /// # Errors
    ///
    /// If they cannot be read, are not TOML, or have an unknown field.
    pub fn read(root: &Path) -> Result<Self, PlantingFault> {
        let mut planting = Self {
            bugs: Vec::new(),
            edits: Vec::new(),
        };
        for at in copy::files(&root.join(BUGS))? {
            let why = |why| PlantingFault::Bugs {
                at: at.clone(),
                why,
            };
            let read: BugsFile = toml::from_str(&read(&at)?).map_err(why)?;
            planting.bugs.extend(read.bugs);
            planting.edits.extend(read.edits);
        }
        Ok(planting)
    }

    /// The reasons why the bugs do not fit the tree, one line each; empty if they fit.
    pub fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = self.faults_of_names();
        if let Err(of_edits) = self.edited(root) {
            faults.extend(of_edits);
        }
        faults
    }

    /// Writes the copy of the tree with all bugs. Files that are right already are not written, so
    /// that they are not built again.
    ///
    /// # Errors
    ///
    /// If the bugs do not fit the tree, and then nothing is written; if a file cannot be read or written.
    pub fn write(&self, root: &Path, to: &Path) -> Result<(), PlantingFault> {
        let faults = self.faults_of_names();
        if !faults.is_empty() {
            return Err(PlantingFault::Stale(faults));
        }
        let mut texts = self.edited(root).map_err(PlantingFault::Stale)?;
        texts.insert(LIST.into(), self.list());
        for file in copy::files(&root.join(TREE))? {
            let below = file.strip_prefix(root.join(TREE)).unwrap_or(&file);
            texts.insert(below.to_owned(), read(&file)?);
        }
        copy::tree(root, to, &texts)
    }

    fn faults_of_names(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut names: Vec<&str> = self.bugs.iter().map(|bug| bug.name.as_str()).collect();
        names.sort_unstable();
        for two in names.windows(2).filter(|two| two[0] == two[1]) {
            faults.push(format!("bug {}: two bugs of this name", two[0]));
        }
        for bug in &self.bugs {
            let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
            if !bug.name.chars().all(is_name) {
                let name = &bug.name;
                faults.push(format!("bug {name}: expected a-z and - in its name"));
            }
            if !bug.edits.iter().any(|edit| edit.after.contains(PLANTED)) {
                let name = &bug.name;
                faults.push(format!("bug {name}: expected {PLANTED} in an `after`"));
            }
        }
        faults
    }

    /// The sources that differ in the copy, or the reasons why a bug does not fit, one line each.
    fn edited(&self, root: &Path) -> Result<BTreeMap<PathBuf, String>, Vec<String>> {
        let mut by_file: BTreeMap<&str, Vec<(String, &Edit)>> = BTreeMap::new();
        let of_bugs = self.bugs.iter().flat_map(|bug| {
            let edits = bug.edits.iter();
            edits.map(|edit| (bug.name.as_str(), edit))
        });
        let of_tree = self.edits.iter().map(|edit| ("", edit));
        for (name, edit) in of_bugs.chain(of_tree) {
            let edits = by_file.entry(&edit.file).or_default();
            edits.push((name.to_owned(), edit));
        }
        let (mut texts, mut faults) = (BTreeMap::new(), Vec::new());
        for (file, edits) in by_file {
            match fs::read_to_string(root.join(file)) {
                Err(why) => faults.extend(edits.iter().map(|(name, _)| stale(file, name, &why))),
                Ok(text) => match edited(file, &text, &edits) {
                    Ok(text) => drop(texts.insert(PathBuf::from(file), text)),
                    Err(of_file) => faults.extend(of_file),
                },
            }
        }
        match faults.is_empty() {
            true => Ok(texts),
            false => Err(faults),
        }
    }

    /// The list of bugs, included by the switch.
    fn list(&self) -> String {
        let mut list = String::from("// Written by `plant`.\nbugs! {\n");
        for Bug { name, what, .. } in &self.bugs {
            let _ = writeln!(list, "    {} {name:?} {what:?}", variant(name));
        }
        list.push_str("}\n");
        list
    }
}

/// A source with the edits made.
fn edited(file: &str, text: &str, edits: &[(String, &Edit)]) -> Result<String, Vec<String>> {
    let (mut places, mut faults) = (Vec::<(Range<usize>, &str, String)>::new(), Vec::new());
    for (name, edit) in edits {
        let mut found = text.match_indices(&edit.before);
        let (Some((from, _)), None) = (found.next(), found.next()) else {
            let times = text.matches(&edit.before).count();
            let why = format!("found {times} times, expected once:\n{}", edit.before);
            faults.push(stale(file, name, &why));
            continue;
        };
        let range = from..from + edit.before.len();
        places.push((range, name, edit.after.replace(PLANTED, &asked(name))));
    }
    places.sort_by_key(|(range, ..)| range.start);
    for two in places.windows(2) {
        let [(first, name, _), (second, other, _)] = two else {
            continue;
        };
        if second.start < first.end {
            let why = format!("its text overlaps with that of bug {other}");
            faults.push(stale(file, name, &why));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut text = text.to_owned();
    for (range, _, after) in places.into_iter().rev() {
        text.replace_range(range, &after);
    }
    Ok(text)
}

/// A line with the reason why an edit cannot be made.
fn stale(file: &str, name: &str, why: &impl std::fmt::Display) -> String {
    match name {
        "" => format!("{file}: for the planted tree: {why}"),
        name => format!("{file}: bug {name}: {why}"),
    }
}

/// The expression that tests whether a bug is switched on.
fn asked(name: &str) -> String {
    let variant = variant(name);
    format!("tollgate_shared::bugs::planted(tollgate_shared::bugs::Bug::{variant})")
}

/// `tier-cleared` as `TierCleared`.
fn variant(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split('-').map(word).collect()
}

fn read(at: &Path) -> Result<String, PlantingFault> {
    let why = |why| PlantingFault::Io {
        at: at.to_owned(),
        why,
    };
    fs::read_to_string(at).map_err(why)
}

#[cfg(test)]
mod tests;
