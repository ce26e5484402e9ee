//! `tollgate check`: everything that is wrong with a limits document, at once; or what it means.

use std::path::PathBuf;

use tollgate_engine::limits::check;

use super::exit::{Exit, Failure};
use super::output::Format;
use super::{Global, input_name, read_input};

/// What `check` takes.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The limits document; `-` is stdin
    #[arg(value_name = "LIMITS")]
    pub file: Option<PathBuf>,
}

/// Runs the command. A document with faults ends it with 65.
///
/// # Errors
///
/// Where the document cannot be read, or the output not written.
pub fn run(global: &Global, args: &CheckArgs) -> Result<Exit, Failure> {
    let Some(path) = args.file.as_ref().or(global.limits.as_ref()) else {
        return Err(Failure::Usage(
            "check: expected a limits document".to_owned(),
        ));
    };
    let name = input_name(path);
    let report = check(&global.document(read_input(path)?, &name)?, &name);
    let mut output = global.open_output()?;
    match global.format {
        Format::Text => output.line(report.to_string().trim_end())?,
        Format::Json => output.json(&report)?,
    }
    output.finish()?;
    Ok(if report.good { Exit::Done } else { Exit::Data })
}
