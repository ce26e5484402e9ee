//! The log's thread: prepares the topics, delivers, and knows whether Kafka is there.
//!
//! ```text
//! prepare the topics ──▶ deliver; begin follows; look whether Kafka is there ──▶ finish, Closed
//!      ▲      │ fails: Down, again in a moment                 │ gone: Down ... back: Up
//!      └──────┘                                                └────────────
//! ```
//!
//! A client that knew a topic before it was deleted does not find a topic that was created in its place. So
//! clients are recreated with the topic, and also if they have lost every broker for good (`reach`). A partition
//! without a leader looks the same to the client library; no other client would find it, so it only waits.
//!
//! What stays true: `Down` and `Up` alternate, beginning with `Down`; follows of a partition begin in the order in
//! which the owner requested them, and keep no other partition waiting; after `Closed` come only refusals.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;

use super::super::{AppendError, LogEvent, LogSender, Stream, Ticket};
use super::consumer::{self, FollowFrom, Follows, WantedFollow};
use super::leaderless::LeaderlessLines;
use super::producer::ProducerShared;
use super::{KafkaConfig, KafkaFault, Missing, reach, reason, rights, topics};

/// How long the thread waits for records before it looks at its commands again. A command is a follow or a
/// refusal, neither of which is urgent.
const DELIVER_WAIT: Duration = Duration::from_millis(10);

/// How often something that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);

/// After this time a round that tries to begin follows goes no further, if one has failed: a broker that is silent
/// takes a second for each of its partitions, in which nothing is delivered.
const ROUND_MAX: Duration = Duration::from_millis(500);

/// For how long a broker may not know an existing topic: brokers learn of a new topic, or of their own part in
/// it, one after the other.
const UNKNOWN_MAX: Duration = Duration::from_secs(3);

/// After this long without a record the thread asks whether Kafka is there: a client that has lost it may be
/// silent.
const QUIET_MAX: Duration = Duration::from_secs(5);

/// How often Kafka's refusals are logged: a topic that was deleted causes some each second.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// How long closing waits for answers. An aggregator has 5 s to stop.
const FINISH_WITHIN: Duration = Duration::from_secs(3);

pub(super) enum LogCommand {
    Follow(WantedFollow),
    Unfollow {
        stream: Stream,
        partition: u32,
    },
    /// Answer an append that was not sent.
    Refuse {
        ticket: Ticket,
        error: AppendError,
    },
    Close,
}

/// Creates the clients and starts the thread.
pub(super) fn start(
    config: KafkaConfig,
    events: LogSender,
) -> Result<(ProducerShared, Sender<LogCommand>), KafkaFault> {
    let (commands, inbox) = channel();
    let worker = Worker::new(config, inbox, events)?;
    let shared = worker.shared.clone();
    std::thread::Builder::new()
        .name("kafka".to_owned())
        .spawn(move || worker.run())
        .map_err(|error| KafkaFault::Client {
            why: error.to_string(),
        })?;
    Ok((shared, commands))
}

struct Worker {
    config: KafkaConfig,
    follows: Follows,
    shared: ProducerShared,
    inbox: Receiver<LogCommand>,
    events: LogSender,
    /// Follows that have not begun, or are to be resumed.
    waiting: VecDeque<WantedFollow>,
    closing: bool,
    down: bool,
    /// A broker refused a read because a right is missing.
    may_not_read: bool,
    /// A query to Kafka found that a topic does not exist.
    topics_gone: bool,
    /// When a broker first, and when it last, did not know a topic that is followed.
    unknown_since: Option<(Instant, Instant)>,
    /// How long these clients have reached no broker.
    silence: reach::Silence,
    /// When Kafka last sent a record, or an answer.
    answered_at: Instant,
    /// When Kafka's refusals were last logged.
    reported_at: Option<Instant>,
    /// Lines about partitions without a leader.
    leaderless_lines: LeaderlessLines,
}

impl Worker {
    fn new(
        config: KafkaConfig,
        inbox: Receiver<LogCommand>,
        events: LogSender,
    ) -> Result<Self, KafkaFault> {
        let client = consumer::create(&config)?;
        Ok(Self {
            follows: Follows::new(&config, client, events.clone()),
            shared: ProducerShared::create(&config, events.clone())?,
            config,
            inbox,
            events,
            waiting: VecDeque::new(),
            closing: false,
            down: false,
            may_not_read: false,
            topics_gone: false,
            unknown_since: None,
            silence: reach::Silence::default(),
            answered_at: Instant::now(),
            reported_at: None,
            leaderless_lines: LeaderlessLines::default(),
        })
    }

