//! The thread that limits go through on their way to the ruling: it parses documents, which takes seconds
//! for a million overrides, while everything else goes on.
//!
//! ```text
//! log ──> events of limits ──> [document whole? parse it] ──> the same events, in order ──> core
//! SIGHUP ──> the limits file ─> [parse it] ──────────────────────────────────────────────> core
//! ```
//!
//! Decides nothing: what is void and what is in force is found out by the core, from the same records. What
//! stays true: every event comes out as it went in, in order; and no ruling depends on what was prepared.

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use tollgate_limits::with_zone_tables;
use tollgate_shared::wire::limits_chunk::{self, LimitsChunk};

use crate::core::event::{Event, LimitsFile};
use crate::domains::Domains;
use tollgate_limits::versions::parsed::Parsed;
use tollgate_log::{LogEvent, Stream};

/// What may wait to be prepared. Beyond it nothing more is taken from the log, as nothing is ruled before
/// limits were read.
const WAITING_MAX: usize = 64;

/// Documents below this are parsed faster than they could be handed over.
const SMALL_BYTES: usize = 16 * 1024;

/// Documents that may be under way at once, and their bytes: beyond it, the oldest is left to the core.
const UNDER_WAY_MAX: usize = 4;
const BYTES_MAX: usize = 256 << 20;

/// What goes through.
enum Item {
    Log(LogEvent),
    /// The limits file, and the key that its domains are hashed with.
    File(PathBuf, Option<PathBuf>),
}

/// The way through the thread.
#[derive(Clone)]
pub struct Preparer(mpsc::Sender<Item>);

impl Preparer {
    /// Starts the thread. What comes out of it goes to `out`.
    ///
    /// # Errors
    ///
    /// Where there can be no thread.
    pub fn start(parsed: Parsed, out: mpsc::Sender<Event>) -> std::io::Result<Self> {
        let (sender, mut inbox) = mpsc::channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("limits".to_owned());
        thread.spawn(move || {
            let mut under_way = UnderWay::default();
            while let Some(item) = inbox.blocking_recv() {
                let event = match item {
                    Item::Log(event) => {
                        under_way.see(&event, &parsed);
                        Event::Log(event)
                    }
                    Item::File(path, key) => {
                        let file = read_file(&path, key.as_deref());
                        if let Ok(text) = &file.text
                            && SMALL_BYTES <= text.len()
                        {
                            parsed.prepare(text);
                        }
                        Event::LimitsFile(file)
                    }
                };
                if out.blocking_send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(sender))
    }

    /// Whether another event can be taken.
    pub fn has_room(&self) -> bool {
        0 < self.0.capacity()
    }

    /// Sends an event of limits through; gives back what is about something else, or has no room.
    pub fn take(&self, event: LogEvent) -> Option<LogEvent> {
        if !is_of_limits(&event) {
            return Some(event);
        }
        match self.0.try_send(Item::Log(event)) {
            Ok(()) => None,
            Err(
                mpsc::error::TrySendError::Full(item) | mpsc::error::TrySendError::Closed(item),
            ) => match item {
                Item::Log(event) => Some(event),
                Item::File(..) => None,
            },
        }
    }

    /// Has the limits file read.
    pub fn read(&self, path: &Path, key: Option<&Path>) {
        // When the queue is full limits are being read, and the file is asked for again by whoever changed it.
        let file = Item::File(path.to_owned(), key.map(Path::to_owned));
        if self.0.try_send(file).is_err() {
            tracing::warn!("the limits file is not read now: limits are; ask again");
        }
    }
}

/// Reads the limits file, with the tables of its time zones behind it. With a domain key its domains are hashed:
/// their names do not go to the log.
pub fn read_file(path: &Path, key: Option<&Path>) -> LimitsFile {
    let domains = key.map_or_else(|| Ok(Domains::default()), Domains::read);
    let text = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned()))
        .and_then(|text| {
            let document = domains.map_err(|fault| fault.to_string())?.document(text);
            document
                .map(with_zone_tables)
                .map_err(|mixture| mixture.to_string())
        });
    LimitsFile {
        name: path.display().to_string(),
        text,
    }
}

const fn is_of_limits(event: &LogEvent) -> bool {
    matches!(
        event,
        LogEvent::Delivered {
            stream: Stream::Limits,
            ..
        } | LogEvent::CaughtUp {
            stream: Stream::Limits,
            ..
        } | LogEvent::Following {
            stream: Stream::Limits,
            ..
        } | LogEvent::Gap {
            stream: Stream::Limits,
            ..
        } | LogEvent::Broken {
            stream: Stream::Limits,
            ..
        }
    )
}

/// Documents of which parts have come.
#[derive(Default)]
struct UnderWay(Vec<Parts>);

struct Parts {
    push: u128,
    next: u32,
    text: Vec<u8>,
}

impl UnderWay {
    fn see(&mut self, event: &LogEvent, parsed: &Parsed) {
        let LogEvent::Delivered { records, .. } = event else {
            return;
        };
        for record in records {
            if record.bytes.get(1) == Some(&limits_chunk::KIND)
                && let Ok(chunk) = LimitsChunk::decode(&record.bytes)
                && let Some(text) = self.enter(&chunk)
                && SMALL_BYTES <= text.len()
            {
                parsed.prepare(&text);
            }
        }
    }

