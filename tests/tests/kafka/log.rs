//! Tollgate's log on a real Kafka: the promises of every log, its topics, and a broker that goes away.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use tollgate_log::kafka::reader::{KafkaRead, KafkaReader, offset_before};
use tollgate_log::kafka::{self, Expected, KafkaConfig, KafkaFault, KafkaLog};
use tollgate_log::{AppendError, Log, LogEvent, LogReceiver, LogSender, Stream, Ticket, channel};
use tollgate_shared::time::Span;
use tollgate_tests::conformance::{self, Medium, PARTITIONS};
use tollgate_tests::kafka::LocalKafka;

use crate::gap::delete_all;

/// Far more than a loaded machine needs; a deadline for a broken one.
const WITHIN: Duration = Duration::from_secs(60);

fn config(bootstrap: &str, topic_prefix: String) -> KafkaConfig {
    KafkaConfig {
        topic_prefix,
        partitions: PARTITIONS,
        ..KafkaConfig::new(bootstrap)
    }
}

struct Topics(KafkaConfig);

impl Medium for Topics {
    fn open(&self, events: LogSender) -> Box<dyn Log> {
        Box::new(KafkaLog::open(self.0.clone(), events).expect("opens"))
    }
}

pub fn kafka_keeps_every_promise_of_a_log(kafka: &LocalKafka) {
    conformance::hold(|| {
        let prefix = kafka.fresh_name("conformance");
        Box::new(Topics(config(kafka.bootstrap(), prefix)))
    });
}

/// A topic that does not fit: what is wrong, the topic's name, its partitions, its settings.
type Unfit<'a> = (&'a str, &'a str, i32, &'a [(&'a str, &'a str)]);

const APPEND_TIME: (&str, &str) = ("message.timestamp.type", "LogAppendTime");

const UNFIT: [Unfit<'_>; 6] = [
    (
        "message.timestamp.type",
        "hits",
        3,
        &[("message.timestamp.type", "CreateTime")],
    ),
    (
        "cleanup.policy",
        "denials",
        3,
        &[APPEND_TIME, ("cleanup.policy", "compact")],
    ),
    (
        "retention.ms",
        "limits",
        1,
        &[APPEND_TIME, ("retention.ms", "1000")],
    ),
    (
        "partitions",
        "limits",
        2,
        &[APPEND_TIME, ("retention.ms", "-1")],
    ),
    ("cleanup.policy", "state", 3, &[APPEND_TIME]),
    (
        "unclean.leader.election.enable",
        "hits",
        3,
        &[APPEND_TIME, ("unclean.leader.election.enable", "true")],
    ),
];

pub fn missing_topics_are_made_and_unfit_ones_refused(kafka: &LocalKafka) {
    let wanted = config(kafka.bootstrap(), kafka.fresh_name("made"));
    let made = kafka::check(&wanted, kafka::Missing::Create).expect("it may create topics");
    let is_named = |made: &String| made.starts_with(&wanted.topic_prefix);
    assert!(made.len() == 6 && made.iter().all(is_named), "{made:?}");
    assert_eq!(
        kafka::check(&wanted, kafka::Missing::Create),
        Ok(Vec::new()),
        "what it made, it takes"
    );
    let limits = format!("{}.limits", wanted.topic_prefix);
    assert_eq!(property(kafka, &limits, "retention.ms"), "-1");
    assert_eq!(
        property(kafka, &limits, "message.timestamp.type"),
        "LogAppendTime"
    );

    let more = KafkaConfig {
        partitions: PARTITIONS + 1,
        ..wanted
    };
    let fault = kafka::check(&more, kafka::Missing::Create);
    let Err(KafkaFault::Unfit {
        topic,
        setting,
        found,
        expected,
        ..
    }) = fault
    else {
        panic!("{fault:?}");
    };
    assert_eq!(topic, format!("{}.hits", more.topic_prefix));
    assert_eq!((setting, found), ("partitions", PARTITIONS.to_string()));
    assert_eq!(expected, Expected::Exactly(u64::from(PARTITIONS) + 1));

    for unfit in UNFIT {
        is_refused(kafka, unfit);
    }
}