    fn run(mut self) {
        self.prepare();
        let mut try_again = Instant::now();
        while !self.closing {
            let due = try_again <= Instant::now();
            self.turn(due);
            if due && (self.down || !self.waiting.is_empty()) {
                try_again = Instant::now() + RETRY_EVERY;
            }
        }
        self.shared.finish(FINISH_WITHIN);
        let Self {
            follows,
            inbox,
            events,
            ..
        } = self;
        drop(follows);
        events.send(LogEvent::Closed);
        while let Ok(command) = inbox.recv() {
            if let LogCommand::Refuse { ticket, error } = command {
                refuse(&events, ticket, error);
            }
        }
    }

    /// Takes commands and delivers; if it is `due`, begins follows and checks what may be wrong.
    fn turn(&mut self, due: bool) {
        self.take_commands();
        if due {
            self.begin_follows();
            self.look_after();
        }
        let (records, faults) = self.follows.deliver(DELIVER_WAIT);
        if 0 < records {
            self.answered_at = Instant::now();
        }
        for error in &faults {
            tracing::debug!(%error, "kafka consumer");
            self.note(error);
        }
        if !faults.is_empty() {
            self.probe();
        }
    }

    /// Tries until the topics exist and have the right settings, or the log is closed.
    fn prepare(&mut self) {
        while !self.closing {
            match topics::prepare(&self.config, self.follows.client(), Missing::Create) {
                Ok(_) => {
                    self.shared.set_ready();
                    self.report_up();
                    return;
                }
                Err(fault) => self.meet(&fault),
            }
            self.take_commands_for(RETRY_EVERY);
        }
    }

