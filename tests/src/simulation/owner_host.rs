//! An aggregator in the simulated world: its process, its clocks, its connections, its snapshots.
//!
//! The process is the shipped core (`tollgate_server::core`), fed one event after the other as in the real loop:
//! events, then a turn at most half a millisecond later. It may die between any two effects. Everything that it
//! publishes is compared with the second engine before any agent receives it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use tollgate_log::Chunks;
use tollgate_log::journal::core::JournalCommand;
use tollgate_log::{LogEvent, Stream, Ticket};
use tollgate_server::core::event::{Event as CoreEvent, LimitsFile, Now, Peer};
use tollgate_server::core::snapshots::Policy;
use tollgate_server::core::topics::Subscribed;
use tollgate_server::core::{Core, Settings, Start};
use tollgate_server::link::{Admitted, BatchFault, Session as LinkSession};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;

use super::agent_transport::Wiring;
use super::clock::Clock;
use super::faults::LOG_WAYS;
use super::plan::{LogPlan, Plan};
use super::random::Random;
use super::shared_host::LogCut;
use super::shared_log::Session;
use super::world::{Event, World};

/// How long events are handled before a turn ends.
const TURN_MAX_US: u64 = 500;

/// A connection of an aggregator.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) agent: usize,
    /// For a feed: its subscriptions.
    pub(super) topics: Option<BTreeSet<Topic>>,
    /// For a link: its session.
    pub(super) link: LinkSession,
}

/// How a process is going to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doom {
    pub after_effects: Option<u64>,
    pub power: bool,
}

/// The host of an aggregator.
#[derive(Default)]
pub struct OwnerHost {
    pub(super) index: usize,
    pub(super) partitions: u32,
    /// Its group: in a fleet there are one or two groups; otherwise each aggregator rules everything.
    group: Option<Box<str>>,
    /// The number of this life, from 1.
    pub life: u64,
    /// The process; `None` means dead.
    pub core: Option<Core>,
    pub clock: Clock,
    pub(super) started_mono_us: u64,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) turn_at_us: u64,
    /// Until when it is frozen.
    pub stalled_until_us: u64,
    /// Events that arrived while it was frozen.
    pub(super) waiting: VecDeque<Event>,
    /// The limits file.
    pub file: String,
    pub(super) doom: Option<Doom>,
    pub(super) writing: BTreeMap<u32, (u64, Chunks)>,
    pub(super) session: Session,
    /// By resource, of this process: the last sequence of its topic, and the watermarks published on it.
    pub(super) published: BTreeMap<Box<str>, (u64, BTreeMap<u32, LogPosition>)>,
    /// Appended records, by ticket.
    pub(super) tickets: BTreeMap<Ticket, (Stream, u32, Bytes)>,
    /// Commands for the journal.
    pub(super) commands: Vec<JournalCommand>,
    pub(super) log_due: bool,
    pub(super) appends_due: bool,
    /// The number of events of the log that it has not handled yet.
    pub(super) log_events: usize,
    pub(super) log_last_us: u64,
    pub(super) answers_last_us: u64,
    /// The cuts between it and the shared log, by [`LogWay`](super::faults::LogWay).
    pub(super) log_cuts: [Option<LogCut>; LOG_WAYS.len()],
    /// How many processes are to end while they open the journal, and within how many operations of the disk.
    pub(super) crashes_in_opening: (u32, u64),
    /// Whether the machine loses power with each of them.
    pub(super) opening_power: bool,
    pub(super) random: Random,
}

impl OwnerHost {
    /// The host of a plan's aggregator, with nothing running.
    pub fn new(plan: &Plan, index: usize) -> Self {
        Self {
            index,
            partitions: plan.partitions,
            group: match (plan.log, plan.fleet) {
                (LogPlan::Shared, false) => Some(format!("group-{index}").into()),
                (LogPlan::Shared, true) if plan.groups == 1 => Some("fleet".into()),
                (LogPlan::Shared, true) => Some(format!("fleet-{}", index % plan.groups).into()),
                (LogPlan::Journal { .. }, _) => None,
            },
            clock: Clock::new(
                plan.owner_drift_ppm[index],
                plan.wall_us(plan.owner_wall_off_us[index]),
            ),
            turn_at_us: u64::MAX,
            file: plan.documents[0].text(),
            random: Random::of(plan.seed, "owner", index as u64),
            ..Self::default()
        }
    }

    /// Whether its process runs.
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// Notes an agent's new link, or its new feed with no subscriptions yet.
    pub(super) fn connected(&mut self, connection: u64, agent: usize, wire: Wiring) {
        let one = Connection {
            agent,
            topics: (wire == Wiring::Feed).then(BTreeSet::new),
            link: LinkSession::new(self.partitions),
        };
        self.connections.insert(connection, one);
    }

    /// Its time.
    pub fn now(&self, now_us: u64) -> Now {
        Now {
            clock: Span::from_micros(self.clock.mono_us(now_us) - self.started_mono_us),
            wall: self.clock.wall(now_us),
        }
    }

