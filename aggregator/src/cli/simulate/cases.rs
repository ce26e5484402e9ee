//! Test cases: each line is played and printed with its results.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use tollgate_replay::cases::play;
use tollgate_shared::escape::escaped;

use super::super::output::{Format, Output};
use super::super::{Global, input_name};
use crate::exit::{Exit, Failure};

/// Plays all cases of all files, in order.
///
/// # Errors
///
/// Where a file cannot be read, or a line of it is no case.
pub fn run(global: &Global, files: &[PathBuf]) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    for file in files {
        play_file(file, global.format, &mut output)?;
    }
    output.finish()?;
    Ok(Exit::Done)
}

fn play_file(file: &Path, format: Format, output: &mut Output) -> Result<(), Failure> {
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
    for (index, line) in BufReader::new(input).lines().enumerate() {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        let case = play(&line)
            .map_err(|fault| Failure::Data(format!("{name}: line {}: {fault}", index + 1)))?;
        match format {
            Format::Json => output.json(&case)?,
            Format::Text => output.line(summary(&case))?,
        }
    }
    Ok(())
}

/// A case in one line, for people: what was asked, and what was granted or too much.
fn summary(case: &serde_json::Value) -> String {
    let ops = case["ops"].as_array().map_or(&[][..], Vec::as_slice);
    let sum =
        |of: &dyn Fn(&serde_json::Value) -> Option<u64>| -> u64 { ops.iter().filter_map(of).sum() };
    let asked = sum(&|op| op["copies"].as_u64().or(op["n"].as_u64()));
    let granted = sum(&|op| op["result"]["granted"].as_u64());
    let name = escaped(case["name"].as_str().unwrap_or("(no name)"));
    let ops_len = ops.len();
    match case["mode"].as_str() {
        Some("hold") => {
            let excess = sum(&|op| op["result"]["excess"].as_u64());
            format!("{name}: {ops_len} ops, {excess} copies too many")
        }
        Some("reserve") => format!("{name}: {ops_len} ops, {granted} copies granted"),
        _ => format!("{name}: {ops_len} ops, {granted} of {asked} hits granted"),
    }
}
