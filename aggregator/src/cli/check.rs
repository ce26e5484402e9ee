//! `tollgate check`: reports all faults of a limits document at once, or explains it.

use std::path::PathBuf;

use tollgate_limits::{Limits, RateResource, check};

use super::check_domain::{Question, ruling_entry};
use super::output::Format;
use super::{Global, input_name, read_input};
use crate::exit::{Exit, Failure};

/// What `check` takes.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// The limits document; `-` is stdin
    #[arg(value_name = "LIMITS")]
    pub file: Option<PathBuf>,
    /// Shows which entry limits a domain on this resource
    #[arg(long, value_name = "RESOURCE", requires = "domain", value_parser = super::operator::name)]
    pub resource: Option<String>,
    /// The domain: a name, or an address
    #[arg(long, value_name = "DOMAIN", requires = "resource", value_parser = super::operator::domain)]
    pub domain: Option<String>,
}

/// Runs the command. A document with faults ends it with 65.
///
/// # Errors
///
/// If the document cannot be read, or the output cannot be written.
pub fn run(global: &Global, args: &CheckArgs) -> Result<Exit, Failure> {
    let Some(path) = args.file.as_ref().or(global.limits.as_ref()) else {
        return Err(Failure::Usage(
            "check: expected a limits document".to_owned(),
        ));
    };
    let name = input_name(path);
    let text = global.document(read_input(path)?, &name)?;
    if let (Some(resource), Some(domain)) = (&args.resource, &args.domain)
        && let Ok(limits) = Limits::parse(&text)
    {
        return run_of_domain(global, (&name, &text), &limits, (resource, domain));
    }
    let report = check(&text, &name);
    let mut output = global.open_output()?;
    match global.format {
        Format::Text if report.good => output.document(&report.to_string())?,
        Format::Text => output.line(report.to_string().trim_end())?,
        Format::Json => output.json(&report)?,
    }
    output.finish()?;
    Ok(if report.good { Exit::Done } else { Exit::Data })
}

/// Shows which entry rules one domain.
fn run_of_domain(
    global: &Global,
    (file, text): (&str, &str),
    limits: &Limits,
    (resource, domain): (&str, &str),
) -> Result<Exit, Failure> {
    let addresses = limits.rate(resource).and_then(RateResource::addresses);
    let domains = global.domains()?;
    let called = domains.of_resource(addresses, domain);
    let limited_as = called.map_err(|mixture| Failure::Data(mixture.to_string()))?;
    let question = Question {
        file,
        text,
        resource,
        domain,
        limited_as: &limited_as,
    };
    let entry = ruling_entry(limits, &question);
    let mut output = global.open_output()?;
    match global.format {
        Format::Text => output.line(entry.to_string().trim_end())?,
        Format::Json => output.json(&entry)?,
    }
    output.finish()?;
    Ok(Exit::Done)
}
