//! A batch of hold operations: copies that an agent took, released and passed on, for one partition.
//!
//! ```text
//! [agent, epoch (16 bytes), sequence, sent (us), [resource, ...], [operation, ...]]
//! operation  [kind, resource index, number, age (us before sent), ...]
//!   reserve 0    [.., domain, copies, min]             granted before use: the agent awaits the verdict
//!   hold 1       [.., domain, copies]                  in use already
//!   release 2    [.., copies]
//!   transfer 3   [.., copies, transfer (16 bytes), ttl (us)]
//!   seize 4      [.., transfer (16 bytes)]
//!   cancel 5     [..]
//! ```
//!
//! A hold is identified by the sender's name and epoch, the resource, and a number that the epoch
//! gives to only one hold of the resource. Decoding checks every operation and keeps none; iterating
//! decodes them again. Knows no limits and no rules.

use super::hits::{
    Sender, read_age, read_copies, read_min, read_resource, read_resources, write_resources,
};
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;
use crate::holdings::TransferId;
use crate::time::{Span, Timestamp};

/// One operation on one hold of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOp<'a> {
    /// Index into [`HoldBatch::resource`].
    pub resource: u32,
    /// The number that the epoch gave to the hold.
    pub number: u64,
    /// The agent's stamp, uncorrected: for a hold when it was taken, for a transfer when it was
    /// staged.
    pub at: Timestamp,
    /// The operation.
    pub action: HoldAction<'a>,
}

/// What an operation does to its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldAction<'a> {
    /// Asks for copies that are used only once they are granted (strict).
    Reserve {
        /// On whose behalf.
        domain: &'a str,
        /// How many at most; at least 1.
        copies: u32,
        /// How many at least: 1 to `copies`.
        min: u32,
    },
    /// Counts copies that are in use already (optimistic). Replaces a hold of the same number from an
    /// earlier reserve.
    Hold {
        /// On whose behalf.
        domain: &'a str,
        /// How many; at least 1.
        copies: u32,
    },
    /// Releases copies; with the last one the hold is over.
    Release {
        /// How many; at least 1.
        copies: u32,
    },
    /// Moves copies to the staging area, from which any agent that knows the id may seize them.
    Transfer {
        /// How many; at least 1.
        copies: u32,
        /// Drawn at random by the sender.
        to: TransferId,
        /// How long they stay there.
        ttl: Span,
    },
    /// Claims everything staged under an id for a hold of this number.
    Seize {
        /// The id.
        from: TransferId,
    },
    /// Gives up the hold under the number, if there is one: sent by an agent that has stopped waiting
    /// for a verdict. It is no error if there is no hold.
    Cancel,
}

/// The kind of an operation: [`HoldAction`] without its fields. Stable numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// [`HoldAction::Reserve`].
    Reserve,
    /// [`HoldAction::Hold`].
    Hold,
    /// [`HoldAction::Release`].
    Release,
    /// [`HoldAction::Transfer`].
    Transfer,
    /// [`HoldAction::Seize`].
    Seize,
    /// [`HoldAction::Cancel`].
    Cancel,
}

/// A decoded batch, borrowing from its bytes.
#[derive(Clone, Debug)]
pub struct HoldBatch<'a> {
    /// The sender. Its sequences are counted together with those of hits and heartbeats.
    pub sender: Sender<'a>,
    resources: Box<[&'a str]>,
    ops: (u32, Reader<'a>),
}

impl<'a> HoldBatch<'a> {
    /// The names that operations refer to, by index.
    pub fn resources(&self) -> &[&'a str] {
        &self.resources
    }

    /// The name of the resource with this index. Operations only carry indices that exist.
    pub fn resource(&self, index: u32) -> &'a str {
        let name = self.resources.get(index as usize);
        name.copied().unwrap_or_default()
    }

    /// Number of operations.
    pub fn ops_len(&self) -> u32 {
        self.ops.0
    }

    /// The operations, in the order of the batch. An operation's number in it is the `entry` of a log
    /// position.
    pub fn ops(&self) -> impl Iterator<Item = HoldOp<'a>> + use<'a> {
        let (len, mut reader) = self.ops;
        let (count, sent) = (self.resources.len(), self.sender.sent);
        (0..len).map_while(move |_| HoldOp::read(&mut reader, count, sent).ok())
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.fixed_array("holds batch", 6, "6")?;
        let sender = Sender::read(reader)?;
        let resources = read_resources(reader)?;
        let ops = (reader.array("operations")?, *reader);
        for _ in 0..ops.0 {
            HoldOp::read(reader, resources.len(), sender.sent)?;
        }
        Ok(Self {
            sender,
            resources,
            ops,
        })
    }
}

