//! Dead letters: refused records, kept for inspection in the fleet's topic `aside`, or, where the log is a journal,
//! as files in a directory beside it.
//!
//! ```text
//! aside/hits-3-18250.bin    the record's bytes
//! aside/hits-3-18250.txt    why it was refused
//! ```
//!
//! Knows nothing of what records mean. What stays true: the records kept and the log lines are bounded; beyond the
//! bounds only counters continue, and ruling never waits for any of it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::event::DeadLetter;
use tollgate_log::journal::disk::{create_private_dir, private_file};
#[cfg(feature = "kafka")]
use tollgate_log::kafka::{DeadLetterTopic, FIRST_BYTES, KafkaConfig, KafkaFault, RefusedRecord};
use tollgate_log::{DeadLetterCounters, Stream};

/// The most records that are kept, and their most bytes: enough to see a pattern, too little to fill
/// a disk.
const RECORDS_MAX: usize = 1_000;
const BYTES_MAX: usize = 64 << 20;

/// How many refused records per second are logged. The ruling thread writes each line, and a foreign producer may
/// write a hundred thousand records per second.
const LINES_A_SECOND: u64 = 20;

/// How long [`DeadLetters::close`] waits for records on their way.
#[cfg(feature = "kafka")]
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Keeps and logs refused records.
#[derive(Debug)]
pub struct DeadLetters {
    place: DeadLetterPlace,
    tally: DeadLetterTally,
    counters: Arc<DeadLetterCounters>,
}

#[derive(Debug)]
enum DeadLetterPlace {
    Dir(DeadLetterDir),
    #[cfg(feature = "kafka")]
    Topic(DeadLetterTopic),
}

/// The log lines of the current second.
#[derive(Debug)]
struct DeadLetterTally {
    since: Instant,
    lines: u64,
    left_out: u64,
}

impl DeadLetters {
    /// Keeps records in a directory.
    pub fn in_dir(dir: PathBuf, counters: Arc<DeadLetterCounters>) -> Self {
        Self::at(DeadLetterPlace::Dir(DeadLetterDir::open(dir)), counters)
    }

    /// Keeps records in the fleet's topic; `by` is this aggregator's name.
    ///
    /// # Errors
    ///
    /// If a property is invalid.
    #[cfg(feature = "kafka")]
    pub fn in_topic(
        config: KafkaConfig,
        by: &str,
        counters: Arc<DeadLetterCounters>,
    ) -> Result<Self, KafkaFault> {
        let topic = DeadLetterTopic::start(config, by, Arc::clone(&counters))?;
        Ok(Self::at(DeadLetterPlace::Topic(topic), counters))
    }

    fn at(place: DeadLetterPlace, counters: Arc<DeadLetterCounters>) -> Self {
        let told = DeadLetterTally {
            since: Instant::now(),
            lines: 0,
            left_out: 0,
        };
        Self {
            place,
            tally: told,
            counters,
        }
    }

    /// Logs a record, and keeps it if there is room.
    pub fn keep(&mut self, letter: &DeadLetter) {
        self.tally.log(letter, Instant::now());
        match &mut self.place {
            DeadLetterPlace::Dir(dir) => {
                let counter = match dir.keep(letter) {
                    true => &self.counters.kept,
                    false => &self.counters.dropped,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            #[cfg(feature = "kafka")]
            DeadLetterPlace::Topic(topic) => topic.keep(RefusedRecord {
                stream: name_of(letter.stream),
                partition: letter.partition,
                offset: letter.offset,
                reason: letter.why.clone(),
                length: letter.bytes.len(),
                first: letter.bytes[..letter.bytes.len().min(FIRST_BYTES)].into(),
            }),
        }
    }

    /// Takes no more records, and waits a moment for those on their way.
    pub fn close(&mut self) {
        #[cfg(feature = "kafka")]
        if let DeadLetterPlace::Topic(topic) = &mut self.place {
            topic.close(CLOSE_WITHIN);
        }
    }
}

impl DeadLetterTally {
    fn log(&mut self, letter: &DeadLetter, now: Instant) {
        if self.since + Duration::from_secs(1) <= now {
            if 0 < self.left_out {
                tracing::warn!(records = self.left_out, "more records were refused");
            }
            *self = Self {
                since: now,
                lines: 0,
                left_out: 0,
            };
        }
        if self.lines == LINES_A_SECOND {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        if letter.replayed {
            // It was logged as a warning when it was first read, unless it was written while no aggregator ran.
            tracing::info!(
                stream = name_of(letter.stream),
                partition = letter.partition,
                offset = letter.offset,
                why = letter.why,
                "a record from before this start is refused, maybe again"
            );
            return;
        }
        tracing::warn!(
            stream = name_of(letter.stream),
            partition = letter.partition,
            offset = letter.offset,
            why = letter.why,
            "a record is refused"
        );
    }
}

fn name_of(stream: Stream) -> &'static str {
    match stream {
        Stream::Hits => "hits",
        Stream::Limits => "limits",
        Stream::Denials => "denials",
    }
}

/// The directory of refused records.
#[derive(Debug)]
struct DeadLetterDir {
    dir: PathBuf,
    records: usize,
    bytes: usize,
    full: bool,
}

impl DeadLetterDir {
    /// Opens the directory; records that are in it already count.
    fn open(dir: PathBuf) -> Self {
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

    /// Keeps a record, if there is room and the disk accepts it. This is best effort.
    fn keep(&mut self, letter: &DeadLetter) -> bool {
        let stream = name_of(letter.stream);
        let name = format!("{stream}-{}-{}", letter.partition, letter.offset);
        let path = self.dir.join(format!("{name}.bin"));
        if path.exists() {
            return true;
        }
        if RECORDS_MAX <= self.records || BYTES_MAX < self.bytes + letter.bytes.len() {
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(dir = %self.dir.display(), "no room for more dead letters; they are only counted");
            }
            return false;
        }
        let write = |path: &Path, bytes: &[u8]| {
            let mut file = private_file().truncate(true).open(path)?;
            file.write_all(bytes)
        };
        let why = format!("{}\n", letter.why);
        let kept = create_private_dir(&self.dir)
            .and_then(|()| write(&path, &letter.bytes))
            .and_then(|()| write(&self.dir.join(format!("{name}.txt")), why.as_bytes()));
        match kept {
            Ok(()) => {
                self.records += 1;
                self.bytes += letter.bytes.len();
            }
            Err(error) => {
                tracing::warn!(%error, name, "a refused record cannot be kept as a dead letter");
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_records_are_kept_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("aside");
        let letter = |offset| DeadLetter {
            stream: Stream::Hits,
            partition: 3,
            offset,
            why: "byte 1: kind".to_owned(),
            replayed: false,
            bytes: bytes::Bytes::from_static(b"bad"),
        };
        let mut kept = DeadLetterDir::open(path.clone());
        for offset in 0..RECORDS_MAX as u64 + 5 {
            kept.keep(&letter(offset));
        }
        assert_eq!(std::fs::read(path.join("hits-3-0.bin")).unwrap(), b"bad");
        assert_eq!(
            std::fs::read_to_string(path.join("hits-3-0.txt")).unwrap(),
            "byte 1: kind\n"
        );
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 2 * RECORDS_MAX);
        assert_eq!(DeadLetterDir::open(path).records, RECORDS_MAX);
    }
}