    /// Gives the text that a chunk completes.
    fn enter(&mut self, chunk: &LimitsChunk<'_>) -> Option<String> {
        let at = self.0.iter().position(|parts| parts.push == chunk.push);
        let mut parts = match at {
            Some(at) => self.0.remove(at),
            None => Parts {
                push: chunk.push,
                next: 0,
                text: Vec::new(),
            },
        };
        if parts.next != chunk.index {
            return None;
        }
        parts.text.extend_from_slice(chunk.bytes);
        parts.next += 1;
        if parts.next == chunk.count {
            return String::from_utf8(parts.text).ok();
        }
        self.0.push(parts);
        let bytes: usize = self.0.iter().map(|parts| parts.text.len()).sum();
        if UNDER_WAY_MAX < self.0.len() || BYTES_MAX < bytes {
            self.0.remove(0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use tollgate_limits::Limits;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::Writer;

    use super::*;
    use tollgate_limits::versions::{Entered, LimitsBook, digest};
    use tollgate_log::Delivered;

    fn document() -> String {
        let mut text = "version = 1\nrules = 2\n[rate.\"a\"]\nrate = \"1/s\"\n".to_owned();
        for n in 0..1_000 {
            write!(text, "[rate.\"a\".domains.\"d-{n}\"]\nrate = \"9/s\"\n").expect("written");
        }
        text
    }

    /// A document's chunks as the log has them, from offset 1 on.
    fn records(text: &str, digest: [u8; 32]) -> Vec<Delivered> {
        let parts: Vec<&[u8]> = text.as_bytes().chunks(text.len() / 3 + 1).collect();
        let count = parts.len() as u32;
        let record = |(index, bytes): (u32, &[u8])| {
            let mut writer = Writer::new();
            LimitsChunk {
                push: 7,
                index,
                count,
                expected: 0,
                digest,
                who: "w",
                why: "y",
                at: Timestamp::ZERO,
                bytes,
            }
            .encode(&mut writer);
            Delivered {
                offset: u64::from(index) + 1,
                appended: Timestamp::ZERO,
                bytes: bytes::Bytes::copy_from_slice(writer.as_slice()),
            }
        };
        (0..count).zip(parts).map(record).collect()
    }

    #[test]
    fn events_come_out_as_they_went_in_and_documents_are_parsed_by_then() {
        let (out, mut inbox) = mpsc::channel(8);
        let parsed = Parsed::default();
        let preparer = Preparer::start(parsed.clone(), out).expect("starts");
        let text = document();
        let all = records(&text, digest(text.as_bytes()));
        let mut events: Vec<LogEvent> = all
            .into_iter()
            .map(|record| LogEvent::Delivered {
                stream: Stream::Limits,
                partition: 0,
                records: vec![record],
            })
            .collect();
        events.push(LogEvent::CaughtUp {
            stream: Stream::Limits,
            partition: 0,
            next: 4,
        });
        for event in &events {
            assert_eq!(preparer.take(event.clone()), None);
        }
        assert_eq!(preparer.take(LogEvent::Up), Some(LogEvent::Up));
        let mut book = LimitsBook::with(parsed);
        let mut entered = None;
        for sent in &events {
            let Some(Event::Log(event)) = inbox.blocking_recv() else {
                panic!("an event of the log");
            };
            assert_eq!(event, *sent);
            if let LogEvent::Delivered { records, .. } = &event {
                entered = book
                    .read(records[0].offset, records[0].appended, &records[0].bytes)
                    .expect("readable");
            }
        }
        let Some(Entered::Version { version, .. }) = entered else {
            panic!("{entered:?}");
        };
        assert_eq!(version.number, 3);
        let alone = Limits::parse(&text).expect("a document");
        assert_eq!(format!("{:?}", version.limits), format!("{alone:?}"));
        assert_eq!(book.prepared(), 1, "and not parsed again");
    }

    #[test]
    fn what_was_prepared_for_another_text_is_not_taken() {
        let (parsed, text) = (Parsed::default(), document());
        let other = text.replace("9/s", "8/s");
        parsed.prepare(&other);
        let mut book = LimitsBook::with(parsed);
        // It claims the digest of the one that was prepared.
        let mut forged = book.clone();
        let all = records(&text, digest(other.as_bytes()));
        let entered = all.iter().map(|record| {
            forged
                .read(record.offset, record.appended, &record.bytes)
                .expect("readable")
        });
        assert!(matches!(entered.last(), Some(Some(Entered::Void { .. }))));
        let honest = records(&text, digest(text.as_bytes()));
        for record in &honest[..honest.len() - 1] {
            book.read(record.offset, record.appended, &record.bytes)
                .expect("readable");
        }
        let entered = {
            let last = &honest[honest.len() - 1];
            book.read(last.offset, last.appended, &last.bytes)
        }
        .expect("readable");
        assert!(matches!(entered, Some(Entered::Version { .. })));
        assert_eq!(book.prepared(), 0);
    }

    #[test]
    fn a_file_goes_to_the_log_with_the_tables_of_its_zones() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("limits.toml");
        let text =
            "version = 1\nrules = 2\n[rate.a]\nquota = [\"5/day\"]\nzone = \"Europe/Berlin\"\n";
        std::fs::write(&path, text).expect("written");
        let read = read_file(&path, None).text.expect("a document");
        assert!(read.starts_with(text) && read.contains("[zones.\"Europe/Berlin\"]"));
        assert_eq!(Limits::parse_logged(&read), Limits::parse(text));
        assert!(
            Limits::parse_logged(text).is_err(),
            "the log would lack the table"
        );
        // Another build's table is no difference.
        let in_force = read.replace("+02:00", "+03:00");
        let digest = tollgate_limits::versions::digest(in_force.as_bytes());
        let in_force = tollgate_limits::versions::text::Text::whole(in_force.into(), digest);
        assert!(in_force.differs_in_zones_alone(&read));
        assert!(!in_force.differs_in_zones_alone(&read.replace("5/day", "6/day")));
    }
}
