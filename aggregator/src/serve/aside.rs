//! Records that were refused, kept for inspection: one file each, in a directory beside the journal.
//!
//! ```text
//! aside/hits-3-18250.bin    the record's bytes
//! aside/hits-3-18250.txt    why it was refused
//! ```
//!
//! Bounded: beyond so many files or bytes only the counters go on. Knows nothing of what records mean.

use std::path::PathBuf;

use crate::core::event::Aside;
use crate::log::Stream;

/// The most records that are kept, and their most bytes: enough to see a pattern, too little to fill
/// a disk.
const RECORDS_MAX: usize = 1_000;
const BYTES_MAX: usize = 64 << 20;

/// The directory of refused records.
#[derive(Debug)]
pub struct AsideDir {
    dir: PathBuf,
    records: usize,
    bytes: usize,
    full: bool,
}

impl AsideDir {
    /// The directory; what is in it from earlier counts.
    pub fn open(dir: PathBuf) -> Self {
        let (mut records, mut bytes) = (0, 0);
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ext| ext == "bin") {
                records += 1;
                bytes += entry.metadata().map_or(0, |found| found.len() as usize);
            }
        }
        Self {
            dir,
            records,
            bytes,
            full: false,
        }
    }

    /// Keeps a record, if there is room and the disk lets us: it is a help, not a promise.
    pub fn keep(&mut self, aside: &Aside) {
        let stream = match aside.stream {
            Stream::Hits => "hits",
            Stream::Limits => "limits",
            Stream::Denials => "denials",
        };
        let name = format!("{stream}-{}-{}", aside.partition, aside.offset);
        let path = self.dir.join(format!("{name}.bin"));
        if path.exists() {
            return;
        }
        if RECORDS_MAX <= self.records || BYTES_MAX < self.bytes + aside.bytes.len() {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(dir = %self.dir.display(), "no room for more refused records; they are only counted");
            }
            return;
        }
        let kept = std::fs::create_dir_all(&self.dir)
            .and_then(|()| std::fs::write(&path, &aside.bytes))
            .and_then(|()| {
                std::fs::write(
                    self.dir.join(format!("{name}.txt")),
                    format!("{}\n", aside.why),
                )
            });
        match kept {
            Ok(()) => {
                self.records += 1;
                self.bytes += aside.bytes.len();
            }
            Err(error) => tracing::warn!(%error, name, "a refused record cannot be kept aside"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_records_are_kept_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("aside");
        let aside = |offset| Aside {
            stream: Stream::Hits,
            partition: 3,
            offset,
            why: "byte 1: kind".to_owned(),
            bytes: bytes::Bytes::from_static(b"bad"),
        };
        let mut kept = AsideDir::open(path.clone());
        for offset in 0..RECORDS_MAX as u64 + 5 {
            kept.keep(&aside(offset));
        }
        assert_eq!(std::fs::read(path.join("hits-3-0.bin")).unwrap(), b"bad");
        assert_eq!(
            std::fs::read_to_string(path.join("hits-3-0.txt")).unwrap(),
            "byte 1: kind\n"
        );
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 2 * RECORDS_MAX);
        assert_eq!(AsideDir::open(path).records, RECORDS_MAX);
    }
}
