//! The output of `tollgate check` about a limits document.
//!
//! For people it is the faults, or the normalised document with the warnings in comments above it,
//! so that the output is itself a document. Programs get the same as one object. Knows no files:
//! the caller passes a text and its name.

use std::fmt;

use serde::Serialize;

use super::fault::{Fault, Faults};
use super::numbers::ClassId;
use super::resource::Resource;
use super::review::state_bytes_at_limit;
use super::tables::RateOverride;
use super::version::Limits;
use super::warning::{Warning, Warnings};
use super::warning_text::Bytes;

/// For how many different limits of one resource bytes are reported; the greatest are.
const SIZES_MAX: usize = 20;

/// The answer of `tollgate check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Name and number of this object's format.
    pub schema: &'static str,
    /// The name of the document.
    pub file: String,
    /// Whether it can be used: there are no faults.
    pub good: bool,
    /// Everything that is wrong.
    pub faults: Vec<Fault>,
    /// Faults beyond those listed.
    pub faults_omitted: u64,
    /// What is valid but questionable.
    pub warnings: Vec<Warning>,
    /// Warnings beyond those listed.
    pub warnings_omitted: u64,
    /// The resources of a good document.
    pub resources: Vec<ResourceReport>,
    /// A good document, normalised, as TOML.
    pub normalised: Option<String>,
}

/// One resource of a good document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceReport {
    /// Its name.
    pub resource: String,
    /// `rate` or `copies`.
    pub kind: &'static str,
    /// How many domains have limits of their own, including those by plans.
    pub overrides: usize,
    /// The bytes of a domain at its limit, for a rate-limited resource: the default first, then the
    /// greatest.
    pub sizes: Vec<SizeReport>,
    /// How many further different limits there are, with sizes below those listed.
    pub sizes_omitted: usize,
}

/// The bytes of a domain at its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeReport {
    /// A domain with these limits; `None`: every domain without an override.
    pub domain: Option<String>,
    /// How many domains with overrides have these limits.
    pub domains: usize,
    /// Estimated bytes of state.
    pub bytes_per_domain: u64,
}

/// Checks a document; `file` is its name in the messages.
pub fn check(text: &str, file: &str) -> CheckReport {
    let empty = CheckReport {
        schema: "tollgate.check/1",
        file: file.to_owned(),
        good: false,
        faults: Vec::new(),
        faults_omitted: 0,
        warnings: Vec::new(),
        warnings_omitted: 0,
        resources: Vec::new(),
        normalised: None,
    };
    match Limits::parse_with_warnings(text) {
        Err(Faults { list, omitted }) => CheckReport {
            faults: list,
            faults_omitted: omitted,
            ..empty
        },
        Ok((limits, Warnings { list, omitted })) => CheckReport {
            good: true,
            warnings: list,
            warnings_omitted: omitted,
            resources: limits
                .resources()
                .iter()
                .map(|resource| report_resource(&limits, resource))
                .collect(),
            normalised: Some(limits.normalised_text()),
            ..empty
        },
    }
}

fn report_resource(limits: &Limits, resource: &Resource) -> ResourceReport {
    let mut sizes = Vec::new();
    let mut sizes_omitted = 0;
    if let Resource::Rate(rate) = resource {
        // A candidate is ruled beside the real limits, and has a state of its own.
        let of_class = |class: ClassId| state_bytes_at_limit(limits.class(class));
        let bytes =
            |of: &RateOverride| of_class(of.class).saturating_add(of.candidate.map_or(0, of_class));
        sizes = rate
            .override_uses()
            .map(|(domain, domains, of)| SizeReport {
                domain: Some(domain.to_owned()),
                domains,
                bytes_per_domain: bytes(of),
            })
            .collect();
        // Stable: among equal sizes the first domain's comes first.
        sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes_per_domain));
        sizes_omitted = sizes.len().saturating_sub(SIZES_MAX);
        sizes.truncate(SIZES_MAX);
        let default = SizeReport {
            domain: None,
            domains: 0,
            bytes_per_domain: bytes(&rate.default),
        };
        sizes.insert(0, default);
    }
    let (kind, overrides) = match resource {
        Resource::Rate(rate) => ("rate", rate.overrides().count()),
        Resource::Copies(copies) => ("copies", copies.overrides().count()),
    };
    ResourceReport {
        resource: resource.name().to_owned(),
        kind,
        overrides,
        sizes,
        sizes_omitted,
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(normalised) = &self.normalised else {
            return self.write_faults(f);
        };
        let resources = plural(self.resources.len(), "resource");
        let found = self.warnings.len() + self.warnings_omitted as usize;
        writeln!(
            f,
            "# {}: good, {resources}, {}",
            self.file,
            plural(found, "warning")
        )?;
        for warning in &self.warnings {
            writeln!(f, "# warning: {warning}")?;
        }
        if self.warnings_omitted != 0 {
            writeln!(f, "# {} more warnings", self.warnings_omitted)?;
        }
        self.write_sizes(f)?;
        write!(f, "\n{normalised}")
    }
}

impl CheckReport {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "{}: {fault}", self.file)?;
        }
        let found = self.faults.len() + self.faults_omitted as usize;
        writeln!(f, "{}: {}", self.file, plural(found, "fault"))
    }

    fn write_sizes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = || self.resources.iter().filter(|r| !r.sizes.is_empty());
        if rates().next().is_none() {
            return Ok(());
        }
        writeln!(f, "#\n# state of a domain at its limit, about:")?;
        for resource in rates() {
            for size in &resource.sizes {
                let who = match (&size.domain, size.domains) {
                    (None, _) => "a domain without an override".to_owned(),
                    (Some(domain), 1) => format!("{domain:?}"),
                    (Some(domain), domains) => format!("{domain:?} and {} more", domains - 1),
                };
                let bytes = Bytes(size.bytes_per_domain).to_string();
                writeln!(f, "# {bytes:>10}  {}: {who}", resource.resource)?;
            }
            if resource.sizes_omitted != 0 {
                let omitted = resource.sizes_omitted;
                writeln!(
                    f,
                    "#             {}: {omitted} more kinds, smaller",
                    resource.resource
                )?;
            }
        }
        Ok(())
    }
}

fn plural(count: usize, word: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {word}{s}")
}
