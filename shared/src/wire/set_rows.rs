//! What domains are to have of their own, in an amendment that sets one or many.
//!
//! ```text
//! row    resource, domain, nil | rate, nil | hard, nil | limit; all nil: nothing of its own
//! rows   [[row], [row] ...]          1 to 8,192 of them, in at most 512 KiB
//! ```
//!
//! Rows count in their order: what a later one says of a domain stands over what an earlier one said. Knows
//! nothing of whether there is such a resource, and of what a rate is.

use super::amendment::{name, optional, write_optional};
use super::limits_document::DOCUMENT_BYTES_MAX;
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;

/// The most rows of one amendment. They are read in the loop that rules, while nothing is ruled: so many took
/// 0.03 s where they state the same few limits, and 0.2 s where no two state the same, over a million others.
pub const ROWS_MAX: usize = 8_192;

/// The most bytes of them: as many as a document may have.
pub const ROWS_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// Elements of a row.
pub(super) const ROW: usize = 5;

/// A domain's own limits on a resource, as they change in the document; what is none stays as it was. All of
/// them none: it has nothing of its own any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRow {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// Hits in a time, as a document says it: `100/s`.
    pub rate: Option<Box<str>>,
    /// Hits a second, as a document says it: `200/s`.
    pub hard: Option<Box<str>>,
    /// Copies.
    pub limit: Option<u64>,
}

/// Bytes in front of the rows of one amendment, at most.
pub const HEAD_BYTES_MAX: usize = 3;

/// Bytes that a row takes of [`ROWS_BYTES_MAX`].
pub fn bytes_of(row: &SetRow) -> usize {
    let mut writer = Writer::new();
    writer.array(ROW);
    write_row(&mut writer, row);
    writer.as_slice().len()
}

pub(super) fn read_row(reader: &mut Reader<'_>) -> Result<SetRow, DecodeError> {
    Ok(SetRow {
        resource: name(reader, "resource")?,
        domain: name(reader, "domain")?,
        rate: optional(reader, "rate")?,
        hard: optional(reader, "hard")?,
        limit: match reader.nil() {
            true => None,
            false => Some(reader.u64("limit")?),
        },
    })
}

pub(super) fn write_row(writer: &mut Writer, row: &SetRow) {
    writer.text(&row.resource);
    writer.text(&row.domain);
    write_optional(writer, row.rate.as_deref());
    write_optional(writer, row.hard.as_deref());
    match row.limit {
        Some(copies) => writer.u64(copies),
        None => writer.nil(),
    }
}

pub(super) fn read_rows(reader: &mut Reader<'_>) -> Result<Vec<SetRow>, DecodeError> {
    let before = *reader;
    let length = |found: usize, expected| {
        let found = found as u64;
        Err(before.error("rows", FieldFault::Length { found, expected }))
    };
    let found = reader.array("rows")? as usize;
    if !(1..=ROWS_MAX).contains(&found) {
        return length(found, "1 to 8192 rows");
    }
    let mut rows = Vec::with_capacity(found);
    for _ in 0..found {
        reader.fixed_array("row", ROW as u32, "5")?;
        rows.push(read_row(reader)?);
    }
    match reader.position() - before.position() {
        bytes if ROWS_BYTES_MAX < bytes => length(bytes, "rows of at most 524288 bytes"),
        _ => Ok(rows),
    }
}

pub(super) fn write_rows(writer: &mut Writer, rows: &[SetRow]) {
    writer.array(rows.len());
    for row in rows {
        writer.array(ROW);
        write_row(writer, row);
    }
}
