//! An aggregator as a member of a fleet on Kafka, with snapshots in the topic `state`.
//!
//! ```text
//! group  ── Assigned, Revoked ──────────────────────────> core
//! members topic ── the other members, for agents ───────> core
//! core   ── SaveSnapshot ──> writer's thread ── saved ──> core, and a commit to the group
//!        ── Restore ───────> readers' threads ── Restored ──> core
//! ```
//!
//! Slow work is done beside the loop: encoding, compressing, reading and rebuilding a state. Knows nothing of
//! rules. What stays true: restoring begins with the newest intact snapshot; a snapshot that is passed over is
//! logged with the reason; while Kafka does not answer, reading is tried again (`restore_queue`), because a partition
//! ruled without its snapshot would lack hits.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_engine::engine::SnapshotFault;
use tollgate_limits::RULES;
use tollgate_shared::wire::link::Member as Other;

use super::restore_queue::{RestoreJob, RestoreQueue};
use crate::ServeError;
use crate::core::assignment::{Known, Restored};
use crate::core::event::Event;
use crate::core::ruler::Ruler;
use crate::core::snapshots::Moment;
use crate::http::fleet::{self, Others};
use tollgate_log::kafka::{
    Commits, GroupEvent, KafkaConfig, Member, MemberRecord, Registry, StateError, StateReader,
    StateTopic, StateWriter, Written,
};

/// How long leaving the group may take. The process has to end within 5 s, and the log has to be closed too.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Partitions that are restored at once: one is read from Kafka while another is decoded.
const RESTORED_AT_ONCE: usize = 2;

struct Save {
    partition: u32,
    upto: u64,
    moment: Moment,
}

/// This process's place in the fleet.
pub struct Fleet {
    member: Member,
    registry: Registry,
    saves: Sender<Save>,
    restores: Arc<RestoreQueue>,
}

/// The settings of a fleet's member.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The cluster.
    pub kafka: KafkaConfig,
    /// The aggregator's name.
    pub name: String,
    /// How many hourly snapshots are kept beside the newest.
    pub keep_hourly: u64,
}

/// This aggregator's addresses, as published to other members and agents.
#[derive(Clone, Debug)]
pub struct OwnAddresses {
    /// The core's instance.
    pub instance: u128,
    /// The address for agents, as `host:port`.
    pub agents: String,
    /// The address for HTTP, as `host:port`.
    pub http: String,
}

impl Fleet {
    /// Joins the fleet. What happens is sent to `events`; faults that end the process are sent to `faults`.
    ///
    /// # Errors
    ///
    /// If a property is invalid, or a thread cannot be created.
    pub fn join(
        place: FleetSettings,
        found: OwnAddresses,
        others: Others,
        events: mpsc::Sender<Event>,
        faults: mpsc::Sender<ServeError>,
    ) -> Result<Self, ServeError> {
        let kafka = place.kafka.clone();
        let state = StateTopic::new(kafka.clone(), RULES);
        let (saves, saving) = channel();
        let restores = Arc::new(RestoreQueue::default());
        let registry = register(&place, found, others, events.clone())?;
        let rules = registry.rules();
        let (ours, to_core) = (Arc::clone(&restores), events.clone());
        let member = Member::join(
            kafka.clone(),
            Arc::new(move |event| {
                let event = match event {
                    GroupEvent::Assigned(partitions) => {
                        ours.assigned(&partitions);
                        Event::Assigned(partitions)
                    }
                    GroupEvent::Revoked(partitions) => {
                        ours.revoked(&partitions);
                        Event::Revoked(partitions)
                    }
                    GroupEvent::Fenced(text) => {
                        // If the receiver is gone, the process is ending.
                        let _ = faults.blocking_send(ServeError::Refused(text));
                        return;
                    }
                };
                rules.announce(ours.ours());
                let _ = to_core.blocking_send(event);
            }),
        )?;
        let writer = Saving {
            writer: state.writer()?,
            commits: member.commits(),
            place,
            events: events.clone(),
        };
        spawn("snapshots", move || writer.run(saving))?;
        for _ in 0..RESTORED_AT_ONCE {
            let (reader, partitions) = (state.reader()?, kafka.partitions);
            let (jobs, events) = (Arc::clone(&restores), events.clone());
            spawn("restoring", move || {
                restore_all(reader, partitions, &jobs, &events);
            })?;
        }
        Ok(Self {
            member,
            registry,
            saves,
            restores,
        })
    }

    /// Writes a snapshot, in the writer's thread.
    pub fn save(&self, partition: u32, upto: u64, moment: Moment) {
        // The threads live as long as this, unless they panicked.
        let _ = self.saves.send(Save {
            partition,
            upto,
            moment,
        });
    }

