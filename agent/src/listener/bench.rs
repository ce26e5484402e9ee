//! A test bench: a listener with simulated publishers, message by message.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::Public;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, Statement, StatementKind};

use super::*;
use crate::clock::Clock;
use crate::deny::{DenyView, NearList};
use crate::feed_liveness::Liveness;
use crate::resource::{Resource, Resources};

pub(super) const PARTITIONS: u32 = 4;
pub(super) const LOG: LogId = LogId {
    generation: 1,
    random: 7,
};

/// The publishers' monotonic clock, while the agent's shows `BEGIN`.
const CLOCK: u64 = 5_000_000;
const BEGIN: Mono = Mono(1_000_000);

pub(super) fn second(n: u64) -> Span {
    Span::from_secs(n)
}

pub(super) struct ListenerBench {
    pub(super) listener: Listener,
    pub(super) view: Arc<DenyView>,
    pub(super) resource: Arc<Resource>,
    pub(super) now: Mono,
    /// For each publisher the sequence of the control topic and of the resource's topic.
    pub(super) sequences: Vec<(u64, u64)>,
    /// By nonce: the number of the next part of the answer.
    pub(super) parts: HashMap<u64, u32>,
    /// The log of every partition, and the resource's limits, as all publishers state them.
    pub(super) log: LogId,
    pub(super) public: Public,
    /// The version that all publishers' welcomes state.
    pub(super) limits: u64,
}

impl ListenerBench {
    /// A listener with this many aggregators that have welcomed it, joined at offset 10.
    pub(super) fn joined(publishers: usize) -> Self {
        let resources = Arc::new(Resources::new(1, 10));
        let resource = resources.get("r").0.unwrap();
        let view = Arc::new(DenyView::new(1_000));
        let around = ListenerContext {
            agent: "a".into(),
            secret: EpochSecret::new([1; 32]),
            before: None,
            clock: Arc::new(Clock::by_hand(Timestamp::from_millis(5_000))),
            resources,
            mosts: Arc::default(),
            liveness: Arc::new(Liveness::new(BEGIN)),
            counters: Arc::new(Counters::default()),
            on_statement: None,
            on_near: None,
        };
        let deny = DenyList::new(Arc::clone(&view), 1_000);
        let near = NearList::new(Arc::clone(&view), 1_000);
        let listener = Listener::new(around, (deny, near), publishers, 100);
        let mut bench = Self {
            listener,
            view,
            resource,
            now: BEGIN,
            parts: HashMap::new(),
            sequences: vec![(0, 0); publishers],
            log: LOG,
            public: Public {
                version: 1,
                ..Public::default()
            },
            limits: 1,
        };
        for peer in 0..publishers {
            bench.welcome(peer);
            bench
                .listener
                .feed_up(peer, vec![bench.resource.id], bench.now);
            bench.snapshot(peer, 10, &[]);
        }
        bench.listener.take_acts();
        bench
    }

    pub(super) fn instance(peer: usize) -> u128 {
        7_000 + peer as u128
    }

    pub(super) fn clock(&self) -> Span {
        Span::from_micros(CLOCK).saturating_add(self.now.since(BEGIN))
    }

    pub(super) fn welcome(&mut self, peer: usize) {
        self.listener.link_up(peer, self.now);
        self.answer_hello(peer, Self::instance(peer));
    }

    pub(super) fn answer_hello(&mut self, peer: usize, instance: u128) {
        let nonce = self.listener.peers[peer]
            .hello
            .expect("a hello is under way")
            .nonce;
        let welcome = FromAggregator::Welcome {
            nonce,
            instance,
            partitions: PARTITIONS,
            feeds: vec!["tcp://feed:1".into()],
            clock: self.clock(),
            members: Vec::new(),
            limits: self.limits,
        };
        self.listener.take_message(peer, welcome, self.now);
    }

    pub(super) fn open_ask(&self, peer: usize) -> Option<u64> {
        self.listener.peers[peer]
            .ask
            .as_ref()
            .map(|ask| ask.asked.nonce)
    }

    /// Answers the open ask: valid at the publisher's sequences, ruled up to an offset.
    pub(super) fn snapshot(&mut self, peer: usize, ruled: u64, notices: &[StatementNotice]) {
        self.snapshot_part(peer, ruled, notices, false);
    }

