//! The client library's properties: ours, then the user's, except where correctness rests on ours.
//!
//! Knows no network. What stays true: a property of the table [`RESERVED`] has the value that it has
//! there, or nothing is made.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use tollgate_shared::kafka_properties::may_be_shown;

use super::{KafkaConfig, KafkaFault};

/// How long an append may wait for Kafka before it is answered "not now". As long as a short change of
/// leaders takes, and far below the five minutes after which couriers give a batch up.
const MESSAGE_TIMEOUT_MS: &str = "5000";

/// Properties that have to be as they are, by every name they go under.
const RESERVED: [(&[&str], &str, &str); 8] = [
    (
        &["enable.idempotence"],
        "true",
        "records of a partition must neither double nor change places",
    ),
    (
        &["acks", "request.required.acks"],
        "all",
        "what was acknowledged must survive the loss of a broker",
    ),
    (
        &["enable.auto.commit", "auto.commit.enable"],
        "false",
        "an offset is committed when what it caused is announced, and not before",
    ),
    (
        &["auto.offset.reset", "topic.auto.offset.reset"],
        "earliest",
        "records that have gone must be told, not skipped",
    ),
    (
        &["allow.auto.create.topics"],
        "false",
        "topics that a broker makes by itself lack LogAppendTime",
    ),
    (
        &["enable.partition.eof"],
        "false",
        "the ends of partitions are asked for",
    ),
    (
        &["partition.assignment.strategy"],
        "cooperative-sticky",
        "partitions move one at a time, and the others are ruled meanwhile",
    ),
    (
        &["isolation.level"],
        "read_committed",
        "what was never committed was never there",
    ),
];

/// Properties that are configured elsewhere.
const ELSEWHERE: [(&str, &str); 4] = [
    ("bootstrap.servers", "kafka.bootstrap"),
    ("metadata.broker.list", "kafka.bootstrap"),
    ("group.id", "kafka.group"),
    ("transactional.id", "nothing: transactions are not used"),
];

/// Our defaults, by every name they go under.
const DEFAULTS: [(&[&str], &str); 15] = [
    (&["client.id"], "tollgate"),
    // A batch is formed before it comes here.
    (&["linger.ms", "queue.buffering.max.ms"], "0"),
    (
        &["message.timeout.ms", "delivery.timeout.ms"],
        MESSAGE_TIMEOUT_MS,
    ),
    // The broker's own default. The library's is 1,000,000 with its framing, so that a record of the
    // greatest length that the wire allows would not fit.
    (&["message.max.bytes"], "1048588"),
    // The bounds on what waits to be sent: 64 MiB.
    (&["queue.buffering.max.messages"], "100000"),
    (&["queue.buffering.max.kbytes"], "65536"),
    // A broker ends a fetch when something comes, so this costs no delay; but a partition that is
    // followed anew waits until the fetch that is on its way has ended.
    (&["fetch.wait.max.ms"], "20"),
    // The library's default is a second, after each time its queue was full: catching up would crawl.
    (&["fetch.queue.backoff.ms"], "10"),
    (&["fetch.error.backoff.ms"], "100"),
    // What waits to be taken: 64 MiB.
    (&["queued.max.messages.kbytes"], "65536"),
    // How soon a member that was killed is missed: the least that brokers take by default. The
    // library's default is 45 s, in which nothing of that member's partitions would be ruled.
    (&["session.timeout.ms"], "6000"),
    (&["heartbeat.interval.ms"], "1000"),
    (&["reconnect.backoff.ms"], "100"),
    (&["reconnect.backoff.max.ms"], "1000"),
    // Idle connections are closed by brokers as a matter of course.
    (&["log.connection.close"], "false"),
];

/// What names a static member. The member's alone: no other client of this process is one.
const STATIC_MEMBER: &str = "group.instance.id";

/// The properties for a client of any kind.
pub(super) fn client(config: &KafkaConfig) -> Result<ClientConfig, KafkaFault> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", config.bootstrap.join(","));
    client.set("group.id", &config.group);
    for (names, value, why) in RESERVED {
        match given(config, names) {
            Some((name, found)) if !means(found, value) => {
                return Err(KafkaFault::Reserved {
                    name: name.clone(),
                    found: found.clone(),
                    needed: value.to_owned(),
                    why,
                });
            }
            _ => {}
        }
        if let [name, ..] = names {
            client.set(*name, value);
        }
    }
    for (names, value) in DEFAULTS {
        if let ([name, ..], None) = (names, given(config, names)) {
            client.set(*name, value);
        }
    }
    for (name, value) in &config.properties {
        if name == STATIC_MEMBER {
            continue;
        }
        let fault = |why: String| KafkaFault::Property {
            name: name.clone(),
            value: value.clone(),
            why,
        };
        if let Some((_, elsewhere)) = ELSEWHERE.iter().find(|(reserved, _)| reserved == name) {
            return Err(fault(format!("expected in its own place: {elsewhere}")));
        }
        if matches!(name.as_str(), "message.timeout.ms" | "delivery.timeout.ms") && value == "0" {
            return Err(fault(
                "expected at least 1: an append must be answered some time".to_owned(),
            ));
        }
        if !RESERVED
            .iter()
            .any(|(names, ..)| names.contains(&name.as_str()))
        {
            client.set(name, value);
        }
    }
    Ok(client)
}

/// The properties for a member of the group, which is told of partitions and reads nothing.
pub(super) fn member(config: &KafkaConfig) -> Result<ClientConfig, KafkaFault> {
    let mut member = client(config)?;
    if let Some(id) = config.properties.get(STATIC_MEMBER) {
        member.set(STATIC_MEMBER, id);
    }
    // What comes before a partition is paused is thrown away.
    member.set("queued.min.messages", "1");
    member.set("queued.max.messages.kbytes", "64");
    member.set("fetch.message.max.bytes", "1024");
    Ok(member)
}

/// The properties for one who reads a topic to its end and stops there.
pub(super) fn reader(config: &KafkaConfig) -> Result<ClientConfig, KafkaFault> {
    let mut reader = client(config)?;
    reader.set("enable.partition.eof", "true");
    Ok(reader)
}

/// What the user gave under any of these names.
fn given<'a>(config: &'a KafkaConfig, names: &[&str]) -> Option<(&'a String, &'a String)> {
    let mut found = names
        .iter()
        .filter_map(|name| config.properties.get_key_value(*name));
    found.next()
}

/// Whether a value is another way to write the one that is needed.
fn means(found: &str, needed: &str) -> bool {
    found == needed || (needed == "all" && found == "-1")
}

/// What the client library says of a configuration, as a fault.
pub(super) fn fault_of(error: KafkaError) -> KafkaFault {
    match error {
        KafkaError::ClientConfig(_, why, name, value) => KafkaFault::Property {
            value: match may_be_shown(&name, &why) {
                true => value,
                false => "…".to_owned(),
            },
            why: with_build(why),
            name,
        },
        other => KafkaFault::Client {
            why: with_build(other.to_string()),
        },
    }
}

/// What the library says, and what has to be built where it lacks something.
fn with_build(why: String) -> String {
    let build = match () {
        () if why.contains("OpenSSL not available") => "kafka-ssl or kafka-ssl-vendored",
        () if why.contains("No provider for SASL mechanism GSSAPI") => "kafka-gssapi",
        () if why.contains("No provider for SASL mechanism") => "kafka-ssl or kafka-ssl-vendored",
        () if why.contains("libzstd not available") => "kafka-zstd",
        () => return why,
    };
    format!(
        "{why}: expected a build with the feature {build} (tollgate --version lists what this one has)"
    )
}
