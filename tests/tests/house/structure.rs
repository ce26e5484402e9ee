//! Gates on the structure: cyclic modules, long files, long functions, names that are defined again and again.
//!
//! Each gate compares its findings with `exceptions.txt` beside this file. A finding that is not listed fails, and
//! so does an entry without finding: the list only shrinks, and shows what is left to do. Sources are expected as
//! rustfmt formats them; code after `#[cfg(test)]` does not count for cycles and names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{root, sources};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const DEFINITIONS_MAX: usize = 2;

/// A source, its path in the workspace, and its text.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    pub(super) fn all() -> Vec<Self> {
        let (root, mut files) = (root(), Vec::new());
        sources(&root, &mut files);
        files.sort();
        let of = |file: PathBuf| Self {
            path: file
                .strip_prefix(&root)
                .expect("below the root")
                .display()
                .to_string(),
            text: fs::read_to_string(&file).expect("a source"),
        };
        files.into_iter().map(of).collect()
    }

    /// The code that is built for a service: without tests and comments.
    fn shipped(&self) -> String {
        let text = self.text.split("#[cfg(test)]\nmod tests {").next();
        let lines = text.unwrap_or_default().lines();
        let code = lines.map(|line| line.split("//").next().unwrap_or_default());
        code.collect::<Vec<_>>().join("\n")
    }

    fn is_test(&self) -> bool {
        let name = Path::new(&self.path).file_stem().unwrap_or_default();
        self.path.contains("/tests/") || name.to_string_lossy().ends_with("tests")
    }
}

/// The entries under a heading of `exceptions.txt`: the first word of each line; the rest is a reason.
fn excepted(heading: &str) -> BTreeSet<String> {
    let list = include_str!("exceptions.txt");
    let heading = format!("[{heading}]");
    let below = list.lines().skip_while(|line| **line != heading).skip(1);
    below
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split("  ").next())
        .map(|entry| entry.trim().to_owned())
        .collect()
}

/// Fails unless the findings equal the entries.
fn compare(heading: &str, what: &str, found: &BTreeSet<String>) {
    let listed = excepted(heading);
    let new: Vec<&String> = found.difference(&listed).collect();
    let gone: Vec<&String> = listed.difference(found).collect();
    assert!(new.is_empty(), "{what}: {new:#?}");
    assert!(
        gone.is_empty(),
        "no longer so: take them out of [{heading}] in exceptions.txt: {gone:#?}"
    );
}

#[test]
fn no_file_is_long() {
    let lines = |source: &Source| source.text.lines().count();
    let long = Source::all()
        .into_iter()
        .filter(|source| FILE_LINES_MAX < lines(source))
        .map(|source| source.path)
        .collect();
    let what = format!("above {FILE_LINES_MAX} lines: split them by idea");
    compare("files", &what, &long);
}

/// The functions of a text that are too long. A function ends at a closing brace with the indentation of its
/// beginning.
fn long_functions(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (begin, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some(name) = function_name(code) else {
            continue;
        };
        if code.ends_with('}') {
            continue; // It ends on the line that it begins on.
        }
        let end = format!("{indent}}}");
        let rest = lines[begin..].iter();
        let length = rest.take_while(|line| **line != end).count() + 1;
        let has_body = !code.ends_with(';') && begin + length <= lines.len();
        if has_body && FUNCTION_LINES_MAX < length {
            long.push(name);
        }
    }
    long
}

/// The name of the function that a line begins.
fn function_name(code: &str) -> Option<&str> {
    let mut words = code.split_ascii_whitespace();
    let is_prefix = |word: &str| {
        word.starts_with("pub") || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
    };
    let first = words.find(|word| !is_prefix(word) && *word != "in" && !word.ends_with(')'))?;
    if first != "fn" {
        return None;
    }
    words.next()?.split(['(', '<']).next()
}

#[test]
fn no_function_is_long() {
    let mut found = BTreeSet::new();
    for source in Source::all() {
        let of = |name: &str| format!("{} {name}", source.path);
        found.extend(long_functions(&source.text).into_iter().map(of));
    }
    let what = format!("above {FUNCTION_LINES_MAX} lines: split them");
    compare("functions", &what, &found);
}

#[test]
fn a_long_function_is_found() {
    let body = "        x();\n".repeat(FUNCTION_LINES_MAX - 1);
    let text =
        format!("    pub(crate) const fn long<T>(\n{body}    }}\n    fn short() {{\n    }}\n");
    assert_eq!(long_functions(&text), ["long"]);
    let text = format!("    fn one_line() {{}}\n{body}    }}\n");
    assert_eq!(long_functions(&text), [""; 0]);
    let text = format!("    fn fits() {{\n{}    }}\n", &body[..body.len() - 13]);
    assert_eq!(long_functions(&text), [""; 0]);
}

