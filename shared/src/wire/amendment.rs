//! An amendment in the `limits` topic: an operator's act, with name and reason.
//!
//! ```text
//! amendment  10  [push (16 bytes), expected version, who, why, act, what the act needs ...]
//!   1 reset         resource, domain
//!   2 pardon        resource, domain
//!   3 refund        resource, domain, hits
//!   4 ban           nil | resource, domain, until (us; 2^64-1: for ever)
//!   5 unban         nil | resource, domain
//!   6 release hold  resource, agent, epoch (16 bytes), number
//!   7 release holds resource, nil | domain, nil | agent
//!   8 switch        namespace, nil | ignore_configured, nil | allow_unconfigured
//!   9 set           resource, domain, nil | rate, nil | hard, nil | limit; all nil: removes the row
//!  10 release transfer resource, transfer (16 bytes)
//!  11 set many      [[fields of set] ...], at least one, in their order: all of them or none
//! ```
//!
//! One record is one amendment. Its offset is its number among the versions, and the digest by which
//! activations name it is BLAKE3 of its bytes. Its time is that of its append to the log. Knows nothing
//! of what acts do.

use super::holds::{read_transfer, write_transfer};
use super::limits_document::REASON_BYTES_MAX;
use super::reader::{DecodeError, FieldFault, Reader};
use super::set_rows::{ROW, SetRow, read_row, read_rows, write_row, write_rows};
use super::writer::Writer;
use crate::holdings::TransferId;
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The number of this kind, after the version byte.
pub const KIND: u8 = 10;

/// Number of elements that every amendment has.
const COMMON: u32 = 5;

/// An operator's act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Resets a pair: its tiers, windows and cooldowns are forgotten, as if it had never been hit.
    Reset {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// Lifts a pair's denial; no denial is stated until its limits would have let it in again.
    Pardon {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// Takes a pair's newest granted hits out of its windows.
    Refund {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
        /// How many; at least 1.
        hits: u64,
    },
    /// Denies a domain whatever its limits allow.
    Ban {
        /// On this resource; `None`: on every resource.
        resource: Option<Box<str>>,
        /// The domain.
        domain: Box<str>,
        /// The end, in engine time; [`Timestamp::MAX`]: until an unban.
        until: Timestamp,
    },
    /// Lifts a ban.
    Unban {
        /// The resource as in the ban.
        resource: Option<Box<str>>,
        /// The domain.
        domain: Box<str>,
    },
    /// Ends a hold, which stays ended while its agent lists it.
    ReleaseHold {
        /// The resource.
        resource: Box<str>,
        /// The agent's name.
        agent: Box<str>,
        /// The agent's epoch.
        epoch: u128,
        /// The number that the epoch gave to the hold.
        number: u64,
    },
    /// Ends all matching holds of a resource. Without an agent, matching staged copies are let go as
    /// well; they belong to no agent.
    ReleaseHolds {
        /// The resource.
        resource: Box<str>,
        /// Only holds of this domain.
        domain: Option<Box<str>>,
        /// Only holds of the agent with this name.
        agent: Option<Box<str>>,
    },
    /// Lets go the copies that are staged under an id.
    ReleaseTransfer {
        /// The resource.
        resource: Box<str>,
        /// The id of their transfer.
        transfer: TransferId,
    },
    /// Sets a namespace's switches, which override every document until they are removed.
    Switch {
        /// The namespace; `*`: the default of all namespaces.
        namespace: Box<str>,
        /// In place of `ignore_configured`; `None`: as in the document.
        ignore_configured: Option<bool>,
        /// In place of `allow_unconfigured`; `None`: as in the document.
        allow_unconfigured: Option<bool>,
    },
    /// Sets or removes a domain's own limits on a resource, as a row.
    Set(SetRow),
    /// The same for many rows, in their order, as one version: all of them or none.
    SetMany(Vec<SetRow>),
}

/// An amendment as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amendment<'a> {
    /// Drawn at random, so that its writer recognises it.
    pub push: u128,
    /// The version that the writer expected to be in force; 0: none.
    pub expected: u64,
    /// Name of the operator.
    pub who: &'a str,
    /// The operator's reason.
    pub why: &'a str,
    /// The act.
    pub act: Act,
}

