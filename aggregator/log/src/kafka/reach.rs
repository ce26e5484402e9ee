//! Clients that have lost every broker for good, and are made anew.
//!
//! ```text
//! broker silent beyond its session ──▶ fenced: names no broker at all ──▶ client forgets them all, asks nobody
//! nothing for a while ──▶ a fresh client finds brokers? ── yes ──▶ it takes the place of the old one
//!                                                       └─ no ──▶ Kafka is away; asked again in a while
//! ```
//!
//! The client library drops brokers that an answer does not name, those that it was configured with as well
//! (since 2.10: confluentinc/librdkafka, issue 5301), and a broker that stood still for longer than its
//! session answers like that until it is taken back. A client that hears one such answer may be silent for
//! ever while Kafka works. Knows nothing of what a client is for. What stays true: while Kafka does not answer
//! anybody, no client is made anew for it.

use std::time::{Duration, Instant};

use rdkafka::client::{Client, ClientContext};

use super::topics::{self, Topic};
use super::{KafkaConfig, consumer};

/// For so long a client may reach nobody before another one is tried. Leaders change in less, and whoever
/// is back after less finds its brokers by itself.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long brokers may take to name each other.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The same for a client that is to be given up: three times its longest pause between attempts.
const IN_THE_END: Duration = Duration::from_secs(3);

/// Since when a client has reached nobody.
#[derive(Debug, Default)]
pub(super) struct Silence(Option<Instant>);

impl Silence {
    /// Somebody answered.
    pub fn broken(&mut self) {
        self.0 = None;
    }

    /// Nobody answered. Whether that is so for long, each time anew.
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

/// A client that reaches brokers where the old one, asked again with patience, does not; none where Kafka is
/// away, or has only just come back.
pub(super) fn afresh<C: ClientContext>(
    config: &KafkaConfig,
    whose: &'static str,
    old: &Client<C>,
) -> Option<consumer::Client> {
    let client = fresh(config)?;
    let is_lost = !reaches(config, old, IN_THE_END);
    if is_lost {
        tracing::warn!(
            whose,
            "a kafka client had lost every broker; it is made anew"
        );
    }
    is_lost.then_some(client)
}

/// A client that reaches brokers; none where Kafka is away.
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
    fn a_silence_is_long_once_in_a_while_and_begins_anew_when_it_was_broken() {
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
    fn while_kafka_is_away_nothing_is_made_anew() {
        // Nobody listens on port 1.
        let config = KafkaConfig::new("127.0.0.1:1");
        let old = consumer::create(&config).expect("good settings");
        assert!(afresh(&config, "a test's", old.client()).is_none());
    }
}
