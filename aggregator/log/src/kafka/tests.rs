//! Promises that need no broker: properties, and what an owner sees while no broker answers.

use std::time::{Duration, Instant};

use super::*;
use crate::LogEvent;

fn config() -> KafkaConfig {
    // Nothing listens on port 1.
    KafkaConfig::new("127.0.0.1:1")
}

fn with(name: &str, value: &str) -> Result<rdkafka::ClientConfig, KafkaFault> {
    let mut config = config();
    config.properties.insert(name.to_owned(), value.to_owned());
    properties::client(&config)
}

#[test]
fn a_property_that_correctness_rests_on_is_refused_by_name() {
    for (name, value) in [
        ("enable.idempotence", "false"),
        ("acks", "1"),
        ("request.required.acks", "0"),
        ("enable.auto.commit", "true"),
        ("auto.offset.reset", "latest"),
    ] {
        let Err(KafkaFault::Reserved {
            name: text, found, ..
        }) = with(name, value)
        else {
            panic!("{name} = {value} was taken");
        };
        assert_eq!((text.as_str(), found.as_str()), (name, value));
    }
    for (name, value) in [
        ("bootstrap.servers", "x:1"),
        ("group.id", "b"),
        ("message.timeout.ms", "0"),
    ] {
        let fault = with(name, value).err();
        assert!(matches!(fault, Some(KafkaFault::Property { .. })), "{name}");
    }
    assert!(with("acks", "-1").is_ok());
}

#[test]
fn other_properties_beat_our_defaults_under_any_of_their_names() {
    let client = with("linger.ms", "7").expect("taken");
    assert_eq!(client.get("linger.ms"), Some("7"));
    let client = with("queue.buffering.max.ms", "7").expect("taken");
    assert_eq!(client.get("linger.ms"), None);
    assert_eq!(client.get("queue.buffering.max.ms"), Some("7"));
    assert_eq!(client.get("acks"), Some("all"));
}

#[test]
fn a_member_times_out_soon_unless_it_is_static() {
    let session = |properties: &[(&str, &str)]| {
        let mut config = config();
        for (name, value) in properties {
            let (name, value) = ((*name).to_owned(), (*value).to_owned());
            config.properties.insert(name, value);
        }
        let session = properties::GroupSession::of(&config);
        let member = properties::member(&config, session).expect("taken");
        let of = |name| member.get(name).unwrap_or_default().to_owned();
        (of("session.timeout.ms"), of("heartbeat.interval.ms"))
    };
    let both = |timeout: &str, heartbeat: &str| (timeout.to_owned(), heartbeat.to_owned());
    assert_eq!(session(&[]), both("2000", "400"));
    assert_eq!(
        session(&[("group.instance.id", "agg-1")]),
        both("6000", "1000")
    );
    assert_eq!(
        session(&[("session.timeout.ms", "9000")]),
        both("9000", "1000")
    );
    assert_eq!(
        session(&[("heartbeat.interval.ms", "300")]),
        both("2000", "300")
    );
}

#[test]
fn a_property_that_the_library_does_not_know_is_named() {
    let mut config = config();
    config
        .properties
        .insert("lingr.ms".to_owned(), "1".to_owned());
    let (events, _inbox) = crate::channel(8);
    let Err(KafkaFault::Property { name, .. }) = KafkaLog::open(config, events) else {
        panic!("taken");
    };
    assert_eq!(name, "lingr.ms");
}

#[test]
fn a_missing_capability_names_its_build_feature() {
    if cfg!(any(
        feature = "kafka-ssl",
        feature = "kafka-ssl-vendored",
        feature = "kafka-gssapi"
    )) {
        return;
    }
    let opened = |properties: &[(&str, &str)]| {
        let mut config = config();
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        config.properties.extend(properties.iter().map(owned));
        let (events, _inbox) = crate::channel(8);
        KafkaLog::open(config, events)
            .err()
            .map(|fault| fault.to_string())
    };
    for properties in [
        &[("security.protocol", "SASL_SSL")][..],
        &[
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "somebody"),
            ("sasl.password", "secret"),
        ],
    ] {
        let text = opened(properties).expect("a fault");
        assert!(text.contains("the feature kafka-ssl or"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn without_kafka_appends_are_refused_and_close_returns() {
    let (events, mut inbox) = crate::channel(64);
    let mut log = KafkaLog::open(config(), events).expect("opens");
    let begun = Instant::now();
    log.follow(Stream::Hits, 0, 0);
    log.append(Stream::Hits, 0, Ticket(1), Bytes::from_static(b"x"));
    log.append(Stream::Hits, 99, Ticket(2), Bytes::from_static(b"x"));
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "calls do not wait"
    );
    let (mut downs, mut answers) = (0, Vec::new());
    while answers.len() < 2 {
        match inbox.blocking_recv().expect("an event") {
            LogEvent::Down { why } => {
                downs += 1;
                assert!(why.contains("127.0.0.1:1"), "{why}");
            }
            LogEvent::Appended { answers: some, .. } => {
                answers.extend(some.into_iter().map(|one| (one.ticket.0, one.result)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(downs, 1);
    assert!(matches!(answers[0], (1, Err(AppendError::NotNow(_)))));
    assert!(matches!(answers[1], (2, Err(AppendError::Never(_)))));
    log.close();
    assert_eq!(inbox.blocking_recv(), Some(LogEvent::Closed));
    let fault = check(&config(), Missing::Create).err();
    assert!(
        matches!(fault, Some(KafkaFault::Unreachable { .. })),
        "{fault:?}"
    );
}

#[test]
fn faults_that_an_outage_has_queued_are_taken_at_once() {
    let (events, _inbox) = crate::channel::channel(8);
    let client = consumer::create(&config()).expect("a client");
    let mut follows = consumer::Follows::new(&config(), client, events);
    // The client tries to connect again and again.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut most = 0;
    while most < 2 {
        assert!(Instant::now() < deadline, "{most}");
        std::thread::sleep(Duration::from_millis(500));
        let (records, faults) = follows.deliver(Duration::ZERO);
        assert_eq!(records, 0);
        most = most.max(faults.len());
        let (_, left) = follows.deliver(Duration::ZERO);
        assert!(left.len() <= most, "{left:?}");
    }
}
