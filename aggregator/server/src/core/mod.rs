//! The core of an aggregator: everything that it decides, as state machines without I/O.
//!
//! ```text
//! log, agents, HTTP, limits file, time ── Event ──> Core ── Effect ──> log, feed, link, HTTP
//!
//! Core    which part an event is for       partition   one machine each: rules, follows, restores, appends
//!                                          limits_state versions, the limits file, activations
//!                                          broadcast   the feed        snapshot_responder   snapshots for agents that ask
//!                                          queries     views for operators   amendments   acts of operators
//!                                          identities  of the logs
//! ```
//!
//! One loop owns it, hands it events one after the other, and carries out its effects; a simulation
//! does the same with a log, a clock and a network of its own. It knows no socket, no file and no clock.
//!
//! What stays true: rulings are a function of the log alone; nothing takes effect before its record is in the
//! log; every queue has a bound and a counter.

pub mod amendments;
pub mod announce;
pub mod assignment;
pub mod bans;
pub mod candidates;
pub mod counters;
pub mod event;
pub mod limits_push;
pub mod live;
pub mod recordings;
pub mod resources;
pub mod ruler;
pub mod snapshots;
pub mod state_digests;
pub mod together;
pub mod topics;
pub mod totals;
pub mod usage;
pub mod verdicts;
pub mod view;

mod agents;
mod broadcast;
mod clocks;
mod environment;
mod following;
mod forged;
pub mod hold_order;
pub mod holds;
mod identities;
mod limits_state;
mod limits_warnings;
mod log_events;
mod log_lines;
mod notices;
mod partition;
mod queries;
mod ready;
mod record_keys;
mod rule;
mod settings;
mod snapshot_responder;
mod tally;
mod turn;
mod withheld;

use std::num::NonZeroUsize;

use tollgate_log::{RETRY_AFTER, Stream};
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::{Span, Timestamp};

use environment::Environment;
use event::{AgentRoom, Effect, Event, Now, Peer, QueryId};
use partition::Partition;
use partition::event::{
    PartitionContext, PartitionEffect, PartitionEvent, PartitionOutput, TotalsTarget,
};
use queries::Views;
use ready::ReadyPartitions;
pub use settings::{Settings, Start};
use totals::TotalsKey;
use view::Query;

/// The core.
pub struct Core {
    env: Environment,
    partitions: Vec<Partition>,
    limits: limits_state::LimitsState,
    feed: broadcast::Broadcast,
    givings: snapshot_responder::SnapshotResponder,
    proposals: amendments::Proposals,
    agent_appends: agents::AgentAppends,
    identities: identities::Identities,
    withheld: withheld::Withheld,
    clocks: clocks::Clocks,
    at_cap: log_lines::CapWarnings,
    forged: LineInterval,
    lost: LineInterval,
    membership: assignment::Membership,
    log_down: Option<String>,
    /// When the log took records again for the last time; `None`: it always did.
    log_up_since: Option<Span>,
    /// Whether partitions are followed: they are once the limits have been read.
    following_hits: bool,
    /// Whether the limits that were found or given at the start rule every partition.
    started: bool,
    /// No total is sent before this time, after the log refused one.
    totals_not_before: Span,
    /// The number of threads on which partitions rule.
    threads: NonZeroUsize,
}

impl Core {
    /// A core that has seen nothing; the effects begin to follow the log.
    pub fn new(mut settings: Settings) -> (Self, Vec<Effect>) {
        let count = settings.partitions;
        let mut partitions: Vec<_> = (0..count).map(|n| Partition::new(n, count)).collect();
        for (index, found) in std::mem::take(&mut settings.start.snapshots) {
            if let Some(partition) = partitions.get_mut(index as usize) {
                partition.recovery.found = found.into();
            }
        }
        let env = Environment::new(settings);
        let mut core = Self {
            partitions,
            limits: limits_state::LimitsState::default(),
            feed: broadcast::Broadcast::new(env.instance),
            givings: snapshot_responder::SnapshotResponder::default(),
            proposals: amendments::Proposals::default(),
            agent_appends: agents::AgentAppends::default(),
            identities: identities::Identities::default(),
            withheld: withheld::Withheld::default(),
            clocks: clocks::Clocks::default(),
            at_cap: log_lines::CapWarnings::new(),
            forged: LineInterval::new(Span::from_secs(1)),
            lost: LineInterval::new(Span::from_secs(60)),
            membership: assignment::Membership::default(),
            log_down: None,
            log_up_since: None,
            following_hits: false,
            started: false,
            totals_not_before: Span::ZERO,
            threads: NonZeroUsize::MIN,
            env,
        };
        // Identities first: nothing may be appended before them.
        for at in &core.env.settings.start.unbegun {
            core.identities.want(*at);
        }
        core.state_identities(Span::ZERO);
        core.env.follow(Stream::Limits, 0, 0);
        let effects = std::mem::take(&mut core.env.effects);
        (core, effects)
    }

