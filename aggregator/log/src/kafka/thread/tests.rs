//! Partitions without a leader, on the client library's own small broker.
//!
//! That broker describes no topics' settings, so the thread's turns are taken here, without preparing the topics.

use std::collections::BTreeMap;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::RDKafkaApiKey;

use super::super::topics::{Topic, name};
use super::*;
use crate::{LogReceiver, channel};

/// Far more than a loaded machine needs.
const SOON: Duration = Duration::from_secs(30);

const PARTITIONS: u32 = 3;

/// The library's broker, and a thread's worker beside it.
struct Kit {
    worker: Worker,
    commands: Sender<LogCommand>,
    inbox: LogReceiver,
    tickets: u64,
    /// By partition: the offsets of the delivered records.
    delivered: BTreeMap<u32, Vec<u64>>,
    /// By partition: where its follows began.
    began: BTreeMap<u32, Vec<u64>>,
    /// Events that no test expects.
    others: Vec<LogEvent>,
    /// Dropped last.
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl Kit {
    fn new() -> Self {
        let cluster = MockCluster::new(1).expect("a broker");
        // Later versions of its answer name the leader, and it crashes if a partition has no leader.
        let older = cluster.apiversion(RDKafkaApiKey::Fetch, Some(0), Some(11));
        older.expect("taken");
        let config = KafkaConfig {
            partitions: PARTITIONS,
            ..KafkaConfig::new(cluster.bootstrap_servers())
        };
        for topic in Topic::ALL {
            let partitions = i32::try_from(topic.partitions(PARTITIONS)).expect("few");
            let made = cluster.create_topic(&name(&config, topic), partitions, 1);
            made.expect("a topic");
        }
        let (events, inbox) = channel(1024);
        let (commands, for_worker) = std::sync::mpsc::channel();
        let worker = Worker::new(config, for_worker, events).expect("good settings");
        worker.shared.set_ready();
        Self {
            cluster,
            worker,
            commands,
            inbox,
            tickets: 0,
            delivered: BTreeMap::new(),
            began: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    fn hits(&self) -> String {
        name(&self.worker.config, Topic::Hits)
    }

    /// Gives a partition of hits its leader, or takes that leader away.
    fn lead(&self, partition: i32, is_led: bool) {
        let leader = is_led.then_some(1);
        let led = self
            .cluster
            .partition_leader(&self.hits(), partition, leader);
        led.expect("changed");
    }

    fn follow(&self, partition: u32, from: u64) {
        let wanted = WantedFollow {
            stream: Stream::Hits,
            partition,
            from: FollowFrom::Offset(from),
        };
        let sent = self.commands.send(LogCommand::Follow(wanted));
        sent.expect("the worker takes it");
    }

    fn append(&mut self, partition: u32) {
        self.tickets += 1;
        let (topic, ticket) = (self.hits(), Ticket(self.tickets));
        let sent = self.worker.shared.send(&topic, partition, ticket, b"x");
        sent.expect("sent");
    }

    /// Takes turns until so many records of a partition were delivered.
    fn await_records(&mut self, partition: u32, count: usize) {
        let until = Instant::now() + SOON;
        while self.delivered.get(&partition).map_or(0, Vec::len) < count {
            assert!(Instant::now() < until, "{:?}", self.delivered);
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.worker.turn(true);
        while let Some(event) = self.inbox.try_recv() {
            match event {
                LogEvent::Delivered {
                    partition, records, ..
                } => {
                    let offsets = records.iter().map(|record| record.offset);
                    self.delivered.entry(partition).or_default().extend(offsets);
                }
                LogEvent::Following {
                    partition, from, ..
                } => self.began.entry(partition).or_default().push(from),
                LogEvent::CaughtUp { .. } | LogEvent::Appended { .. } => {}
                // A busy machine may take a second for an answer.
                LogEvent::Down { .. } | LogEvent::Up => {}
                other => self.others.push(other),
            }
        }
    }
}

#[test]
fn a_partition_without_leader_keeps_no_other_from_beginning() {
    let mut kit = Kit::new();
    kit.lead(0, false);
    kit.follow(0, 1);
    kit.follow(0, 0);
    for partition in 1..PARTITIONS {
        kit.follow(partition, 0);
        kit.append(partition);
        kit.await_records(partition, 1);
    }
    assert_eq!(kit.worker.unknown_since, None, "it is not unknown");
    assert!(!kit.began.contains_key(&0));
    kit.lead(0, true);
    kit.append(0);
    kit.await_records(0, 1);
    assert_eq!(kit.began[&0], [1, 0], "in the order of the requests");
}

#[test]
fn a_new_client_leaves_a_partition_without_leader_for_later() {
    let mut kit = Kit::new();
    for partition in [0, 1] {
        kit.follow(partition, 0);
        kit.append(partition);
        kit.await_records(partition, 1);
    }
    kit.lead(0, false);
    let client = consumer::create(&kit.worker.config);
    kit.worker.begin_again(client);
    kit.append(1);
    kit.await_records(1, 2);
    let waiting: Vec<u32> = { kit.worker.waiting.iter() }
        .map(|one| one.partition)
        .collect();
    assert_eq!(waiting, [0]);
    kit.lead(0, true);
    kit.append(0);
    kit.await_records(0, 2);
    assert_eq!(kit.delivered, [(0, vec![0, 1]), (1, vec![0, 1])].into());
    assert_eq!(kit.began, [(0, vec![0]), (1, vec![0])].into());
    assert_eq!(kit.others, []);
}
