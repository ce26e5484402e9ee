//! What is known of one aggregator: its link, its feed, and what has been heard over them.
//!
//! Knows nothing of denials. What stays true: one hello and one ask are under way at most.

use std::collections::{BTreeSet, HashMap, HashSet};

use tollgate_shared::place::LogId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Watermark;

use super::delay::Delay;
use super::ledger::TopicKey;
use super::notices::NoticeRuns;
use super::run::Run;
use crate::clock::Mono;
use crate::resource::ResourceId;

/// A feed that has said nothing for three heartbeats is silent; heartbeats come each 250 ms unless the
/// feed is seen to keep another time.
pub(super) const SILENCE_MIN: Span = Span::from_millis(750);

/// A silence is never waited for longer than this.
pub(super) const SILENCE_MAX: Span = Span::from_secs(10);

/// A question that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenQuestion {
    pub(super) nonce: u64,
    pub(super) at: Mono,
}

/// A question for a snapshot, and what has come of it.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) asked: OpenQuestion,
    /// When its last part came, or it was asked.
    pub(super) heard: Mono,
    /// How many parts have come.
    pub(super) parts: u32,
    pub(super) resources: HashSet<ResourceId>,
    /// Fingerprints of the scopes that were listed.
    pub(super) listed: HashSet<u64>,
    pub(super) sequences: HashMap<ResourceId, u64>,
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedState {
    /// Nobody knows where it is.
    Unknown,
    /// The socket is being made.
    Opening,
    /// Frames may come.
    Open,
}

/// One aggregator.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link_up: bool,
    /// The instance that answered the last hello.
    pub(super) instance: Option<u128>,
    pub(super) feeds: Vec<Box<str>>,
    pub(super) hello: Option<OpenQuestion>,
    pub(super) next_hello: Mono,
    /// When anything came over the link.
    pub(super) link_heard: Mono,
    pub(super) feed: FeedState,
    pub(super) feed_heard: Mono,
    /// The last frame of the control topic: its sequence, and the publisher's clock.
    pub(super) heartbeat: Option<(u64, Span)>,
    pub(super) silence: Span,
    pub(super) delay: Delay,
    pub(super) runs: HashMap<TopicKey, Run>,
    pub(super) notices: NoticeRuns,
    /// By resource, the partitions of which it has said what is in force.
    stated: HashMap<ResourceId, HashMap<u32, LogId>>,
    /// Partitions that it rules, as its last heartbeat has it, if there was one.
    ruled: Option<Vec<u32>>,
    /// Resources that are subscribed to and to be asked for.
    pub(super) wanted: BTreeSet<ResourceId>,
    pub(super) ask: Option<Ask>,
    /// Not before this: an answer that left something open is not followed by another ask at once.
    pub(super) next_ask: Mono,
}

impl Peer {
    pub(super) fn new() -> Self {
        Self {
            link_up: false,
            instance: None,
            feeds: Vec::new(),
            hello: None,
            next_hello: Mono::ZERO,
            link_heard: Mono::ZERO,
            feed: FeedState::Unknown,
            feed_heard: Mono::ZERO,
            heartbeat: None,
            silence: SILENCE_MIN,
            delay: Delay::default(),
            runs: HashMap::new(),
            notices: NoticeRuns::default(),
            stated: HashMap::new(),
            ruled: None,
            wanted: BTreeSet::new(),
            ask: None,
            next_ask: Mono::ZERO,
        }
    }

    /// Whatever was heard, something may have been missed since.
    pub(super) fn interrupt(&mut self) {
        self.runs.values_mut().for_each(Run::interrupted);
        self.notices.interrupt();
        self.stated.clear();
        self.heartbeat = None;
        self.ask_came_to_nothing();
    }

    /// What was asked for is wanted as before.
    pub(super) fn ask_came_to_nothing(&mut self) {
        if let Some(ask) = self.ask.take() {
            self.wanted.extend(ask.resources);
        }
    }

    pub(super) fn run(&mut self, topic: TopicKey) -> &mut Run {
        self.runs.entry(topic).or_default()
    }

    pub(super) fn is_joined(&self, topic: TopicKey) -> bool {
        self.runs.get(&topic).is_some_and(Run::joined)
    }

    /// Wants to hear what is in force of resources of which nothing is heard, where it rules a partition in which
    /// some of them are denied; how many.
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

    /// A snapshot has said what is in force for a resource in these partitions.
    pub(super) fn has_stated(&mut self, resource: ResourceId, evidence: &[Watermark]) {
        let logs = evidence
            .iter()
            .map(|one| (one.partition, one.log))
            .collect();
        self.stated.insert(resource, logs);
    }

    /// Of the partitions in a frame about a resource those of which it has not said what is in force.
    ///
    /// It rules them since its snapshot was made. It says what is in force in them as soon as it does, but
    /// not what was lifted while nobody ruled them. So it is with a log that took the place of the one that it
    /// spoke of, unless that is `anew` to everybody: others may have spoken of it, and of what was lifted since.
    pub(super) fn unstated(
        &mut self,
        resource: ResourceId,
        evidence: &[Watermark],
        anew: &HashSet<u32>,
    ) -> HashSet<u32> {
        let mut unstated = HashSet::new();
        let stated = self.stated.entry(resource).or_default();
        for one in evidence {
            match stated.get_mut(&one.partition) {
                Some(log) if *log == one.log => {}
                Some(log) if anew.contains(&one.partition) => *log = one.log,
                Some(_) | None => drop(unstated.insert(one.partition)),
            }
        }
        unstated
    }

