//! Hands messages to an agent's process, and checks at once what the process makes of them.
//!
//! ```text
//! frame behind a gap             its watermarks do not count
//! denial of acme, 4 s are left   acme is refused, or a newer statement about acme has arrived
//! ```
//!
//! Knows nothing of faults: bounds on clocks follow from messages too, as a round trip bounds how late a frame seems.
//! What stays true: a denial of less than a second is checked, too, because the check does not wait.

use std::collections::BTreeMap;

use tollgate_agent::simulation::SocketEvent;
use tollgate_shared::log_position::{Code, LogPosition};
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Watermark};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::statement::Scope;

use super::copy_limits::COPIES;
use super::documents::RESOURCES;
use super::received::{Arrived, LastHeartbeat, SentBy};
use super::world::World;

/// How long the denials of a resource hold without a newer watermark.
pub(super) fn lease_us(resource: &str) -> u64 {
    match COPIES.contains(&resource) {
        true => 2_000_000,
        false => 60_000_000,
    }
}

/// By how much two clocks may differ, each way, over a time that is counted down on them.
pub(super) const fn drift_us(since_us: u64) -> u64 {
    const PPM: u64 = 400;
    since_us / 1_000_000 * PPM + PPM
}

/// A denial that ends this soon is not required any more: rounding, and the age of clocks that were read.
const EARLY_US: u64 = 60_000;

/// An agent that keeps fewer denials than there are scopes may have had no room.
const ROOM: usize = 100;

/// A heartbeat that is older than this shows nothing: one comes every 250 ms, and after 450 ms where nothing is ruled.
const HEARTBEAT_WITHIN_US: u64 = 600_000;

/// Statements reach an agent in time if its messages take no longer than this.
const IN_TIME_US: u64 = 100_000;

/// A process that publishes: its aggregator, its life, and by how much its clock is behind true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendingProcess {
    owner: usize,
    life: u64,
    behind_us: u64,
}

/// A frame of a resource or of the control topic, or a part of a snapshot.
struct WireMessage {
    by: SentBy,
    instance: u128,
    /// For a part of a snapshot: whether it is the last one.
    is_last: Option<bool>,
    watermarks: Vec<Watermark>,
    /// Resources, with sequences and statements.
    topics: Vec<(Box<str>, u64, Vec<StatementNotice>)>,
}

