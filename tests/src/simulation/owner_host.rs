//! An owner in the world: its process, its clocks, its connections, its snapshots.
//!
//! The process is the shipped core (`tollgate::core`), fed one event after the other as the real loop
//! does: events, then a turn at most half a millisecond later. It may die between any two effects. What
//! it publishes is held against the second engine before anybody hears it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use tollgate::core::event::{Effect, Event as CoreEvent, LimitsFile, Now, Peer};
use tollgate::core::snapshots::{Chunks, Policy};
use tollgate::core::view::{DigestsView, Gauges, Query, Readiness, Reply};
use tollgate::core::{Core, Settings, Start};
use tollgate::link::{Admitted, admit};
use tollgate::log::journal::core::Command;
use tollgate::log::{LogEvent, Stream, Ticket};
use tollgate_agent::simulation::Happening;
use tollgate_shared::mac::MacKey;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::{Frame, Topic};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::statement::Says;

use super::clock::Clock;
pub use super::log_host::LogHost;
use super::plan::{Edge, Plan, Way};
use super::random::Random;
use super::shared_log::{Append, Session};
use super::trace::hash_of;
use super::world::{Event, World};

/// How long events are handled before a turn ends.
const TURN_MAX_US: u64 = 500;

/// How long a group waits for an owner that is gone.
const SESSION_US: u64 = 1_500_000;

/// A connection of an owner.
#[derive(Debug)]
struct Connection {
    agent: usize,
    /// Of a feed: what is subscribed to.
    topics: Option<BTreeSet<Topic>>,
}

/// How a process is to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doom {
    pub after_effects: Option<u64>,
    pub power: bool,
}

/// The host of an owner.
pub struct OwnerHost {
    index: usize,
    partitions: u32,
    policy: Policy,
    /// Which life this is, from 1.
    pub life: u64,
    /// The process; none: dead.
    pub core: Option<Core>,
    /// Its clocks.
    pub clock: Clock,
    started_mono_us: u64,
    connections: BTreeMap<u64, Connection>,
    turn_at_us: u64,
    /// Until then it stands still.
    pub stalled_until_us: u64,
    /// What came meanwhile.
    pub(super) waiting: VecDeque<Event>,
    /// The limits file.
    pub file: String,
    pub(super) doom: Option<Doom>,
    /// Whether it waits for the end of a fault to start again.
    pub(super) down: bool,
    snapshots: BTreeMap<u32, Vec<Chunks>>,
    writing: BTreeMap<u32, (u64, Chunks)>,
    /// At the shared log.
    pub(super) session: Session,
    /// What was appended under a ticket.
    pub(super) tickets: BTreeMap<Ticket, (Stream, u32, Bytes)>,
    /// For the journal.
    pub(super) commands: Vec<Command>,
    pub(super) log_due: bool,
    pub(super) appends_due: bool,
    /// Events of the log that it has not taken yet.
    pub(super) log_events: usize,
    pub(super) log_last_us: u64,
    replies: Vec<Reply>,
    random: Random,
}

impl OwnerHost {
    /// The host of a plan's owner, with nothing running.
    pub fn new(plan: &Plan, index: usize) -> Self {
        Self {
            index,
            partitions: plan.partitions,
            policy: Policy {
                every: Span::from_micros(plan.snapshot_every_us),
                entries_max: plan.snapshot_entries,
            },
            life: 0,
            core: None,
            clock: Clock::new(plan.owner_drift_ppm[index], 0),
            started_mono_us: 0,
            connections: BTreeMap::new(),
            turn_at_us: u64::MAX,
            stalled_until_us: 0,
            waiting: VecDeque::new(),
            file: plan.documents[0].text(),
            doom: None,
            down: false,
            snapshots: BTreeMap::new(),
            writing: BTreeMap::new(),
            session: Session::default(),
            tickets: BTreeMap::new(),
            commands: Vec::new(),
            log_due: false,
            appends_due: false,
            log_events: 0,
            log_last_us: 0,
            replies: Vec::new(),
            random: Random::of(plan.seed, "owner", index as u64),
        }
    }

    /// Whether its process runs.
    pub fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// An agent's link is there.
    pub fn link_made(&mut self, connection: u64, agent: usize) {
        let topics = None;
        self.connections
            .insert(connection, Connection { agent, topics });
    }

