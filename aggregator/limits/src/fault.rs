//! What is wrong with a limits document, stated so that it can be corrected.
//!
//! ```text
//! limits.toml: resource "api.search": tier[1].window = "0s": expected a duration of at least 1ms (line 3)
//! limits.toml: resource "api.search": tier[1].windwo: unknown field, did you mean `window`? (line 3)
//! ```
//!
//! A fault is a path, the value found there, and the values allowed. Knows nothing of what limits mean.
//! What stays true: one reading reports all faults, in the order of the document.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeStruct as _;
use tollgate_shared::descriptors::RuleFault;
use tollgate_shared::names::NameFault;
use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;

use super::warning_text::Bytes;

/// How many faults are reported one by one; the others are counted.
pub const FAULTS_MAX: usize = 1_000;

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// It is not TOML.
    Syntax {
        /// The parser's message.
        message: Box<str>,
    },
    /// The document is longer than this build reads.
    TooLong {
        /// How many bytes it has.
        found: usize,
    },
    /// The document states nothing at all.
    Empty,
    /// There is no such field.
    UnknownField {
        /// The field with the most similar spelling.
        suggestion: Option<&'static str>,
        /// All fields of this table.
        known: &'static [&'static str],
    },
    /// A required value is missing.
    Missing {
        /// What is required.
        expected: &'static str,
    },
    /// The value is not allowed here.
    Value {
        /// The values allowed.
        expected: &'static str,
    },
    /// The field exists, but not here.
    OutOfPlace {
        /// Why not.
        reason: &'static str,
    },
    /// The name is refused.
    Name(NameFault),
    /// A namespace is the part before the first dot, so this one has no resources.
    NamespaceWithDot,
    /// Stated beside another field with the same meaning.
    Beside {
        /// The other field.
        other: &'static str,
    },
    /// One name is configured both as rate and as copies.
    TwoKinds,
    /// The domain is in two plans that both configure the resource.
    TwoPlans {
        /// One plan.
        first: Box<str>,
        /// The other one.
        second: Box<str>,
    },
    /// The document has no such plan.
    UnknownPlan {
        /// The plan with the most similar spelling.
        suggestion: Option<Box<str>>,
    },
    /// The same name occurs before in the list.
    Twice,
    /// A pattern's `*` is not at its end.
    StarInside,
    /// A table in a resource that looks like the second part of a resource's name.
    Unquoted {
        /// The whole name.
        name: Box<str>,
    },
    /// A network whose address has bits beyond its length.
    HostBits {
        /// The network without them.
        expected: Box<str>,
    },
    /// An address and a length that it cannot have.
    NetworkLength,
    /// A network that is narrower than the networks by which the resource limits addresses.
    NarrowNetwork {
        /// The network by which its addresses are limited.
        limited: Box<str>,
    },
    /// Another spelling of a domain that occurs before in the table.
    SameNetwork {
        /// Its canonical spelling.
        network: Box<str>,
    },
    /// There is no such time zone.
    UnknownZone {
        /// The zone with the most similar spelling.
        suggestion: Option<Box<str>>,
    },
    /// The instants of a zone's table do not rise.
    OffsetsDoNotRise,
    /// A document of the log names a zone, but has no table of it.
    ZoneWithoutTable,
    /// A bucket's debt is less than a quarter of a second's rate.
    DebtTooSmall {
        /// The least debt.
        least: u64,
    },
    /// A rule of descriptors is wrong.
    Rule(RuleFault),
    /// A domain at its limit takes too much memory.
    TooManyBytes {
        /// How much.
        bytes: u64,
    },
}

impl FaultKind {
    /// A stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "syntax",
            Self::TooLong { .. } => "too_long",
            Self::Empty => "empty",
            Self::UnknownField { .. } => "unknown_field",
            Self::Missing { .. } => "missing",
            Self::Value { .. } => "value",
            Self::OutOfPlace { .. } => "out_of_place",
            Self::Name(_) | Self::NamespaceWithDot => "name",
            Self::Beside { .. } => "beside",
            Self::TwoKinds => "two_kinds",
            Self::TwoPlans { .. } => "two_plans",
            Self::UnknownPlan { .. } => "unknown_plan",
            Self::Twice => "twice",
            Self::StarInside => "name",
            Self::Unquoted { .. } => "unquoted",
            Self::HostBits { .. } | Self::NetworkLength => "network",
            Self::NarrowNetwork { .. } => "narrow_network",
            Self::SameNetwork { .. } => "twice",
            Self::UnknownZone { .. } => "unknown_zone",
            Self::OffsetsDoNotRise | Self::ZoneWithoutTable => "zone_table",
            Self::DebtTooSmall { .. } => "debt",
            Self::Rule(_) => "descriptor_rule",
            Self::TooManyBytes { .. } => "too_many_bytes",
        }
    }
}

