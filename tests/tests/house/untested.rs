//! What the test command passes over has no tests: targets with `test = false` or `doctest = false` in `Cargo.toml`,
//! each of which would cost the build of one more executable, or a run of rustdoc, for nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{dependencies, root, sources};

/// The sources of our programs and libraries for which this is off.
fn passed_over(what: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for of in dependencies::crates() {
        let ours = of["source"].is_null();
        let targets = of["targets"].as_array().expect("targets").iter();
        for target in targets.filter(|target| ours && target[what] == false) {
            let source = Path::new(target["src_path"].as_str().expect("a path"));
            if is_of_kind(target, "bin") && what == "test" {
                let text = fs::read_to_string(source).expect("a source");
                let has_modules = text.lines().any(|line| line.starts_with("mod "));
                assert!(!has_modules, "{}: is one file, or tested", source.display());
                files.push(source.to_owned());
            } else if is_of_kind(target, "lib") || is_of_kind(target, "rlib") {
                sources(source.parent().expect("a directory"), &mut files);
            }
        }
    }
    files
}

fn is_of_kind(target: &Value, kind: &str) -> bool {
    let kinds = target["kind"].as_array().expect("kinds");
    kinds.iter().any(|one| one == kind)
}

/// Whether a source has a test.
fn has_test(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let mut attributes = lines.filter(|line| line.starts_with("#["));
    attributes.any(|line| {
        ["test]", "test(", "(test"]
            .iter()
            .any(|it| line.contains(it))
    })
}

/// Whether a source's documentation has a block of Rust.
fn has_example(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let documentation = lines.filter_map(|line| {
        let line = line.strip_prefix("//!").or(line.strip_prefix("///"))?;
        line.trim_start().strip_prefix("```")
    });
    let mut openings = documentation.step_by(2);
    let is_other = |language: &str| matches!(language, "text" | "toml" | "sh" | "json");
    openings.any(|language| !is_other(language))
}

fn assert_none(what: &str, at_least: usize, has: impl Fn(&str) -> bool) {
    let files = passed_over(what);
    assert!(at_least <= files.len(), "{what}: {} files", files.len());
    let text = |file: &PathBuf| fs::read_to_string(file).expect("a source");
    let found: Vec<PathBuf> = files.into_iter().filter(|file| has(&text(file))).collect();
    assert!(
        found.is_empty(),
        "{what} = false in Cargo.toml below {}, and yet: {found:#?}",
        root().display()
    );
}

#[test]
fn what_is_not_built_for_tests_has_none() {
    assert_none("test", 20, has_test);
}

#[test]
fn documentation_that_is_not_run_has_no_examples() {
    assert_none("doctest", 200, has_example);
}

#[test]
fn tests_and_examples_are_found() {
    for text in [
        "#[test]\nfn f() {}",
        "mod a {\n    #[tokio::test]\n    async",
    ] {
        assert!(has_test(text), "{text}");
    }
    assert!(!has_test("#[derive(Debug)]\nstruct Tested;"));
    for text in [
        "//! ```\n//! x();\n//! ```",
        "    /// ```no_run\n    /// ```",
    ] {
        assert!(has_example(text), "{text}");
    }
    assert!(!has_example(
        "/// ```text\n/// a\n/// ```\nfn f() {}\n/// ```sh\n/// ```"
    ));
}
