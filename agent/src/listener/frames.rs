//! Frames of the feed: statements go into the deny list, watermarks into the ledger.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_shared::log_position::{Code, LogPosition};
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::statement::{Cause, Denial, Scope, StatementKind};
use tollgate_shared::wire::verdict::VerdictFrame;

use super::ledger::{self, LogComparison, TopicKey};
use super::peer::Peer;
use super::run::FrameEffect as RunHeard;
use super::{Listener, topic_of};
use crate::callback;
use crate::clock::Mono;
use crate::deny::{ScopeChange, ScopeNotice, StatementOutcome};
use crate::events::{Change, StatementEvent};
use crate::resource::{Resource, ResourceId};
use crate::stats::Counters;

/// The listener asks for a resource's limits at most this often because a statement has a newer version.
const REFRESH_EVERY: Span = Span::from_secs(1);

impl Listener {
    /// A frame arrived on the feed of an aggregator.
    pub(crate) fn take_frame(&mut self, index: usize, topic: Topic, bytes: &[u8], now: Mono) {
        let counters = &self.around.counters;
        Counters::add(&counters.frames, 1);
        if topic == self.topic {
            return self.take_verdicts(index, bytes, now);
        }
        if topic.is_of_notices() {
            return self.take_notices(index, topic, bytes, now);
        }
        let Ok(mut frame) = Frame::decode(bytes) else {
            return Counters::add(&counters.frames_refused, 1);
        };
        self.drop_unknown_partitions(&mut frame.watermarks);
        let counters = &self.around.counters;
        let resource = if topic == Topic::CONTROL {
            None
        } else {
            let resource = self.around.resources.find(&frame.resource);
            if resource.as_ref().is_none_or(|one| topic_of(one) != topic) {
                return Counters::add(&counters.frames_refused, 1);
            }
            resource
        };
        let Some(peer) = self.publisher(index, frame.instance, now) else {
            return;
        };
        let key = resource
            .as_ref()
            .map_or(TopicKey::Control, |one| TopicKey::Of(one.id));
        if key == TopicKey::Control {
            peer.take_heartbeat(frame.sequence, frame.sent);
            peer.take_ruled(&frame.watermarks);
        }
        let effect = peer.run(key).note_frame(frame.sequence, now);
        let late = peer.delay.late(frame.sent, now);
        let recreated = self.recreated_logs(&frame.watermarks);
        let foreign = self.note_logs(&frame.watermarks, now);
        self.take_watermarks(&frame.watermarks, &foreign, late, now);
        if let Some(resource) = &resource {
            for notice in frame
                .statements
                .iter()
                .filter(|notice| !foreign.contains(&notice.partition))
            {
                let settled = self.ledger.ruled(key, notice.partition);
                self.take_statement(index, resource, notice, late, settled, now);
            }
        }
        match effect {
            RunHeard::Continues => {
                let not_stated =
                    self.ask_of_unstated(index, resource.as_deref(), &frame, &recreated, now);
                let foreign = &foreign | &not_stated;
                self.advance_topic(key, &frame.watermarks, &foreign, late, now);
            }
            RunHeard::Gap => {
                Counters::add(&self.around.counters.gaps, 1);
                self.want(index, resource.as_deref());
            }
            RunHeard::Unjoined | RunHeard::Again => {}
        }
        self.ask_if_needed(index, now);
    }

    /// Applies a frame of verdicts. Gaps do not matter: heartbeats ask for missing verdicts.
    fn take_verdicts(&mut self, index: usize, bytes: &[u8], now: Mono) {
        let counters = &self.around.counters;
        let Ok(frame) = VerdictFrame::decode(bytes) else {
            return Counters::add(&counters.frames_refused, 1);
        };
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if peer.instance != Some(frame.instance) || *frame.agent != *self.around.agent {
            peer.next_hello = now;
            return Counters::add(&counters.frames_refused, 1);
        }
        peer.feed_received_at = now;
        self.verdicts.extend(frame.verdicts);
    }

