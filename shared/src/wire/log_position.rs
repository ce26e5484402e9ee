//! A log position in a message: generation, offset, entry.

use super::reader::{DecodeError, Reader};
use super::writer::Writer;
use crate::log_position::LogPosition;

pub(super) fn read_log_position(reader: &mut Reader<'_>) -> Result<LogPosition, DecodeError> {
    reader.fixed_array("log position", 3, "3")?;
    Ok(LogPosition {
        generation: reader.u32("generation")?,
        offset: reader.u64("offset")?,
        entry: reader.u32("entry")?,
    })
}

pub(super) fn write_log_position(writer: &mut Writer, position: LogPosition) {
    writer.array(3);
    writer.u64(u64::from(position.generation));
    writer.u64(position.offset);
    writer.u64(u64::from(position.entry));
}
