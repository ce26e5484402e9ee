//! The journal's promises, one file per kind: appending and following, ending and opening again,
//! failing disks, lost ends, retention, and hits lost to it.
//!
//! Only the helper [`Kit`] uses the API.

mod ending;
mod failing;
mod faulty;
mod following;
mod keeping;
mod losing;
mod unsaved;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_shared::time::Timestamp;

use super::super::{
    Append, AppendError, Delivered, Log, LogEvent, LogReceiver, Stream, Ticket, channel,
};
use super::disk::{Disk, OsDisk};
use super::*;

/// How long an event may take before a test fails: far more than a loaded machine needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// A directory, a clock that the test sets, a boot id and a disk.
struct Kit {
    dir: tempfile::TempDir,
    now_ms: Arc<AtomicU64>,
    /// Monotonic time.
    passed_ms: Arc<AtomicU64>,
    boot: Option<String>,
    disk: Arc<dyn Disk>,
    config: JournalConfig,
    events_max: usize,
}

impl Kit {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut config = JournalConfig::new(dir.path().join("journal"));
        config.partitions = 2;
        Self {
            dir,
            now_ms: Arc::new(AtomicU64::new(1_000)),
            passed_ms: Arc::default(),
            boot: Some("first-boot".to_owned()),
            disk: Arc::new(OsDisk),
            config,
            events_max: 64,
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn at(&self, ms: u64) {
        self.now_ms.store(ms, Ordering::SeqCst);
    }

    fn try_open(&self) -> Result<(Open, OpenReport), OpenError> {
        let (events, inbox) = channel(self.events_max);
        let (now_ms, passed_ms) = (Arc::clone(&self.now_ms), Arc::clone(&self.passed_ms));
        let context = JournalContext {
            disk: Arc::clone(&self.disk),
            clock: Arc::new(move || Timestamp::from_millis(now_ms.load(Ordering::SeqCst))),
            monotonic: Arc::new(move || Span::from_millis(passed_ms.load(Ordering::SeqCst))),
            boot: self.boot.clone(),
        };
        let (log, report) = Journal::open(self.config.clone(), context, events)?;
        let open = Open {
            log,
            inbox,
            held: Vec::new(),
            tickets: 0,
        };
        Ok((open, report))
    }

    fn open(&self) -> Open {
        self.try_open().expect("opens").0
    }

    fn open_report(&self) -> OpenReport {
        let (open, report) = self.try_open().expect("opens");
        open.close();
        report
    }

    /// Makes a journal that was stopped cleanly look as if its first writer had been killed soon.
    fn leave_as_if_killed(&self) {
        self.leave_as_if_a_later_one_was_killed();
        // Some tests make it look so twice.
        let _ = std::fs::remove_file(layout::ends(&self.config.dir));
    }

    /// Makes a journal that was stopped cleanly look as if a further writer had been killed.
    fn leave_as_if_a_later_one_was_killed(&self) {
        let running = layout::Running {
            boot: self.boot.clone(),
            ack: self.config.ack,
        };
        std::fs::write(layout::running(&self.config.dir), running.to_text()).expect("writes");
    }

    /// The segment files of a partition, in order.
    fn segments(&self, stream: Stream, partition: u32) -> Vec<PathBuf> {
        let dir = layout::partition(&self.config.dir, stream, partition);
        let mut names = OsDisk.list(&dir).unwrap_or_default();
        names.sort();
        names.into_iter().map(|name| dir.join(name)).collect()
    }
}

/// An open journal and its events.
struct Open {
    log: Journal,
    inbox: LogReceiver,
    held: Vec<LogEvent>,
    tickets: u64,
}

impl Open {
    fn event(&mut self) -> LogEvent {
        let waiting = async { tokio::time::timeout(DEADLINE, self.inbox.recv()).await };
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(waiting)
            .expect("an event within the deadline")
            .expect("the journal's thread")
    }

    /// The next event that `pick` accepts, looking first at events that were skipped before.
    fn find<T>(&mut self, mut pick: impl FnMut(&LogEvent) -> Option<T>) -> T {
        if let Some(at) = self.held.iter().position(|event| pick(event).is_some()) {
            let event = self.held.remove(at);
            return pick(&event).expect("as before");
        }
        loop {
            let event = self.event();
            match pick(&event) {
                Some(found) => return found,
                None => self.held.push(event),
            }
        }
    }

    fn send(&mut self, stream: Stream, partition: u32, record: &[u8]) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.log
            .append(stream, partition, ticket, Bytes::copy_from_slice(record));
        ticket
    }

    fn answer(&mut self, ticket: Ticket) -> Result<u64, AppendError> {
        // An event may have more answers, so it is kept.
        loop {
            let answer = { self.held.iter() }.find_map(|event| event.answer_to(ticket));
            if let Some(answer) = answer {
                return answer.clone();
            }
            let event = self.event();
            self.held.push(event);
        }
    }

    fn append(
        &mut self,
        stream: Stream,
        partition: u32,
        record: &[u8],
    ) -> Result<u64, AppendError> {
        let ticket = self.send(stream, partition, record);
        self.answer(ticket)
    }

    /// Every record of a partition from an offset on, until `CaughtUp`.
    fn read_all(&mut self, stream: Stream, partition: u32, from: u64) -> Vec<Delivered> {
        self.held.clear();
        self.log.follow(stream, partition, from);
        let mut all = Vec::new();
        let mut begun = false;
        loop {
            match self.event() {
                LogEvent::Following { .. } => begun = true,
                _ if !begun => {}
                LogEvent::Delivered {
                    stream: s,
                    partition: p,
                    records,
                } => {
                    assert_eq!((s, p), (stream, partition));
                    all.extend(records);
                }
                LogEvent::CaughtUp { .. } => return all,
                LogEvent::Broken { why, .. } => panic!("{why}"),
                _ => {}
            }
        }
    }

    fn close(mut self) {
        self.log.close();
        self.find(|event| (*event == LogEvent::Closed).then_some(()));
    }
}

/// The payloads of records, as text.
fn texts(records: &[Delivered]) -> Vec<String> {
    let text = |record: &Delivered| String::from_utf8_lossy(&record.bytes).into_owned();
    records.iter().map(text).collect()
}