impl<'a> Amendment<'a> {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one amendment known to this build.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_kind(message, KIND)?;
        let before = reader;
        let elements = reader.array("amendment")?;
        let push = u128::from_be_bytes(reader.array_of_bytes("push")?);
        let expected = reader.u64("expected version")?;
        let who = reader.text("who", 0, NAME_BYTES_MAX)?;
        let why = reader.text("why", 0, REASON_BYTES_MAX)?;
        let (act, arguments) = Act::read(&mut reader)?;
        if elements != COMMON + arguments {
            return Err(before.error(
                "amendment",
                FieldFault::Range {
                    expected: "as many elements as its act has",
                },
            ));
        }
        reader.end()?;
        Ok(Self {
            push,
            expected,
            who,
            why,
            act,
        })
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.begin(KIND);
        writer.array(COMMON as usize + self.act.arguments());
        writer.bytes(&self.push.to_be_bytes());
        writer.u64(self.expected);
        writer.text(self.who);
        writer.text(self.why);
        self.act.write(writer);
    }
}

impl Act {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reset { .. } => "reset",
            Self::Pardon { .. } => "lift",
            Self::Refund { .. } => "refund",
            Self::Ban { .. } => "ban",
            Self::Unban { .. } => "unban",
            Self::ReleaseHold { .. } | Self::ReleaseHolds { .. } | Self::ReleaseTransfer { .. } => {
                "release"
            }
            Self::Switch { .. } => "switch",
            Self::Set(_) | Self::SetMany(_) => "set",
        }
    }

    /// Whether it changes only the limits, and no state ruled by them.
    pub const fn is_limits(&self) -> bool {
        matches!(self, Self::Switch { .. } | Self::Set(_) | Self::SetMany(_))
    }

    /// The rows that it sets, in their order; empty for most acts.
    pub fn rows(&self) -> &[SetRow] {
        match self {
            Self::Set(row) => std::slice::from_ref(row),
            Self::SetMany(rows) => rows,
            _ => &[],
        }
    }

    /// Number of elements after the act's number.
    const fn arguments(&self) -> usize {
        match self {
            Self::Reset { .. }
            | Self::Pardon { .. }
            | Self::Unban { .. }
            | Self::ReleaseTransfer { .. } => 2,
            Self::Refund { .. }
            | Self::Ban { .. }
            | Self::ReleaseHolds { .. }
            | Self::Switch { .. } => 3,
            Self::ReleaseHold { .. } => 4,
            Self::Set(_) => ROW,
            Self::SetMany(_) => 1,
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<(Self, u32), DecodeError> {
        let before = *reader;
        let act = match reader.u8("act")? {
            1 => Self::Reset {
                resource: name(reader, "resource")?,
                domain: name(reader, "domain")?,
            },
            2 => Self::Pardon {
                resource: name(reader, "resource")?,
                domain: name(reader, "domain")?,
            },
            3 => Self::Refund {
                resource: name(reader, "resource")?,
                domain: name(reader, "domain")?,
                hits: at_least_one(reader, "hits")?,
            },
            4 => Self::Ban {
                resource: optional(reader, "resource")?,
                domain: name(reader, "domain")?,
                until: Timestamp::from_micros(reader.u64("until")?),
            },
            5 => Self::Unban {
                resource: optional(reader, "resource")?,
                domain: name(reader, "domain")?,
            },
            6 => Self::ReleaseHold {
                resource: name(reader, "resource")?,
                agent: name(reader, "agent")?,
                epoch: u128::from_be_bytes(reader.array_of_bytes("epoch")?),
                number: reader.u64("number")?,
            },
            7 => Self::ReleaseHolds {
                resource: name(reader, "resource")?,
                domain: optional(reader, "domain")?,
                agent: optional(reader, "agent")?,
            },
            8 => Self::Switch {
                namespace: name(reader, "namespace")?,
                ignore_configured: switch(reader, "ignore_configured")?,
                allow_unconfigured: switch(reader, "allow_unconfigured")?,
            },
            9 => Self::Set(read_row(reader)?),
            10 => Self::ReleaseTransfer {
                resource: name(reader, "resource")?,
                transfer: read_transfer(reader)?,
            },
            11 => Self::SetMany(read_rows(reader)?),
            found => return Err(before.error("act", FieldFault::Kind { found })),
        };
        let arguments = act.arguments() as u32;
        Ok((act, arguments))
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Reset { resource, domain } => write_pair(writer, 1, resource, domain),
            Self::Pardon { resource, domain } => write_pair(writer, 2, resource, domain),
            Self::Refund {
                resource,
                domain,
                hits,
            } => {
                write_pair(writer, 3, resource, domain);
                writer.u64(*hits);
            }
            Self::Ban {
                resource,
                domain,
                until,
            } => {
                write_ban(writer, 4, resource, domain);
                writer.u64(until.as_micros());
            }
            Self::Unban { resource, domain } => write_ban(writer, 5, resource, domain),
            Self::ReleaseHold {
                resource,
                agent,
                epoch,
                number,
            } => {
                write_pair(writer, 6, resource, agent);
                writer.bytes(&epoch.to_be_bytes());
                writer.u64(*number);
            }
            Self::ReleaseHolds {
                resource,
                domain,
                agent,
            } => {
                writer.u64(7);
                writer.text(resource);
                write_optional(writer, domain.as_deref());
                write_optional(writer, agent.as_deref());
            }
            Self::ReleaseTransfer { resource, transfer } => {
                writer.u64(10);
                writer.text(resource);
                write_transfer(writer, *transfer);
            }
            Self::Set(row) => {
                writer.u64(9);
                write_row(writer, row);
            }
            Self::SetMany(rows) => {
                writer.u64(11);
                write_rows(writer, rows);
            }
            Self::Switch {
                namespace,
                ignore_configured,
                allow_unconfigured,
            } => {
                writer.u64(8);
                writer.text(namespace);
                write_switch(writer, *ignore_configured);
                write_switch(writer, *allow_unconfigured);
            }
        }
    }
}