fn is_refused(kafka: &LocalKafka, (wrong, topic, partitions, properties): Unfit<'_>) {
    let prefix = kafka.fresh_name("unfit");
    let topic = format!("{prefix}.{topic}");
    create(kafka, &topic, partitions, properties);
    let fault = kafka::check(&config(kafka.bootstrap(), prefix), kafka::Missing::Create)
        .expect_err("unfit");
    let text = fault.to_string();
    assert!(text.contains(&topic), "{text}");
    let KafkaFault::Unfit { setting, .. } = fault else {
        panic!("{text}");
    };
    assert_eq!(setting, wrong, "{text}");
}

pub fn two_logs_follow_the_same_records(kafka: &LocalKafka) {
    let config = config(kafka.bootstrap(), kafka.fresh_name("two"));
    let mut logs = [Open::of(&config), Open::of(&config)];
    for open in &mut logs {
        open.log.follow(Stream::Hits, 1, 0);
        open.find(|event| matches!(event, LogEvent::CaughtUp { .. }).then_some(()));
    }
    for n in 0..50 {
        let [first, second] = &mut logs;
        let writer = if n % 2 == 0 { first } else { second };
        assert_eq!(writer.append(Ticket(n)), Ok(n), "one order for both");
    }
    for open in &mut logs {
        let mut read = Vec::new();
        while read.len() < 50 {
            read.extend(open.find(|event| {
                match event {
                    LogEvent::Delivered { records, .. } => Some(
                        records
                            .iter()
                            .map(|record| record.offset)
                            .collect::<Vec<_>>(),
                    ),
                    _ => None,
                }
            }));
        }
        assert!(read.into_iter().eq(0..50));
    }
}

/// The library aborts the process if a partition is assigned again before it has begun to fetch, in most runs of a few.
pub fn a_log_without_its_beginning_is_read_and_followed_from_what_is_left(kafka: &LocalKafka) {
    let config = config(kafka.bootstrap(), kafka.fresh_name("left"));
    let mut open = Open::of(&config);
    for n in 0..20 {
        assert_eq!(open.append(Ticket(n)), Ok(n));
    }
    let first = delete_all(kafka, &format!("{}.hits", config.topic_prefix), 1);
    assert_eq!(first, 20);
    assert_eq!(open.append(Ticket(20)), Ok(20));
    for _ in 0..20 {
        let mut reader = KafkaReader::open(&config, Stream::Hits, 1, 0).expect("reads");
        let gone = reader.read().expect("reads");
        let KafkaRead::Gone { wanted, first } = gone else {
            panic!("{gone:?}");
        };
        assert_eq!((wanted, first), (0, 20));
        let read = reader.read().expect("reads");
        let KafkaRead::Records(records) = read else {
            panic!("{read:?}");
        };
        assert_eq!(records.len(), 1);
    }
    // Each begins anew, before the one before it has received anything.
    for _ in 0..20 {
        open.log.follow(Stream::Hits, 1, 0);
    }
    for _ in 0..20 {
        open.find(|event| matches!(event, LogEvent::Gap { next: 20, .. }).then_some(()));
    }
    open.find(|event| matches!(event, LogEvent::Delivered { .. }).then_some(()));
}

pub fn the_first_record_since_an_instant_is_found(kafka: &LocalKafka) {
    let config = config(kafka.bootstrap(), kafka.fresh_name("instant"));
    let mut open = Open::of(&config);
    for n in 0..20 {
        assert_eq!(open.append(Ticket(n)), Ok(n));
    }
    let mut reader = KafkaReader::open(&config, Stream::Hits, 1, 0).expect("reads");
    let mut appended = Vec::new();
    while let KafkaRead::Records(records) = reader.read().expect("reads") {
        appended.extend(records.iter().map(|record| record.appended));
    }
    assert_eq!(appended.len(), 20);
    let before = |partition, instant| {
        let offset = offset_before(&config, Stream::Hits, partition, instant);
        offset.expect("an answer") as usize
    };
    for instant in &appended {
        let first = appended.partition_point(|of| of < instant);
        assert_eq!(before(1, *instant), first, "{instant:?} in {appended:?}");
    }
    let later = appended[19].saturating_add(Span::from_millis(1));
    assert_eq!((before(1, later), before(0, later)), (20, 0));
}

