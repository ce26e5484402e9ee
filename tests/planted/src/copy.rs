//! A copy of a tree in which some files differ.
//!
//! Knows nothing of bugs. What stays true: a file of the copy that is right already is not written, so that its
//! time stays; and files that the tree no longer has are removed from the copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::PlantingFault;

/// Directories that are not source: results of builds and of runs. Names that begin with a dot are left out too.
const LEFT_OUT: [&str; 3] = ["target", "tollgate-data", "__pycache__"];

/// The files below a directory, in order.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, PlantingFault> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(&dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        for entry in entries.map_err(at(&dir))? {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if LEFT_OUT.contains(&&*name) || name.starts_with('.') {
                continue;
            }
            match entry.file_type().map_err(at(&entry.path()))?.is_dir() {
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Copies a tree; `texts` are the files that differ, or that only the copy has.
pub fn tree(
    root: &Path,
    to: &Path,
    texts: &BTreeMap<PathBuf, String>,
) -> Result<(), PlantingFault> {
    let mut kept = BTreeSet::new();
    for file in files(root)? {
        let below = file.strip_prefix(root).unwrap_or(&file);
        if !texts.contains_key(below) {
            let bytes = fs::read(&file).map_err(at(&file))?;
            write(&to.join(below), &bytes)?;
            // Scripts stay executable.
            let rights = fs::metadata(&file).map_err(at(&file))?.permissions();
            fs::set_permissions(to.join(below), rights).map_err(at(&to.join(below)))?;
        }
        kept.insert(to.join(below));
    }
    for (below, text) in texts {
        write(&to.join(below), text.as_bytes())?;
        kept.insert(to.join(below));
    }
    for file in files(to)?.iter().filter(|file| !kept.contains(*file)) {
        fs::remove_file(file).map_err(at(file))?;
    }
    Ok(())
}

/// Writes a file, unless it has these bytes already.
fn write(file: &Path, bytes: &[u8]) -> Result<(), PlantingFault> {
    if fs::read(file).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(at(dir))?;
    }
    fs::write(file, bytes).map_err(at(file))
}

fn at(at: &Path) -> impl Fn(io::Error) -> PlantingFault {
    move |why| PlantingFault::Io {
        at: at.to_owned(),
        why,
    }
}
