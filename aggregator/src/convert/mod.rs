//! Converts limits of other limiters to a limits document.
//!
//! ```text
//! their YAML ── envoy, limitador ──> draft ── print ──> document ── our own parser ──> checked
//!                                        └── differences, a line for each setting without an equivalent
//! ```
//!
//! Knows nothing of files and output. What stays true: the result was read by the parser that `serve` uses; settings
//! that cannot be converted are named, never left out silently.

mod draft;
mod envoy;
mod limitador;
mod position;

use tollgate_limits::Limits;

pub use draft::Difference;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ConvertSource {
    /// envoyproxy/ratelimit: `domain`, and a tree of `descriptors`
    EnvoyRatelimit,
    /// Limitador of Kuadrant: a list of limits
    Limitador,
}

/// A document, and how it differs.
#[derive(Debug)]
pub struct Converted {
    /// The document.
    pub text: String,
    /// Settings without an equivalent in it, in the order of the source.
    pub differences: Vec<Difference>,
}

/// Writes the configuration of another limiter, called `name`, as a limits document.
///
/// # Errors
///
/// A line for each setting that cannot be read, or that no document can express.
pub fn convert(source: ConvertSource, text: &str, name: &str) -> Result<Converted, String> {
    let draft = match source {
        ConvertSource::EnvoyRatelimit => envoy::read(text),
        ConvertSource::Limitador => limitador::read(text),
    };
    let draft = draft.map_err(|fault| format!("{name}: {fault}"))?;
    let (text, differences) = draft.finish(name);
    match Limits::parse(&text) {
        Ok(_) => Ok(Converted { text, differences }),
        Err(faults) => Err(faults.in_file(&format!("{name}, converted")).to_string()),
    }
}
