//! `tollgate limits promote --file`: replaces a resource's limits in a file by its candidate.
//!
//! Knows nothing of the log. What stays true: a file is replaced as a whole or not at all, and a dry run replaces
//! nothing. With JSON the output is one object.

use std::io::Write as _;
use std::path::Path;

use tollgate_shared::escape::{escaped, escaped_json};

use super::limits_candidates::promoted;
use super::output::{Format, Output};
use super::{Global, input_name, read_input};
use crate::exit::{Exit, Failure};

/// Promotes a candidate in a limits file.
///
/// # Errors
///
/// If the file cannot be read or written, or has no such candidate (65).
pub fn promote_in(
    global: &Global,
    file: &Path,
    resource: &str,
    dry_run: bool,
) -> Result<Exit, Failure> {
    let text = read_input(file)?;
    let name = input_name(file);
    let text = promoted(&text, resource).map_err(|failure| match failure {
        Failure::Data(why) => Failure::Data(format!("{name}: {why}")),
        other => other,
    })?;
    let is_shown = dry_run || name == "(stdin)";
    if !is_shown {
        let mut output = Output::open(Some(file), super::output::Color::Never)?;
        output.document(&text)?;
        output.finish()?;
    }
    let json = serde_json::json!({
        "schema": "tollgate.limits_promoted/1",
        "file": name,
        "resource": resource,
        "done": !is_shown,
        "text": text,
    });
    if is_shown {
        let mut output = global.open_output()?;
        match global.format {
            Format::Json => output.json(&json)?,
            Format::Text => output.document(&text)?,
        }
        output.finish()?;
        return Ok(Exit::Done);
    }
    let says = match global.format {
        Format::Json => escaped_json(&json.to_string()).to_string(),
        Format::Text => format!(
            "{}: the candidate of {} has replaced its limits",
            escaped(&name),
            escaped(resource)
        ),
    };
    // The file is replaced by now, whether somebody can read this or not.
    let _ = writeln!(std::io::stdout(), "{says}");
    Ok(Exit::Done)
}