    /// Restores a partition, in a reader's thread.
    pub fn restore(&self, partition: u32, attempt: u64, known: Box<Known>) {
        self.restores
            .push(RestoreJob::new(partition, attempt, known));
    }

    /// Leaves the group, so that other members take over at once.
    pub fn leave(&self) {
        self.registry.leave(LEAVE_WITHIN / 2);
        self.member.leave(LEAVE_WITHIN);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.restores.close();
    }
}

/// Publishes this aggregator in the topic `members`, and informs the core of the other members.
fn register(
    place: &FleetSettings,
    found: OwnAddresses,
    known: Others,
    events: mpsc::Sender<Event>,
) -> Result<Registry, ServeError> {
    let me = MemberRecord {
        instance: found.instance,
        group: place.kafka.group.as_str().into(),
        agents: found.agents.into(),
        http: found.http.into(),
        partitions: Vec::new(),
    };
    let group = me.group.clone();
    let on_change = move |others: Vec<(Box<str>, MemberRecord)>| {
        for (name, member) in &others {
            let MemberRecord {
                agents, partitions, ..
            } = member;
            tracing::debug!(%name, %agents, ?partitions, "a member of the fleet");
        }
        let asked = others.iter().map(|(_, member)| fleet::Other {
            http: member.http.clone(),
            partitions: member.partitions.clone(),
        });
        known.set(asked.collect());
        let too = others.iter().filter(|(_, member)| member.group != group);
        let too = too.flat_map(|(_, member)| member.partitions.iter().copied());
        let too = too.collect();
        let members = others.into_iter().map(|(_, member)| Other {
            instance: member.instance,
            address: member.agents,
        });
        for event in [Event::RuledToo(too), Event::Members(members.collect())] {
            // If the receiver is gone, the process is ending.
            let _ = events.blocking_send(event);
        }
    };
    let registry = Registry::join(place.kafka.clone(), &place.name, me, Box::new(on_change))?;
    Ok(registry)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServeError> {
    let spawned = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work);
    spawned.map(drop).map_err(|source| ServeError::Io {
        name: name.to_owned(),
        source,
    })
}

struct Saving {
    writer: StateWriter,
    commits: Commits,
    place: FleetSettings,
    events: mpsc::Sender<Event>,
}

impl Saving {
    fn run(mut self, jobs: Receiver<Save>) {
        for job in jobs {
            let partition = job.partition;
            let _inside = tracing::info_span!("snapshot", partition, upto = job.upto).entered();
            let saved = match self.save(&job) {
                Ok(()) => true,
                Err(error) => {
                    tracing::error!(%error, "a snapshot cannot be written");
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
        // Named by the manifest's offset in the topic `state`.
        let metadata = format!("state@{offset}");
        self.commits.commit(job.partition, job.upto + 1, metadata);
        Ok(())
    }
}

fn restore_all(
    mut reader: StateReader,
    partitions: u32,
    jobs: &RestoreQueue,
    events: &mpsc::Sender<Event>,
) {
    while let Some(job) = jobs.next() {
        let _inside = tracing::info_span!("recovery", partition = job.partition).entered();
        match restore(&reader, partitions, &job) {
            Ok(restored) => {
                let event = Event::Restored {
                    partition: job.partition,
                    attempt: job.attempt,
                    restored,
                };
                if events.blocking_send(event).is_err() {
                    return;
                }
            }
            Err(error) => {
                jobs.failed(job, &error);
                if events.is_closed() {
                    return;
                }
                // The client itself may be the problem: it may have lost every broker, or a topic.
                match reader.reopen() {
                    Ok(fresh) => reader = fresh,
                    Err(fault) => tracing::warn!(%fault, "no other client can be created"),
                }
            }
        }
    }
}

fn restore(
    reader: &StateReader,
    partitions: u32,
    job: &RestoreJob,
) -> Result<Restored, StateError> {
    let partition = job.partition;
    let mut skipped = 0;
    for candidate in reader.candidates(partition)? {
        let (upto, group) = (candidate.id.upto, &candidate.id.group);
        if job.known.before.is_some_and(|before| before <= upto) {
            continue;
        }
        let mut passed_over = |why: &dyn std::fmt::Display| {
            skipped += 1;
            tracing::warn!(upto, %group, %why, "a snapshot is skipped");
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
                tracing::info!(upto, %group, bytes, %by, skipped, "restored from a snapshot");
                return Ok(Restored::Snapshot(Box::new(ruler)));
            }
            Err(SnapshotFault::MissingVersion { version }) if job.known.limits_next <= version => {
                return Ok(Restored::NeedsLimits(version));
            }
            Err(fault) => passed_over(&fault),
        }
    }
    tracing::info!(skipped, "no snapshot: ruled from the log's beginning");
    Ok(Restored::Nothing)
}
