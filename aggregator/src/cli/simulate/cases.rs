//! Test cases: plays each line, prints its results, and compares them with the expected ones.
//!
//! ```text
//! five: 3 ops, 2 of 3 hits granted
//! rate.jsonl: line 1: five: ops[2].granted: found 0, expected 1
//! 0 of 1 as expected
//! ```
//!
//! What stays true: with JSON, stdout has only the cases, one per line, and stderr the rest; a case without
//! expectations is printed, and counts neither as right nor as wrong.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate_replay::cases::{CaseDifference, differences, play};
use tollgate_shared::escape::{escaped, escaped_lines};

use super::super::output::{Format, Output};
use super::super::{Global, input_name};
use crate::exit::{Exit, Failure};

/// Plays all cases of all files, in order. If any differs, the command exits with 1.
///
/// # Errors
///
/// If a file cannot be read, or one of its lines is not a case.
pub fn run(global: &Global, files: &[PathBuf]) -> Result<Exit, Failure> {
    let mut playing = Playing {
        format: global.format,
        output: global.open_output()?,
        compared: 0,
        as_expected: 0,
    };
    for file in files {
        playing.file(file)?;
    }
    playing.finish(global.quiet)
}

/// The most bytes of a case: far more than the longest ones have.
const LINE_BYTES_MAX: u64 = 16 << 20;

struct Playing {
    format: Format,
    output: Output,
    /// Cases with expectations.
    compared: usize,
    as_expected: usize,
}

impl Playing {
    fn file(&mut self, file: &Path) -> Result<(), Failure> {
        let name = input_name(file);
        let failed = |source| Failure::Input {
            name: name.clone(),
            source,
        };
        let input: Box<dyn Read> = if file == Path::new("-") {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(std::fs::File::open(file).map_err(failed)?)
        };
        let (mut input, mut line) = (BufReader::new(input), String::new());
        for number in 1u64.. {
            line.clear();
            let bounded = &mut (&mut input).take(LINE_BYTES_MAX + 1);
            let place = format!("{name}: line {number}");
            let bytes = bounded.read_line(&mut line);
            let bytes = bytes.map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => Failure::Data(format!("{place}: not UTF-8")),
                _ => failed(error),
            })?;
            if bytes == 0 {
                break;
            }
            if LINE_BYTES_MAX < bytes as u64 {
                let text = format!("{place}: longer than {LINE_BYTES_MAX} bytes");
                return Err(Failure::Data(text));
            }
            if line.trim().is_empty() {
                continue;
            }
            let case = play(&line).map_err(|fault| Failure::Data(format!("{place}: {fault}")))?;
            self.case(&place, &case)?;
        }
        Ok(())
    }

    fn case(&mut self, place: &str, case: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.output.json(case)?,
            Format::Text => self.output.line(summary(case))?,
        }
        let Some(differences) = differences(case) else {
            return Ok(());
        };
        self.compared += 1;
        self.as_expected += usize::from(differences.is_empty());
        for difference in &differences {
            self.difference(&format!("{place}: {}", name(case)), difference)?;
        }
        Ok(())
    }

    fn difference(&mut self, place: &str, difference: &CaseDifference) -> Result<(), Failure> {
        let line = format!("{place}: {difference}");
        match self.format {
            Format::Json => remark!("{}", escaped_lines(&line)),
            Format::Text => self.output.line(line)?,
        }
        Ok(())
    }

    fn finish(mut self, is_quiet: bool) -> Result<Exit, Failure> {
        let total = format!("{} of {} as expected", self.as_expected, self.compared);
        match self.format {
            _ if self.compared == 0 => {}
            Format::Json if is_quiet => {}
            Format::Json => remark!("{total}"),
            Format::Text => self.output.line(total)?,
        }
        self.output.finish()?;
        Ok(match self.as_expected == self.compared {
            true => Exit::Done,
            false => Exit::No,
        })
    }
}

fn name(case: &Value) -> String {
    escaped(case["name"].as_str().unwrap_or("(no name)")).to_string()
}

/// A case in one line, for people: what was requested, and what was granted or excess.
fn summary(case: &Value) -> String {
    let ops = case["ops"].as_array().map_or(&[][..], Vec::as_slice);
    let sum =
        |of: &dyn Fn(&Value) -> Option<u64>| ops.iter().filter_map(of).fold(0, u64::saturating_add);
    let asked = sum(&|op| op["copies"].as_u64().or(op["n"].as_u64()));
    let granted = sum(&|op| op["result"]["granted"].as_u64());
    let name = name(case);
    let ops_len = ops.len();
    if let Some(normal) = case["result"].as_array() {
        let written = case["tiers"].as_array().map_or(0, Vec::len);
        return format!("{name}: {written} tiers, {} when normalised", normal.len());
    }
    match case["mode"].as_str() {
        Some("hold") => {
            let excess = sum(&|op| op["result"]["excess"].as_u64());
            format!("{name}: {ops_len} ops, {excess} copies too many")
        }
        Some("reserve") => format!("{name}: {ops_len} ops, {granted} copies granted"),
        _ => format!("{name}: {ops_len} ops, {granted} of {asked} hits granted"),
    }
}
