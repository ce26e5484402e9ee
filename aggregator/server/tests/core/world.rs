//! A world for the core without I/O: a log in memory, a clock that is moved by hand, and a record of all that was
//! published, answered and kept as dead letters. What happens in it is a function of its seed.

mod starting;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use bytes::Bytes;
use tollgate_api::pairs::PairView;
use tollgate_api::state::DigestsView;
use tollgate_log::{Append, AppendError, Chunks, Delivered, LogEvent, Stream, Ticket};
use tollgate_server::core::Core;
use tollgate_server::core::assignment::Known;
use tollgate_server::core::event::{
    DeadLetter, Effect, Event, LimitsFile, Now, Peer, QueryId, Request,
};
use tollgate_server::core::together::partition_of;
use tollgate_server::core::view::{Gauges, Query, Reply};
use tollgate_shared::log_position::LogId;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Frame;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::notice::NoticeFrame;
use tollgate_shared::wire::record::{Record, kind};
use tollgate_shared::wire::verdict::VerdictFrame;

use crate::memory::Following;
pub use crate::memory::{Fate, Fates, MemoryLog, Random};

pub const PARTITIONS: u32 = 4;

/// The start of the world's wall clock.
const BASE: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

pub struct World {
    pub core: Core,
    pub log: MemoryLog,
    pub clock: Span,
    pub frames: Vec<Frame>,
    /// Verdicts published on agents' own topics.
    pub verdicts: Vec<VerdictFrame>,
    /// Notices published about pairs near their limits.
    pub notices: Vec<NoticeFrame>,
    pub answers: Vec<FromAggregator>,
    pub dead_letters: Vec<DeadLetter>,
    pub gave_up: Option<String>,
    /// Snapshots in the order in which they were saved: partition, offset, chunks.
    pub snapshots: Vec<(u32, u64, Chunks)>,
    /// Snapshots that were dropped: partition, offset.
    pub dropped: Vec<(u32, u64)>,
    /// Partitions that are to be restored: partition, attempt, the limits that are known.
    pub restores: Vec<(u32, u64, Box<Known>)>,
    /// Decides the fate of each append.
    pub fate: Fates,
    /// Streams that are not delivered for the moment.
    pub held: Vec<Stream>,
    pub random: Random,
    follows: BTreeMap<(Stream, u32), Following>,
    appends: VecDeque<(Stream, u32, Ticket, Bytes)>,
    replies: Vec<(QueryId, Reply)>,
    queries: u64,
    sequences: BTreeMap<u32, u64>,
    /// Whether deliveries of hits are ruled together.
    together: bool,
    /// Deliveries that are to be ruled together.
    deliveries: Vec<LogEvent>,
}

impl World {
    /// The newest snapshot of each partition.
    pub fn newest_snapshots(&self) -> BTreeMap<u32, Vec<Chunks>> {
        let snapshots = self.snapshots.iter();
        let of = |(partition, _, chunks): &(u32, u64, Chunks)| (*partition, vec![chunks.clone()]);
        snapshots.map(of).collect()
    }

    /// From now on deliveries of several partitions are ruled together, on a number of threads.
    pub fn rule_on(&mut self, threads: Option<NonZeroUsize>) {
        if let Some(threads) = threads {
            self.core.rule_on(threads);
            self.together = true;
        }
    }

    fn deliver_records(&mut self, stream: Stream, partition: u32, records: Vec<Delivered>) {
        let event = LogEvent::Delivered {
            stream,
            partition,
            records,
        };
        if self.together && partition_of(&event).is_some() {
            return self.deliveries.push(event);
        }
        self.step(Event::Log(event));
    }

    fn rule_together(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        if !deliveries.is_empty() {
            let mut effects = Vec::new();
            self.core
                .rule_together(self.now(), &deliveries, &mut effects);
            self.perform(effects);
        }
    }

    pub fn now(&self) -> Now {
        Now {
            clock: self.clock,
            wall: self.wall(),
        }
    }

    pub fn wall(&self) -> Timestamp {
        BASE.saturating_add(self.clock)
    }