impl<'a> HoldOp<'a> {
    fn read(
        reader: &mut Reader<'a>,
        resources: usize,
        sent: Timestamp,
    ) -> Result<Self, DecodeError> {
        let before = *reader;
        let len = reader.array("operation")?;
        let op = Op::read(reader)?;
        let expected = op.fields();
        if len != expected {
            return Err(before.error(
                "operation",
                FieldFault::Length {
                    found: u64::from(len),
                    expected: "what its kind has",
                },
            ));
        }
        let resource = read_resource(reader, resources)?;
        let number = reader.u64("hold number")?;
        let at = read_age(reader, sent)?;
        Ok(Self {
            resource,
            number,
            at,
            action: HoldAction::read(reader, op)?,
        })
    }

    fn write(&self, writer: &mut Writer, sent: Timestamp) {
        let op = self.action.op();
        writer.array(op.fields() as usize);
        op.write(writer);
        writer.u64(u64::from(self.resource));
        writer.u64(self.number);
        writer.i64(sent.signed_micros_since(self.at));
        self.action.write(writer);
    }
}

impl<'a> HoldAction<'a> {
    /// Its kind.
    pub const fn op(&self) -> Op {
        match self {
            Self::Reserve { .. } => Op::Reserve,
            Self::Hold { .. } => Op::Hold,
            Self::Release { .. } => Op::Release,
            Self::Transfer { .. } => Op::Transfer,
            Self::Seize { .. } => Op::Seize,
            Self::Cancel => Op::Cancel,
        }
    }

    fn read(reader: &mut Reader<'a>, op: Op) -> Result<Self, DecodeError> {
        Ok(match op {
            Op::Reserve => {
                let domain = reader.domain()?;
                let copies = read_copies(reader)?;
                let min = read_min(reader, copies)?;
                Self::Reserve {
                    domain,
                    copies,
                    min,
                }
            }
            Op::Hold => Self::Hold {
                domain: reader.domain()?,
                copies: read_copies(reader)?,
            },
            Op::Release => Self::Release {
                copies: read_copies(reader)?,
            },
            Op::Transfer => Self::Transfer {
                copies: read_copies(reader)?,
                to: read_transfer(reader)?,
                ttl: Span::from_micros(reader.u64("ttl")?),
            },
            Op::Seize => Self::Seize {
                from: read_transfer(reader)?,
            },
            Op::Cancel => Self::Cancel,
        })
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Reserve {
                domain,
                copies,
                min,
            } => {
                writer.text(domain);
                writer.u64(u64::from(*copies));
                writer.u64(u64::from(*min));
            }
            Self::Hold { domain, copies } => {
                writer.text(domain);
                writer.u64(u64::from(*copies));
            }
            Self::Release { copies } => writer.u64(u64::from(*copies)),
            Self::Transfer { copies, to, ttl } => {
                writer.u64(u64::from(*copies));
                write_transfer(writer, *to);
                writer.u64(ttl.as_micros());
            }
            Self::Seize { from } => write_transfer(writer, *from),
            Self::Cancel => {}
        }
    }
}

impl Op {
    /// Number of elements of the array of such an operation.
    const fn fields(self) -> u32 {
        match self {
            Self::Reserve | Self::Transfer => 7,
            Self::Hold => 6,
            Self::Release | Self::Seize => 5,
            Self::Cancel => 4,
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let before = *reader;
        Ok(match reader.u8("operation kind")? {
            0 => Self::Reserve,
            1 => Self::Hold,
            2 => Self::Release,
            3 => Self::Transfer,
            4 => Self::Seize,
            5 => Self::Cancel,
            found => return Err(before.error("operation kind", FieldFault::Kind { found })),
        })
    }

    pub(super) fn write(self, writer: &mut Writer) {
        writer.u64(match self {
            Self::Reserve => 0,
            Self::Hold => 1,
            Self::Release => 2,
            Self::Transfer => 3,
            Self::Seize => 4,
            Self::Cancel => 5,
        });
    }
}

pub(super) fn read_transfer(reader: &mut Reader<'_>) -> Result<TransferId, DecodeError> {
    let bytes = reader.array_of_bytes("transfer")?;
    Ok(TransferId(u128::from_be_bytes(bytes)))
}

pub(super) fn write_transfer(writer: &mut Writer, transfer: TransferId) {
    writer.bytes(&transfer.0.to_be_bytes());
}

/// Writes a batch. As with hits, the reader would detect a wrong length.
pub fn write_holds<'a>(
    writer: &mut Writer,
    sender: &Sender<'_>,
    resources: &[&str],
    ops: impl ExactSizeIterator<Item = HoldOp<'a>>,
) {
    writer.begin(super::record::kind::HOLDS);
    writer.array(6);
    sender.write(writer);
    write_resources(writer, resources);
    writer.array(ops.len());
    for op in ops {
        op.write(writer, sender.sent);
    }
}
