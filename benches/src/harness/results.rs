//! `RESULTS.md`: one section for each benchmark, with the conditions of its measurement.
//!
//! A single benchmark replaces its own section and leaves the others unchanged, so each section has
//! its own commit and date. What stays true: sections are in the order of the catalog, and nobody
//! edits this file by hand.

use std::path::PathBuf;

use anyhow::Context as _;

use super::Bench;
use super::figure::Figure;
use super::machine::Provenance;

/// The file's path from the project's root.
pub const RESULTS_FILE: &str = "benches/RESULTS.md";

const HEAD: &str = "\
# Results

Written by `cargo run --release -p tollgate-benches -- all` (or `NAME --record` for one section): do not
edit. A value is the median of its rounds; peers were measured in the same run, round by round with us.
Each section says on which machine and how busy it was; a machine with a load above none shared its
processors while it measured.
";

const SECTION: &str = "\n## ";

/// Replaces the sections of the benchmarks that were run.
///
/// # Errors
///
/// If the file cannot be read or written.
pub fn record(
    catalog: &[Bench],
    measured: &[(&'static str, Vec<Figure>)],
    provenance: &Provenance,
) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let sections: Vec<(&str, String)> = measured
        .iter()
        .filter_map(|(name, figures)| {
            let bench = catalog.iter().find(|bench| bench.name == *name)?;
            Some((*name, section(bench, figures, provenance)))
        })
        .collect();
    let order: Vec<&str> = catalog.iter().map(|bench| bench.name).collect();
    let after = merged(&before, &order, &sections);
    let draft = path.with_extension("md.new");
    std::fs::write(&draft, after)
        .and_then(|()| std::fs::rename(&draft, &path))
        .with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The whole file: new sections, and the old ones of other benchmarks.
fn merged(before: &str, order: &[&str], new: &[(&str, String)]) -> String {
    let mut text = HEAD.to_owned();
    for name in order {
        let fresh = new
            .iter()
            .find(|(of, _)| of == name)
            .map(|(_, text)| text.as_str());
        if let Some(section) = fresh.or_else(|| section_of(before, name)) {
            text.push('\n');
            text.push_str(section.trim_matches('\n'));
            text.push('\n');
        }
    }
    text
}

fn section_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let heading = format!("{SECTION}{name}\n");
    let start = text.find(&heading)? + 1;
    let rest = text.get(start..)?;
    let end = rest.find(SECTION).unwrap_or(rest.len());
    rest.get(..end)
}

fn section(bench: &Bench, figures: &[Figure], provenance: &Provenance) -> String {
    let Provenance {
        machine,
        load,
        commit,
        date,
    } = provenance;
    let mut text = format!(
        "## {}\n\n{}.\n{date}, commit {commit}. {machine}; load {load} at the start.\n\n\
         | figure | value | min … max | target | | beside it, in the same run |\n\
         |---|---|---|---|---|---|\n",
        bench.name, bench.about
    );
    for figure in figures {
        let cells = [
            figure.name().to_owned(),
            figure.value_text(),
            figure.range_text(),
            figure.target_text(),
            figure.verdict().to_owned(),
            figure.peers_text(),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    let remarks: Vec<String> = figures
        .iter()
        .filter_map(|figure| Some(format!("- {}: {}\n", figure.name(), figure.remark()?)))
        .collect();
    if !remarks.is_empty() {
        text.push('\n');
        text.extend(remarks);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Session;
    use crate::harness::figure::Target;

    fn nothing(_: &mut Session) -> anyhow::Result<()> {
        Ok(())
    }

    fn provenance(date: &str) -> Provenance {
        Provenance {
            machine: "2 cores".into(),
            load: "0.00".into(),
            commit: "abc".into(),
            date: date.into(),
        }
    }

    fn written(name: &'static str, value: f64, date: &str) -> (&'static str, String) {
        let bench = Bench {
            name,
            about: "something",
            run: nothing,
        };
        let figure = Figure::single("x", "ns", value)
            .target(Target::AtMost(10.0))
            .note("so");
        (name, section(&bench, &[figure], &provenance(date)))
    }

    #[test]
    fn one_benchmark_replaces_its_own_section_alone() {
        let order = ["engine", "pairs", "hit"];
        let first = merged(
            "",
            &order,
            &[
                written("hit", 1.0, "monday"),
                written("engine", 2.0, "monday"),
            ],
        );
        let second = merged(&first, &order, &[written("pairs", 3.0, "tuesday")]);
        let third = merged(&second, &order, &[written("engine", 40.0, "friday")]);
        let at = |text: &str| {
            third
                .find(text)
                .unwrap_or_else(|| panic!("{text:?} in {third}"))
        };
        assert!(at("## engine") < at("friday"));
        assert!(at("friday") < at("## pairs"));
        assert!(at("## pairs") < at("tuesday"));
        assert!(at("tuesday") < at("## hit"));
        assert!(at("## hit") < at("monday"));
        assert!(!third.contains("2.00 ns"), "{third}");
        assert!(
            third.contains("| x | 40.0 ns |  | ≤ 10.0 | MISSED |  |"),
            "{third}"
        );
        assert_eq!(third.matches("- x: so").count(), 3);
        assert_eq!(merged(&third, &order, &[]), third);
    }
}