    /// An agent's feed is there, without subscriptions.
    pub fn feed_made(&mut self, connection: u64, agent: usize) {
        let topics = Some(BTreeSet::new());
        self.connections
            .insert(connection, Connection { agent, topics });
    }

    /// A connection is gone.
    pub fn connection_ended(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    /// An agent's process is gone, and its connections with it.
    pub fn forget_agent(&mut self, agent: usize) {
        self.connections.retain(|_, one| one.agent != agent);
    }

    /// Its time.
    pub fn now(&self, now_us: u64) -> Now {
        Now {
            clock: Span::from_micros(self.clock.mono_us(now_us) - self.started_mono_us),
            wall: self.clock.wall(now_us),
        }
    }

    fn settings(&mut self, start: Start) -> Settings {
        let mut seed = [0; 32];
        for chunk in seed.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.draw().to_le_bytes());
        }
        Settings {
            owner: format!("owner-{}", self.index),
            seed,
            key: MacKey::UNPROTECTED,
            partitions: self.partitions,
            start,
            feeds: vec![format!("tcp://owner-{}:1", self.index).into()],
            heartbeat: Span::from_millis(250),
            follow_file: true,
            snapshots: Some(self.policy),
        }
    }
}

impl World {
    pub(super) fn owner_starts(&mut self, owner: usize) {
        if self.owners[owner].is_up() {
            return;
        }
        let Some(mut start) = self.open_log(owner) else {
            return;
        };
        let now_us = self.now_us;
        let host = &mut self.owners[owner];
        host.life += 1;
        start.snapshots = host.snapshots.clone();
        if !start.snapshots.is_empty() {
            self.watch.cover.see("owner took over from a snapshot");
        }
        host.started_mono_us = host.clock.mono_us(now_us);
        (host.turn_at_us, host.down) = (u64::MAX, false);
        (host.log_due, host.appends_due, host.log_events) = (false, false, 0);
        let settings = host.settings(start);
        let (core, effects) = match self.plan.fleet {
            true => Core::shared(settings),
            false => Core::new(settings),
        };
        host.core = Some(core);
        let life = host.life;
        self.trace.event(now_us, &[20, owner as u64, life], || {
            format!("owner {owner}.{life} starts")
        });
        self.perform(owner, effects);
        self.owner_reads_file(owner);
        if matches!(self.log, LogHost::Journal { .. }) {
            self.after(1_000_000, Event::JournalTurn { owner, life });
        }
        if self.plan.fleet {
            self.owner_joins(owner);
        }
    }

    pub(super) fn owner_reads_file(&mut self, owner: usize) {
        let file = LimitsFile {
            name: "limits.toml".to_owned(),
            text: Ok(self.owners[owner].file.clone()),
        };
        self.step(owner, CoreEvent::LimitsFile(file));
    }

    pub(super) fn owner_is_to_crash(
        &mut self,
        owner: usize,
        after: u64,
        in_disk: bool,
        power: bool,
    ) {
        let after_effects = (!in_disk).then_some(after);
        self.owners[owner].doom = Some(Doom {
            after_effects,
            power,
        });
        if in_disk {
            self.log.crash_in(after / 4);
        }
    }

    /// The fault is over: a crash that did not come does not come, and a dead process is started.
    pub(super) fn owner_may_return(&mut self, owner: usize) {
        self.owners[owner].doom = None;
        self.log.forget_crash();
        self.owner_starts(owner);
    }

    /// The process ends here and now.
    pub(super) fn owner_dies(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let power = host.doom.take().is_some_and(|doom| doom.power);
        host.core = None;
        host.down = true;
        host.session = Session::default();
        host.tickets.clear();
        host.commands.clear();
        host.writing.clear();
        let life = host.life;
        let connections = std::mem::take(&mut host.connections);
        self.trace
            .event(self.now_us, &[21, owner as u64, life], || {
                let how = if power { ", its machine with it" } else { "" };
                format!("owner {owner}.{life} dies{how}")
            });
        self.log.process_ends(power);
        self.after(SESSION_US, Event::OwnerMissed { owner, life });
        if power {
            // Nobody tells the others.
            return;
        }
        for (connection, one) in connections {
            self.reset_connection(owner, one.agent, connection, one.topics.is_some());
        }
    }

