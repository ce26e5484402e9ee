//! The record of a statement in the `denials` topic: a decision record, kept for audits.
//!
//! ```text
//! announced  8  [generation, random, partition, resource, statement]
//! ```

use super::reader::{DecodeError, Reader};
use super::record::{read_log_id, write_log_id};
use super::statement::Statement;
use super::writer::Writer;
use crate::log_position::LogId;
use crate::names::NAME_BYTES_MAX;

/// The number of this kind, after the version byte.
pub const KIND: u8 = 8;

/// A statement, as it was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The log whose record caused it.
    pub log: LogId,
    /// The partition of that log.
    pub partition: u32,
    /// The resource.
    pub resource: Box<str>,
    /// The statement itself.
    pub statement: Statement,
}

impl Announced {
    /// Decodes one.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for bytes that are not exactly one decision record.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::of_kind(bytes, KIND)?;
        reader.fixed_array("announced", 5, "5")?;
        let announced = Self {
            log: read_log_id(&mut reader)?,
            partition: reader.u32("partition")?,
            resource: reader.text("resource", 1, NAME_BYTES_MAX)?.into(),
            statement: Statement::read(&mut reader)?,
        };
        reader.end()?;
        Ok(announced)
    }

    /// Writes one.
    pub fn encode(&self, writer: &mut Writer) {
        encode(
            (self.log, self.partition),
            &self.resource,
            &self.statement,
            writer,
        );
    }
}

/// Writes the record of a statement about a resource, which a record of this log's partition caused.
pub fn encode(
    (log, partition): (LogId, u32),
    resource: &str,
    statement: &Statement,
    writer: &mut Writer,
) {
    writer.begin(KIND);
    writer.array(5);
    write_log_id(writer, log);
    writer.u64(u64::from(partition));
    writer.text(resource);
    statement.write(writer);
}
