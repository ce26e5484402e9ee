//! One difference between a log's content and what it should be.
//!
//! Knows nothing of how differences are found. What stays true: fields are only ever added.

use std::fmt;

use serde::Serialize;
use tollgate_shared::escape::escaped;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::statement::{Scope, StatementKind};

use crate::range::UntilUtc;

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The replay states it, but no announcement is recorded.
    Missing,
    /// An announcement is recorded where the replay states nothing.
    Unexpected,
    /// The recorded announcement differs from the replay's statement.
    Changed,
    /// It was recorded after a statement that it should precede.
    Order,
    /// It was recorded before the record that caused it.
    Early,
    /// A record is missing.
    Gap,
    /// A record that only aggregators write has a wrong tag, or names no limits version.
    Forged,
    /// A snapshot differs from the replay's state at its offset.
    Snapshot,
    /// The independent model rules otherwise than the engine.
    Model,
    /// The state digest of a ruling aggregator differs from the replay's.
    StateDigest,
    /// In some span more was let through than a limit and one denial delay explain.
    Effect,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The kind.
    pub kind: DifferenceKind,
    /// The partition.
    pub partition: u32,
    /// The stream of the offset: `hits` or `denials`.
    pub stream: &'static str,
    /// The offset of the record that caused the statement, or of the wrong record.
    pub offset: u64,
    /// The entry's index in the record.
    pub entry: Option<u32>,
    /// The code that agents give callers for the statement.
    pub code: Option<String>,
    /// The resource.
    pub resource: Option<Box<str>>,
    /// `pair`, `resource` or `group`.
    pub scope: Option<&'static str>,
    /// The domain or group.
    pub domain: Option<Box<str>>,
    /// What the replay states.
    pub expected: Option<Stated>,
    /// What the log records.
    pub found: Option<Stated>,
    /// The offset in the denials at which it is recorded.
    pub recorded_at: Option<u64>,
    /// The difference in words.
    pub text: String,
}

/// What a statement says about a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stated {
    /// `denied` or `open`.
    pub says: &'static str,
    /// The limit that caused the denial.
    pub cause: Option<String>,
    /// When the denial ends, in engine time; `None`: never, or there is no denial.
    pub end_us: Option<u64>,
    /// The limit.
    pub limit: Option<u64>,
    /// Its window.
    pub window_us: Option<u64>,
    /// The limits version.
    pub version: Option<u64>,
}

impl Stated {
    /// From what a statement says.
    pub fn of(kind: &StatementKind) -> Self {
        let none = Self {
            says: "open",
            cause: None,
            end_us: None,
            limit: None,
            window_us: None,
            version: None,
        };
        match kind {
            StatementKind::Lifted => none,
            StatementKind::Denied(denial) => Self {
                says: "denied",
                cause: Some(denial.cause.to_string()),
                end_us: (denial.end < Timestamp::MAX).then_some(denial.end.as_micros()),
                limit: Some(denial.limit),
                window_us: Some(denial.window.as_micros()),
                version: Some(denial.version),
            },
        }
    }
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.says == "open" {
            return f.write_str("open again");
        }
        let end = self.end_us.map_or(Timestamp::MAX, Timestamp::from_micros);
        write!(f, "{} {}", self.says, UntilUtc(end))?;
        if let (Some(cause), Some(limit), Some(window_us), Some(version)) =
            (&self.cause, self.limit, self.window_us, self.version)
        {
            let window = tollgate_limits::print_span(Span::from_micros(window_us));
            write!(f, " by {cause} ({limit} in {window}), version {version}")?;
        }
        Ok(())
    }
}

/// A scope's kind and name, as reports write them.
pub fn scope_of(scope: &Scope) -> (&'static str, Option<Box<str>>) {
    match scope {
        Scope::Pair(domain) => ("pair", Some((**domain).into())),
        Scope::Resource => ("resource", None),
        Scope::Group(group) => ("group", Some((**group).into())),
    }
}

impl Difference {
    /// A difference about a record.
    pub fn of_record(
        kind: DifferenceKind,
        (partition, stream, offset): (u32, &'static str, u64),
        text: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            partition,
            stream,
            offset,
            entry: None,
            code: None,
            resource: None,
            scope: None,
            domain: None,
            expected: None,
            found: None,
            recorded_at: None,
            text: text.into(),
        }
    }

    /// A difference about a statement.
    pub fn of_statement(kind: DifferenceKind, about: &Announced, text: impl Into<String>) -> Self {
        let position = about.statement.position;
        let (scope, domain) = scope_of(&about.statement.scope);
        let partition = about.partition;
        Self {
            entry: Some(position.entry),
            code: Some(Code::new(partition, position).to_string()),
            resource: Some(about.resource.clone()),
            scope: Some(scope),
            domain,
            ..Self::of_record(kind, (partition, "hits", position.offset), text)
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            partition,
            stream,
            offset,
            ..
        } = self;
        write!(f, "partition {partition}, {stream} offset {offset}")?;
        if let Some(entry) = self.entry {
            write!(f, ", entry {entry}")?;
        }
        if let Some(resource) = &self.resource {
            write!(f, ": {}", escaped(resource))?;
            match &self.domain {
                Some(domain) => write!(f, " of {}", escaped(domain))?,
                None => f.write_str(" of all domains")?,
            }
        }
        write!(f, ": {}", self.text)?;
        if let Some(expected) = &self.expected {
            write!(f, "\n    expected  {expected}")?;
        }
        if let Some(found) = &self.found {
            write!(f, "\n    found     {found}")?;
        }
        if let Some(offset) = self.recorded_at {
            write!(f, "\n    recorded  at denials offset {offset}")?;
        }
        if let Some(code) = &self.code {
            write!(f, "\n    code      {code}")?;
        }
        Ok(())
    }
}