/// The name of the type that a line defines. A `type` in an implementation is named by its trait, and does not
/// count.
fn type_name(line: &str) -> Option<&str> {
    let code = line.trim_start();
    if code != line && code.starts_with("type ") {
        return None;
    }
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (kind, rest) = code.split_once(' ')?;
    let name = rest
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn no_type_name_is_defined_three_times() {
    let mut definitions: BTreeMap<String, usize> = BTreeMap::new();
    for source in Source::all() {
        let is_shipped = source.path.contains("/src/")
            && !source.is_test()
            && !source.path.starts_with("tests/")
            && !source.path.starts_with("benches/");
        if is_shipped {
            for name in source.shipped().lines().filter_map(type_name) {
                *definitions.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    assert!(500 <= definitions.len(), "types were found");
    let often = definitions.into_iter();
    let often = often.filter(|(_, times)| DEFINITIONS_MAX < *times);
    let found = often.map(|(name, _)| name).collect();
    compare("names", "types of one name in three places", &found);
}

/// Which top-level modules of a crate import which others.
fn imports(files: &[&Source], src: &str) -> BTreeMap<String, BTreeSet<String>> {
    let top = |source: &Source| {
        let below = source.path.strip_prefix(src).unwrap_or(&source.path);
        let first = below.split('/').next().unwrap_or(below);
        first.trim_end_matches(".rs").to_owned()
    };
    let tops: BTreeSet<String> = files.iter().map(|source| top(source)).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in files {
        let module = top(source);
        if source.is_test() || matches!(&*module, "lib" | "main" | "bin") {
            continue;
        }
        let below = &source.path[src.len()..];
        let is_top =
            !below.contains('/') || below.ends_with("/mod.rs") && below.matches('/').count() == 1;
        let code = source.shipped();
        let mut named: Vec<&str> = code.split("crate::").skip(1).collect();
        if is_top {
            named.extend(code.split("super::").skip(1));
        }
        let first_word = |rest: &&str| {
            let word = rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            word.unwrap_or_default().to_owned()
        };
        let others = named.iter().map(first_word);
        let others = others.filter(|other| tops.contains(other) && *other != module);
        imports.entry(module.clone()).or_default().extend(others);
    }
    imports
}

/// All modules that can be reached from a module.
fn reached<'a>(from: &str, imports: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let all = Source::all();
    let mut crates: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in &all {
        if let Some((before, _)) = source.path.split_once("/src/") {
            crates
                .entry(format!("{before}/src/"))
                .or_default()
                .push(source);
        }
    }
    assert!(8 <= crates.len(), "crates were found");
    let mut found = BTreeSet::new();
    for (src, files) in &crates {
        let imports = imports(files, src);
        let in_circle = |module: &&String| reached(module, &imports).contains(module.as_str());
        let modules = imports.keys().filter(in_circle);
        found.extend(modules.map(|module| format!("{src}{module}")));
    }
    compare(
        "circles",
        "modules that import each other in a circle",
        &found,
    );
}

#[test]
fn crates_depend_downwards_only() {
    // The crates that each crate may import, besides foreign ones.
    let allowed: [(&str, &[&str]); 10] = [
        ("shared", &[]),
        ("shared/zmtp", &[]),
        ("shared/tls", &["shared"]),
        ("aggregator/limits", &["shared"]),
        ("aggregator/engine", &["shared", "limits"]),
        ("aggregator/log", &["shared"]),
        ("aggregator/api", &["shared"]),
        (
            "aggregator/replay",
            &["shared", "limits", "engine", "log", "model"],
        ),
        (
            "aggregator/server",
            &[
                "shared", "tls", "zmtp", "limits", "engine", "log", "api", "replay",
            ],
        ),
        ("agent", &["shared", "tls", "zmtp"]),
    ];
    for (room, below) in allowed {
        let manifest =
            fs::read_to_string(root().join(room).join("Cargo.toml")).expect("a manifest");
        let section = manifest
            .split("\n[dependencies]\n")
            .nth(1)
            .unwrap_or_default();
        let ours = section.lines().take_while(|line| !line.starts_with('['));
        let ours = ours.filter_map(|line| line.strip_prefix("tollgate-"));
        let ours: BTreeSet<&str> = ours
            .filter_map(|line| line.split(['.', ' ']).next())
            .collect();
        let more: Vec<&&str> = ours.iter().filter(|other| !below.contains(other)).collect();
        assert!(
            more.is_empty(),
            "{room} depends on {more:?}, expected at most {below:?}"
        );
    }
}