    /// The peer that sent a frame. If another instance sent it, the frame is counted as refused.
    pub(super) fn publisher(
        &mut self,
        index: usize,
        instance: u128,
        now: Mono,
    ) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(index)?;
        if peer.instance != Some(instance) {
            // Another instance uses this address now: the next welcome will name it.
            peer.next_hello = now;
            Counters::add(&self.around.counters.frames_refused, 1);
            return None;
        }
        peer.feed_received_at = now;
        Some(peer)
    }

    /// Returns the partitions in a frame that its publisher has ruled only since its last snapshot. The listener asks
    /// again, and until then the publisher's watermarks of these partitions do not count.
    fn ask_of_unstated(
        &mut self,
        index: usize,
        resource: Option<&Resource>,
        frame: &Frame,
        recreated: &HashSet<u32>,
        now: Mono,
    ) -> HashSet<u32> {
        let (Some(peer), Some(resource)) = (self.peers.get_mut(index), resource) else {
            return HashSet::new();
        };
        let unstated = peer.unstated(resource.id, &frame.watermarks, recreated);
        if !unstated.is_empty() && peer.wanted.insert(resource.id) && peer.ask.is_none() {
            // If many partitions are taken over, they come one after the other.
            peer.next_ask = peer.next_ask.max(now.plus(super::ASK_AGAIN));
        }
        unstated
    }

    fn want(&mut self, index: usize, resource: Option<&Resource>) {
        // Any snapshot joins the control topic, and while it is not joined the listener asks for one.
        if let (Some(peer), Some(resource)) = (self.peers.get_mut(index), resource) {
            peer.wanted.insert(resource.id);
        }
    }

    /// Partitions with a new log that no message has named before.
    fn recreated_logs(&self, watermarks: &[Watermark]) -> HashSet<u32> {
        let is_anew = |one: &&Watermark| {
            let known = self.ledger.log_of(one.partition);
            known.is_some_and(|known| known != one.log)
        };
        let recreated = watermarks.iter().filter(is_anew);
        recreated.map(|one| one.partition).collect()
    }

    /// Records the logs of watermarks. Returns the partitions whose log belongs to another fleet.
    pub(super) fn note_logs(&mut self, watermarks: &[Watermark], now: Mono) -> HashSet<u32> {
        let mut foreign = HashSet::new();
        for one in watermarks {
            match self.ledger.log(one, now) {
                LogComparison::Same => {}
                LogComparison::Recreated(generation) => {
                    self.around.liveness.guard.forget(one.partition);
                    self.deny.void(one.partition, generation);
                    self.near.void_partition(one.partition);
                    self.bans_asked.clear();
                    if self.cached_limits.give_up(one.partition) {
                        self.forget_versions();
                    }
                    // While the log was not followed, the agent ignored statements about it.
                    self.want_all();
                }
                LogComparison::Foreign => {
                    Counters::add(&self.around.counters.foreign_logs, 1);
                    foreign.insert(one.partition);
                }
            }
        }
        foreign
    }

    /// Records how far partitions are ruled, even after a gap in the topic: this shows the agent that a ruling
    /// aggregator is there to announce denials.
    pub(super) fn take_watermarks(
        &self,
        watermarks: &[Watermark],
        foreign: &HashSet<u32>,
        late: Span,
        now: Mono,
    ) {
        for one in watermarks {
            if !foreign.contains(&one.partition) {
                let watermark = LogPosition::of_record(one.log, one.ruled);
                let guard = &self.around.liveness.guard;
                guard.note_watermark(one.partition, watermark, one.current, late, now);
            }
        }
    }

    /// Applies watermarks of a topic without a gap.
    pub(super) fn advance_topic(
        &mut self,
        key: TopicKey,
        watermarks: &[Watermark],
        foreign: &HashSet<u32>,
        late: Span,
        now: Mono,
    ) {
        let lease = self.lease_of(key);
        let mut news = false;
        for one in watermarks {
            if one.partition < self.partitions && !foreign.contains(&one.partition) {
                news |= self.ledger.advance(key, one, lease, late, now);
            }
        }
        match key {
            _ if !news => {}
            TopicKey::Control => {
                self.around.liveness.update(now);
            }
            TopicKey::Of(resource) if self.deny.has_notes_of(resource) => {
                let ledger = &self.ledger;
                self.deny
                    .settle(resource, |partition| ledger.ruled(key, partition));
            }
            TopicKey::Of(_) => {}
        }
    }

    /// Drops watermarks of partitions that do not exist, because the sender chooses the numbers.
    pub(super) fn drop_unknown_partitions(&self, watermarks: &mut Vec<Watermark>) {
        let before = watermarks.len();
        watermarks.retain(|one| one.partition < self.partitions);
        let dropped = (before - watermarks.len()) as u64;
        Counters::add(&self.around.counters.statements_ignored, dropped);
    }

    /// Applies a statement. Returns the fingerprint of its scope, unless there was no room for it, or another
    /// partition's denial of the scope stays.
    pub(super) fn take_statement(
        &mut self,
        index: usize,
        resource: &Arc<Resource>,
        notice: &StatementNotice,
        late: Span,
        settled: Option<LogPosition>,
        now: Mono,
    ) -> Option<u64> {
        let statement = &notice.statement;
        let (domain, is_group) = match &statement.scope {
            Scope::Pair(domain) => (domain.as_ref(), false),
            Scope::Resource => (EVERYBODY, false),
            Scope::Group(group) => (group.as_ref(), true),
        };
        let void = self
            .ledger
            .generation(notice.partition)
            .is_some_and(|known| statement.position.generation < known);
        if void || self.partitions <= notice.partition {
            Counters::add(&self.around.counters.statements_ignored, 1);
            return None;
        }
        let change = match statement.kind {
            StatementKind::Denied(denial) => {
                let at = (notice.partition, statement.position);
                self.refresh_if_stale(index, resource, at, &denial, now);
                // A ban contains nothing about limits.
                let is_limit = denial.cause != Cause::Banned;
                if is_limit && matches!(statement.scope, Scope::Pair(_)) {
                    let most = match resource.is_of_copies() {
                        true => denial.limit,
                        false => denial.most,
                    };
                    let change = (denial.version, most);
                    self.around.mosts.remember(resource, domain, change, now);
                }
                ScopeChange::Denied(Self::until(notice.remaining, late, now), denial)
            }
            StatementKind::Lifted => {
                if !is_group {
                    self.near.void_pair(resource, domain);
                }
                ScopeChange::Lifted
            }
        };
        let lease = self
            .ledger
            .lease(TopicKey::Of(resource.id), notice.partition);
        let scope_notice = ScopeNotice {
            resource,
            domain,
            is_group,
            partition: notice.partition,
            position: statement.position,
            change,
            lease: &lease,
            settled,
        };
        let taken = self.deny.take(&scope_notice, now);
        let listed = taken.is_in_list().then(|| scope_notice.fingerprint());
        let code = Code {
            partition: notice.partition,
            position: statement.position,
        };
        self.note_outcome(taken, resource, (domain, is_group), code, now);
        listed
    }

    /// Counts the result of a statement, and calls back about changes.
    fn note_outcome(
        &self,
        taken: StatementOutcome,
        resource: &Resource,
        scope: (&str, bool),
        code: Code,
        now: Mono,
    ) {
        let counters = &self.around.counters;
        match taken {
            StatementOutcome::Denied => {
                Counters::add(&counters.denials_taken, 1);
                self.call_back(resource, scope, code, Change::Denied, now);
            }
            StatementOutcome::Lifted => {
                Counters::add(&counters.lifts_taken, 1);
                self.call_back(resource, scope, code, Change::Opened, now);
            }
            StatementOutcome::Known | StatementOutcome::Outlasted => {
                Counters::add(&counters.statements_known, 1);
            }
            StatementOutcome::NoRoom => Counters::add(&counters.denials_without_room, 1),
        }
    }

    /// When a denial ends, on the agent's own monotonic clock.
    ///
    /// The ruling aggregator computes the remaining time from the log's time, which it knows to the millisecond. So
    /// the end is up to that and the tick's delay too early. Calls at that moment have stamps from before the end,
    /// and each is excess. A wall clock would not correct that: one that is a little behind would refuse what is
    /// open.
    fn until(remaining: Span, late: Span, now: Mono) -> Mono {
        match remaining {
            Span::MAX => Mono::MAX,
            _ => now.plus(remaining.saturating_sub(late)),
        }
    }

    /// How long denials of a topic hold without a newer watermark.
    fn lease_of(&self, key: TopicKey) -> Span {
        match key {
            TopicKey::Of(id) if self.resource(id).is_some_and(|one| one.is_of_copies()) => {
                ledger::LEASE_OF_COPIES
            }
            TopicKey::Of(_) | TopicKey::Control => ledger::LEASE,
        }
    }

    /// Asks for the limits if a denial has a newer version than the known limits. A ban's denial has the version of
    /// the ban. If the known limits ignore denials, the listener asks once about each ban, because a namespace that
    /// ignores denials gets none (a resource in shadow does).
    fn refresh_if_stale(
        &mut self,
        index: usize,
        resource: &Resource,
        (partition, position): (u32, LogPosition),
        denial: &Denial,
        now: Mono,
    ) {
        let public = resource.public();
        let is_new_ban = public.ignored
            && denial.cause == Cause::Banned
            && self.bans_asked.get(&(resource.id, partition)) < Some(&position);
        if denial.version <= public.version && !is_new_ban {
            return;
        }
        let due = self
            .refreshed
            .get(&resource.id)
            .is_none_or(|last| REFRESH_EVERY <= now.since(*last));
        if due {
            self.refreshed.insert(resource.id, now);
            if is_new_ban {
                self.bans_asked.insert((resource.id, partition), position);
            }
            self.want(index, Some(resource));
        } else {
            self.around.resources.doubt_limits(resource);
        }
    }

    pub(super) fn call_back(
        &self,
        resource: &Resource,
        (name, is_group): (&str, bool),
        code: Code,
        change: Change,
        now: Mono,
    ) {
        let Some(on_statement) = &self.around.on_statement else {
            return;
        };
        let event = StatementEvent {
            resource: &resource.name,
            domain: (!is_group && name != EVERYBODY).then_some(name),
            group: is_group.then_some(name),
            code,
            change,
            at: self.around.clock.instant(now),
        };
        callback::call(&self.around.counters, "on_statement", || {
            (on_statement.0)(&event)
        });
    }

    pub(super) fn resource(&self, id: ResourceId) -> Option<Arc<Resource>> {
        self.around.resources.by_id(id)
    }
}