/// How far statements have been received, by resource and partition.
type PlacesReached = BTreeMap<(&'static str, u32), LogPosition>;

impl World {
    /// Notes the clock of a process that publishes.
    pub(super) fn note_clock(&mut self, owner: usize, instance: u128, clock: Span) {
        let process = SendingProcess {
            owner,
            life: self.owners[owner].life,
            behind_us: self.now_us.wrapping_sub(clock.as_micros()),
        };
        self.publishers.insert(instance, process);
    }

    /// What arrived. `None`: it is no frame of a resource or of the control topic, and no snapshot.
    fn message_of(&self, agent: usize, event: &SocketEvent) -> Option<WireMessage> {
        let own_topic = self.agents[agent].process.as_ref()?.topic();
        let (peer, instance, clock, is_last, watermarks, topics) = match event {
            SocketEvent::FeedFrame { peer, topic, frame } if *topic != own_topic => {
                let frame = Frame::decode(frame).ok()?;
                let topics = match &*frame.resource {
                    "" => Vec::new(),
                    _ => vec![(frame.resource, frame.sequence, frame.statements)],
                };
                let (instance, watermarks) = (frame.instance, frame.watermarks);
                (*peer, instance, frame.sent, None, watermarks, topics)
            }
            SocketEvent::LinkMessage { peer, message } => {
                let Ok(FromAggregator::Snapshot(of)) = FromAggregator::decode(message) else {
                    return None;
                };
                let topics = of.topics.into_iter();
                let topics = topics.map(|one| (one.resource, one.sequence, one.statements));
                let (is_last, topics) = (Some(!of.more), topics.collect());
                (*peer, of.instance, of.clock, is_last, of.watermarks, topics)
            }
            _ => return None,
        };
        let behind_us = self.publishers.get(&instance)?.behind_us;
        let sent_us = behind_us.wrapping_add(clock.as_micros());
        Some(WireMessage {
            by: SentBy { peer, sent_us },
            instance,
            is_last,
            watermarks,
            topics,
        })
    }

    /// How far the agent has received statements that a message may concern, by resource and partition. A snapshot's
    /// last part is about the resources in all parts.
    fn reached(&self, agent: usize, message: &WireMessage) -> PlacesReached {
        let Some(process) = &self.agents[agent].process else {
            return PlacesReached::new();
        };
        let all = RESOURCES.into_iter().chain(COPIES);
        let is_of_it = |name: &&str| {
            let mut topics = message.topics.iter();
            message.is_last.is_some() || topics.any(|(resource, ..)| **resource == **name)
        };
        let of = |name: &'static str| {
            let partitions = message.watermarks.iter().map(|one| one.partition);
            partitions.filter_map(move |at| Some(((name, at), process.received_upto(name, at)?)))
        };
        all.filter(is_of_it).flat_map(of).collect()
    }

    /// The numbers of frames that an agent has refused, and of snapshots that it has taken.
    fn counts(&self, agent: usize) -> (u64, u64) {
        let process = self.agents[agent].process.as_ref();
        let stats = process.map(|process| process.agent().stats());
        stats.map_or((0, 0), |stats| (stats.frames_refused, stats.snapshots))
    }

    /// Hands something that arrived to an agent's process.
    pub(super) fn hand_over(&mut self, agent: usize, event: SocketEvent) {
        let message = self.message_of(agent, &event);
        let before = message.as_ref().map(|message| self.reached(agent, message));
        let (refused, taken) = self.counts(agent);
        self.with_agent(agent, |process| process.handle(event));
        let (Some(message), Some(before)) = (message, before) else {
            return;
        };
        let (refused_now, taken_now) = self.counts(agent);
        self.note_current(agent, &message);
        let is_processed = match message.is_last {
            None if refused < refused_now => return,
            None => true,
            Some(_) => taken < taken_now,
        };
        self.note_watermarks(agent, &message, is_processed);
        self.note_statements(agent, &message, &before, is_processed);
        self.note_reached(agent, &message, &before);
        for (resource, _, notices) in &message.topics {
            for notice in notices {
                self.check_due(agent, resource, &notice.statement.scope);
            }
        }
    }

    /// Notes the watermarks that are marked as current. Those of a snapshot take effect with its last part.
    fn note_current(&mut self, agent: usize, message: &WireMessage) {
        let (now_us, current_us) = (self.now_us, &mut self.agents[agent].received.current_us);
        for one in message.watermarks.iter().filter(|one| one.current) {
            current_us.insert(one.partition, now_us);
        }
        if message.is_last.is_some() {
            current_us.values_mut().for_each(|at_us| *at_us = now_us);
        }
    }

    fn note_watermarks(&mut self, agent: usize, message: &WireMessage, is_processed: bool) {
        let host = &mut self.agents[agent];
        let Some(process) = &host.process else {
            return;
        };
        let by = Some(message.by).filter(|_| message.is_last.is_none());
        for one in &message.watermarks {
            let log = process.known_log(one.partition);
            if let Some(log) = log {
                host.received.follows(one.partition, log);
            }
            if log == Some(one.log) {
                host.received.guard(one, by, self.now_us);
            }
        }
        if message.is_last.is_none() && message.topics.is_empty() && is_processed {
            let heartbeat = LastHeartbeat {
                instance: message.instance,
                at_us: self.now_us,
                late_us: self.now_us.saturating_sub(message.by.sent_us),
            };
            host.received.heartbeats.insert(message.by.peer, heartbeat);
        }
    }

    fn note_statements(
        &mut self,
        agent: usize,
        message: &WireMessage,
        before: &PlacesReached,
        is_processed: bool,
    ) {
        let host = &mut self.agents[agent];
        let Some(process) = &host.process else {
            return;
        };
        for (resource, _, notices) in &message.topics {
            for notice in notices {
                let log = process.known_log(notice.partition);
                let of_it = |one: &&Watermark| one.partition == notice.partition;
                let watermark = message.watermarks.iter().find(of_it);
                let is_foreign = watermark.is_some_and(|one| log != Some(one.log));
                let position = notice.statement.position;
                if is_foreign || log.is_some_and(|log| position.generation < log.generation) {
                    continue;
                }
                // What is older than everything received without a gap is no news, unless a snapshot fills a gap.
                let reached = before.get(&(&**resource, notice.partition));
                let is_newer =
                    |position: LogPosition| reached.is_none_or(|reached| *reached <= position);
                let is_news = watermark.is_some_and(|one| {
                    let fills = message.is_last.is_some()
                        && is_newer(LogPosition::of_record(one.log, one.ruled));
                    is_newer(position) || fills
                });
                let processed = (is_processed, is_processed && is_news);
                host.received
                    .state((resource, notice), message.by, log, processed);
            }
            if message.is_last.is_some() && is_processed {
                for one in &message.watermarks {
                    let below = (one.partition, LogPosition::of_record(one.log, one.ruled));
                    host.received.unlist(resource, below, notices);
                }
            }
        }
    }

    /// Notes which positions have advanced. Law 7: none does by a frame behind a gap.
    fn note_reached(&mut self, agent: usize, message: &WireMessage, before: &PlacesReached) {
        let after = self.reached(agent, message);
        let (received, peer) = (&mut self.agents[agent].received, message.by.peer);
        let mut counts = true;
        for (resource, sequence, _) in &message.topics {
            match message.is_last {
                None => counts = received.frame(peer, resource, *sequence),
                Some(_) => received.snapshot(peer, resource, *sequence),
            }
        }
        let mut wrong = None;
        for ((resource, partition), position) in after {
            if before.get(&(resource, partition)) == Some(&position) {
                continue;
            }
            received.reaches((resource, partition), position, (message.by, self.now_us));
            if !counts {
                wrong = Some(format!(
                    "agent {agent} has {resource}, partition {partition} up to {position} by owner {peer}"
                ));
            }
        }
        if let Some(what) = wrong {
            self.violated(7, "a watermark behind a gap does not count", what);
        }
    }

    /// The statement by which an agent has to refuse a scope now, as far as messages show.
    fn due(&self, agent: usize, resource: &str, scope: &Scope) -> Option<Code> {
        let host = &self.agents[agent];
        let (process, received) = (host.process.as_ref()?, &host.received);
        let key = (Box::from(resource), scope.clone());
        let code = *received.newest.get(&key)?;
        let one = received.arrived((resource, scope), code)?;
        let is_due = |one: &Arrived| {
            let early_us = EARLY_US + drift_us(self.now_us.saturating_sub(one.sent_us));
            one.is_due && !one.is_superseded && self.now_us + early_us < one.ends_us.1
        };
        let reached = received.reached.get(&(key.0, code.partition))?;
        let is_leased = process.received_upto(resource, code.partition) == Some(reached.position)
            && self.now_us + EARLY_US < reached.from_us + lease_us(resource);
        let is_of_this_log = process.known_log(code.partition) == one.log;
        (is_due(one) && is_leased && is_of_this_log).then_some(code)
    }

    /// Law 7: an agent refuses what messages say that it must. Members of a group depend on the limits that it knows:
    /// they are checked at the end.
    fn check_due(&mut self, agent: usize, resource: &str, scope: &Scope) {
        let domain: &str = match scope {
            Scope::Pair(domain) => domain,
            Scope::Resource => "nobody",
            Scope::Group(_) => return,
        };
        let has_room = ROOM <= self.agents[agent].plan.denials_max;
        let is_ignored = self.watch.ever_ignored.contains(resource);
        let due = self.due(agent, resource, scope);
        let Some(code) = due.filter(|_| has_room && !is_ignored) else {
            return;
        };
        self.agents[agent].set_clocks(self.now_us);
        self.see(match scope {
            Scope::Pair(_) => "checked: a received denial of a pair",
            _ => "checked: a received denial of a whole resource",
        });
        if self.refusal(agent, resource, domain).is_none() {
            let what = format!(
                "agent {agent} does not refuse {resource} for {domain}: {code} has arrived"
            );
            self.violated(7, "what was received is refused by", what);
        }
    }

    /// The same from time to time, for everything that an agent has received.
    pub(super) fn check_received(&mut self, agent: usize) {
        let host = &self.agents[agent];
        if self.now_us < host.frozen_until_us || !host.waiting.is_empty() {
            return;
        }
        let scopes: Vec<(Box<str>, Scope)> = host.received.newest.keys().cloned().collect();
        for (resource, scope) in scopes {
            self.check_due(agent, &resource, &scope);
        }
    }

    /// Whether statements reach an agent in time: it has room for them, and the newest heartbeat of each aggregator's
    /// present process arrived lately, and soon after it was sent.
    pub(super) fn is_in_time(&self, agent: usize) -> bool {
        let host = &self.agents[agent];
        let arrives = |owner: usize| {
            let heartbeat = host.received.heartbeats.get(&owner)?;
            let of = self.publishers.get(&heartbeat.instance)?;
            let trip_us = *host.received.round_trips.get(&owner)?;
            let is_present = (of.owner, of.life) == (owner, self.owners[owner].life);
            let is_lately = self.now_us <= heartbeat.at_us + HEARTBEAT_WITHIN_US;
            Some(is_present && is_lately && heartbeat.late_us.max(trip_us) <= IN_TIME_US)
        };
        let mut owners = 0..self.owners.len();
        ROOM <= host.plan.denials_max && owners.all(|owner| arrives(owner) == Some(true))
    }
}
