//! The state of one aggregator: its link, its feed, and what arrived over them.
//!
//! Knows nothing of denials. What stays true: at most one hello and one ask are open.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Watermark;

use super::delay::Delay;
use super::ledger::TopicKey;
use super::notices::NoticeRuns;
use super::run::Run;
use crate::clock::Mono;
use crate::resource::ResourceId;

/// After three missing heartbeats a feed is silent; heartbeats come every 250 ms unless the feed is seen to have
/// another interval.
pub(super) const SILENCE_MIN: Span = Span::from_millis(750);

/// The listener never waits longer than this for a silent feed.
pub(super) const SILENCE_MAX: Span = Span::from_secs(10);

/// How long the listener waits before it asks again about a resource that an answer left out: at first, and at most.
const LEFT_OUT_MIN: Span = Span::from_secs(1);
const LEFT_OUT_MAX: Span = Span::from_secs(60);

/// A question without an answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenQuestion {
    pub(super) nonce: u64,
    pub(super) at: Mono,
}

/// A question for a snapshot, and the parts of its answer.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) asked: OpenQuestion,
    /// When its last part arrived, or when it was sent.
    pub(super) last_part: Mono,
    /// How many parts have arrived.
    pub(super) parts: u32,
    pub(super) resources: HashSet<ResourceId>,
    /// Fingerprints of the scopes that were listed.
    pub(super) listed: HashSet<u64>,
    pub(super) sequences: HashMap<ResourceId, u64>,
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedState {
    /// Its address is unknown.
    Unknown,
    /// The socket is being opened.
    Opening,
    /// Frames may arrive.
    Open,
}

