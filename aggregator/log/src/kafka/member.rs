//! Membership of a consumer group: which of the fleet rules which partition.
//!
//! ```text
//! group ── assign 3, 7 ──> Assigned [3, 7]        commit 3 at 1042 "snapshot at 17" ──> group
//!       ── revoke 7    ──> Revoked [7]
//! ```
//!
//! The group decides which member rules which partition, and stores how far snapshots reach, as committed offsets,
//! for tools that watch its lag. It delivers no records: the member pauses its assigned partitions at once, and the
//! log follows partitions on its own. So a member that learns late of a change does no harm, and nothing is fenced.
//! Partitions move one at a time (cooperative); with `group.instance.id` a process that restarts within
//! `session.timeout.ms` gets the same partitions again (static membership). A client that has lost every broker for
//! good is recreated (`reach`), and joins again. A client whose session is shorter than the brokers allow is
//! recreated with a session that they allow.
//!
//! What stays true: an assigned partition is revoked before it is assigned again; a lost session revokes all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::properties::GroupSession;
use super::topics::{self, Topic};
use super::{KafkaConfig, KafkaFault, consumer, producer, properties, reach};

/// How long the thread waits for the group before it looks at its commands: a commit is not urgent.
const POLL: Duration = Duration::from_millis(100);

/// How long the thread waits before it asks again for topics that do not exist yet.
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// How often the thread checks that the client reaches brokers: the group itself may be silent for long.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How often a missing right is logged.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// An event of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// The group assigned these partitions to this member.
    Assigned(Vec<u32>),
    /// The group gave these partitions to another member.
    Revoked(Vec<u32>),
    /// Another process uses this member's `group.instance.id`, or the group refuses the member for ever.
    Fenced(String),
}

/// Receives the group's events. The member's thread calls it; it may block.
pub type Sink = Arc<dyn Fn(GroupEvent) + Send + Sync>;

enum MemberCommand {
    Commit {
        partition: u32,
        next: u64,
        metadata: String,
    },
    Leave(Sender<()>),
}

/// A member of a group. Dropping it leaves the group.
pub struct Member {
    commands: Sender<MemberCommand>,
}

/// Commits for the member, usable from any thread that writes snapshots.
#[derive(Clone)]
pub struct Commits(Sender<MemberCommand>);

impl Commits {
    /// Commits that recovery of a partition begins at `next`. Does nothing if the partition now belongs to another
    /// member, which commits it itself.
    pub fn commit(&self, partition: u32, next: u64, metadata: String) {
        // A member that has left commits nothing.
        let _ = self.0.send(MemberCommand::Commit {
            partition,
            next,
            metadata,
        });
    }
}

impl Member {
    /// Begins to join the group, whether or not Kafka can be reached.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn join(config: KafkaConfig, sink: Sink) -> Result<Self, KafkaFault> {
        let hits = topics::name(&config, Topic::Hits);
        let session = GroupSession::of(&config);
        let group = group(&config, session, &hits, sink)?;
        let probe = consumer::create(&config)?;
        let (commands, inbox) = channel();
        let thread = MemberThread {
            config,
            session,
            hits,
            group,
            inbox,
        };
        std::thread::Builder::new()
            .name("kafka-group".to_owned())
            .spawn(move || thread.run(probe))
            .map_err(|error| KafkaFault::Client {
                why: error.to_string(),
            })?;
        Ok(Self { commands })
    }

    /// A handle that commits for this member.
    pub fn commits(&self) -> Commits {
        Commits(self.commands.clone())
    }

    /// Leaves the group, so that other members take over at once. Waits up to `within` for that.
    pub fn leave(&self, within: Duration) {
        let (left, done) = channel();
        if self.commands.send(MemberCommand::Leave(left)).is_ok() {
            // No error if that is not enough: the others notice by themselves.
            let _ = done.recv_timeout(within);
        }
    }
}

type Group = BaseConsumer<Telling>;

fn group(
    config: &KafkaConfig,
    session: GroupSession,
    hits: &str,
    sink: Sink,
) -> Result<Group, KafkaFault> {
    properties::member(config, session)?
        .create_with_context(Telling {
            sink,
            hits: hits.to_owned(),
            is_over: AtomicBool::new(false),
        })
        .map_err(properties::fault_of)
}

struct Telling {
    sink: Sink,
    hits: String,
    /// Another client has taken this one's part as the member.
    is_over: AtomicBool,
}

impl Telling {
    fn send(&self, event: GroupEvent) {
        if !self.is_over.load(Ordering::SeqCst) {
            (self.sink)(event);
        }
    }

    fn of_hits(&self, list: &TopicPartitionList) -> Vec<u32> {
        let mut partitions: Vec<u32> = list
            .elements_for_topic(&self.hits)
            .iter()
            .filter_map(|element| u32::try_from(element.partition()).ok())
            .collect();
        partitions.sort_unstable();
        partitions
    }
}

impl ClientContext for Telling {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        producer::log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka group");
    }
}

impl ConsumerContext for Telling {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(list) = rebalance {
            self.send(GroupEvent::Revoked(self.of_hits(list)));
        }
    }

    fn post_rebalance(&self, group: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                if let Err(error) = group.pause(list) {
                    tracing::warn!(%error, "cannot pause; records that the group delivers are ignored");
                }
                self.send(GroupEvent::Assigned(self.of_hits(list)));
            }
            Rebalance::Revoke(_) => {}
            Rebalance::Error(error) => {
                tracing::warn!(%error, "the group could not assign its partitions");
            }
        }
    }
}