    /// One part of the answer to the open ask.
    pub(super) fn snapshot_part(
        &mut self,
        peer: usize,
        ruled: u64,
        notices: &[StatementNotice],
        more: bool,
    ) {
        let (control, sequence) = self.sequences[peer];
        let nonce = self.open_ask(peer).expect("an ask is under way");
        let part = self.parts.entry(nonce).or_default();
        let snapshot = Snapshot {
            nonce,
            part: std::mem::replace(part, *part + 1),
            more,
            instance: Self::instance(peer),
            clock: self.clock(),
            watermarks: watermarks(self.log, ruled),
            control_sequence: control,
            topics: vec![TopicSnapshot {
                resource: "r".into(),
                sequence,
                public: self.public.clone(),
                statements: notices.to_vec(),
            }],
        };
        self.listener
            .take_message(peer, FromAggregator::Snapshot(snapshot), self.now);
    }

    pub(super) fn next_frame(
        &mut self,
        peer: usize,
        resource: &str,
        watermarks: Vec<Watermark>,
        notices: &[StatementNotice],
    ) -> Frame {
        let (control, of_resource) = &mut self.sequences[peer];
        let sequence = if resource.is_empty() {
            control
        } else {
            of_resource
        };
        *sequence += 1;
        let (sequence, sent) = (*sequence, self.clock());
        Frame {
            instance: Self::instance(peer),
            sequence,
            sent,
            resource: resource.into(),
            watermarks,
            statements: notices.to_vec(),
        }
    }

    pub(super) fn receive(&mut self, peer: usize, frame: &Frame) {
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        let topic = if frame.resource.is_empty() {
            Topic::CONTROL
        } else {
            topic_of(&self.resource)
        };
        self.listener
            .take_frame(peer, topic, writer.as_slice(), self.now);
    }

    /// A frame of the resource's topic that arrives at once.
    pub(super) fn frame(&mut self, peer: usize, ruled: u64, notices: &[StatementNotice]) {
        let frame = self.next_frame(peer, "r", watermarks(self.log, ruled), notices);
        self.receive(peer, &frame);
    }

    pub(super) fn heartbeat(&mut self, peer: usize, ruled: u64) {
        let frame = self.next_frame(peer, "", watermarks(self.log, ruled), &[]);
        self.receive(peer, &frame);
    }

    /// Loses a frame of a publisher, so that the listener asks; the publisher answers with these
    /// limits.
    pub(super) fn ask_again(&mut self, peer: usize, ruled: u64, public: Public) {
        let _lost = self.next_frame(peer, "r", watermarks(self.log, ruled), &[]);
        self.frame(peer, ruled, &[]);
        self.public = public;
        self.snapshot(peer, ruled, &[]);
    }

    pub(super) fn advance(&mut self, by: Span) {
        self.now = self.now.plus(by);
        self.listener.tick(self.now);
    }

    /// For how long a domain is still refused.
    pub(super) fn refused(&self, domain: &str) -> Option<Span> {
        let fingerprint = self.resource.fingerprint(domain);
        let found = self
            .view
            .refusal(&self.resource, fingerprint, domain, || self.now)?;
        assert!(self.view.maybe(fingerprint));
        Some(found.remaining)
    }

    pub(super) fn is_blind(&self, domain: &str) -> bool {
        self.listener
            .around
            .liveness
            .is_blind("r", domain, self.now)
    }

    pub(super) fn gaps(&self) -> u64 {
        self.listener.around.counters.gaps.load(Ordering::Relaxed)
    }
}

pub(super) fn watermarks(log: LogId, ruled: u64) -> Vec<Watermark> {
    (0..PARTITIONS)
        .map(|partition| Watermark {
            partition,
            log,
            ruled,
            appended: Timestamp::ZERO,
            current: true,
        })
        .collect()
}

pub(super) fn stated(domain: &str, offset: u64, remaining: Option<Span>) -> StatementNotice {
    stated_in(1, domain, offset, remaining)
}

pub(super) fn stated_in(
    generation: u32,
    domain: &str,
    offset: u64,
    remaining: Option<Span>,
) -> StatementNotice {
    let kind = match remaining {
        Some(_) => StatementKind::Denied(Denial {
            end: Timestamp::MAX,
            cause: Cause::Hard,
            version: 1,
            limit: 1,
            window: Span::from_secs(1),
            most: u64::MAX,
        }),
        None => StatementKind::Lifted,
    };
    StatementNotice {
        partition: partition_of_pair("r", domain, PARTITIONS),
        remaining: remaining.unwrap_or(Span::ZERO),
        statement: Statement {
            scope: Scope::Pair(domain.into()),
            position: LogPosition {
                generation,
                offset,
                entry: 0,
            },
            kind,
        },
    }
}

pub(super) fn denied(domain: &str, offset: u64) -> StatementNotice {
    stated(domain, offset, Some(second(30)))
}
