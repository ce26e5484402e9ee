//! The `members` topic: which aggregators there are, what they rule, and their addresses.
//!
//! Each aggregator states itself every [`STATE_EVERY`] and when its partitions change, and removes its entry when it
//! leaves. The others ignore a killed one once it has been silent for [`SILENCE_MAX`] of the topic's own time, so
//! that no machine's clock matters. An aggregator also receives its own statements: if none comes back for long, it
//! recreates its clients (`reach`). Knows nothing of agents. What stays true: the list is passed on whenever it
//! changes, and never contains the aggregator itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;
pub use tollgate_shared::wire::member::MemberRecord;
use tollgate_shared::wire::member::SILENCE_MAX;

use super::consumer::{self, Logging};
use super::topics::{self, Topic};
use super::{KafkaConfig, KafkaFault, producer, properties, reach, rights};

/// How often a member states itself.
const STATE_EVERY: Duration = Duration::from_secs(2);

/// How often it is logged that statements cannot be read: a topic that was deleted stays away for long.
const FAILURE_EVERY: Span = Span::from_secs(60);

/// How long the thread waits for statements before it looks at its own.
const POLL: Duration = Duration::from_millis(100);

/// How long the thread waits before it asks again for topics that do not exist yet.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The received statements, by name.
#[derive(Debug, Default)]
struct Book {
    members: BTreeMap<Box<str>, (MemberRecord, u64)>,
    /// The instance that had a name before the current one.
    before: BTreeMap<Box<str>, u128>,
    /// When an instance last had a name again, after another one had it: two aggregators use the name.
    shared: BTreeMap<Box<str>, u64>,
    /// Names among them that were logged.
    logged: BTreeSet<Box<str>>,
    /// The append time of the newest statement.
    newest_ms: u64,
}

impl Book {
    fn enter(&mut self, name: &str, member: Option<MemberRecord>, appended_ms: u64) {
        self.newest_ms = self.newest_ms.max(appended_ms);
        // After a new read from the beginning, older statements arrive again.
        let known = self.members.get(name);
        if known.is_some_and(|(_, said_ms)| appended_ms < *said_ms) {
            return;
        }
        if let (Some(member), Some((known, _))) = (&member, known)
            && member.instance != known.instance
        {
            let before = self.before.insert(name.into(), known.instance);
            // A predecessor that comes back is no predecessor: two processes share the name.
            if before == Some(member.instance) {
                self.shared.insert(name.into(), appended_ms);
            }
        }
        match member {
            Some(member) => drop(self.members.insert(name.into(), (member, appended_ms))),
            None => drop(self.members.remove(name)),
        }
    }

    /// Logs each name that two aggregators use now, once for as long as they do. To be called when everything was read:
    /// what is older may be long over.
    fn log_shared_names(&mut self) {
        let since = self.since();
        self.shared.retain(|_, at| since <= *at);
        self.logged.retain(|name| self.shared.contains_key(name));
        for name in self.shared.keys() {
            if self.logged.insert(name.clone()) {
                tracing::error!(
                    name,
                    "two aggregators have this name, and each hides the other: give each its own (`name`, --name)"
                );
            }
        }
    }

    /// Statements from before this append time are those of aggregators that are gone.
    fn since(&self) -> u64 {
        self.newest_ms.saturating_sub(SILENCE_MAX.as_millis())
    }

    /// The other aggregators that are alive, by name.
    fn others(&self, instance: u128) -> Vec<(Box<str>, MemberRecord)> {
        let since = self.since();
        self.members
            .iter()
            .filter(|(_, (member, said_ms))| since <= *said_ms && member.instance != instance)
            .map(|(name, (member, _))| (name.clone(), member.clone()))
            .collect()
    }
}

enum MembersCommand {
    Rules(Vec<u32>),
    Leave(Sender<()>),
}

/// This aggregator's entry in the topic. [`Registry::leave`] removes it.
pub struct Registry {
    commands: Sender<MembersCommand>,
}

/// Sets which partitions this member rules, from any thread.
#[derive(Clone)]
pub struct Rules(Sender<MembersCommand>);

impl Rules {
    /// From now on this member rules `partitions`.
    pub fn announce(&self, partitions: Vec<u32>) {
        // A member that has left rules nothing.
        let _ = self.0.send(MembersCommand::Rules(partitions));
    }
}

/// Receives the other members by name whenever they change. The registry's thread calls it; it may block.
pub type MembersChanged = Box<dyn Fn(Vec<(Box<str>, MemberRecord)>) + Send>;

