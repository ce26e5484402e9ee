//! Rows in an amendment: the own limits of one domain or of many.
//!
//! ```text
//! row    resource, domain, nil | rate, nil | hard, nil | limit; all nil: removes the row
//! rows   [[row], [row] ...]          1 to 8,192 of them, in at most 512 KiB
//! ```
//!
//! Rows apply in their order: a later row of a domain overrides an earlier one. Knows nothing of whether the
//! resource exists, and of what a rate is.

use super::amendment::{name, optional, write_optional};
use super::limits_document::DOCUMENT_BYTES_MAX;
use super::reader::{DecodeError, FieldFault, Reader};
use super::writer::Writer;

/// The most rows of one amendment. They are read in the loop that rules, which pauses meanwhile: over a
/// million other rows this took 0.03 s if the rows state the same few limits, and 0.2 s if all state
/// different ones.
pub const ROWS_MAX: usize = 8_192;

/// The most bytes of the rows: as many as a document may have.
pub const ROWS_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;

/// Number of elements of a row.
pub(super) const ROW: usize = 5;

/// A change of a domain's own limits on a resource. A field that is `None` stays as it was. If all three are
/// `None`, the row is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRow {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// Hits in a time, in a document's notation: `100/s`.
    pub rate: Option<Box<str>>,
    /// Hits a second, in a document's notation: `200/s`.
    pub hard: Option<Box<str>>,
    /// Copies.
    pub limit: Option<u64>,
}

/// The most bytes before the rows of one amendment.
pub const HEAD_BYTES_MAX: usize = 3;

/// How many of the [`ROWS_BYTES_MAX`] a row takes.
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
