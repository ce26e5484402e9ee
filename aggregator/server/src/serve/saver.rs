//! Writes a journal's snapshots in a thread of its own.
//!
//! Knows nothing of the files' format. What stays true: jobs are done in the order in which they were sent.

use std::io;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::core::event::Event;
use crate::core::snapshots::Moment;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

/// How often the log says that snapshots cannot be written: with a full disk, each partition fails each second.
const FAILURE_EVERY: Span = Span::from_secs(60);

/// A job: write or remove the snapshot of a partition at an offset.
struct Job {
    partition: u32,
    upto: u64,
    /// The snapshot to write; `None`: remove the file.
    moment: Option<Moment>,
}

/// Sends jobs to the thread.
pub struct Saver {
    jobs: std::sync::mpsc::Sender<Job>,
}

impl Saver {
    /// Starts the thread, which sends an event when a snapshot was written or failed. At most one job of each
    /// partition waits, because the core requests no second one before.
    ///
    /// # Errors
    ///
    /// If the thread cannot be created.
    pub fn start(snapshots: Snapshots, events: mpsc::Sender<Event>) -> io::Result<Self> {
        snapshots.remove_half_written();
        let (jobs, inbox) = std::sync::mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(move || {
                let started = Instant::now();
                let mut lines = LineInterval::new(FAILURE_EVERY);
                for job in inbox {
                    let (partition, upto) = (job.partition, job.upto);
                    let _inside = tracing::info_span!("snapshot", partition, upto).entered();
                    let Some(moment) = &job.moment else {
                        snapshots.remove(partition, upto);
                        continue;
                    };
                    let saved = snapshots.save(partition, upto, |sink| moment.0.write(sink));
                    if let Err(error) = &saved
                        && let Some(unsaid) = lines.may(Span::from_std(started.elapsed()))
                    {
                        let file = snapshots.file(partition, upto);
                        tracing::error!(%error, file = %file.display(), unsaid, "a snapshot cannot be written");
                    }
                    let saved = saved.is_ok();
                    let event = Event::SnapshotSaved { partition, saved };
                    if events.blocking_send(event).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { jobs })
    }

    /// Writes a snapshot.
    pub fn save(&self, partition: u32, upto: u64, moment: Moment) {
        self.send(partition, upto, Some(moment));
    }

    /// Removes the file of a snapshot that is not of this log.
    pub fn drop_snapshot(&self, partition: u32, upto: u64) {
        self.send(partition, upto, None);
    }

    fn send(&self, partition: u32, upto: u64, moment: Option<Moment>) {
        // The thread lives as long as this, unless it panicked.
        let _ = self.jobs.send(Job {
            partition,
            upto,
            moment,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_engine::engine::{Engine, Rulings};
    use tollgate_shared::log_position::LogId;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::record::Record;

    use super::*;
    use tollgate_log::journal::disk::OsDisk;

    fn moment(offset: u64) -> Moment {
        let mut engine = Engine::new(3, 4);
        let genesis = Record::Genesis(LogId {
            generation: 1,
            random: 5,
        });
        let mut rulings = Rulings::new();
        engine.apply(offset, Timestamp::ZERO, &genesis, &(), &mut rulings);
        Moment(Box::new(engine.freeze()))
    }

    #[test]
    fn orders_run_in_order_and_saved_snapshots_restore() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::beside(dir.path(), Arc::new(OsDisk));
        let left = snapshots.file(3, 5).with_extension("snap.tmp");
        std::fs::create_dir_all(left.parent().unwrap()).unwrap();
        std::fs::write(&left, b"TGSF").unwrap();
        let (events, mut events_received) = mpsc::channel(4);
        let saver = Saver::start(snapshots.clone(), events).unwrap();
        assert!(!left.exists(), "nobody would ever read it");
        saver.save(3, 9, moment(9));
        saver.drop_snapshot(3, 9);
        // The second answer comes after the removal.
        saver.save(3, 11, moment(11));
        for _ in 0..2 {
            let event = events_received.blocking_recv().unwrap();
            assert!(matches!(event, Event::SnapshotSaved { saved: true, .. }));
        }
        let found = snapshots.read_all(4);
        let restored = found[&3].iter().map(|chunks| {
            let engine = Engine::restore(3, 4, chunks, &()).unwrap();
            engine.applied_upto()
        });
        assert_eq!(restored.collect::<Vec<_>>(), [Some(11)]);
    }
}