impl Registry {
    /// Begins to state `me` under a name of its group, and to follow the others, whether or not Kafka can be reached.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn join(
        config: KafkaConfig,
        name: &str,
        me: MemberRecord,
        on_change: MembersChanged,
    ) -> Result<Self, KafkaFault> {
        let (commands, inbox) = channel();
        let thread = Thread {
            topic: topics::name(&config, Topic::Members),
            consumer: consumer::create(&config)?,
            producer: quiet(&config)?,
            config,
            // Two groups may use the same names.
            name: format!("{}/{name}", me.group).into(),
            me,
            inbox,
            on_change,
            began: Instant::now(),
            failures: LineInterval::new(FAILURE_EVERY),
        };
        std::thread::Builder::new()
            .name("kafka-members".to_owned())
            .spawn(move || thread.run())
            .map_err(|error| KafkaFault::Client {
                why: error.to_string(),
            })?;
        Ok(Self { commands })
    }

    /// A handle that sets what this member rules.
    pub fn rules(&self) -> Rules {
        Rules(self.commands.clone())
    }

    /// Removes this member's entry, and waits up to `within` for that.
    pub fn leave(&self, within: Duration) {
        let (left, done) = channel();
        if self.commands.send(MembersCommand::Leave(left)).is_ok() {
            // No error if that is not enough: the others ignore the entry once it is silent.
            let _ = done.recv_timeout(within);
        }
    }
}

fn quiet(config: &KafkaConfig) -> Result<BaseProducer<producer::Quiet>, KafkaFault> {
    properties::client(config)?
        .create_with_context(producer::Quiet)
        .map_err(properties::fault_of)
}

struct Thread {
    config: KafkaConfig,
    topic: String,
    consumer: BaseConsumer<Logging>,
    producer: BaseProducer<producer::Quiet>,
    name: Box<str>,
    me: MemberRecord,
    inbox: Receiver<MembersCommand>,
    on_change: MembersChanged,
    began: Instant,
    failures: LineInterval,
}

impl Thread {
    fn run(mut self) {
        let mut silence = reach::Silence::default();
        while topics::probe(&self.config, &self.consumer).is_err() {
            match self.inbox.recv_timeout(RETRY_EVERY) {
                Ok(MembersCommand::Rules(partitions)) => self.me.partitions = partitions,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(MembersCommand::Leave(_)) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if silence.goes_on()
                && let Some(fresh) = self.new_client()
            {
                self.consumer = fresh;
            }
        }
        silence.broken();
        if let Err(error) = self.follow() {
            tracing::error!(%error, "other members cannot be followed");
            return;
        }
        let (mut book, mut known) = (Book::default(), Vec::new());
        // Once a statement of its own has come back, all that were there before have been read.
        let (mut state_at, mut has_heard, mut has_read) = (Instant::now(), false, false);
        loop {
            if state_at <= Instant::now() {
                self.state(Some(&self.me.encode()));
                state_at = Instant::now() + STATE_EVERY;
                if has_read {
                    book.log_shared_names();
                }
                if silence.goes_on() && self.begin_again(has_heard) {
                    has_heard = false;
                }
            }
            match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    has_read |= enter(&mut book, &message) == Some(self.me.instance);
                    silence.broken();
                    has_heard = true;
                }
                Some(Err(error)) if rights::is_about_a_topic(&error) => {
                    self.log_failure(&rights::missing(&self.topic, "Read"));
                }
                Some(Err(error)) => tracing::debug!(%error, "kafka members"),
                None => {}
            }
            // Statements are few; if one of them is late, the next one makes up for it.
            self.producer.poll(Duration::ZERO);
            let others = book.others(self.me.instance);
            if others != known {
                known.clone_from(&others);
                (self.on_change)(others);
            }
            while let Ok(command) = self.inbox.try_recv() {
                match command {
                    MembersCommand::Rules(partitions) => {
                        self.me.partitions = partitions;
                        state_at = Instant::now();
                    }
                    MembersCommand::Leave(left) => {
                        self.state(None);
                        if let Err(error) = self.producer.flush(Duration::from_secs(1)) {
                            tracing::debug!(%error, "cannot announce to other members that this one leaves");
                        }
                        drop(left);
                        return;
                    }
                }
            }
        }
    }

    /// Another client, if one of the current two reaches no broker while a new one does.
    fn new_client(&self) -> Option<consumer::Client> {
        let (config, whose) = (&self.config, "the members'");
        reach::new_client(config, whose, self.consumer.client())
            .or_else(|| reach::new_client(config, whose, self.producer.client()))
    }

    /// Recreates the clients if new ones reach brokers, since not even this member's own statements come back: the
    /// old clients have lost every broker, or know a topic that was deleted. Statements received twice change
    /// nothing. Clients that have received nothing yet are kept as long as they reach brokers, since a right may be
    /// missing. Returns whether the clients are new.
    fn begin_again(&mut self, has_heard: bool) -> bool {
        let consumer = match has_heard {
            true => reach::fresh(&self.config),
            false => self.new_client(),
        };
        let Some(consumer) = consumer else {
            return false;
        };
        let found = topics::find(&self.config, &consumer, Topic::Members);
        if let Err(fault) = found {
            self.log_failure(&fault);
            return false;
        }
        tracing::warn!("nothing arrived from the topic of members: its clients are recreated");
        match quiet(&self.config) {
            Ok(producer) => (self.consumer, self.producer) = (consumer, producer),
            Err(fault) => {
                self.log_failure(&fault);
                return false;
            }
        }
        if let Err(error) = self.follow() {
            tracing::error!(%error, "other members cannot be followed");
        }
        true
    }

    fn log_failure(&mut self, fault: &KafkaFault) {
        if let Some(unsaid) = self.failures.may(Span::from_std(self.began.elapsed())) {
            tracing::error!(%fault, unsaid, "statements of other members cannot be read");
        }
    }

    fn follow(&self) -> Result<(), KafkaError> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, 0, Offset::Beginning)?;
        self.consumer.assign(&list)
    }

    fn state(&self, value: Option<&[u8]>) {
        let mut record: BaseRecord<'_, str, [u8]> =
            BaseRecord::to(&self.topic).partition(0).key(&*self.name);
        record.payload = value;
        if let Err((error, _)) = self.producer.send(record) {
            tracing::debug!(%error, "a statement to other members was not sent");
        }
    }
}

