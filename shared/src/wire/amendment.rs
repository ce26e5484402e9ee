//! An amendment in the `limits` topic: what an operator does by hand, with who and why.
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
//!   9 set           resource, domain, nil | rate, nil | hard, nil | limit; all nil: nothing of its own
//!  10 release transfer resource, transfer (16 bytes)
//!  11 set many      [[what set needs] ...], at least one, in their order: all of them or none
//! ```
//!
//! One record is one amendment; its offset is its number among the versions, and the digest by which
//! pointers name it is BLAKE3 of its bytes. When it was made is when the log took it. Knows nothing of
//! what acts do.

use super::holds::{read_transfer, write_transfer};
use super::limits_document::REASON_BYTES_MAX;
use super::reader::{DecodeError, FieldFault, Reader};
use super::set_rows::{ROW, SetRow, read_row, read_rows, write_row, write_rows};
use super::writer::Writer;
use crate::holdings::TransferId;
use crate::names::NAME_BYTES_MAX;
use crate::time::Timestamp;

/// The number of this kind, behind the version byte.
pub const KIND: u8 = 10;

/// Elements that every amendment has.
const COMMON: u32 = 5;

/// What an operator does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A pair's tiers, windows and cooldowns are forgotten, as if it had never been hit.
    Reset {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// A pair's denial is lifted, and none is stated until its limits would have let it in again.
    Pardon {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
    },
    /// A pair's newest granted hits are taken out of its windows.
    Refund {
        /// The resource.
        resource: Box<str>,
        /// The domain.
        domain: Box<str>,
        /// How many; at least 1.
        hits: u64,
    },
    /// A domain is denied whatever it does.
    Ban {
        /// On this resource; none: on every one.
        resource: Option<Box<str>>,
        /// The domain.
        domain: Box<str>,
        /// Until then, in engine time; [`Timestamp::MAX`]: until it is taken back.
        until: Timestamp,
    },
    /// A ban is taken back.
    Unban {
        /// As it was banned.
        resource: Option<Box<str>>,
        /// The domain.
        domain: Box<str>,
    },
    /// A hold ends, and stays ended while its agent lists it.
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
    /// All holds of a resource end that fit. Where no agent is named, staged copies that fit are let go
    /// with them; they belong to no agent.
    ReleaseHolds {
        /// The resource.
        resource: Box<str>,
        /// Only those of this domain.
        domain: Option<Box<str>>,
        /// Only those of the agent of this name.
        agent: Option<Box<str>>,
    },
    /// Copies that are staged under an id are let go.
    ReleaseTransfer {
        /// The resource.
        resource: Box<str>,
        /// The id of their transfer.
        transfer: TransferId,
    },
    /// A namespace's switches, over what every document says, until they are taken back.
    Switch {
        /// The namespace; `*`: the default of all.
        namespace: Box<str>,
        /// In place of `ignore_configured`; none: as the document says.
        ignore_configured: Option<bool>,
        /// In place of `allow_unconfigured`; none: as the document says.
        allow_unconfigured: Option<bool>,
    },
    /// A domain's own limits on a resource change in the document.
    Set(SetRow),
    /// Those of many, in the order of the rows, as one version: all of them or none.
    SetMany(Vec<SetRow>),
}

/// An amendment as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amendment<'a> {
    /// Drawn at random, so that whoever wrote it knows it again.
    pub push: u128,
    /// The version that was taken to be in force; 0: none.
    pub expected: u64,
    /// Who.
    pub who: &'a str,
    /// And why.
    pub why: &'a str,
    /// What.
    pub act: Act,
}

impl<'a> Amendment<'a> {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one that this build knows.
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
    /// What it is called.
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

    /// Whether it changes the limits themselves, and nothing of what was ruled by them.
    pub const fn is_limits(&self) -> bool {
        matches!(self, Self::Switch { .. } | Self::Set(_) | Self::SetMany(_))
    }

    /// What it sets of domains, in the order in which it counts; of most acts nothing.
    pub fn rows(&self) -> &[SetRow] {
        match self {
            Self::Set(row) => std::slice::from_ref(row),
            Self::SetMany(rows) => rows,
            _ => &[],
        }
    }

    /// Elements behind the act's number.
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

/// A ban's resource, or every one, and its domain.
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