    /// The settings of a process that starts, with a seed of its own.
    pub(super) fn settings(&mut self, plan: &Plan, start: Start) -> Settings {
        let mut seed = [0; 32];
        for chunk in seed.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.draw().to_le_bytes());
        }
        Settings {
            aggregator: format!("owner-{}", self.index),
            seed,
            keys: Keyring::default(),
            partitions: self.partitions,
            group: self.group.clone(),
            start,
            feeds: vec![format!("tcp://owner-{}:1", self.index).into()],
            heartbeat: Span::from_millis(250),
            subscribed: Subscribed::default(),
            follow_file: true,
            waiting_max: plan.waiting_max,
            snapshots: Some(Policy {
                every: Span::from_micros(plan.snapshot_every_us),
                entries_max: plan.snapshot_entries,
            }),
        }
    }
}

impl World {
    pub(super) fn owner_reads_file(&mut self, owner: usize) {
        let file = LimitsFile {
            name: "limits.toml".to_owned(),
            text: Ok(self.owners[owner].file.clone()),
        };
        self.step(owner, CoreEvent::LimitsFile(file));
    }

    /// Hands the core an event, and performs the effects that it requests.
    pub(super) fn step(&mut self, owner: usize, event: CoreEvent) {
        let now_us = self.now_us;
        let host = &mut self.owners[owner];
        let now = host.now(now_us);
        let Some(core) = &mut host.core else {
            return;
        };
        let mut effects = Vec::new();
        let turn = matches!(event, CoreEvent::Turn);
        core.step(now, event, &mut effects);
        self.perform(owner, effects);
        if !turn {
            let us = self.owners[owner].random.below(TURN_MAX_US);
            self.turn_by(owner, now_us + us);
        }
    }

    pub(super) fn turn_by(&mut self, owner: usize, at_us: u64) {
        let host = &mut self.owners[owner];
        if at_us < host.turn_at_us && host.is_up() {
            host.turn_at_us = at_us;
            self.at_owner(owner, at_us, move |world| world.owner_turn(owner));
        }
    }

    fn owner_turn(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        if self.now_us < host.turn_at_us {
            return;
        }
        host.turn_at_us = u64::MAX;
        self.step(owner, CoreEvent::Turn);
        let now_us = self.now_us;
        let host = &self.owners[owner];
        if let Some(core) = &host.core {
            let due = core.next_turn().saturating_sub(host.now(now_us).clock);
            // Adds the error by which the clock may be slow, so that the turn is not early.
            let us = due.as_micros() + due.as_micros() / 5_000 + 1;
            self.turn_by(owner, now_us + us);
        }
    }

    pub(super) fn owner_log(&mut self, owner: usize, events: Vec<LogEvent>) {
        self.owners[owner].log_events -= 1;
        for event in events {
            if let LogEvent::CaughtUp {
                stream: Stream::Hits,
                next,
                ..
            } = &event
            {
                // There was more than the log's beginning to catch up with.
                self.see_if("catch-up finished", 1 < *next);
            }
            if let LogEvent::Broken { why, .. } = &event {
                let what = format!("owner {owner}: {why}");
                return self.violated(5, "the log can be read", what);
            }
            self.step(owner, CoreEvent::Log(event));
            if !self.owners[owner].is_up() {
                return;
            }
        }
    }

    pub(super) fn owner_receives(&mut self, owner: usize, connection: u64, message: &Bytes) {
        let host = &mut self.owners[owner];
        let wall = host.now(self.now_us).wall;
        let Some(from) = host.connections.get_mut(&connection) else {
            return;
        };
        let agent = from.agent;
        let admitted = from.link.admit(message, wall);
        let peer = Peer(Bytes::copy_from_slice(&connection.to_be_bytes()));
        match admitted {
            Admitted::Request(request) => self.step(owner, CoreEvent::Agent { peer, request }),
            // Here a hello may be lost although later messages arrive; the agent is asked to send it again.
            Admitted::Refused {
                answer,
                fault: BatchFault::NoHello,
            } => {
                let mut writer = Writer::new();
                answer.encode(&mut writer);
                self.answer(owner, &peer, writer.as_slice().to_vec());
            }
            other => {
                let what = format!("agent {agent} sent what is not admitted: {other:?}");
                self.violated(5, "agents send what is admitted", what);
            }
        }
    }

    pub(super) fn subscribes(&mut self, owner: usize, connection: u64, topic: Topic) {
        if let Some(one) = self.owners[owner].connections.get_mut(&connection)
            && let Some(topics) = &mut one.topics
        {
            topics.insert(topic);
        }
    }

    pub(super) fn snapshot_written(&mut self, owner: usize, partition: u32) {
        let host = &mut self.owners[owner];
        let mut saved = self.no_snapshots == 0;
        if let Some(written) = host.writing.remove(&partition) {
            if self.plan.fleet {
                saved = self.write_snapshot(owner, partition, written, !saved);
            } else if saved {
                let (upto, chunks) = written;
                let handed_out = |sink: &mut dyn FnMut(Vec<u8>)| chunks.into_iter().for_each(sink);
                let snapshots = &mut self.snapshots[owner];
                saved = snapshots.save(partition, upto, handed_out).is_ok();
                if self.log.has_crashed() {
                    self.see("crash in writing a snapshot");
                    return self.owner_dies(owner);
                }
            }
        }
        self.see(match saved {
            true => "snapshot saved",
            false => "snapshot could not be saved",
        });
        self.step(owner, CoreEvent::SnapshotSaved { partition, saved });
    }
}