    fn take_commands(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
            }
        }
    }

    fn take_commands_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while !self.closing {
            let left = end.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.closing = true,
            }
        }
    }

    fn take(&mut self, command: LogCommand) {
        match command {
            LogCommand::Follow(wanted) => self.waiting.push_back(wanted),
            LogCommand::Unfollow { stream, partition } => {
                self.waiting
                    .retain(|wanted| (wanted.stream, wanted.partition) != (stream, partition));
                if let Err(error) = self.follows.end(stream, partition) {
                    tracing::warn!(%error, ?stream, partition, "cannot stop following");
                }
            }
            LogCommand::Refuse { ticket, error } => refuse(&self.events, ticket, error),
            LogCommand::Close => self.closing = true,
        }
    }

    /// Tries each waiting follow once. Those that fail wait for the next round, behind the others and before later
    /// follows of their partitions.
    fn begin_follows(&mut self) {
        let begun = Instant::now();
        let (mut untried, mut failed) = (VecDeque::new(), VecDeque::<WantedFollow>::new());
        let mut faults = Vec::new();
        for wanted in std::mem::take(&mut self.waiting) {
            if failed.iter().any(|before| before.is_of_partition(&wanted)) {
                failed.push_back(wanted);
            } else if !failed.is_empty() && ROUND_MAX <= begun.elapsed() {
                untried.push_back(wanted);
            } else if let Err(error) = self.follows.begin(wanted) {
                failed.push_back(wanted);
                faults.push((wanted, error));
            }
        }
        untried.append(&mut failed);
        self.waiting = untried;
        if !faults.is_empty() {
            self.probe_after(&faults);
        }
    }

    /// Checks suspected faults, and whether known faults persist.
    fn look_after(&mut self) {
        if let Err(fault) = self.shared.revive(&self.config, &self.events) {
            tracing::error!(%fault, "the kafka producer cannot be recreated");
        }
        if self.shared.take_suspicion() || self.down || QUIET_MAX <= self.answered_at.elapsed() {
            self.probe();
        }
    }

    /// Notes what a fault says; only a probe shows whether it is true.
    fn note(&mut self, error: &KafkaError) {
        self.may_not_read |= rights::is_about_a_topic(error);
        let now = Instant::now();
        if consumer::is_about_an_unknown_topic(error) {
            let since = match self.unknown_since {
                Some((since, last)) if now < last + UNKNOWN_MAX => since,
                _ => now,
            };
            self.unknown_since = Some((since, now));
        }
        let is_told = self.reported_at.is_some_and(|at| now < at + TELL_EVERY);
        if !consumer::is_about_the_network(error) && !is_told {
            self.reported_at = Some(now);
            tracing::warn!(%error, "kafka refuses");
        }
    }

    /// Asks whether Kafka is there.
    fn probe(&mut self) {
        self.probe_after(&[]);
    }

    /// Asks whether Kafka is there, after follows that could not begin.
    fn probe_after(&mut self, faults: &[(WantedFollow, KafkaError)]) {
        let found = topics::probe(&self.config, self.follows.client());
        for (wanted, error) in faults {
            // A partition without a leader is unknown to any client.
            let may_be_lost = match &found {
                Ok(leaderless) => !leaderless.contains(&self.follows.named(wanted)),
                Err(fault) => matches!(fault, KafkaFault::Missing { .. }),
            };
            if may_be_lost || !consumer::is_about_an_unknown_topic(error) {
                self.note(error);
            }
        }
        let asked = found
            .map(|leaderless| self.leaderless_lines.log(&leaderless))
            .and_then(|()| self.shared.may_write())
            .and_then(|()| self.may_read());
        self.answered_at = Instant::now();
        if !matches!(asked, Err(KafkaFault::Unreachable { .. })) {
            self.silence.broken();
        }
        match asked {
            Ok(()) if self.has_lost_topics() => {
                tracing::warn!("kafka topics were recreated: the clients are recreated, too");
                let client = consumer::create(&self.config);
                self.begin_again(client);
            }
            Ok(()) => {
                self.shared.look_after_silence();
                self.report_up();
            }
            Err(fault) => {
                self.topics_gone |= matches!(fault, KafkaFault::Missing { .. });
                self.meet(&fault);
            }
        }
    }

    /// Reports a fault; tries another client if no broker was reached for long.
    fn meet(&mut self, fault: &KafkaFault) {
        if !self.down {
            let why = reason::of(&self.config, fault.clone(), reason::HASTE);
            self.report_down(why.to_string());
        }
        if matches!(fault, KafkaFault::Unreachable { .. })
            && self.silence.goes_on()
            && let Some(client) =
                reach::new_client(&self.config, "the log's", self.follows.client().client())
        {
            self.begin_again(Ok(client));
        }
    }

    /// Whether a topic exists that these clients do not find.
    fn has_lost_topics(&self) -> bool {
        let lost = |(since, last)| UNKNOWN_MAX <= last - since;
        self.topics_gone || self.unknown_since.is_some_and(lost)
    }

    /// Goes on with new clients. The next round resumes the follows, before others of their partitions begin.
    fn begin_again(&mut self, client: Result<consumer::Client, KafkaFault>) {
        let client = match client {
            Ok(client) => client,
            Err(fault) => return self.report_down(fault.to_string()),
        };
        self.waiting
            .retain(|wanted| wanted.from != FollowFrom::Position);
        for wanted in self.follows.replace(client) {
            self.waiting.push_front(wanted);
        }
        (self.topics_gone, self.unknown_since) = (false, None);
        self.shared.doubt();
        if let Err(fault) = self.shared.revive(&self.config, &self.events) {
            tracing::error!(%fault, "the kafka producer cannot be recreated");
        }
    }

    /// An error if the right to read a followed topic is missing. The library does not report which topic it is.
    fn may_read(&mut self) -> Result<(), KafkaFault> {
        if self.may_not_read {
            for (topic, partition) in self.follows.one_of_each() {
                rights::try_to_read(&self.config, &topic, partition)?;
            }
            self.may_not_read = false;
        }
        Ok(())
    }

    fn report_down(&mut self, why: String) {
        if !self.down {
            self.down = true;
            self.events.send(LogEvent::Down { why });
        }
    }

    fn report_up(&mut self) {
        if self.down {
            self.down = false;
            self.events.send(LogEvent::Up);
        }
    }
}

fn refuse(events: &LogSender, ticket: Ticket, error: AppendError) {
    events.send(LogEvent::answer(ticket, Err(error)));
}