    /// A core of a fleet: it rules the partitions that it is [assigned](Event::Assigned), and none before that.
    pub fn shared(settings: Settings) -> (Self, Vec<Effect>) {
        let (mut core, effects) = Self::new(settings);
        core.membership.shared = true;
        for partition in &mut core.partitions {
            partition.stage = partition::Stage::Elsewhere;
        }
        (core, effects)
    }

    /// Handles one event, and adds the effects that follow to `effects`, in order.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Log(event) => self.handle_log(now, event),
            Event::Agent { peer, request } => self.agent_asks(now, peer, request),
            Event::Room(peer, room) => self.room(peer, room),
            Event::Query { id, query } => self.asked(now, id, &query),
            Event::LimitsFile(file) => self.limits.file_read(now, file, &mut self.env),
            Event::SnapshotSaved { partition, saved } => {
                self.handle_partition(now, partition, PartitionEvent::SnapshotSaved { saved });
            }
            Event::Members(members) => self.membership.set_members(members),
            Event::RuledToo(partitions) => self.membership.ruled_too = partitions,
            Event::Assigned(partitions) => self.assigned(now, &partitions),
            Event::Revoked(partitions) => self.revoked(now, &partitions),
            Event::Restored {
                partition,
                attempt,
                restored,
            } => {
                let event = PartitionEvent::Restored { attempt, restored };
                self.handle_partition(now, partition, event);
            }
            Event::Turn => self.turn(now),
        }
        self.hand_out(now, effects);
    }

    /// Hands out the requested effects, except appends that have to wait for an identity.
    fn hand_out(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let sorted = self.withheld.sort(&mut self.env.effects, &self.identities);
        for (partition, tick) in sorted {
            self.handle_partition(now, partition, PartitionEvent::NotSent(tick));
        }
        effects.append(&mut self.env.effects);
    }

    /// When the next [`Event::Turn`] is due although no other event arrives.
    pub fn next_turn(&self) -> Span {
        let max = self.env.settings.waiting_max;
        if !self.givings.is_empty() || self.partitions.iter().any(|p| p.has_slice(max)) {
            return Span::ZERO;
        }
        // Everything that is retried waits for a heartbeat, which is due at least every second.
        let ticks = self.partitions.iter().filter_map(Partition::next_tick);
        ticks.fold(self.feed.next_turn(), Span::min)
    }

    /// This process's instance, as frames carry it.
    pub fn instance(&self) -> u128 {
        self.env.instance
    }

    /// Notes whether an agent's connection takes answers. Nothing is sent at once.
    pub fn room(&mut self, peer: Peer, room: AgentRoom) {
        self.givings.room(peer, room);
    }

    /// What waits for the log, by partition.
    pub fn waiting(&self) -> impl Iterator<Item = recordings::Waiting> {
        self.partitions.iter().map(Partition::waiting)
    }

    /// Hands an event to its partition, and carries out what follows.
    fn handle_partition(&mut self, now: Now, index: u32, event: PartitionEvent<'_>) {
        let (context, partitions, out) = self.at_hand();
        let Some(partition) = partitions.get_mut(index as usize) else {
            return;
        };
        partition.step(now, event, &context, out);
        if self.env.out.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.env.out.effects);
        for effect in effects.drain(..) {
            self.carry_out(now, index, effect);
        }
        // The vector's memory is reused.
        self.env.out.effects = effects;
    }

    /// The partitions, what they may read, and where they put their effects.
    fn at_hand(&mut self) -> (PartitionContext<'_>, &mut [Partition], &mut PartitionOutput) {
        let context = PartitionContext {
            settings: &self.env.settings,
            instance: self.env.instance,
            shared: self.membership.shared,
            limits: &self.limits,
        };
        (context, &mut self.partitions, &mut self.env.out)
    }

    /// Hands an event to every partition, in order.
    fn handle_all<'e>(
        &mut self,
        now: Now,
        event: impl Fn(&Partition) -> Option<PartitionEvent<'e>>,
    ) {
        for index in 0..self.partitions.len() {
            if let Some(event) = self.partitions.get(index).and_then(&event) {
                self.handle_partition(now, index as u32, event);
            }
        }
    }

    /// Carries out an effect of a partition.
    fn carry_out(&mut self, now: Now, index: u32, effect: PartitionEffect) {
        let env = &mut self.env;
        match effect {
            PartitionEffect::Ask(effect) => env.effects.push(effect),
            PartitionEffect::WantIdentity => {
                self.identities.want((Stream::Hits, index));
                self.state_identities(now.clock);
            }
            PartitionEffect::ForgetIdentity => self.identities.forget((Stream::Hits, index)),
            PartitionEffect::Begin(live) => self.feed.begin(index, live, &self.partitions),
            PartitionEffect::Announce(resource, statement) => {
                self.feed.announcer.announce(index, &resource, statement);
            }
            PartitionEffect::Forget => self.forget(now, index),
            PartitionEffect::Verdict(due) => self.feed.verdicts.queue(index, due),
            PartitionEffect::Corrected(correction) => self.clocks.note(now.clock, &correction),
            PartitionEffect::TotalRead { key, offset } => {
                if forged::is_forged(&self.partitions, &key, offset) {
                    self.count_forged(now, index, &key, offset);
                }
            }
            PartitionEffect::TotalForged { key, offset } => {
                self.count_forged(now, index, &key, offset);
            }
            PartitionEffect::TotalApplied { key, offset } => {
                let resource = &*key.resource;
                let event = PartitionEvent::TotalApplied { resource, offset };
                self.handle_partition(now, key.source, event);
            }
            PartitionEffect::TotalRefused => {
                self.totals_not_before = now.clock.saturating_add(RETRY_AFTER);
            }
            PartitionEffect::UnderLatest => {
                if !self.membership.shared {
                    self.limits.forget_unused(&self.partitions);
                }
            }
        }
    }

    /// Forgets the statements of a partition, and what it applied.
    fn forget(&mut self, now: Now, index: u32) {
        self.feed.announcer.forget(index);
        self.handle_all(now, |_| Some(PartitionEvent::TargetForgotten(index)));
    }

    fn state_identities(&mut self, clock: Span) {
        let shared = self.membership.shared;
        let env = &mut self.env;
        self.identities
            .state_due(clock, shared, &self.partitions, &self.limits.book, env);
    }

    fn assigned(&mut self, now: Now, partitions: &[u32]) {
        self.membership.joined = true;
        let (expected, limits_known) = (self.env.settings.partitions, self.following_hits);
        for &partition in partitions {
            if partition < expected {
                self.handle_partition(now, partition, PartitionEvent::Assigned { limits_known });
                continue;
            }
            tracing::error!(
                partition,
                expected,
                "the topic of hits has more partitions than it was created with; no aggregator rules this one"
            );
            self.membership.surplus.insert(partition);
        }
    }

    fn revoked(&mut self, now: Now, partitions: &[u32]) {
        // Statements of this turn are published before they are forgotten: that costs nothing and is sooner.
        let ready = self.ready(now.clock);
        self.feed.publish_pending(now, &ready, &mut self.env);
        for partition in partitions {
            self.membership.surplus.remove(partition);
            self.handle_partition(now, *partition, PartitionEvent::Revoked);
        }
        self.membership.joined = self.partitions.iter().any(Partition::is_ours);
    }

    fn asked(&mut self, now: Now, id: QueryId, query: &Query) {
        if let Some(reply) = self.views(now.wall).answer(now, query) {
            return self.env.reply(id, reply);
        }
        if let Query::Amend(proposal) = query {
            let looked = self.views(now.wall).looked_at(proposal);
            let (in_force, env) = (self.limits.book.latest_number(), &mut self.env);
            let proposals = &mut self.proposals;
            if proposals.propose(id, proposal, looked, in_force, env) {
                proposals.turn(now, &self.partitions, env);
            }
        }
    }

    fn views(&self, wall: Timestamp) -> Views<'_> {
        Views {
            settings: &self.env.settings,
            partitions: &self.partitions,
            limits: &self.limits,
            proposals: &self.proposals,
            feed: &self.feed,
            membership: &self.membership,
            clocks: &self.clocks,
            tally: &self.env.out.tally,
            wall,
            log_down: self.log_down.as_deref(),
            log_up_since: self.log_up_since,
            started: self.started,
        }
    }

    fn ready(&self, clock: Span) -> ReadyPartitions {
        ready::ready_at(&self.partitions, clock)
    }

    /// The end of a turn: statements are published, and ticks bring time into the log.
    fn turn(&mut self, now: Now) {
        self.identities.want_lost(now.clock, &self.partitions);
        self.state_identities(now.clock);
        // Of the events of a turn, partitions get those that have anything to do in them: mostly none.
        self.handle_all(now, |one| {
            one.looks_again().then_some(PartitionEvent::LookAgain)
        });
        self.rule_slices(now);
        self.agent_appends
            .turn(now, &self.partitions, &mut self.env);
        let ready = self.ready(now.clock);
        let (env, partitions) = (&mut self.env, &mut self.partitions);
        self.feed.turn(now, partitions, &ready, &self.limits, env);
        let feed = (&self.feed.announcer, &ready);
        self.givings.give_part(now, feed, &self.limits, env);
        self.send_totals(now);
        self.proposals.turn(now, &self.partitions, &mut self.env);
        self.handle_all(now, |one| one.may_retry().then_some(PartitionEvent::Retry));
        self.limits.turn(now, &mut self.env);
        self.log_at_cap(now);
        self.take_snapshots(now);
        let latest = self.limits.to_point_at(&self.env.settings.keys);
        let latest = latest.map(|version| version.number);
        let may_tick = |one: &Partition| one.may_tick_or_point(now.clock, latest);
        self.handle_all(now, |one| may_tick(one).then_some(PartitionEvent::Tick));
        // Later versions come into force while it rules; only the first one is waited for.
        self.started = self.started || self.limits.why_not_in_force(&self.partitions).is_none();
    }

    /// Counts a forged total, and logs it, at most once a second.
    fn count_forged(&mut self, now: Now, partition: u32, key: &TotalsKey, offset: u64) {
        self.env.out.tally.counters.totals_forged += 1;
        if let Some(unsaid) = self.forged.may(now.clock) {
            forged::log_forged(partition, key, offset, unsaid);
        }
    }

    /// Logs that new pairs are not limited.
    fn log_at_cap(&mut self, now: Now) {
        let hits = self.env.out.tally.counters.pairs_at_cap;
        if let Some(more) = self.at_cap.more(now.clock, hits) {
            tracing::warn!(
                hits = more,
                tollgate_hits_at_cap_total = hits,
                "hits of new domains were not limited: a partition has engine.pairs_per_partition_max pairs that all \
                 remember something"
            );
        }
    }

    fn take_snapshots(&mut self, now: Now) {
        if let Some(policy) = self.env.settings.snapshots {
            let may_take = |one: &Partition| one.may_take_snapshot(now.clock, policy);
            self.handle_all(now, |one| may_take(one).then_some(PartitionEvent::Snapshot));
        }
    }

    /// Rules the next slice in each partition whose denials new limits rule again.
    fn rule_slices(&mut self, now: Now) {
        let max = self.env.settings.waiting_max;
        let due = self.partitions.iter().filter(|p| p.has_slice(max));
        let due: Vec<_> = due.map(|p| (p.index, vec![PartitionEvent::GoOn])).collect();
        self.step_together(now, due);
    }

    fn send_totals(&mut self, now: Now) {
        let none_waits = self.partitions.iter().all(|p| p.totals.is_empty());
        if none_waits || now.clock < self.totals_not_before {
            return;
        }
        let targets = self.partitions.iter().map(Partition::as_target);
        let targets: Vec<TotalsTarget> = targets.collect();
        self.handle_all(now, |_| {
            Some(PartitionEvent::SendTotals { targets: &targets })
        });
    }
}
