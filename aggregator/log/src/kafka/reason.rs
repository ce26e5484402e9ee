//! Why no broker can be reached, as a client that tries reports it.
//!
//! A failed query says no more than that no broker answered. The reason why connections broke is in a client's
//! events, which its poller receives, mixed with records. So this creates another client, without records, which
//! tries to connect the same way. What stays true: this is done only if no broker was reached, and takes bounded
//! time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::{KafkaConfig, KafkaFault, producer, properties};

/// How long the attempt may take if a caller waits for nothing but the reason.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The same in the log's thread, for which closing waits.
pub(super) const HASTE: Duration = Duration::from_secs(1);

/// How long to wait for a more precise reason than a broken connection.
const MORE_WITHIN: Duration = Duration::from_millis(500);

/// How often the client is polled for events.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The weightiest reason that the client has reported.
#[derive(Default)]
struct Hearing(Mutex<WeighedReason>);

#[derive(Clone, Default)]
struct WeighedReason {
    weight: Weight,
    reason: String,
}

/// Kinds of reasons, ordered by how well each explains that no broker is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    #[default]
    Nothing,
    /// A connection was refused, or broke.
    Broken,
    /// Broker and client do not trust each other's certificates, or one speaks no TLS.
    Tls,
    /// The broker does not accept our credentials.
    Identity,
}

impl Weight {
    fn of(code: RDKafkaErrorCode) -> Self {
        match code {
            RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedSASLMechanism
            | RDKafkaErrorCode::IllegalSASLState => Self::Identity,
            RDKafkaErrorCode::SSL => Self::Tls,
            // The first is known already, the others are about operations that nobody tried: none says why.
            RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::TopicAuthorizationFailed => Self::Nothing,
            _ => Self::Broken,
        }
    }
}

impl Hearing {
    fn found(&self) -> WeighedReason {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn weigh(&self, weight: Weight, reason: &str) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.weight < weight {
            *found = WeighedReason {
                weight,
                reason: reason.to_owned(),
            };
        }
    }
}

impl ClientContext for Hearing {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        producer::log_line(level, facility, message);
        // The library reports no error if a broker hangs up at once, as one does that expects TLS or SASL.
        if facility == "FAIL" {
            let reason = message.split_once("]: ").map_or(message, |(_, text)| text);
            self.weigh(Weight::Broken, reason);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let weight = error
            .rdkafka_error_code()
            .map_or(Weight::Broken, Weight::of);
        self.weigh(weight, reason);
    }
}

impl ConsumerContext for Hearing {}

/// Adds the reason to a fault, if the fault is that no broker was reached.
pub(super) fn of(config: &KafkaConfig, fault: KafkaFault, within: Duration) -> KafkaFault {
    let KafkaFault::Unreachable { bootstrap, why } = fault else {
        return fault;
    };
    let found = try_it(config, within).unwrap_or_default();
    let reason = found.reason;
    match found.weight {
        Weight::Nothing => KafkaFault::Unreachable { bootstrap, why },
        // Listeners that expect TLS or SASL hang up on clients that use another protocol.
        Weight::Broken if reason.contains("Disconnected") => KafkaFault::Unreachable {
            bootstrap,
            why: format!("{why}: {reason}: expected security.protocol to be the listener's"),
        },
        Weight::Broken => KafkaFault::Unreachable {
            bootstrap,
            why: format!("{why}: {reason}"),
        },
        Weight::Tls => KafkaFault::Unreachable {
            bootstrap,
            why: format!(
                "{why}: {reason}: expected security.protocol to be the listener's, and ssl.ca.location to name \
                 the authority of its certificate"
            ),
        },
        Weight::Identity => KafkaFault::NotAuthenticated {
            bootstrap,
            why: reason,
        },
    }
}

fn try_it(config: &KafkaConfig, within: Duration) -> Option<WeighedReason> {
    let mut trying = properties::client(config).ok()?;
    trying.set("log.connection.close", "true");
    trying.set_log_level(RDKafkaLogLevel::Info);
    let client: BaseConsumer<Hearing> = trying.create_with_context(Hearing::default()).ok()?;
    let context = client.client().context();
    let mut end = Instant::now() + within;
    let mut has_begun = false;
    // One of several brokers may refuse the connection while another reports a better reason.
    while context.found().weight < Weight::Tls && Instant::now() < end {
        // The client follows nothing, so polling it loses no records.
        let _ = client.poll(LOOK_EVERY);
        if !has_begun && context.found().weight == Weight::Broken {
            has_begun = true;
            end = end.min(Instant::now() + MORE_WITHIN);
        }
    }
    Some(context.found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_does_not_answer_is_reported() {
        // Nothing listens on port 1.
        let config = KafkaConfig::new("127.0.0.1:1");
        let fault = KafkaFault::Unreachable {
            bootstrap: "127.0.0.1:1".to_owned(),
            why: "no broker can be reached".to_owned(),
        };
        let text = of(&config, fault, PATIENCE).to_string();
        let expected = "kafka at 127.0.0.1:1: no broker can be reached: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("refused"), "{text}");
    }

    #[test]
    fn another_fault_has_its_own_reason() {
        let fault = KafkaFault::Missing {
            topic: "t.hits".to_owned(),
        };
        let begun = Instant::now();
        let config = KafkaConfig::new("127.0.0.1:1");
        assert_eq!(of(&config, fault.clone(), PATIENCE), fault);
        assert!(begun.elapsed() < HASTE, "nothing is tried");
    }
}
