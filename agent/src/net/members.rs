//! Aggregators that are found by Kafka alone: what they state of themselves in the `members` topic.
//!
//! Asked for by agents that were given no aggregator. Knows nothing of what aggregators rule. What stays
//! true: one that has been silent for longer than members are is not told, however long ago it stood there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;
use tollgate_shared::log_lines::excerpt;
use tollgate_shared::wire::member::{MemberRecord, SILENCE_MAX};

use super::DriverEvent;
use super::kafka::lines_that_last;
use crate::log_lines::LogLines;

/// How long the thread waits for a statement before it looks whether anybody is still there.
const POLL: Duration = Duration::from_millis(200);

/// After so long without a statement it begins again: nobody may be there, or the client has lost every
/// broker for good (confluentinc/librdkafka, issue 5301). Members state themselves every 2 s.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// How long brokers may take to say whether the topic may be seen.
const SEE_WITHIN: Duration = Duration::from_secs(1);

/// How long it waits before it begins again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Starts to follow the topic, in a thread of its own that ends soon after the hub has.
///
/// # Errors
///
/// Where there is no thread to be had.
pub(super) fn follow(
    mut config: ClientConfig,
    topic: String,
    events: mpsc::WeakSender<DriverEvent>,
) -> std::io::Result<()> {
    // No group: everybody reads all of it.
    config
        .set("group.id", "tollgate-agent")
        .set("enable.auto.commit", "false")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "earliest");
    std::thread::Builder::new()
        .name("tollgate-members".to_owned())
        .spawn(move || {
            let lines = lines_that_last();
            while events.strong_count() != 0 {
                if let Err(error) = read(&config, &topic, &events, &lines) {
                    tracing::debug!(%error, "members cannot be read");
                    std::thread::sleep(AGAIN_AFTER);
                }
            }
        })?;
    Ok(())
}

/// The library's lines are for those who look closely.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::kafka::log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The producer, which is let in as this is, says what does not mend itself.
        let reason = excerpt(reason);
        tracing::debug!(%error, %reason, "kafka members");
    }
}

impl ConsumerContext for Quiet {}

fn read(
    config: &ClientConfig,
    topic: &str,
    events: &mpsc::WeakSender<DriverEvent>,
    lines: &LogLines,
) -> Result<(), KafkaError> {
    let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet)?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&list)?;
    // A topic that may not be seen is no error to the library for half a minute.
    if let Ok(found) = consumer.fetch_metadata(Some(topic), SEE_WITHIN)
        && let Some(error) = found.topics().iter().find_map(|found| found.error())
    {
        say(&KafkaError::MetadataFetch(error.into()), topic, lines);
    }
    let mut book = Book::default();
    let mut heard_at = Instant::now();
    while heard_at.elapsed() < QUIET_MAX {
        let said = consumer.poll(POLL);
        let Some(events) = events.upgrade() else {
            return Ok(());
        };
        match said {
            Some(Ok(message)) => {
                book.enter(&message);
                heard_at = Instant::now();
            }
            Some(Err(error)) => say(&error, topic, lines),
            // All that there is has been read: now it is known who is silent.
            None => {
                for address in book.alive() {
                    if events
                        .blocking_send(DriverEvent::Found { address })
                        .is_err()
                    {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

/// What does not mend itself, a service's log has now and then.
fn say(error: &KafkaError, topic: &str, lines: &LogLines) {
    let is_about_rights =
        error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed);
    if is_about_rights && let Some(unsaid) = lines.may() {
        tracing::warn!(%error, unsaid, "kafka topic `{topic}`: Read: this agent may not, and finds no aggregator");
    } else {
        tracing::debug!(%error, "kafka members");
    }
}

/// Who stated what last, and when.
#[derive(Debug, Default)]
struct Book {
    members: BTreeMap<Vec<u8>, (Box<str>, i64)>,
    newest_ms: i64,
}

impl Book {
    fn enter(&mut self, message: &BorrowedMessage<'_>) {
        let at = message.timestamp().to_millis().unwrap_or(0);
        let key = message.key().unwrap_or_default();
        let member = message.payload().map(MemberRecord::decode);
        self.state(key, member.and_then(Result::ok), at);
    }

    fn state(&mut self, key: &[u8], member: Option<MemberRecord>, at_ms: i64) {
        self.newest_ms = self.newest_ms.max(at_ms);
        match member {
            Some(member) => drop(self.members.insert(key.to_vec(), (member.agents, at_ms))),
            None => drop(self.members.remove(key)),
        }
    }

    /// The addresses of those that are not silent.
    fn alive(&self) -> Vec<Box<str>> {
        let silence = i64::try_from(SILENCE_MAX.as_millis()).unwrap_or(i64::MAX);
        let since = self.newest_ms.saturating_sub(silence);
        let alive = self.members.values().filter(|(_, at)| since <= *at);
        alive.map(|(address, _)| address.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_and_those_who_left_are_not_told() {
        let member = |agents: &str| {
            Some(MemberRecord {
                instance: 1,
                group: "a".into(),
                agents: agents.into(),
                http: "h:2".into(),
                partitions: Vec::new(),
            })
        };
        let mut book = Book::default();
        book.state(b"a/1", member("h:1"), 1_000);
        book.state(b"a/2", member("h:2"), 5_000);
        book.state(b"a/3", member("h:3"), 5_000);
        book.state(b"a/3", None, 9_500);
        assert_eq!(book.alive(), ["h:2".into()]);
        book.state(b"a/1", member("h:9"), 9_600);
        assert_eq!(book.alive(), ["h:9".into(), "h:2".into()]);
    }
}
