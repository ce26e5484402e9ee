//! Clients that have lost every broker for good, and are recreated.
//!
//! ```text
//! broker silent beyond its session ──▶ fenced: names no broker at all ──▶ client forgets them all, asks nobody
//! nothing for a while ──▶ a fresh client finds brokers? ── yes ──▶ it replaces the old one
//!                                                       └─ no ──▶ Kafka is away; asked again in a while
//! ```
//!
//! The client library drops brokers that a metadata answer does not name, even those that it was configured
//! with (since 2.10: confluentinc/librdkafka, issue 5301). A broker that was suspended for longer than its
//! session sends such an answer until it is taken back. A client that receives one may stay silent for ever
//! while Kafka works. Knows nothing of what a client is for. What stays true: while Kafka answers no client,
//! none is recreated.

use std::time::{Duration, Instant};

use rdkafka::client::{Client, ClientContext};

use super::topics::{self, Topic};
use super::{KafkaConfig, consumer};

/// How long a client may reach no broker before another one is tried. Changes of leaders take less, and a
/// client that reconnects within this time finds its brokers by itself.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long brokers may take to answer a metadata query.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The same before a client is given up: three times its longest pause between attempts.
const IN_THE_END: Duration = Duration::from_secs(3);

/// Since when a client has reached no broker.
#[derive(Debug, Default)]
pub(super) struct Silence(Option<Instant>);

impl Silence {
    /// A broker answered.
    pub fn broken(&mut self) {
        self.0 = None;
    }

    /// No broker answered. Returns true once for every [`SILENCE_MAX`] of silence.
    pub fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        let since = *self.0.get_or_insert(now);
        let is_long = SILENCE_MAX <= now - since;
        if is_long {
            self.0 = Some(now);
        }
        is_long
    }
}

/// Whether a client reaches brokers.
pub(super) fn is_reached<C: ClientContext>(config: &KafkaConfig, client: &Client<C>) -> bool {
    reaches(config, client, ANSWER_WITHIN)
}

fn reaches<C: ClientContext>(config: &KafkaConfig, client: &Client<C>, within: Duration) -> bool {
    let hits = topics::name(config, Topic::Hits);
    client
        .fetch_metadata(Some(&hits), within)
        .is_ok_and(|found| !found.brokers().is_empty())
}

/// A client that reaches brokers if the old one, asked again with more time, does not. `None` if Kafka is away,
/// or has only just come back.
pub(super) fn new_client<C: ClientContext>(
    config: &KafkaConfig,
    whose: &'static str,
    old: &Client<C>,
) -> Option<consumer::Client> {
    let client = fresh(config)?;
    let is_lost = !reaches(config, old, IN_THE_END);
    if is_lost {
        tracing::warn!(
            whose,
            "a kafka client had lost every broker; it is recreated"
        );
    }
    is_lost.then_some(client)
}

/// A client that reaches brokers; `None` if Kafka is away.
pub(super) fn fresh(config: &KafkaConfig) -> Option<consumer::Client> {
    use rdkafka::consumer::Consumer as _;
    let client = consumer::create(config).ok()?;
    is_reached(config, client.client()).then_some(client)
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::Consumer as _;

    use super::*;

    #[test]
    fn a_long_silence_is_reported_now_and_then() {
        let ago = |seconds| Silence(Instant::now().checked_sub(Duration::from_secs(seconds)));
        let mut silence = Silence::default();
        assert!(!silence.goes_on(), "it has only begun");
        assert!(!ago(9).goes_on());
        let mut long = ago(11);
        assert!(long.goes_on());
        assert!(!long.goes_on(), "it was said a moment ago");
        let mut broken = ago(11);
        broken.broken();
        assert!(!broken.goes_on());
    }

    #[test]
    fn while_kafka_is_away_no_client_is_recreated() {
        // Nothing listens on port 1.
        let config = KafkaConfig::new("127.0.0.1:1");
        let old = consumer::create(&config).expect("good settings");
        assert!(new_client(&config, "a test's", old.client()).is_none());
    }
}
