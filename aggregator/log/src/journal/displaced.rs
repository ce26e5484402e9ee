//! Whether the files that a process writes are still where the next process will look for them.
//!
//! If somebody deletes, moves or replaces the directory, the process still has its files open. Writing to them succeeds,
//! and what was written is gone with the process. Knows nothing of commands. What stays true: looking changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use super::layout;
use super::partition::Partition;

/// The first segment that is written and is no longer at its path.
pub(super) fn find<'a>(mut partitions: impl Iterator<Item = &'a Partition>) -> Option<PathBuf> {
    partitions.find_map(|one| {
        let active = one.active.as_ref()?;
        let path = layout::segment(&one.dir, active.base);
        // Another fault, of a right for example, does not show that the file is elsewhere.
        let is_there = active.file.is_at(&path).unwrap_or(true);
        (!is_there).then_some(path)
    })
}

/// The error of a journal with such a segment.
pub(super) fn fault(segment: &Path) -> io::Error {
    io::Error::other(format!(
        "the journal was deleted, moved or replaced while it was open: {} is not the file that is written",
        segment.display()
    ))
}