/// One aggregator.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_up: bool,
    /// The instance that answered the last hello.
    pub(super) instance: Option<u128>,
    pub(super) feeds: Vec<Box<str>>,
    /// The version of the limits that it announced last.
    pub(super) limits: u64,
    pub(super) hello: Option<OpenQuestion>,
    pub(super) next_hello: Mono,
    /// When anything last arrived over the link.
    pub(super) link_received_at: Mono,
    pub(super) feed: FeedState,
    pub(super) feed_received_at: Mono,
    /// The last frame of the control topic: its sequence, and the publisher's clock.
    pub(super) heartbeat: Option<(u64, Span)>,
    pub(super) silence: Span,
    pub(super) delay: Delay,
    pub(super) runs: HashMap<TopicKey, Run>,
    pub(super) notices: NoticeRuns,
    /// By resource, the partitions of which the aggregator has stated what is in force.
    stated: HashMap<ResourceId, HashMap<u32, LogId>>,
    /// The partitions in the aggregator's last heartbeat, if there was one.
    ruled: Option<Vec<u32>>,
    /// Resources that are subscribed to and for which a snapshot is needed.
    pub(super) wanted: BTreeSet<ResourceId>,
    /// Resources that its answers leave out, as the agent's token does not cover them: when to ask again, and the pause.
    left_out: BTreeMap<ResourceId, (Mono, Span)>,
    pub(super) ask: Option<Ask>,
    /// Not before this instant: after an incomplete answer the next ask waits.
    pub(super) next_ask: Mono,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            link_up: false,
            instance: None,
            feeds: Vec::new(),
            limits: 0,
            hello: None,
            next_hello: Mono::ZERO,
            link_received_at: Mono::ZERO,
            feed: FeedState::Unknown,
            feed_received_at: Mono::ZERO,
            heartbeat: None,
            silence: SILENCE_MIN,
            delay: Delay::default(),
            runs: HashMap::new(),
            notices: NoticeRuns::default(),
            stated: HashMap::new(),
            ruled: None,
            wanted: BTreeSet::new(),
            left_out: BTreeMap::new(),
            ask: None,
            next_ask: Mono::ZERO,
        }
    }

    /// Something may have been missed on every topic.
    pub(super) fn interrupt(&mut self) {
        self.runs.values_mut().for_each(Run::interrupted);
        self.notices.interrupt();
        self.stated.clear();
        self.heartbeat = None;
        self.abandon_ask();
    }

    /// The ask failed: its resources need a snapshot as before.
    pub(super) fn abandon_ask(&mut self) {
        if let Some(ask) = self.ask.take() {
            self.wanted.extend(ask.resources);
        }
    }

    /// A whole answer has left out a resource. It is asked for again, less and less often.
    pub(super) fn leave_out(&mut self, resource: ResourceId, now: Mono) {
        let known = self.left_out.get(&resource);
        let pause = known.map_or(LEFT_OUT_MIN, |(_, pause)| {
            Span::from_micros(pause.as_micros().saturating_mul(2)).min(LEFT_OUT_MAX)
        });
        self.left_out.insert(resource, (now.plus(pause), pause));
    }

    /// An answer has a resource.
    pub(super) fn is_in(&mut self, resource: ResourceId) {
        self.left_out.remove(&resource);
    }

    /// Wants the resources again whose time has come.
    pub(super) fn want_left_out(&mut self, now: Mono) {
        for (resource, (again, _)) in &mut self.left_out {
            if *again <= now {
                // Until the answer.
                *again = Mono::MAX;
                self.wanted.insert(*resource);
            }
        }
    }

    /// Another connection, perhaps with another token: all are wanted anew.
    pub(super) fn forget_left_out(&mut self) {
        self.wanted
            .extend(std::mem::take(&mut self.left_out).into_keys());
    }

    pub(super) fn run(&mut self, topic: TopicKey) -> &mut Run {
        self.runs.entry(topic).or_default()
    }

    pub(super) fn is_joined(&self, topic: TopicKey) -> bool {
        self.runs.get(&topic).is_some_and(Run::joined)
    }

    /// Requests snapshots of resources whose topics are silent, if the aggregator rules a partition in which some
    /// domains of them are denied. Returns how many.
    pub(super) fn doubt_silent(
        &mut self,
        denied: impl Iterator<Item = (ResourceId, u32)>,
        now: Mono,
    ) -> u64 {
        let Some(ruled) = self.ruled.as_ref().filter(|_| self.feed == FeedState::Open) else {
            return 0;
        };
        let mut silent = 0;
        for (id, _) in denied.filter(|(_, partition)| ruled.contains(partition)) {
            let run = self.runs.get_mut(&TopicKey::Of(id));
            if run.is_some_and(|run| run.falls_silent(self.silence, now)) {
                self.wanted.insert(id);
                silent += 1;
            }
        }
        silent
    }

    /// A snapshot has stated what is in force for a resource in these partitions.
    pub(super) fn has_stated(&mut self, resource: ResourceId, watermarks: &[Watermark]) {
        let logs = watermarks
            .iter()
            .map(|one| (one.partition, one.log))
            .collect();
        self.stated.insert(resource, logs);
    }

    /// Partitions in a frame about a resource of which the aggregator has not stated what is in force.
    ///
    /// The aggregator rules them only since its snapshot. It announces what is in force in them as soon as it rules
    /// them, but not what was lifted while no aggregator ruled them. The same holds if another log has replaced the
    /// one of the snapshot, because other aggregators may have ruled the new log, and lifted denials since. The
    /// exception are partitions in `recreated`, whose new log no aggregator has named before.
    pub(super) fn unstated(
        &mut self,
        resource: ResourceId,
        watermarks: &[Watermark],
        recreated: &HashSet<u32>,
    ) -> HashSet<u32> {
        let mut unstated = HashSet::new();
        let stated = self.stated.entry(resource).or_default();
        for one in watermarks {
            match stated.get_mut(&one.partition) {
                Some(log) if *log == one.log => {}
                Some(log) if recreated.contains(&one.partition) => *log = one.log,
                Some(_) | None => drop(unstated.insert(one.partition)),
            }
        }
        unstated
    }

    /// A heartbeat lists all partitions that the aggregator rules. For any others it will have to state again what is
    /// in force.
    pub(super) fn take_ruled(&mut self, watermarks: &[Watermark]) {
        let ruled = || watermarks.iter().map(|one| one.partition);
        let known = self.ruled.iter().flatten().copied();
        if self.ruled.is_some() && ruled().eq(known) {
            return;
        }
        let now: Vec<u32> = ruled().collect();
        for stated in self.stated.values_mut() {
            stated.retain(|one, _| now.contains(one));
        }
        // An answer from before the aggregator ruled a partition does not cover that partition.
        self.runs.values_mut().for_each(Run::trust);
        self.ruled = Some(now);
    }

    /// A frame of the control topic: learns how often they come.
    pub(super) fn take_heartbeat(&mut self, sequence: u64, sent: Span) {
        if let Some((before, then)) = self.heartbeat
            && before.saturating_add(1) == sequence
        {
            let three = Span::from_micros(sent.saturating_sub(then).as_micros().saturating_mul(3));
            self.silence = three.clamp(SILENCE_MIN, SILENCE_MAX);
        }
        self.heartbeat = Some((sequence, sent));
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::{ListenerBench, second, stated};
    use super::*;

    #[test]
    fn a_feed_is_silent_after_three_of_its_own_heartbeats() {
        let mut peer = Peer::new();
        let second = |n| Span::from_secs(n);
        peer.take_heartbeat(1, second(1));
        peer.take_heartbeat(2, second(2));
        assert_eq!(peer.silence, second(3));
        // One was missed: then the time between two has no meaning.
        peer.take_heartbeat(4, second(9));
        assert_eq!(peer.silence, second(3));
        peer.take_heartbeat(5, Span::from_millis(9_250));
        assert_eq!(peer.silence, SILENCE_MIN);
    }
    #[test]
    fn a_new_ruling_aggregator_is_asked_once_for_missed_lifts() {
        let mut bench = ListenerBench::joined(2);
        let rules_nothing = bench.next_frame(1, "", Vec::new(), &[]);
        bench.receive(1, &rules_nothing);
        let long = |domain, offset| stated(domain, offset, Some(second(600)));
        bench.frame(0, 12, &[long("acme", 11)]);
        bench.listener.feed_down(0);
        bench.listener.link_down(0);
        // It announces what is in force; acme was lifted meanwhile.
        bench.frame(1, 20, &[long("beta", 14)]);
        assert!(bench.refused("acme").is_some() && bench.refused("beta").is_some());
        bench.advance(Span::from_millis(100));
        bench.snapshot(1, 20, &[long("beta", 14)]);
        assert_eq!(bench.refused("acme"), None);
        assert!(bench.refused("beta").is_some());
        bench.frame(1, 21, &[]);
        bench.advance(Span::from_millis(100));
        assert_eq!(bench.open_ask(1), None);
    }

    #[test]
    fn a_topic_that_is_silent_about_its_denials_is_asked_once() {
        let mut bench = ListenerBench::joined(1);
        bench.frame(0, 12, &[stated("acme", 11, Some(second(600)))]);
        // The last denial is lifted, and nothing follows on the topic.
        let _lost = bench.next_frame(0, "r", Vec::new(), &[stated("acme", 13, None)]);
        let waits = |bench: &mut ListenerBench, times: u64| {
            for ruled in 0..times {
                bench.listener.link_alive(0, bench.now);
                bench.advance(Span::from_millis(250));
                bench.heartbeat(0, 14 + ruled);
            }
        };
        waits(&mut bench, 2);
        assert_eq!(bench.open_ask(0), None);
        waits(&mut bench, 1);
        assert!(bench.open_ask(0).is_some());
        assert!(bench.refused("acme").is_some());
        // It answers that the denial is still in force, and that it has sent frames since the last one received.
        let still = [stated("acme", 11, Some(second(600)))];
        bench.snapshot(0, 12, &still);
        waits(&mut bench, 4);
        bench.snapshot(0, 12, &still);
        waits(&mut bench, 9);
        assert_eq!(bench.open_ask(0), None, "a silence is doubted once");
        // A frame, and silence again.
        bench.frame(0, 24, &[]);
        waits(&mut bench, 4);
        bench.snapshot(0, 25, &[]);
        assert_eq!(bench.refused("acme"), None);
        waits(&mut bench, 9);
        assert_eq!(bench.open_ask(0), None, "nothing of it is denied");
    }

    #[test]
    fn a_silent_topic_is_requested_from_its_ruling_aggregator() {
        let mut bench = ListenerBench::joined(2);
        let heartbeat = |bench: &mut ListenerBench, times: u64, partitions: u32| {
            for ruled in 0..times {
                bench.advance(Span::from_millis(250));
                let watermarks = super::super::bench::watermarks(bench.log, 14 + ruled);
                let ruled = watermarks
                    .into_iter()
                    .filter(|one| one.partition < partitions);
                let frame = bench.next_frame(1, "", ruled.collect(), &[]);
                bench.receive(1, &frame);
            }
        };
        // The first announces it, and goes; the second rules none of its partitions, and has nothing to announce.
        bench.frame(0, 12, &[stated("acme", 11, Some(second(600)))]);
        bench.listener.feed_down(0);
        bench.listener.link_down(0);
        heartbeat(&mut bench, 9, 0);
        assert_eq!(bench.open_ask(1), None);
        // The second takes over; the denial was lifted while no aggregator announced it.
        heartbeat(&mut bench, 2, u32::MAX);
        bench.snapshot(1, 16, &[]);
        assert_eq!(bench.refused("acme"), None);
    }
}
