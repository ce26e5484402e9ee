//! `tollgate limits convert`: the configuration of another limiter as a limits document.
//!
//! The document goes to the output; a line for each setting without an equivalent goes to stderr. In JSON, one object
//! has both.

use std::path::PathBuf;

use serde::Serialize;
use tollgate_shared::escape::escaped_lines;

use super::output::Format;
use super::{Global, input_name, read_input};
use crate::convert::{ConvertSource, Difference, convert};
use crate::exit::{Exit, Failure};

/// What `limits convert` takes.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ConvertArgs {
    /// The limiter whose configuration it is
    #[arg(long, value_name = "LIMITER")]
    from: ConvertSource,
    /// The configuration, in YAML; `-` is stdin
    file: PathBuf,
}

#[derive(Serialize)]
struct ConvertView {
    schema: &'static str,
    document: String,
    differences: Vec<Difference>,
}

/// Runs the command.
///
/// # Errors
///
/// If the configuration cannot be read (66), or has settings that no document can express (65).
pub fn run(global: &Global, args: &ConvertArgs) -> Result<Exit, Failure> {
    let name = input_name(&args.file);
    let text = read_input(&args.file)?;
    let converted = convert(args.from, &text, &name).map_err(Failure::Data)?;
    let mut output = global.open_output()?;
    match global.format {
        Format::Text => {
            output.document(&converted.text)?;
            for Difference { place, text } in &converted.differences {
                let line = format!("{name}: {place}: {text}");
                remark!("{}", escaped_lines(&line));
            }
        }
        Format::Json => output.json(&ConvertView {
            schema: "tollgate.limits_convert/1",
            document: converted.text,
            differences: converted.differences,
        })?,
    }
    output.finish()?;
    Ok(Exit::Done)
}