    fn reset_connection(&mut self, owner: usize, agent: usize, connection: u64, feed: bool) {
        let life = self.agents[agent].life;
        let happening = match feed {
            true => Happening::FeedDown { peer: owner },
            false => Happening::LinkDown { peer: owner },
        };
        let us = self.random.spread(50, 5_000);
        self.after(
            us,
            Event::AgentHears {
                agent,
                life,
                connection,
                happening,
            },
        );
    }

    /// Hands the core an event, and does what it asks for.
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

    fn turn_by(&mut self, owner: usize, at_us: u64) {
        let host = &mut self.owners[owner];
        if at_us < host.turn_at_us && host.is_up() {
            host.turn_at_us = at_us;
            let life = host.life;
            self.at(at_us, Event::OwnerTurn { owner, life });
        }
    }

    pub(super) fn owner_turn(&mut self, owner: usize, life: u64) {
        let host = &mut self.owners[owner];
        if host.life != life || !host.is_up() || self.now_us < host.turn_at_us {
            return;
        }
        host.turn_at_us = u64::MAX;
        self.step(owner, CoreEvent::Turn);
        let now_us = self.now_us;
        let host = &self.owners[owner];
        if let Some(core) = &host.core {
            let due = core.next_turn().saturating_sub(host.now(now_us).clock);
            // What the clock may be slow by, so that it is not too early.
            let us = due.as_micros() + due.as_micros() / 5_000 + 1;
            self.turn_by(owner, now_us + us);
        }
    }

