//! The report: a table for people, JSON lines for programs.

use std::io::{self, Write};

use super::figure::Figure;

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table.
    Text,
    /// JSON lines.
    Json,
}

/// Prints the figures of one benchmark.
///
/// # Errors
///
/// Errors of writing the output.
pub fn print(
    out: &mut impl Write,
    format: Format,
    bench: &str,
    figures: &[Figure],
) -> io::Result<()> {
    match format {
        Format::Json => {
            for figure in figures {
                writeln!(out, "{}", figure.to_json(bench))?;
            }
        }
        Format::Text => print_table(out, bench, figures)?,
    }
    out.flush()
}

const HEADS: [&str; 6] = [
    "figure",
    "value",
    "min … max",
    "target",
    "",
    "beside it, in the same run",
];

fn print_table(out: &mut impl Write, bench: &str, figures: &[Figure]) -> io::Result<()> {
    let row = |figure: &Figure| {
        [
            figure.name().to_owned(),
            figure.value_text(),
            figure.range_text(),
            figure.target_text(),
            figure.verdict().to_owned(),
            figure.peers_text(),
        ]
    };
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(figures.iter().map(row));
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    writeln!(out, "{bench}")?;
    for row in &rows {
        let cells = row.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("  {cell:<width$}"))
            .collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    for figure in figures {
        if let Some(remark) = figure.remark() {
            writeln!(out, "    {}: {remark}", figure.name())?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::figure::Target;

    fn figures() -> Vec<Figure> {
        vec![
            Figure::single("hot", "ns", 21.0).target(Target::AtMost(30.0)),
            Figure::single("cold", "ns", 310.0)
                .target(Target::AtMost(200.0))
                .note("owned key"),
        ]
    }

    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        print(&mut out, format, "hit", &figures()).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_table_says_which_targets_were_missed() {
        let text = printed(Format::Text);
        let line = |name: &str| {
            text.lines()
                .find(|line| line.trim_start().starts_with(name))
        };
        assert!(
            line("hot").is_some_and(|line| line.contains("met")),
            "{text}"
        );
        assert!(
            line("cold").is_some_and(|line| line.contains("MISSED")),
            "{text}"
        );
        assert!(text.contains("cold: owned key"), "{text}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let text = printed(Format::Json);
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(object["bench"], "hit");
        }
    }
}