/// Writes a ban's resource, or nil for every resource, and its domain.
fn write_ban(writer: &mut Writer, kind: u64, resource: &Option<Box<str>>, domain: &str) {
    writer.u64(kind);
    write_optional(writer, resource.as_deref());
    writer.text(domain);
}

fn write_switch(writer: &mut Writer, switch: Option<bool>) {
    match switch {
        Some(on) => writer.bool(on),
        None => writer.nil(),
    }
}

pub(super) fn name(reader: &mut Reader<'_>, field: &'static str) -> Result<Box<str>, DecodeError> {
    Ok(reader.text(field, 1, NAME_BYTES_MAX)?.into())
}

pub(super) fn optional(
    reader: &mut Reader<'_>,
    field: &'static str,
) -> Result<Option<Box<str>>, DecodeError> {
    match reader.nil() {
        true => Ok(None),
        false => name(reader, field).map(Some),
    }
}

fn switch(reader: &mut Reader<'_>, field: &'static str) -> Result<Option<bool>, DecodeError> {
    match reader.nil() {
        true => Ok(None),
        false => reader.bool(field).map(Some),
    }
}

fn at_least_one(reader: &mut Reader<'_>, field: &'static str) -> Result<u64, DecodeError> {
    let before = *reader;
    match reader.u64(field)? {
        0 => Err(before.error(
            field,
            FieldFault::Range {
                expected: "at least 1",
            },
        )),
        number => Ok(number),
    }
}

fn write_pair(writer: &mut Writer, act: u64, first: &str, second: &str) {
    writer.u64(act);
    writer.text(first);
    writer.text(second);
}

pub(super) fn write_optional(writer: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => writer.text(text),
        None => writer.nil(),
    }
}