    pub(super) fn owner_log(&mut self, owner: usize, life: u64, events: Vec<LogEvent>) {
        if self.owners[owner].life != life || !self.owners[owner].is_up() {
            return;
        }
        self.owners[owner].log_events -= 1;
        for event in events {
            if let LogEvent::CaughtUp {
                stream: Stream::Hits,
                ..
            } = &event
            {
                self.watch.cover.see("catch-up finished");
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

    pub(super) fn owner_hears(
        &mut self,
        owner: usize,
        life: u64,
        connection: u64,
        message: &Bytes,
    ) {
        let host = &self.owners[owner];
        let Some(agent) = host.connections.get(&connection).map(|one| one.agent) else {
            return;
        };
        if host.life != life || !host.is_up() {
            return;
        }
        let peer = Peer(Bytes::copy_from_slice(&connection.to_be_bytes()));
        match admit(message, self.plan.partitions) {
            Admitted::Request(request) => self.step(owner, CoreEvent::Agent { peer, request }),
            other => {
                let what = format!("agent {agent} sent what is not admitted: {other:?}");
                self.violated(5, "agents send what is admitted", what);
            }
        }
    }

    pub(super) fn subscribes(&mut self, owner: usize, life: u64, connection: u64, topic: Topic) {
        let host = &mut self.owners[owner];
        if host.life == life
            && let Some(one) = host.connections.get_mut(&connection)
            && let Some(topics) = &mut one.topics
        {
            topics.insert(topic);
        }
    }

    pub(super) fn snapshot_written(&mut self, owner: usize, life: u64, partition: u32) {
        let host = &mut self.owners[owner];
        if host.life != life || !host.is_up() {
            return;
        }
        let saved = self.no_snapshots == 0;
        if let Some((upto, chunks)) = host.writing.remove(&partition)
            && saved
        {
            if self.plan.fleet {
                self.state.keep(partition, upto, chunks);
            } else {
                let kept = host.snapshots.entry(partition).or_default();
                kept.insert(0, chunks);
                kept.truncate(2);
            }
        }
        self.watch.cover.see(match saved {
            true => "snapshot saved",
            false => "snapshot could not be saved",
        });
        self.step(owner, CoreEvent::SnapshotSaved { partition, saved });
    }

    /// Does what a core asks for, one after the other; it may end in between.
    fn perform(&mut self, owner: usize, effects: Vec<Effect>) {
        for effect in effects {
            if let Some(Doom {
                after_effects: Some(left),
                ..
            }) = &mut self.owners[owner].doom
            {
                if *left == 0 {
                    self.watch.cover.see("crash between effects");
                    return self.owner_dies(owner);
                }
                *left -= 1;
            }
            self.perform_one(owner, effect);
        }
    }

    fn perform_one(&mut self, owner: usize, effect: Effect) {
        match effect {
            Effect::Append {
                stream,
                partition,
                ticket,
                record,
            } => {
                self.trace.event(
                    self.now_us,
                    &[22, owner as u64, u64::from(partition), hash_of(&record)],
                    || {
                        format!(
                            "owner {owner} appends to {stream:?} {partition}: {}",
                            kind_of(&record)
                        )
                    },
                );
                self.append(
                    owner,
                    Append {
                        stream,
                        partition,
                        ticket,
                        record,
                    },
                );
            }
            Effect::Follow {
                stream,
                partition,
                from,
            } => self.follow(owner, stream, partition, from),
            Effect::Unfollow { stream, partition } => {
                self.owners[owner].session.unfollow(stream, partition);
            }
            Effect::Restore {
                partition,
                attempt,
                known,
            } => {
                let life = self.owners[owner].life;
                let us = self.random.spread(500, 600_000);
                self.after(
                    us,
                    Event::Restored {
                        owner,
                        life,
                        partition,
                        attempt,
                        known,
                    },
                );
            }
            Effect::Publish { topic, frame } => self.publish(owner, topic, frame),
            Effect::Answer { peer, message } => self.answer(owner, &peer, message),
            Effect::Reply { reply, .. } => self.owners[owner].replies.push(*reply),
            Effect::SaveSnapshot {
                partition,
                upto,
                moment,
            } => {
                let mut chunks = Vec::new();
                moment.0.write(|chunk| chunks.push(chunk));
                let host = &mut self.owners[owner];
                host.writing.insert(partition, (upto, chunks));
                let (life, us) = (host.life, host.random.spread(500, 400_000));
                self.after(
                    us,
                    Event::SnapshotWritten {
                        owner,
                        life,
                        partition,
                    },
                );
            }
            // It stays, as where a file cannot be removed: newer ones push it out.
            Effect::DropSnapshot { .. } => {}
            Effect::Aside(aside) => {
                let what = format!(
                    "owner {owner} refuses {:?} {}, offset {}: {}",
                    aside.stream, aside.partition, aside.offset, aside.why
                );
                self.violated(5, "what is in the log is ruled", what);
            }
            Effect::GiveUp { why, .. } => {
                self.violated(7, "an owner goes on", format!("owner {owner}: {why}"));
            }
        }
    }

    fn answer(&mut self, owner: usize, peer: &Peer, message: Vec<u8>) {
        let Ok(connection) = peer.0.as_ref().try_into().map(u64::from_be_bytes) else {
            return;
        };
        let Some(agent) = self.owners[owner]
            .connections
            .get(&connection)
            .map(|c| c.agent)
        else {
            return;
        };
        if let Ok(FromAggregator::Snapshot(snapshot)) = FromAggregator::decode(&message) {
            for topic in &snapshot.topics {
                self.check_told(owner, &topic.resource, &topic.told);
            }
        }
        let edge = Edge {
            agent,
            owner,
            way: Way::Down,
        };
        let happening = Happening::LinkSaid {
            peer: owner,
            message: message.into(),
        };
        self.send_to_agent(edge, connection, happening);
    }

    fn publish(&mut self, owner: usize, topic: Topic, bytes: Vec<u8>) {
        match Frame::decode(&bytes) {
            Ok(frame) => self.check_told(owner, &frame.resource, &frame.told),
            Err(error) => {
                return self.violated(4, "frames can be read", format!("owner {owner}: {error}"));
            }
        }
        let frame = Bytes::from(bytes);
        let subscribers: Vec<(u64, usize)> = self.owners[owner]
            .connections
            .iter()
            .filter(|(_, one)| one.topics.as_ref().is_some_and(|t| t.contains(&topic)))
            .map(|(connection, one)| (*connection, one.agent))
            .collect();
        for (connection, agent) in subscribers {
            let edge = Edge {
                agent,
                owner,
                way: Way::Feed,
            };
            let happening = Happening::FeedSaid {
                peer: owner,
                topic,
                frame: frame.clone(),
            };
            self.send_to_agent(edge, connection, happening);
        }
    }

    /// What an owner says is what the second engine says at that place, and what it says of the rest is
    /// no more than is left.
    fn check_told(
        &mut self,
        owner: usize,
        resource: &str,
        told: &[tollgate_shared::wire::frame::Told],
    ) {
        for told in told {
            if !self.watch.says(told.partition, resource, &told.statement) {
                let expected = self.watch.said_at(told.partition, told.statement.place);
                let what =
                    format!("owner {owner} says of {resource}: {told:?}, expected {expected:?}");
                return self.violated(4, "what is announced is what a second engine says", what);
            }
            let Says::Denied(denial) = told.statement.says else {
                continue;
            };
            if told.remaining == Span::MAX {
                continue;
            }
            let place = told.statement.place;
            let Some(ruled) = self.watch.of_place(told.partition, place) else {
                continue;
            };
            let end_us = denial.end.as_micros();
            let until_us = ruled.true_time_of(end_us, place.offset, self.now_us);
            if until_us < self.now_us + told.remaining.as_micros() {
                let over = self.now_us + told.remaining.as_micros() - until_us;
                let what = format!("owner {owner} says of {resource} {told:?}: {over} us too long");
                return self.violated(3, "a denial is told no longer than it lasts", what);
            }
        }
    }

    fn ask(&mut self, owner: usize, query: Query) -> Option<Reply> {
        let host = &mut self.owners[owner];
        let now = host.now(self.now_us);
        let core = host.core.as_mut()?;
        let mut effects = Vec::new();
        let id = tollgate::core::event::QueryId(0);
        core.step(now, CoreEvent::Query { id, query }, &mut effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(*reply),
            _ => None,
        })
    }

    pub(super) fn digests(&mut self, owner: usize) -> Option<DigestsView> {
        match self.ask(owner, Query::Digests)? {
            Reply::Digests(view) => Some(view),
            _ => None,
        }
    }

    pub(super) fn readiness(&mut self, owner: usize) -> Option<Readiness> {
        match self.ask(owner, Query::Readiness)? {
            Reply::Readiness(view) => Some(view),
            _ => None,
        }
    }

    pub(super) fn gauges(&mut self, owner: usize) -> Option<Gauges> {
        match self.ask(owner, Query::Counters)? {
            Reply::Counters(counted) => Some(counted.1),
            _ => None,
        }
    }
}

fn kind_of(record: &[u8]) -> String {
    use tollgate_shared::wire::record::{Record, kind};
    match record.get(1) {
        Some(&kind::HITS) => match Record::decode(record) {
            Ok(Record::Hits(batch)) => format!(
                "batch {} of {} with {} entries",
                batch.sender.sequence,
                batch.sender.agent,
                batch.hits_len()
            ),
            _ => "a batch that cannot be read".to_owned(),
        },
        Some(&kind::GENESIS) => "genesis".to_owned(),
        Some(&kind::TICK) => "a tick".to_owned(),
        Some(&kind::TOTALS) => "totals".to_owned(),
        Some(&kind::POINTER) => "a pointer".to_owned(),
        _ => format!("{} bytes", record.len()),
    }
}

/// What people read of a frame.
pub fn describe_frame(bytes: &[u8]) -> String {
    match Frame::decode(bytes) {
        Ok(frame) => {
            let told: Vec<String> = frame
                .told
                .iter()
                .map(|told| {
                    let says = match told.statement.says {
                        Says::Denied(_) => format!("denied for {} us", told.remaining.as_micros()),
                        Says::Open => "open".to_owned(),
                        Says::Near(_) => "near".to_owned(),
                    };
                    format!(
                        "{:?} {says} by {}",
                        told.statement.scope, told.statement.place
                    )
                })
                .collect();
            let topic = match &*frame.resource {
                "" => "control",
                resource => resource,
            };
            let ruled: Vec<u64> = frame.evidence.iter().map(|one| one.ruled).collect();
            format!(
                "{topic} {}: {told:?}, ruled up to {ruled:?}",
                frame.sequence
            )
        }
        Err(error) => error.to_string(),
    }
}
