//! An aggregator as one of a fleet on Kafka: a member of its group, with snapshots in the `state` topic.
//!
//! ```text
//! group  ── Assigned, Revoked ──────────────────────────> core
//! core   ── SaveSnapshot ──> writer's thread ── saved ──> core, and a commit to the group
//!        ── Restore ───────> reader's thread ── Restored ──> core
//! ```
//!
//! What takes long is done beside the loop: encoding, compressing, reading and rebuilding a state. Knows
//! nothing of rules. What stays true: restoring begins with the newest snapshot that is whole, and what
//! is passed over is said with its reason; while Kafka does not answer, it is tried again, because a
//! partition ruled from too little would say less than is known.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_engine::engine::SnapshotFault;
use tollgate_engine::limits::RULES;

use crate::cli::exit::{Exit, Failure};
use crate::core::assignment::{Known, Restored};
use crate::core::event::Event;
use crate::core::ruler::Ruler;
use crate::core::snapshots::Moment;
use crate::log::kafka::{
    Commits, GroupEvent, KafkaConfig, Member, StateError, StateReader, StateTopic, StateWriter,
    Written,
};

/// How long before restoring is tried again while Kafka does not answer.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How long leaving the group may take. The process is to be gone within 5 s, and the log closes too.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

struct Save {
    partition: u32,
    upto: u64,
    moment: Moment,
}

struct Restore {
    partition: u32,
    attempt: u64,
    known: Box<Known>,
}

/// This process's place in the fleet.
pub struct Fleet {
    member: Member,
    saves: Sender<Save>,
    restores: Sender<Restore>,
}

/// What a fleet is told of this aggregator.
#[derive(Clone, Debug)]
pub struct Place {
    /// The cluster.
    pub kafka: KafkaConfig,
    /// The aggregator's name.
    pub name: String,
    /// How many hourly snapshots are kept beside the newest.
    pub keep_hourly: u64,
}

impl Fleet {
    /// Joins the fleet; what happens comes as events, and by `faults` what ends the process.
    ///
    /// # Errors
    ///
    /// Where a property is wrong, or no thread can be had.
    pub fn join(
        place: Place,
        events: mpsc::Sender<Event>,
        faults: mpsc::Sender<Failure>,
    ) -> Result<Self, Failure> {
        let kafka = place.kafka.clone();
        let state = StateTopic::new(kafka.clone(), RULES);
        let (saves, saving) = channel();
        let (restores, restoring) = channel();
        let to_core = events.clone();
        let member = Member::join(
            kafka.clone(),
            Box::new(move |said| {
                let event = match said {
                    GroupEvent::Assigned(partitions) => Event::Assigned(partitions),
                    GroupEvent::Revoked(partitions) => Event::Revoked(partitions),
                    GroupEvent::Fenced(text) => {
                        let exit = Exit::Config;
                        // Whoever is gone does not hear of it.
                        let _ = faults.blocking_send(Failure::Log { exit, text });
                        return;
                    }
                };
                let _ = to_core.blocking_send(event);
            }),
        )?;
        let writer = Saving {
            writer: state.writer()?,
            commits: member.commits(),
            place,
            events: events.clone(),
        };
        let (reader, partitions) = (state.reader()?, kafka.partitions);
        spawn("snapshots", move || writer.run(saving))?;
        spawn("restoring", move || {
            restore_all(&reader, partitions, restoring, &events);
        })?;
        Ok(Self {
            member,
            saves,
            restores,
        })
    }

    /// Has a snapshot written.
    pub fn save(&self, partition: u32, upto: u64, moment: Moment) {
        // The threads live as long as this, unless they panicked.
        let _ = self.saves.send(Save {
            partition,
            upto,
            moment,
        });
    }

    /// Has a partition restored.
    pub fn restore(&self, partition: u32, attempt: u64, known: Box<Known>) {
        let _ = self.restores.send(Restore {
            partition,
            attempt,
            known,
        });
    }

    /// Leaves, so that others take over at once.
    pub fn leave(&self) {
        self.member.leave(LEAVE_WITHIN);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work);
    spawned.map(drop).map_err(|source| Failure::Io {
        name: name.to_owned(),
        source,
    })
}

struct Saving {
    writer: StateWriter,
    commits: Commits,
    place: Place,
    events: mpsc::Sender<Event>,
}

impl Saving {
    fn run(mut self, jobs: Receiver<Save>) {
        for job in jobs {
            let partition = job.partition;
            let saved = match self.save(&job) {
                Ok(()) => true,
                Err(error) => {
                    tracing::error!(partition, %error, "a snapshot cannot be written");
                    false
                }
            };
            let event = Event::SnapshotSaved { partition, saved };
            if self.events.blocking_send(event).is_err() {
                return;
            }
        }
    }

    fn save(&mut self, job: &Save) -> Result<(), StateError> {
        let written = Written {
            partition: job.partition,
            upto: job.upto,
            log: job.moment.0.log().unwrap_or_default(),
            name: &self.place.name,
        };
        let offset = self
            .writer
            .write(&written, self.place.keep_hourly, |sink| {
                job.moment.0.write(sink);
            })?;
        // Named by the manifest's place in the `state` topic.
        let metadata = format!("state@{offset}");
        self.commits.commit(job.partition, job.upto + 1, metadata);
        Ok(())
    }
}

fn restore_all(
    reader: &StateReader,
    partitions: u32,
    jobs: Receiver<Restore>,
    events: &mpsc::Sender<Event>,
) {
    for job in jobs {
        let restored = loop {
            match restore(reader, partitions, &job) {
                Ok(restored) => break restored,
                Err(error) => {
                    tracing::warn!(partition = job.partition, %error, "cannot restore yet");
                    std::thread::sleep(RETRY_AFTER);
                    if events.is_closed() {
                        return;
                    }
                }
            }
        };
        let event = Event::Restored {
            partition: job.partition,
            attempt: job.attempt,
            restored,
        };
        if events.blocking_send(event).is_err() {
            return;
        }
    }
}

fn restore(reader: &StateReader, partitions: u32, job: &Restore) -> Result<Restored, StateError> {
    let partition = job.partition;
    for candidate in reader.candidates(partition)? {
        let (upto, group) = (candidate.id.upto, &candidate.id.group);
        let passed_over = |why: &dyn std::fmt::Display| {
            tracing::warn!(partition, upto, %group, %why, "a snapshot is passed over");
        };
        let chunks = match reader.chunks(partition, &candidate) {
            Ok(chunks) => chunks,
            Err(StateError::Corrupt(why)) => {
                passed_over(&why);
                continue;
            }
            Err(error) => return Err(error),
        };
        match Ruler::restore(partition, partitions, &chunks, &job.known.book) {
            Ok(ruler) => {
                let bytes = candidate.manifest.bytes;
                let by = &candidate.manifest.name;
                tracing::info!(partition, upto, %group, bytes, %by, "restored from a snapshot");
                return Ok(Restored::Snapshot(Box::new(ruler)));
            }
            Err(SnapshotFault::MissingVersion { version }) if job.known.limits_next <= version => {
                return Ok(Restored::NeedsLimits(version));
            }
            Err(fault) => passed_over(&fault),
        }
    }
    tracing::info!(partition, "no snapshot: ruled from the log's beginning");
    Ok(Restored::Nothing)
}
