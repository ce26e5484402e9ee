//! Aggregators that are found through Kafka alone: what they publish about themselves in the `members` topic.
//!
//! Used by agents that were configured with no aggregator. Knows nothing of what aggregators rule. What stays true:
//! an aggregator that has been silent for longer than `SILENCE_MAX` is not reported, however old its entry is.

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
use crate::threads::Threads;

/// How long the thread waits for a message before it checks whether the driver still exists.
const POLL: Duration = Duration::from_millis(200);

/// After this long without a message the thread starts again: there may be no aggregator, or the client has lost
/// every broker for good (confluentinc/librdkafka, issue 5301). Members publish themselves every 2 s.
const QUIET_MAX: Duration = Duration::from_secs(20);

/// How long brokers may take to answer whether the agent may read the topic.
const SEE_WITHIN: Duration = Duration::from_secs(1);

/// How long the thread waits before it starts again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Starts to follow the topic, in a thread of its own that ends soon after the driver.
///
/// # Errors
///
/// If no thread can be started.
pub(super) fn follow(
    mut config: ClientConfig,
    topic: String,
    threads: &Threads,
    events: mpsc::WeakSender<DriverEvent>,
) -> std::io::Result<()> {
    // No group: every agent reads everything.
    config
        .set("group.id", "tollgate-agent")
        .set("enable.auto.commit", "false")
        .set("allow.auto.create.topics", "false")
        .set("auto.offset.reset", "earliest");
    let work = move || {
        let lines = lines_that_last();
        while events.strong_count() != 0 {
            if let Err(error) = read(&config, &topic, &events, &lines) {
                tracing::debug!(%error, "members cannot be read");
                std::thread::sleep(AGAIN_AFTER);
            }
        }
    };
    threads.start("tollgate-members", work).map(drop)
}

/// Logs the library's lines at debug level only.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        super::kafka::log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The producer has the same credentials and logs lasting problems.
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
    // The library reports a topic that may not be read only after half a minute.
    if let Ok(found) = consumer.fetch_metadata(Some(topic), SEE_WITHIN)
        && let Some(error) = found.topics().iter().find_map(|found| found.error())
    {
        log_error(&KafkaError::MetadataFetch(error.into()), topic, lines);
    }
    let mut book = Book::default();
    let mut heard_at = Instant::now();
    while heard_at.elapsed() < QUIET_MAX {
        let polled = consumer.poll(POLL);
        let Some(events) = events.upgrade() else {
            return Ok(());
        };
        match polled {
            Some(Ok(message)) => {
                book.enter(&message);
                heard_at = Instant::now();
            }
            Some(Err(error)) => log_error(&error, topic, lines),
            // Everything that exists has been read: now it is known which members are silent.
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

/// Logs an error; a lasting one now and then at warning level.
fn log_error(error: &KafkaError, topic: &str, lines: &LogLines) {
    let is_about_rights =
        error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed);
    if is_about_rights && let Some(unsaid) = lines.may() {
        tracing::warn!(%error, unsaid, "kafka topic `{topic}`: Read: this agent lacks the right, so it finds no aggregator");
    } else {
        tracing::debug!(%error, "kafka members");
    }
}

/// The members' last messages, and when they were published.
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

    /// The addresses of members that are not silent.
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
    fn silent_and_former_members_are_left_out() {
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
