//! The repository itself: what documents state about the tree is true, and every file states its purpose.

mod dependencies;
mod planted;
mod structure;
mod untested;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
    {
        let name = entry
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        if entry.is_dir() {
            sources(&entry, into);
        } else if name.ends_with(".rs") {
            into.push(entry);
        }
    }
}

/// The texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_path_in_the_map_exists() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let paths: Vec<&str> = quoted(&map)
        .filter(|word| {
            word.ends_with('/')
                || word.ends_with(".rs")
                || word.ends_with(".md")
                || word.ends_with(".toml")
        })
        .collect();
    assert!(8 <= paths.len(), "the map names its rooms: {paths:?}");
    let missing: Vec<&&str> = paths
        .iter()
        .filter(|path| !root().join(path).exists())
        .collect();
    assert!(
        missing.is_empty(),
        "named in ARCHITECTURE.md, but not there: {missing:?}"
    );
}

#[test]
fn every_link_in_the_readme_leads_somewhere() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the readme");
    let links: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    assert!(3 <= links.len(), "the readme links to rooms");
    let is_there = |link: &str| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            return heading.is_empty() && root().join(file).exists();
        };
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let mut anchors = headings.map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words.replace(' ', "-")
        });
        heading.is_empty() || anchors.any(|anchor| anchor == heading)
    };
    let missing: Vec<&&str> = links
        .iter()
        .filter(|link| !link.starts_with("http") && !is_there(link))
        .collect();
    assert!(
        missing.is_empty(),
        "linked in README.md, but not there: {missing:?}"
    );
}

#[test]
fn the_readme_shows_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the readme");
    for command in [
        "cargo run --release --bin tollgate -- demo",
        "cargo test --workspace",
    ] {
        assert!(readme.contains(command), "{command}");
    }
}

#[test]
fn the_readme_is_short() {
    const LINES_MAX: usize = 120;
    let readme = fs::read_to_string(root().join("README.md")).expect("the readme");
    let lines = readme.lines().count();
    assert!(lines <= LINES_MAX, "{lines} lines, expected {LINES_MAX}");
}

#[test]
fn every_source_states_its_purpose() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(50 <= files.len(), "the sources were found");
    let silent: Vec<&PathBuf> = files
        .iter()
        .filter(|file| {
            !fs::read_to_string(file)
                .expect("a source")
                .starts_with("//!")
        })
        .collect();
    assert!(silent.is_empty(), "no `//!` at the top of: {silent:?}");
}