impl FaultKind {
    /// The text of faults that contain no variable part.
    const fn fixed_text(&self) -> Option<&'static str> {
        Some(match self {
            Self::Empty => {
                "states nothing, expected at least `version = 1`: an empty file may be one that is being written"
            }
            Self::TwoKinds => "configured both as `rate` and as `copies`, expected one of the two",
            Self::StarInside => {
                "has `*` elsewhere than at its end, expected a pattern as \"api.*\" or \"*\""
            }
            Self::NamespaceWithDot => {
                "contains a dot, expected the part of a resource's name before its first dot"
            }
            Self::Twice => "stands in this list twice",
            Self::NetworkLength => {
                "expected a length of at most 32 (IPv4) or 128 (IPv6), as \"10.0.0.0/8\""
            }
            Self::OffsetsDoNotRise => "expected instants in ascending order",
            Self::ZoneWithoutTable => {
                "the log has no table of this zone, expected one under `zones` as `tollgate limits push` writes it"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.fixed_text() {
            return f.write_str(text);
        }
        match self {
            Self::Syntax { message } => f.write_str(message),
            Self::TooLong { found } => too_long(f, *found),
            Self::UnknownField {
                suggestion: Some(field),
                ..
            } => write!(f, "unknown field, did you mean `{field}`?"),
            Self::UnknownField { known, .. } => {
                let known: Vec<String> = known.iter().map(|field| format!("`{field}`")).collect();
                write!(f, "unknown field, expected one of {}", known.join(", "))
            }
            Self::Missing { expected } => write!(f, "missing, expected {expected}"),
            Self::Value { expected } => write!(f, "expected {expected}"),
            Self::OutOfPlace { reason } => write!(f, "not allowed here, {reason}"),
            Self::Name(fault) => fault.fmt(f),
            Self::Rule(fault) => fault.fmt(f),
            Self::Beside { other } => beside(f, other),
            Self::TwoPlans { first, second } => write!(
                f,
                "in the plans {first:?} and {second:?}, which both configure this resource, \
                 expected one of the two"
            ),
            Self::UnknownPlan { suggestion } => {
                let expected = "expected a plan of `[plans]`";
                unknown(f, "plan", suggestion.as_deref(), expected)
            }
            Self::Unquoted { name } => write!(
                f,
                "unknown field; the name of a resource with a dot needs quotes: expected [rate.{name:?}]"
            ),
            Self::HostBits { expected } => write!(
                f,
                "has address bits beyond its prefix length, expected {expected:?}"
            ),
            Self::NarrowNetwork { limited } => write!(
                f,
                "is a part of {limited:?}, which `addresses` of this resource limits as one, expected that or a larger network"
            ),
            Self::SameNetwork { network } => {
                write!(
                    f,
                    "stands in this table twice: another entry is also {network:?}"
                )
            }
            Self::UnknownZone { suggestion } => {
                let expected = "expected one as \"Europe/Berlin\", \"+01:00\" or \"UTC\"";
                unknown(f, "time zone", suggestion.as_deref(), expected)
            }
            Self::DebtTooSmall { least } => write!(
                f,
                "expected at least {least}: with a debt below a quarter of a second's rate a bucket forgets calls that it let through"
            ),
            Self::TooManyBytes { bytes } => too_many_bytes(f, *bytes),
            Self::Empty
            | Self::TwoKinds
            | Self::StarInside
            | Self::NamespaceWithDot
            | Self::Twice
            | Self::NetworkLength
            | Self::OffsetsDoNotRise
            | Self::ZoneWithoutTable => Ok(()),
        }
    }
}

fn too_many_bytes(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    write!(
        f,
        "a domain at its limit takes about {} of state, expected at most 256 KiB, or `large_state = true` in the resource",
        Bytes(bytes)
    )
}

fn beside(f: &mut fmt::Formatter<'_>, other: &str) -> fmt::Result {
    write!(f, "given together with `{other}`, expected one of the two")
}

fn too_long(f: &mut fmt::Formatter<'_>, found: usize) -> fmt::Result {
    write!(
        f,
        "{found} bytes, expected at most {DOCUMENT_BYTES_MAX}: limits of many domains belong beside the document, in rows \
         (tollgate limits import)"
    )
}

fn unknown(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    suggestion: Option<&str>,
    expected: &str,
) -> fmt::Result {
    match suggestion {
        Some(name) => write!(f, "no such {what}, did you mean {name:?}?"),
        None => write!(f, "no such {what}, {expected}"),
    }
}

/// One fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The path to the place, as in `resource "api.search": tier[1].window`; empty for the document.
    pub path: Box<str>,
    /// The value found there, if there was one.
    pub found: Option<Box<str>>,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(found) = &self.found {
            write!(f, " = {found}")?;
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        self.kind.fmt(f)?;
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Fault", 6)?;
        fields.serialize_field("code", self.kind.code())?;
        fields.serialize_field("path", &self.path)?;
        fields.serialize_field("found", &self.found)?;
        fields.serialize_field("message", &self.kind.to_string())?;
        fields.serialize_field("line", &self.line)?;
        fields.serialize_field("column", &self.column)?;
        fields.end()
    }
}

/// Everything that is wrong with a document, in its order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// The first [`FAULTS_MAX`].
    pub list: Vec<Fault>,
    /// How many more there are.
    pub omitted: u64,
}

impl Faults {
    /// The fault of a logged document that names a zone and has no table of it.
    pub(super) fn zone_without_table(zone: &str) -> Self {
        let fault = Fault {
            path: format!("zone {zone:?}").into(),
            found: None,
            kind: FaultKind::ZoneWithoutTable,
            line: None,
            column: None,
        };
        Self {
            list: vec![fault],
            omitted: 0,
        }
    }

    /// The faults for people, one line each, after the name of the file.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        InFile { faults: self, file }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_file("limits").fmt(f)
    }
}

impl std::error::Error for Faults {}

struct InFile<'a> {
    faults: &'a Faults,
    file: &'a str,
}

impl fmt::Display for InFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.list.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}: {fault}", self.file)?;
        }
        match self.faults.omitted {
            0 => Ok(()),
            more => write!(f, "\n{}: {more} more faults", self.file),
        }
    }
}