    pub fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.core.step(self.now(), event, &mut effects);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append(Append {
                    stream,
                    partition,
                    ticket,
                    record,
                }) => {
                    self.appends.push_back((stream, partition, ticket, record));
                }
                Effect::Follow {
                    stream,
                    partition,
                    from,
                } => {
                    let following = Following {
                        next: from as usize,
                        said_begun: false,
                        said_caught_up: false,
                    };
                    self.follows.insert((stream, partition), following);
                }
                Effect::Unfollow { stream, partition } => {
                    self.follows.remove(&(stream, partition));
                }
                Effect::Restore {
                    partition,
                    attempt,
                    known,
                } => self.restores.push((partition, attempt, known)),
                Effect::Publish { topic, frame } if topic.as_str().starts_with('a') => {
                    self.verdicts.push(VerdictFrame::decode(&frame).unwrap());
                }
                Effect::Publish { topic, frame } if topic.is_of_notices() => {
                    self.notices.push(NoticeFrame::decode(&frame).unwrap());
                }
                Effect::Publish { frame, .. } => self.frames.push(Frame::decode(&frame).unwrap()),
                Effect::Answer { message, .. } => {
                    self.answers.push(FromAggregator::decode(&message).unwrap());
                }
                Effect::Reply { id, reply } => self.replies.push((id, *reply)),
                Effect::Aside(aside) => self.dead_letters.push(aside),
                Effect::SaveSnapshot {
                    partition,
                    upto,
                    moment,
                } => {
                    let mut chunks = Vec::new();
                    moment.0.write(|chunk| chunks.push(chunk));
                    self.snapshots.push((partition, upto, chunks));
                    let saved = true;
                    self.step(Event::SnapshotSaved { partition, saved });
                }
                Effect::DropSnapshot { partition, upto } => {
                    self.snapshots
                        .retain(|(of, at, _)| (*of, *at) != (partition, upto));
                    self.dropped.push((partition, upto));
                }
                Effect::GiveUp { why, .. } => self.gave_up = Some(why),
            }
        }
    }

    /// Takes the appends that wait, each by its fate.
    fn take_appends(&mut self) -> bool {
        let any = !self.appends.is_empty();
        while let Some((stream, partition, ticket, record)) = self.appends.pop_front() {
            let fate = (self.fate)(stream, &record);
            let mut result = Err(AppendError::NotNow("by fate".to_owned()));
            if fate != Fate::Refused {
                let offset = self.put(stream, partition, record);
                if fate == Fate::Taken {
                    result = Ok(offset);
                }
            }
            self.step(Event::Log(LogEvent::answer(ticket, result)));
        }
        any
    }

    /// Puts a record into the log, as any writer could.
    pub fn put(&mut self, stream: Stream, partition: u32, record: impl Into<Bytes>) -> u64 {
        let appended = Timestamp::from_millis(self.wall().as_millis());
        let records = self.log.streams.entry((stream, partition)).or_default();
        let offset = records.len() as u64;
        records.push(Delivered {
            offset,
            appended,
            bytes: record.into(),
        });
        offset
    }

    /// Delivers some of the records, to followers in an order that the seed decides.
    fn deliver(&mut self) -> bool {
        let mut keys: Vec<(Stream, u32)> = self.follows.keys().copied().collect();
        for index in (1..keys.len()).rev() {
            keys.swap(index, self.random.below(index as u64 + 1) as usize);
        }
        let mut any = false;
        for (stream, partition) in keys {
            if self.held.contains(&stream) {
                continue;
            }
            let Some(following) = self.follows.get_mut(&(stream, partition)) else {
                continue;
            };
            let from = following.next as u64;
            let begun = std::mem::replace(&mut following.said_begun, true);
            let records = self.log.streams.get(&(stream, partition));
            let there = records.map_or(0, Vec::len);
            if there < following.next {
                // The log ends before: like a real log, it continues delivery at its end.
                let (wanted, next) = (following.next as u64, there as u64);
                following.next = there;
                self.step(Event::Log(LogEvent::Following {
                    stream,
                    partition,
                    from,
                }));
                self.step(Event::Log(LogEvent::Gap {
                    stream,
                    partition,
                    wanted,
                    next,
                }));
                any = true;
                continue;
            }
            let some = (there - following.next).min(1 + self.random.below(7) as usize);
            let chunk: Vec<Delivered> = records
                .map(|records| records[following.next..following.next + some].to_vec())
                .unwrap_or_default();
            following.next += some;
            let caught_up = following.next == there && !following.said_caught_up;
            following.said_caught_up |= caught_up;
            if !begun {
                self.step(Event::Log(LogEvent::Following {
                    stream,
                    partition,
                    from,
                }));
            }
            if !chunk.is_empty() {
                any = true;
                self.deliver_records(stream, partition, chunk);
            }
            if caught_up {
                any = true;
                self.rule_together();
                let next = there as u64;
                self.step(Event::Log(LogEvent::CaughtUp {
                    stream,
                    partition,
                    next,
                }));
            }
        }
        self.rule_together();
        any
    }

    /// Lets everything happen that can happen at this instant.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.round() {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Appends, delivers and takes one turn; returns whether nothing is left to be done at this instant.
    pub fn round(&mut self) -> bool {
        let appended = self.take_appends();
        let delivered = self.deliver();
        self.step(Event::Turn);
        let all_given = self.core.next_turn() != Span::ZERO;
        !appended && !delivered && all_given && self.appends.is_empty()
    }

    /// Moves the clock in small steps, and settles at each.
    pub fn run_for(&mut self, span: Span) {
        let end = self.clock.saturating_add(span);
        while self.clock < end {
            self.clock = self.clock.saturating_add(Span::from_millis(50)).min(end);
            self.settle();
        }
    }

    /// Reads a limits file and waits until it is in force.
    pub fn push(&mut self, limits: &str) {
        self.read_limits_file(limits);
        self.run_for(Span::from_secs(1));
    }

    pub fn read_limits_file(&mut self, limits: &str) {
        self.step(Event::LimitsFile(LimitsFile {
            name: "limits.toml".to_owned(),
            text: Ok(limits.to_owned()),
        }));
    }

    /// The bytes of a batch of hits of one pair, now.
    pub fn batch(&mut self, resource: &str, domain: &str, hits: usize) -> (u32, Vec<u8>) {
        let partition = partition_of_pair(resource, domain, PARTITIONS);
        let sender = self.sender("a", partition);
        let hit = Hit::one(0, domain, sender.sent, 1);
        let mut writer = Writer::new();
        let hits = vec![hit; hits];
        write_hits(
            &mut writer,
            &sender,
            &[resource],
            hits.into_iter(),
            [].into_iter(),
        );
        (partition, writer.as_slice().to_vec())
    }

    /// The bytes of a batch of one hit of each of these domains, which belong to one partition, now.
    pub fn batch_of(&mut self, resource: &str, domains: &[String]) -> Vec<u8> {
        let partition = partition_of_pair(resource, &domains[0], PARTITIONS);
        let sender = self.sender("a", partition);
        let hits = domains
            .iter()
            .map(|domain| Hit::one(0, domain, sender.sent, 1));
        let mut writer = Writer::new();
        write_hits(&mut writer, &sender, &[resource], hits, [].into_iter());
        writer.as_slice().to_vec()
    }

    /// The sender of an agent's next record for a partition.
    pub fn sender(&mut self, agent: &'static str, partition: u32) -> Sender<'static> {
        let sequence = self.sequences.entry(partition).or_default();
        *sequence += 1;
        Sender {
            agent,
            epoch: 1,
            sequence: *sequence,
            sent: BASE.saturating_add(self.clock),
        }
    }

    /// An agent appends a record.
    pub fn agent_appends(&mut self, partition: u32, record: Vec<u8>) {
        let request = Request::Append {
            id: 1,
            partition,
            record,
        };
        let peer = Peer(bytes::Bytes::from_static(b"p"));
        self.step(Event::Agent { peer, request });
    }

    /// An agent appends hits of one pair.
    pub fn hit(&mut self, resource: &str, domain: &str, hits: usize) {
        let (partition, record) = self.batch(resource, domain, hits);
        self.agent_appends(partition, record);
    }

    pub fn ask(&mut self, query: Query) -> Reply {
        self.queries += 1;
        let id = QueryId(self.queries);
        self.step(Event::Query { id, query });
        let at = self.replies.iter().position(|(of, _)| *of == id).unwrap();
        self.replies.remove(at).1
    }

    pub fn why_not_ready(&mut self) -> Vec<String> {
        match self.ask(Query::Readiness) {
            Reply::Readiness(view) => view.why,
            other => panic!("{other:?}"),
        }
    }

    pub fn digests(&mut self) -> DigestsView {
        match self.ask(Query::Digests) {
            Reply::Digests(view) => view,
            other => panic!("{other:?}"),
        }
    }

    pub fn pair(&mut self, resource: &str, domain: &str) -> PairView {
        let (resource, domain) = (resource.to_owned(), domain.to_owned());
        match self.ask(Query::Pair { resource, domain }) {
            Reply::Pair(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    pub fn counters(&mut self) -> tollgate_server::core::counters::Counters {
        match self.ask(Query::Counters) {
            Reply::Counters(counted) => counted.counters,
            other => panic!("{other:?}"),
        }
    }

    pub fn gauges(&mut self) -> Gauges {
        match self.ask(Query::Counters) {
            Reply::Counters(counted) => counted.gauges,
            other => panic!("{other:?}"),
        }
    }

    /// The number of statements published on the feed.
    pub fn announced(&self) -> usize {
        self.frames.iter().map(|frame| frame.statements.len()).sum()
    }

    /// Totals in the log, as their targets see them: resource, source, source offset.
    pub fn totals(&self) -> Vec<(String, u32, u64)> {
        let hits = (0..PARTITIONS).filter_map(|p| self.log.streams.get(&(Stream::Hits, p)));
        hits.flatten()
            .filter(|record| record.bytes[1] == kind::TOTALS)
            .map(|record| match Record::decode(&record.bytes) {
                Ok(Record::Totals(t)) => {
                    (t.resource.to_owned(), t.source_partition, t.source_offset)
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

/// An identity that no world has.
pub const STRANGER: LogId = LogId {
    generation: 9,
    random: 9,
};