pub fn a_broker_that_returns_is_reported_once(_shared: &LocalKafka) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = LocalKafka::start_in(dir.path(), 0).expect("a broker of its own");
    let address: SocketAddr = broker.bootstrap().parse().expect("an address");
    let mut config = config(broker.bootstrap(), "outage".to_owned());
    let soon = ("message.timeout.ms".to_owned(), "1500".to_owned());
    config.properties.extend([soon]);
    let mut open = Open::of(&config);
    open.log.follow(Stream::Hits, 1, 0);
    assert_eq!(open.append(Ticket(1)), Ok(0));

    drop(broker);
    open.find(|event| matches!(event, LogEvent::Down { .. }).then_some(()));
    let refused = open.append(Ticket(2));
    assert!(
        matches!(refused, Err(AppendError::NotNow(_))),
        "{refused:?}"
    );

    let _broker = LocalKafka::start_in(dir.path(), address.port()).expect("the broker again");
    let reason = open.find(|event| match event {
        LogEvent::Down { .. } | LogEvent::Up => Some(event.clone()),
        _ => None,
    });
    assert_eq!(reason, LogEvent::Up);
    let appended = open.append(Ticket(3)).expect("appended again");
    let mut read = Vec::new();
    while read.last() != Some(&appended) {
        read.extend(open.find(|event| {
            match event {
                LogEvent::Delivered { records, .. } => Some(
                    records
                        .iter()
                        .map(|record| record.offset)
                        .collect::<Vec<_>>(),
                ),
                LogEvent::Gap { .. } | LogEvent::Broken { .. } => panic!("{event:?}"),
                _ => None,
            }
        }));
    }
    // Refused records may be there all the same; nothing else is, and nothing twice.
    assert!(read.is_sorted_by(|a, b| a < b), "{read:?}");
    assert_eq!(read.first(), Some(&0));
    open.log.close();
    open.find(|event| (*event == LogEvent::Closed).then_some(()));
}

/// An open log and its events.
struct Open {
    log: KafkaLog,
    inbox: LogReceiver,
    passed_over: Vec<LogEvent>,
    clock: tokio::runtime::Runtime,
}

impl Open {
    /// Opens a log and waits until it accepts appends.
    fn of(config: &KafkaConfig) -> Self {
        let (events, inbox) = channel(64);
        let mut open = Self {
            log: KafkaLog::open(config.clone(), events).expect("opens"),
            inbox,
            passed_over: Vec::new(),
            clock: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime"),
        };
        open.log.follow(Stream::Limits, 0, 0);
        open.find(|event| matches!(event, LogEvent::CaughtUp { .. }).then_some(()));
        open
    }

    fn append(&mut self, ticket: Ticket) -> Result<u64, AppendError> {
        self.log
            .append(Stream::Hits, 1, ticket, Bytes::from_static(b"record"));
        self.find(|event| event.answer_to(ticket).cloned())
    }

    fn find<T>(&mut self, pick: impl Fn(&LogEvent) -> Option<T>) -> T {
        if let Some(at) = self.passed_over.iter().position(|e| pick(e).is_some()) {
            return pick(&self.passed_over.remove(at)).expect("as before");
        }
        loop {
            let waiting = async { tokio::time::timeout(WITHIN, self.inbox.recv()).await };
            let event = self.clock.block_on(waiting).expect("an event in time");
            let event = event.expect("the log is open");
            match pick(&event) {
                Some(found) => return found,
                None => self.passed_over.push(event),
            }
        }
    }
}

pub(crate) fn admin(kafka: &LocalKafka) -> AdminClient<DefaultClientContext> {
    ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .expect("a client")
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(future)
}

pub(crate) fn create(
    kafka: &LocalKafka,
    topic: &str,
    partitions: i32,
    properties: &[(&str, &str)],
) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    new.config = properties.to_vec();
    let options = AdminOptions::new().operation_timeout(Some(WITHIN));
    let made = block_on(admin(kafka).create_topics([&new], &options)).expect("asked");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

pub(crate) fn property(kafka: &LocalKafka, topic: &str, name: &str) -> String {
    let specifier = [ResourceSpecifier::Topic(topic)];
    let options = AdminOptions::new().request_timeout(Some(WITHIN));
    let described = block_on(admin(kafka).describe_configs(&specifier, &options)).expect("asked");
    let entry = described.first().expect("one").as_ref().expect("known");
    entry
        .get(name)
        .and_then(|entry| entry.value.clone())
        .unwrap_or_default()
}
