//! How far each partition of a journal is known to reach, so that a lost end is damage and not a shorter log.
//!
//! ```text
//! DIR/ends    tollgate-ends 1
//!             limits 0 4          at least 4 records were durable in partition 0 of `limits`
//!             hits 3 18250
//!             end
//!             sum 5f2c1e0c        of all that; files of earlier builds have none
//! ```
//!
//! The writer replaces the file when it closes the journal in order; before that, when a partition has its first
//! record, and whenever `limits` have grown (`end_recorder`). Two other things tell where a log has
//! been: the description has the offsets at which the generation begins, and a snapshot of a partition is of records
//! that the log had. Knows nothing of segments. What stays true: what the file has was durable before, so after any
//! end of a process, and after any power cut, the log reaches at least as far.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::super::Stream;
use super::disk::Disk;
use super::error::OpenError;
use super::layout::{self, Description};
use super::partition::Partition;
use super::snapshots::Snapshots;

/// The fault of a log that ends before an offset that it is known to reach.
pub(super) const LOST_END: &str =
    "the log ends before this record, and the journal is known to have had it";

const TITLE: &str = "tollgate-ends 1";

/// The offsets that partitions are known to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownEnds(BTreeMap<(Stream, u32), u64>);

impl KnownEnds {
    /// Reads the file. Without it nothing is known: the journal is new, or an earlier build wrote it.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self, OpenError> {
        let path = layout::ends(dir);
        let bytes = match disk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(OpenError::io(path)(error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        let damaged = |what: &str| OpenError::Damaged {
            dir: dir.to_owned(),
            what: format!("file `ends`: {what}"),
        };
        let text = layout::without_sum(&text).ok_or_else(|| damaged(layout::OTHER_SUM))?;
        Self::from_text(text).ok_or_else(|| {
            damaged(&format!(
                "expected `{TITLE}`, ends of partitions, and `end`"
            ))
        })
    }

    /// A partition of the file that the journal does not have.
    pub fn foreign(&self, description: &Description) -> Option<(Stream, u32)> {
        let mut named = self.0.keys();
        named.find(|(s, p)| !description.has(*s, *p)).copied()
    }

    /// Replaces the file, durably.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let text = layout::with_sum(&self.to_text());
        disk.replace(&layout::ends(dir), text.as_bytes())
    }

    /// The offset that a partition reaches at least.
    pub fn of(&self, stream: Stream, partition: u32) -> u64 {
        self.0.get(&(stream, partition)).copied().unwrap_or(0)
    }

    /// A partition reaches this offset.
    pub fn raise(&mut self, stream: Stream, partition: u32, end: u64) {
        if self.of(stream, partition) < end {
            self.0.insert((stream, partition), end);
        }
    }

    /// A partition reaches as far as it does now, which the caller has synced, or syncs before it writes this.
    pub fn raise_to_synced(&mut self, one: &Partition) {
        if !one.has_failed_to_sync() {
            self.raise(one.stream, one.index, one.next);
        }
    }

    /// Whether it is time to record that a partition has begun, or how far `limits` reach. Other ends change too often to
    /// be recorded before the journal is closed.
    pub fn is_due(&self, one: &Partition) -> bool {
        let known = self.of(one.stream, one.index);
        let wanted = known == 0 || one.stream == Stream::Limits;
        wanted && known < one.next && !one.has_failed_to_sync()
    }

    /// Each partition was synced up to where its generation begins, before the description said so.
    pub fn raise_to_begins(&mut self, description: &Description) {
        for (stream, partition, begin) in &description.begins {
            self.raise(*stream, *partition, *begin);
        }
    }

    /// A snapshot is of records that were in the log. Only a power cut may take them from the log and leave the
    /// snapshot, if records are acknowledged before they are durable.
    pub fn raise_to_snapshots(&mut self, snapshots: &Snapshots, partitions: u32) {
        for partition in 0..partitions {
            if let Some(upto) = snapshots.offsets(partition).first() {
                self.raise(Stream::Hits, partition, upto.saturating_add(1));
            }
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("{TITLE}\n");
        for ((stream, partition), end) in &self.0 {
            let name = layout::stream_name(*stream);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name} {partition} {end}");
        }
        text.push_str("end\n");
        text
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix(TITLE)?.strip_prefix('\n')?.lines();
        let mut read = Self::default();
        loop {
            let words: Vec<&str> = lines.next()?.split(' ').collect();
            match words.as_slice() {
                ["end"] => return Some(read),
                [stream, partition, end] => {
                    let stream = layout::stream_of(stream)?;
                    read.raise(stream, partition.parse().ok()?, end.parse().ok()?);
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_as_it_was_written_and_only_whole() {
        let mut ends = KnownEnds::default();
        ends.raise(Stream::Limits, 0, 4);
        ends.raise(Stream::Hits, 3, 18_250);
        ends.raise(Stream::Hits, 3, 7);
        let text = ends.to_text();
        assert_eq!(KnownEnds::from_text(&text), Some(ends));
        for cut in 0..text.len() - 1 {
            assert_eq!(KnownEnds::from_text(&text[..cut]), None, "{cut} bytes");
        }
        for wrong in ["hits 3", "hats 3 7", "hits 3 -7", "hits 3 7 8"] {
            let text = format!("{TITLE}\n{wrong}\nend\n");
            assert_eq!(KnownEnds::from_text(&text), None, "{wrong}");
        }
    }
}
