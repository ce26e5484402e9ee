//! The client library's properties: ours, overridden by the user's, except where correctness depends on ours.
//!
//! Uses no network. What stays true: no client is created unless each property of the table [`RESERVED`] has the
//! value in that table.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use tollgate_shared::kafka_properties::may_be_shown;

use super::{KafkaConfig, KafkaFault};

/// How long an append may wait for Kafka before it is answered "not now". As long as a short change of leaders
/// takes, and far below the five minutes after which couriers give up a batch.
const MESSAGE_TIMEOUT_MS: &str = "5000";

/// Properties with a required value, by all of their names.
const RESERVED: [(&[&str], &str, &str); 8] = [
    (
        &["enable.idempotence"],
        "true",
        "records of a partition must be neither duplicated nor reordered",
    ),
    (
        &["acks", "request.required.acks"],
        "all",
        "what was acknowledged must survive the loss of a broker",
    ),
    (
        &["enable.auto.commit", "auto.commit.enable"],
        "false",
        "an offset is committed only when the rulings up to it are announced",
    ),
    (
        &["auto.offset.reset", "topic.auto.offset.reset"],
        "earliest",
        "removed records must be reported, not skipped",
    ),
    (
        &["allow.auto.create.topics"],
        "false",
        "topics that a broker creates by itself lack LogAppendTime",
    ),
    (
        &["enable.partition.eof"],
        "false",
        "the ends of partitions are queried",
    ),
    (
        &["partition.assignment.strategy"],
        "cooperative-sticky",
        "partitions move one at a time, and the others are ruled meanwhile",
    ),
    (
        &["isolation.level"],
        "read_committed",
        "uncommitted records must not be read",
    ),
];

/// Properties that have another place in the configuration.
const ELSEWHERE: [(&str, &str); 4] = [
    ("bootstrap.servers", "kafka.bootstrap"),
    ("metadata.broker.list", "kafka.bootstrap"),
    ("group.id", "kafka.group"),
    ("transactional.id", "nothing: transactions are not used"),
];

/// Our defaults, by all names of the property.
const DEFAULTS: [(&[&str], &str); 14] = [
    (&["client.id"], "tollgate"),
    // Records are batches already, so the producer need not wait for more.
    (&["linger.ms", "queue.buffering.max.ms"], "0"),
    (
        &["message.timeout.ms", "delivery.timeout.ms"],
        MESSAGE_TIMEOUT_MS,
    ),
    // The broker's own default. The library's is 1,000,000 including framing, too small for a record of the greatest
    // length that the wire allows.
    (&["message.max.bytes"], "1048588"),
    // The bounds on records that wait to be sent: 64 MiB.
    (&["queue.buffering.max.messages"], "100000"),
    (&["queue.buffering.max.kbytes"], "65536"),
    // A broker ends a fetch when a record comes, so this adds no delay; but a newly followed partition waits until
    // the current fetch has ended.
    (&["fetch.wait.max.ms"], "20"),
    // The library's default is a second, after each time its queue was full: catching up would be very slow.
    (&["fetch.queue.backoff.ms"], "10"),
    (&["fetch.error.backoff.ms"], "100"),
    // The bound on fetched records that wait to be taken: 64 MiB.
    (&["queued.max.messages.kbytes"], "65536"),
    (&[HEARTBEAT], "1000"),
    (&["reconnect.backoff.ms"], "100"),
    (&["reconnect.backoff.max.ms"], "1000"),
    // Brokers routinely close idle connections.
    (&["log.connection.close"], "false"),
];

/// The property that names a static member. Only the member's client gets it.
const STATIC_MEMBER: &str = "group.instance.id";

/// The property for how long a group waits for a silent member.
const SESSION_TIMEOUT: &str = "session.timeout.ms";

/// The property for how often a member sends a heartbeat.
const HEARTBEAT: &str = "heartbeat.interval.ms";

/// How soon a group notices that a member was killed. Until then nobody rules that member's partitions. The
/// library's default is 45 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupSession {
    /// Two seconds, for brokers whose `group.min.session.timeout.ms` allows so little.
    Short,
    /// Six seconds: the least that brokers allow by default. Also for static members, which must restart within it.
    Usual,
    /// As configured.
    Configured,
}

impl GroupSession {
    /// The session to begin with.
    pub(super) fn of(config: &KafkaConfig) -> Self {
        if given(config, &[SESSION_TIMEOUT]).is_some() {
            Self::Configured
        } else if config.properties.contains_key(STATIC_MEMBER) {
            Self::Usual
        } else {
            Self::Short
        }
    }

    /// The properties that it sets over the configuration and our defaults.
    const fn properties(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Short => &[(SESSION_TIMEOUT, "2000"), (HEARTBEAT, "400")],
            Self::Usual => &[(SESSION_TIMEOUT, "6000")],
            Self::Configured => &[],
        }
    }
}

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
            return Err(fault(format!("expected its own option: {elsewhere}")));
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

/// The properties for a member of the group, which learns its partitions and reads nothing.
pub(super) fn member(
    config: &KafkaConfig,
    session: GroupSession,
) -> Result<ClientConfig, KafkaFault> {
    let mut member = client(config)?;
    for (name, value) in session.properties() {
        if given(config, &[name]).is_none() {
            member.set(*name, *value);
        }
    }
    if let Some(id) = config.properties.get(STATIC_MEMBER) {
        member.set(STATIC_MEMBER, id);
    }
    // Records that arrive before a partition is paused are thrown away.
    member.set("queued.min.messages", "1");
    member.set("queued.max.messages.kbytes", "64");
    member.set("fetch.message.max.bytes", "1024");
    Ok(member)
}

/// The properties for a client that reads a topic to its end and stops there.
pub(super) fn reader(config: &KafkaConfig) -> Result<ClientConfig, KafkaFault> {
    let mut reader = client(config)?;
    reader.set("enable.partition.eof", "true");
    Ok(reader)
}

/// The user's value under any of these names.
fn given<'a>(config: &'a KafkaConfig, names: &[&str]) -> Option<(&'a String, &'a String)> {
    let mut found = names
        .iter()
        .filter_map(|name| config.properties.get_key_value(*name));
    found.next()
}

/// Whether a value is another spelling of the required one.
fn means(found: &str, needed: &str) -> bool {
    found == needed || (needed == "all" && found == "-1")
}

/// An error of the client library about a configuration, as a fault.
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

/// The library's error, with a hint what has to be built if the library lacks a feature.
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