struct MemberThread {
    config: KafkaConfig,
    session: GroupSession,
    hits: String,
    group: Group,
    inbox: Receiver<MemberCommand>,
}

impl MemberThread {
    fn run(mut self, mut probe: consumer::Client) {
        let mut silence = reach::Silence::default();
        // Probe first: subscribing to a topic that does not exist yet would wait for the client's next refresh of all
        // topics.
        while topics::probe(&self.config, &probe).is_err() {
            match self.inbox.recv_timeout(RETRY_EVERY) {
                Ok(MemberCommand::Leave(_))
                | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return;
                }
                _ => {}
            }
            if silence.goes_on()
                && let Some(fresh) = reach::new_client(&self.config, "the group's", probe.client())
            {
                probe = fresh;
            }
        }
        drop(probe);
        silence.broken();
        if let Err(error) = self.group.subscribe(&[&self.hits]) {
            return self.fenced(&error);
        }
        let mut logged_at = None;
        let mut asked_at = Instant::now();
        loop {
            if ASK_EVERY <= asked_at.elapsed() {
                if reach::is_reached(&self.config, self.group.client()) {
                    silence.broken();
                } else if silence.goes_on()
                    && reach::new_client(&self.config, "the group's", self.group.client()).is_some()
                    && let Err(error) = self.rejoin()
                {
                    return self.fenced(&error);
                }
                asked_at = Instant::now();
            }
            match self.group.poll(POLL) {
                // The client fetched it before the partition was paused; the log delivers it too.
                Some(Ok(_)) | None => {}
                Some(Err(error)) => {
                    if self.group.client().fatal_error().is_some()
                        || error.rdkafka_error_code() == Some(RDKafkaErrorCode::FencedInstanceId)
                    {
                        return self.fenced(&error);
                    }
                    if let Err(error) = self.heed(&error, &mut logged_at) {
                        return self.fenced(&error);
                    }
                }
            }
            loop {
                match self.inbox.try_recv() {
                    Ok(MemberCommand::Commit {
                        partition,
                        next,
                        metadata,
                    }) => self.commit(partition, next, metadata),
                    Ok(MemberCommand::Leave(left)) => {
                        // Closing leaves the group.
                        drop(self.group);
                        drop(left);
                        return;
                    }
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    /// Joins with another client. Another member has whatever the group assigned to the old client.
    fn rejoin(&mut self) -> Result<(), String> {
        let sink = Arc::clone(&self.group.context().sink);
        let fresh = group(&self.config, self.session, &self.hits, sink)
            .map_err(|fault| fault.to_string())?;
        let old = std::mem::replace(&mut self.group, fresh);
        old.context().is_over.store(true, Ordering::SeqCst);
        if let Ok(owned) = old.assignment() {
            let context = old.context();
            let owned = context.of_hits(&owned);
            (context.sink)(GroupEvent::Revoked(owned));
        }
        // Dropping the old client waits up to a minute for answers that will not come.
        std::thread::Builder::new()
            .name("kafka-group-old".to_owned())
            .spawn(move || drop(old))
            .map_err(|error| error.to_string())?;
        let subscribed = self.group.subscribe(&[&self.hits]);
        subscribed.map_err(|error| error.to_string())
    }

    /// Handles an error of the client. Logs errors that last until an operator acts as errors, at most every
    /// [`SAY_EVERY`].
    fn heed(&mut self, error: &KafkaError, logged_at: &mut Option<Instant>) -> Result<(), String> {
        let group = &self.config.group;
        let line = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::InvalidSessionTimeout)
                if self.session == GroupSession::Short =>
            {
                self.session = GroupSession::Usual;
                tracing::warn!(
                    "kafka group `{group}`: the brokers accept no session timeout of 2 s, so the group notices a dead aggregator only \
                     after 6 s: set group.min.session.timeout.ms=2000 on the brokers to notice it sooner"
                );
                return self.rejoin();
            }
            Some(RDKafkaErrorCode::InvalidSessionTimeout) => format!(
                "{error}: expected a session.timeout.ms between the brokers' group.min.session.timeout.ms and \
                 group.max.session.timeout.ms"
            ),
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                format!(
                    "Read: {error}: see the rights that each role needs in deploy/kafka/ACLS.md"
                )
            }
            _ => {
                tracing::debug!(%error, "kafka group");
                return Ok(());
            }
        };
        if logged_at.is_none_or(|at| SAY_EVERY <= at.elapsed()) {
            *logged_at = Some(Instant::now());
            tracing::error!("kafka group `{group}`: {line}");
        }
        Ok(())
    }

    fn fenced(&self, error: &dyn std::fmt::Display) {
        let telling = self.group.context();
        telling.send(GroupEvent::Fenced(format!(
            "the consumer group {} refuses this member: {error}",
            self.config.group
        )));
    }

    fn commit(&self, partition: u32, next: u64, metadata: String) {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let owned = self.group.assignment();
        let is_ours = owned.is_ok_and(|owned| owned.find_partition(&self.hits, number).is_some());
        if !is_ours {
            return;
        }
        let mut list = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(next).unwrap_or(i64::MAX));
        let mut element = list.add_partition(&self.hits, number);
        element.set_metadata(metadata);
        let committed = element
            .set_offset(offset)
            .and_then(|()| self.group.commit(&list, CommitMode::Async));
        if let Err(error) = committed {
            tracing::warn!(%error, partition, next, "cannot commit");
        }
    }
}