    /// A heartbeat names all partitions that it rules: of others, it will have to say anew what is in force.
    pub(super) fn take_ruled(&mut self, evidence: &[Watermark]) {
        let ruled = || evidence.iter().map(|one| one.partition);
        let known = self.ruled.iter().flatten().copied();
        if self.ruled.is_some() && ruled().eq(known) {
            return;
        }
        let now: Vec<u32> = ruled().collect();
        for stated in self.stated.values_mut() {
            stated.retain(|one, _| now.contains(one));
        }
        // What it was asked before it ruled a partition it did not answer for that.
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
    use super::super::bench::{ListenerBench, second, told};
    use super::*;

    #[test]
    fn a_feed_is_silent_after_three_of_its_own_heartbeats() {
        let mut peer = Peer::new();
        let second = |n| Span::from_secs(n);
        peer.take_heartbeat(1, second(1));
        peer.take_heartbeat(2, second(2));
        assert_eq!(peer.silence, second(3));
        // One was missed: the time between says nothing.
        peer.take_heartbeat(4, second(9));
        assert_eq!(peer.silence, second(3));
        peer.take_heartbeat(5, Span::from_millis(9_250));
        assert_eq!(peer.silence, SILENCE_MIN);
    }
    #[test]
    fn who_takes_a_partition_over_is_asked_once_what_was_lifted_while_nobody_ruled_it() {
        let mut bench = ListenerBench::joined(2);
        let rules_nothing = bench.next_frame(1, "", Vec::new(), &[]);
        bench.hear(1, &rules_nothing);
        let long = |domain, offset| told(domain, offset, Some(second(600)));
        bench.frame(0, 12, &[long("acme", 11)]);
        bench.listener.feed_down(0);
        bench.listener.link_down(0);
        // It says what is in force, and acme was lifted meanwhile.
        bench.frame(1, 20, &[long("beta", 14)]);
        assert!(bench.refused("acme").is_some() && bench.refused("beta").is_some());
        bench.advance(Span::from_millis(100));
        bench.snapshot(1, 20, &[long("beta", 14)]);
        assert_eq!(bench.refused("acme"), None);
        assert!(bench.refused("beta").is_some());
        bench.frame(1, 21, &[]);
        bench.advance(Span::from_millis(100));
        assert_eq!(bench.asked(1), None);
    }

    #[test]
    fn a_topic_that_says_nothing_of_what_it_denied_is_asked_about_once() {
        let mut bench = ListenerBench::joined(1);
        bench.frame(0, 12, &[told("acme", 11, Some(second(600)))]);
        // The last is lifted, and nothing of the topic follows.
        let _lost = bench.next_frame(0, "r", Vec::new(), &[told("acme", 13, None)]);
        let waits = |bench: &mut ListenerBench, times: u64| {
            for ruled in 0..times {
                bench.listener.link_alive(0, bench.now);
                bench.advance(Span::from_millis(250));
                bench.heartbeat(0, 14 + ruled);
            }
        };
        waits(&mut bench, 2);
        assert_eq!(bench.asked(0), None);
        waits(&mut bench, 1);
        assert!(bench.asked(0).is_some());
        assert!(bench.refused("acme").is_some());
        // It answers that it still is, and has spoken since it was heard.
        let still = [told("acme", 11, Some(second(600)))];
        bench.snapshot(0, 12, &still);
        waits(&mut bench, 4);
        bench.snapshot(0, 12, &still);
        waits(&mut bench, 9);
        assert_eq!(bench.asked(0), None, "a silence is doubted once");
        // A sign of life, and silence again.
        bench.frame(0, 24, &[]);
        waits(&mut bench, 4);
        bench.snapshot(0, 25, &[]);
        assert_eq!(bench.refused("acme"), None);
        waits(&mut bench, 9);
        assert_eq!(bench.asked(0), None, "nothing of it is denied");
    }

    #[test]
    fn a_silent_topic_is_asked_of_who_rules_what_it_denied() {
        let mut bench = ListenerBench::joined(2);
        let beat = |bench: &mut ListenerBench, times: u64, partitions: u32| {
            for ruled in 0..times {
                bench.advance(Span::from_millis(250));
                let evidence = super::super::bench::evidence(bench.log, 14 + ruled);
                let ruled = evidence
                    .into_iter()
                    .filter(|one| one.partition < partitions);
                let frame = bench.next_frame(1, "", ruled.collect(), &[]);
                bench.hear(1, &frame);
            }
        };
        // The first says so, and goes; the second rules nothing of it, and has nothing to say.
        bench.frame(0, 12, &[told("acme", 11, Some(second(600)))]);
        bench.listener.feed_down(0);
        bench.listener.link_down(0);
        beat(&mut bench, 9, 0);
        assert_eq!(bench.asked(1), None);
        // It takes over, and the denial was lifted while nobody told.
        beat(&mut bench, 2, u32::MAX);
        bench.snapshot(1, 16, &[]);
        assert_eq!(bench.refused("acme"), None);
    }
}