/// Enters a statement, and returns whose it is.
fn enter(book: &mut Book, message: &BorrowedMessage<'_>) -> Option<u128> {
    let name = std::str::from_utf8(message.key().unwrap_or_default()).unwrap_or_default();
    let appended = message.timestamp().to_millis().unwrap_or(0);
    let member = match message.payload().map(MemberRecord::decode) {
        None => None,
        Some(Ok(member)) => Some(member),
        Some(Err(error)) => {
            tracing::warn!(name, %error, "a member's record is skipped");
            None
        }
    };
    let instance = member.as_ref().map(|member| member.instance);
    book.enter(name, member, u64::try_from(appended).unwrap_or(0));
    instance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(instance: u128) -> MemberRecord {
        MemberRecord {
            instance,
            group: "a".into(),
            agents: "127.0.0.1:7401".into(),
            http: "127.0.0.1:7400".into(),
            partitions: vec![0, 7, 1_023],
        }
    }

    #[test]
    fn two_members_of_one_name_differ_from_a_restarted_one() {
        let logged = |book: &mut Book| -> usize {
            book.log_shared_names();
            book.logged.len()
        };
        let mut book = Book::default();
        for (instance, ms) in [(1, 1_000), (2, 2_000), (2, 4_000), (3, 6_000)] {
            book.enter("a/agg", Some(member(instance)), ms);
            assert_eq!(logged(&mut book), 0, "started again, twice");
        }
        book.enter("a/agg", Some(member(2)), 7_000);
        assert_eq!(logged(&mut book), 1);
        book.enter("a/agg", Some(member(3)), 8_000);
        book.enter("a/agg", Some(member(3)), 16_000);
        assert_eq!(logged(&mut book), 1, "eight seconds");
        book.enter("a/other", Some(member(4)), 16_001);
        assert_eq!(logged(&mut book), 0, "the other one has gone");
        book.enter("a/agg", Some(member(2)), 17_000);
        assert_eq!(logged(&mut book), 1, "it is back");
    }

    #[test]
    fn names_that_two_members_shared_long_ago_are_not_logged() {
        let mut book = Book::default();
        for (instance, ms) in [(1, 1_000), (2, 2_000), (1, 3_000), (9, 60_000)] {
            book.enter("a/agg", Some(member(instance)), ms);
        }
        book.log_shared_names();
        assert!(book.logged.is_empty());
    }

    #[test]
    fn silent_former_and_own_members_are_not_listed() {
        let names = |book: &Book| -> Vec<String> {
            let others = book.others(9);
            others.iter().map(|(name, _)| name.to_string()).collect()
        };
        let mut book = Book::default();
        book.enter("me", Some(member(9)), 1_000);
        book.enter("agg-1", Some(member(1)), 1_000);
        book.enter("agg-2", Some(member(2)), 2_000);
        assert_eq!(names(&book), ["agg-1", "agg-2"]);
        book.enter("me", Some(member(9)), 9_500);
        assert_eq!(names(&book), ["agg-2"], "agg-1 has been silent for 8.5 s");
        book.enter("agg-2", Some(member(7)), 1_500);
        book.enter("agg-2", None, 1_600);
        assert_eq!(
            names(&book),
            ["agg-2"],
            "what is heard twice changes nothing"
        );
        book.enter("agg-2", None, 9_600);
        assert!(names(&book).is_empty());
        book.enter("agg-1", Some(member(3)), 9_700);
        assert_eq!(names(&book), ["agg-1"], "it is back");
    }
}
