//! Statements: what an aggregator announces about a scope, at a log position.
//!
//! For one scope the statement with the greatest log position wins. So statements may arrive twice,
//! late, out of order or from two aggregators, and all agents end with the same result. Knows nothing
//! of how they are transported.

use std::sync::Arc;

use super::log_position::{read_log_position, write_log_position};
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::log_position::LogPosition;
use crate::names::NAME_BYTES_MAX;
use crate::time::{Span, Timestamp};

/// The scope of a statement, within one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One domain's use of the resource.
    Pair(Arc<str>),
    /// Everybody's use of the resource (its global limit).
    Resource,
    /// The use of the resource by all domains of a group.
    Group(Arc<str>),
}

/// Why a scope is closed. Stable numbers: they are in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The window of this tier is full, or there is no tier to climb to (0: no tier is current).
    Tier(u8),
    /// The hard limit: hits of the last second of one domain.
    Hard,
    /// The global limit: hits of the last second of all domains.
    Global,
    /// The resource is configured without tiers. Of an agent's refusal without a denial: the limits grant nothing at
    /// all, to any domain or to this one.
    Inaccessible,
    /// The resource is not configured, and its namespace does not allow that.
    Unconfigured,
    /// The agent was blind, and the resource's blind policy refused.
    Blind,
    /// Copies: the scope's limit is reached.
    Full,
    /// An operator banned the scope.
    Banned,
    /// One of the windows that all must have room is full; the first is 0.
    Window(u8),
    /// A quota of a calendar period is used up; the first is 0.
    Quota(u8),
    /// The bucket holds less than one copy.
    Bucket,
    /// The call wanted more at once than its limits can ever grant. Only agents use this cause, no
    /// denial.
    TooMany,
    /// The resource is limited by copies, and hits of it are a mistake of the service. Only agents use
    /// this cause.
    NotRate,
}

/// A denial: the scope is refused until its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// When it ends by itself, in engine time; [`Timestamp::MAX`]: never.
    pub end: Timestamp,
    /// The limit that closed it.
    pub cause: Cause,
    /// The limits version that ruled.
    pub version: u64,
    /// The number of hits that the limit allows in its window.
    pub limit: u64,
    /// The window of that limit.
    pub window: Span,
    /// The most copies that the scope's limits can ever grant at once; [`u64::MAX`]: any number.
    pub most: u64,
}

/// The content of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Refused until its end.
    Denied(Denial),
    /// Open again before the stated end: a lift.
    Lifted,
}

/// A statement of an aggregator about a scope of a resource, at a log position of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its scope.
    pub scope: Scope,
    /// The log position of its cause.
    pub position: LogPosition,
    /// Its content.
    pub kind: StatementKind,
}

impl Scope {
    /// Reads the two elements `kind, name`.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let kind = reader.u8("scope kind")?;
        match kind {
            0 => Ok(Self::Pair(reader.domain()?.into())),
            1 => reader
                .text("scope name", 0, 0)
                .map(|_nothing| Self::Resource),
            2 => Ok(Self::Group(
                reader.text("scope name", 1, NAME_BYTES_MAX)?.into(),
            )),
            found => Err(before.error("scope kind", FieldFault::Kind { found })),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        let (kind, name) = match self {
            Self::Pair(domain) => (0, domain.as_ref()),
            Self::Resource => (1, ""),
            Self::Group(group) => (2, group.as_ref()),
        };
        writer.u64(kind);
        writer.text(name);
    }
}

impl Cause {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let number = reader.u32("cause")?;
        Ok(match number {
            1 => Self::Hard,
            2 => Self::Global,
            3 => Self::Inaccessible,
            4 => Self::Unconfigured,
            5 => Self::Blind,
            6 => Self::Full,
            7 => Self::Banned,
            8 => Self::Bucket,
            9 => Self::TooMany,
            10 => Self::NotRate,
            256..=511 => Self::Tier((number - 256) as u8),
            512..=767 => Self::Window((number - 512) as u8),
            768..=1023 => Self::Quota((number - 768) as u8),
            _ => {
                return Err(before.error(
                    "cause",
                    FieldFault::Range {
                        expected: "1 to 10, 256 plus a tier, 512 plus a window, 768 plus a quota",
                    },
                ));
            }
        })
    }

    pub(super) fn write(self, writer: &mut Writer) {
        writer.u64(match self {
            Self::Hard => 1,
            Self::Global => 2,
            Self::Inaccessible => 3,
            Self::Unconfigured => 4,
            Self::Blind => 5,
            Self::Full => 6,
            Self::Banned => 7,
            Self::Bucket => 8,
            Self::TooMany => 9,
            Self::NotRate => 10,
            Self::Tier(tier) => 256 + u64::from(tier),
            Self::Window(window) => 512 + u64::from(window),
            Self::Quota(quota) => 768 + u64::from(quota),
        });
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tier(tier) => write!(f, "tier {tier}"),
            Self::Hard => f.write_str("hard"),
            Self::Global => f.write_str("global"),
            Self::Inaccessible => f.write_str("inaccessible"),
            Self::Unconfigured => f.write_str("unconfigured"),
            Self::Blind => f.write_str("blind"),
            Self::Full => f.write_str("full"),
            Self::Banned => f.write_str("banned"),
            Self::Window(window) => write!(f, "window:{window}"),
            Self::Quota(quota) => write!(f, "quota:{quota}"),
            Self::Bucket => f.write_str("bucket"),
            Self::TooMany => f.write_str("too many"),
            Self::NotRate => f.write_str("not a rate"),
        }
    }
}

impl Statement {
    /// Reads `[scope kind, name, position, says kind, ...]`.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.fixed_array("statement", 4, "4")?;
        Ok(Self {
            scope: Scope::read(reader)?,
            position: read_log_position(reader)?,
            kind: StatementKind::read(reader)?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.array(4);
        self.scope.write(writer);
        write_log_position(writer, self.position);
        self.kind.write(writer);
    }
}

impl StatementKind {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        let len = reader.array("says")?;
        let kind = reader.u8("says kind")?;
        match (kind, len) {
            (0, 1) => Ok(Self::Lifted),
            (1, 7) => Ok(Self::Denied(Denial {
                end: Timestamp::from_micros(reader.u64("end")?),
                cause: Cause::read(reader)?,
                version: reader.u64("version")?,
                limit: reader.u64("limit")?,
                window: Span::from_micros(reader.u64("window")?),
                most: reader.u64("most")?,
            })),
            (0..=1, found) => Err(before.error(
                "says",
                FieldFault::Length {
                    found: u64::from(found),
                    expected: "what its kind has",
                },
            )),
            (found, _) => Err(before.error("says kind", FieldFault::Kind { found })),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Lifted => {
                writer.array(1);
                writer.u64(0);
            }
            Self::Denied(denial) => {
                writer.array(7);
                writer.u64(1);
                writer.u64(denial.end.as_micros());
                denial.cause.write(writer);
                writer.u64(denial.version);
                writer.u64(denial.limit);
                writer.u64(denial.window.as_micros());
                writer.u64(denial.most);
            }
        }
    }
}
