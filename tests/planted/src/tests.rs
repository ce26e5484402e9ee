//! Tests of refusals, and of the planted tree.

use super::*;

/// A tree with one source and these bugs.
fn tree(bugs: &str) -> (tempfile::TempDir, Result<Planting, PlantingFault>) {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |file: &str, text: &str| {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().expect("below the tree")).expect("made");
        fs::write(file, text).expect("written");
    };
    write("engine/src/lib.rs", "fn full() {\n    a < b && c < d\n}\n");
    write("target/debug/made", "");
    write("tests/planted/bugs/engine.toml", bugs);
    write("tests/planted/tree/shared/src/bugs.rs", "the switch\n");
    let planting = Planting::read(dir.path());
    (dir, planting)
}

fn bug(name: &str, before: &str, after: &str) -> String {
    format!(
        "[[bug]]\nname = {name:?}\nwhat = \"it is wrong\"\n[[bug.edit]]\nfile = \"engine/src/lib.rs\"\n\
         before = {before:?}\nafter = {after:?}\n"
    )
}

fn faults(bugs: &str) -> Vec<String> {
    let (dir, planting) = tree(bugs);
    planting.expect("read").faults(dir.path())
}

#[test]
fn a_copy_has_every_bug_behind_its_switch() {
    let first = bug("is-full", "a < b", "(a < b || PLANTED)");
    let second = bug("is-late", "c < d", "c < d && !PLANTED");
    let (dir, planting) = tree(&(second + &first));
    let planting = planting.expect("read");
    assert_eq!(planting.faults(dir.path()), [""; 0]);
    let to = dir.path().join("target/planted");
    fs::create_dir_all(&to).expect("made");
    fs::write(to.join("gone.rs"), "").expect("written");
    planting.write(dir.path(), &to).expect("written");
    let text = |file: &str| fs::read_to_string(to.join(file)).expect(file);
    let bug = "tollgate_shared::bugs::planted(tollgate_shared::bugs::Bug::Is";
    let expected = format!("fn full() {{\n    (a < b || {bug}Full)) && c < d && !{bug}Late)\n}}\n");
    assert_eq!(text("engine/src/lib.rs"), expected);
    assert_eq!(text("shared/src/bugs.rs"), "the switch\n");
    assert!(text(LIST).contains("    IsFull \"is-full\" \"it is wrong\"\n"));
    assert!(!to.join("target").exists() && !to.join("gone.rs").exists());

    // A file that is right already is not written again.
    let written = |file: &str| fs::metadata(to.join(file)).and_then(|of| of.modified());
    let before = written("engine/src/lib.rs").expect("there");
    planting.write(dir.path(), &to).expect("written");
    assert_eq!(written("engine/src/lib.rs").expect("there"), before);
}

#[test]
fn a_text_that_changed_is_named_with_its_file_and_bug() {
    let found = faults(&bug("is-full", "a <= b", "PLANTED"));
    let expected =
        "engine/src/lib.rs: bug is-full: found 0 times, expected once:\na <= b".to_owned();
    assert_eq!(found, [expected]);
    let found = faults(&bug("is-full", " < ", "PLANTED"));
    assert!(found[0].contains("bug is-full: found 2 times"), "{found:?}");
}

#[test]
fn bugs_of_equal_names_or_overlapping_texts_are_refused() {
    let one = bug("is-full", "a < b", "PLANTED");
    for (bugs, expected) in [
        (
            one.clone() + &bug("is-full", "c < d", "PLANTED"),
            "bug is-full: two bugs of this name",
        ),
        (
            one + &bug("is-late", "b && c", "PLANTED"),
            "bug is-full: its text overlaps with that of bug is-late",
        ),
        (
            bug("is-full", "a < b", "b < a"),
            "bug is-full: expected PLANTED in an `after`",
        ),
        (
            bug("Full", "a < b", "PLANTED"),
            "bug Full: expected a-z and - in its name",
        ),
    ] {
        let found = faults(&bugs);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{found:?}, expected {expected}"
        );
    }
    let (_, planting) = tree("[[bug]]\nname = \"is-full\"\nwhere = \"?\"\n");
    let fault = planting.expect_err("refused").to_string();
    assert!(
        fault.contains("engine.toml") && fault.contains("where"),
        "{fault}"
    );
}
