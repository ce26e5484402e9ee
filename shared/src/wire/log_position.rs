//! A log position in a message: generation, offset, entry.

use super::reader::{DecodeError, Reader};
use super::writer::Writer;
use crate::place::Place;

pub(super) fn read_place(reader: &mut Reader<'_>) -> Result<Place, DecodeError> {
    reader.fixed_array("place", 3, "3")?;
    Ok(Place {
        generation: reader.u32("generation")?,
        offset: reader.u64("offset")?,
        entry: reader.u32("entry")?,
    })
}

pub(super) fn write_place(writer: &mut Writer, place: Place) {
    writer.array(3);
    writer.u64(u64::from(place.generation));
    writer.u64(place.offset);
    writer.u64(u64::from(place.entry));
}
