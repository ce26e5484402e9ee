//! The one loop: events in, effects out.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tollgate_log::clock::wall;
use tollgate_log::{Append, Log, LogEvent, LogReceiver};
use tollgate_shared::time::Span;

use super::backlog::{Backlog, Next};
use super::dead_letters::DeadLetters;
#[cfg(feature = "kafka")]
use super::fleet::Fleet;
use super::limits_file::read_file;
use super::parked;
use super::saver::Saver;
use super::signals::SignalRequest;
use super::start::Inboxes;
use crate::ServeError;
use crate::config::Config;
use crate::core::Core;
use crate::core::event::{AgentRoom, Effect, Event, Now};
use crate::feed::Publisher;
use crate::http::PendingQueries;
use crate::link::{Answers, Sent};

/// How long events are handled before the turn ends and its statements are announced. This is half of what a denial
/// may take from a hit to an agent that is idle.
const TURN_MAX: Duration = Duration::from_micros(500);

/// How long the log may take to finish accepted appends. The process has to end within 5 s.
const CLOSE_PATIENCE: Duration = Duration::from_secs(4);

/// The core, and everything that its effects go to.
pub(super) struct Shell {
    pub core: Core,
    pub log: Box<dyn Log>,
    pub feed: Publisher,
    pub answers: Answers,
    pub queries: PendingQueries,
    pub dead_letters: DeadLetters,
    pub snapshot_store: Keeper,
    /// Receives the limits file when it was read.
    pub files: mpsc::Sender<Event>,
    pub backlog: Backlog,
    pub started: Instant,
    pub effects: Vec<Effect>,
    pub log_faults: mpsc::Receiver<ServeError>,
    pub gave_up: Option<ServeError>,
}

/// What the loop waited for.
enum Woken {
    Asked(SignalRequest),
    Log(LogEvent),
    Other(Event),
    Fault(ServeError),
    /// The time of the next turn.
    Turn,
}

/// Keeps snapshots.
pub(super) enum Keeper {
    /// Files beside the journal.
    Files(Saver),
    /// The fleet's `state` topic.
    #[cfg(feature = "kafka")]
    Fleet(Fleet),
}

/// Rules until a signal, or until the log cannot be used.
pub(super) fn run(
    mut shell: Shell,
    mut inboxes: Inboxes,
    config: &Config,
) -> Result<(), ServeError> {
    // The log's limits are read after it, so that a bad file is known by then.
    shell.read_first_limits_file(config);
    loop {
        let turn_at = shell.started + shell.core.next_turn().to_std();
        match parked::until(turn_at, shell.woken(&mut inboxes)).unwrap_or(Woken::Turn) {
            Woken::Asked(SignalRequest::Stop) => break,
            Woken::Asked(SignalRequest::ReadLimits) => shell.read_limits_file(config),
            Woken::Log(event) => shell.backlog.push(event),
            Woken::Other(event) => shell.handle(event),
            Woken::Fault(fault) => shell.gave_up = Some(fault),
            Woken::Turn => {}
        }
        let Inboxes {
            log_events, events, ..
        } = &mut inboxes;
        let turn_ends = Instant::now() + TURN_MAX;
        while Instant::now() < turn_ends {
            // One of each in turn, so that neither starves the other.
            let is_from_log = shell.handle_log(log_events);
            let from_others = events.try_recv().map(|event| shell.handle(event));
            if !is_from_log && from_others.is_err() {
                break;
            }
        }
        shell.step(Event::Turn);
        if let Some(failure) = shell.gave_up.take() {
            if let Err(error) = shell.close(log_events) {
                tracing::error!(%error, "closing failed as well");
            }
            return Err(failure);
        }
    }
    tracing::info!("stopping");
    shell.close(&mut inboxes.log_events)
}

impl Shell {
    /// Everything that can wake this process before its next turn, on one screen. Dropping the future loses nothing.
    async fn woken(&mut self, inboxes: &mut Inboxes) -> Woken {
        let Inboxes {
            signals,
            log_events,
            events,
        } = inboxes;
        tokio::select! {
            biased;
            asked = signals.next() => Woken::Asked(asked),
            Some(event) = log_events.recv(), if self.backlog.has_room() => Woken::Log(event),
            Some(event) = events.recv() => Woken::Other(event),
            Some(fault) = self.log_faults.recv() => Woken::Fault(fault),
            () = std::future::ready(()), if !self.backlog.is_empty() => Woken::Turn,
        }
    }

    fn now(&self) -> Now {
        Now {
            clock: Span::from_std(self.started.elapsed()),
            wall: wall(),
        }
    }

    /// Handles the next event of the log, or several at once that concern partitions. Returns whether there was one.
    fn handle_log(&mut self, log_events: &mut LogReceiver) -> bool {
        while self.backlog.has_room()
            && let Some(event) = log_events.try_recv()
        {
            self.backlog.push(event);
        }
        match self.backlog.next() {
            None => return false,
            Some(Next::Event(event)) => self.handle(Event::Log(event)),
            Some(Next::Together(events)) => {
                let now = self.now();
                self.core.rule_together(now, &events, &mut self.effects);
            }
        }
        true
    }

    /// Handles an event. Its effects are carried out at the end of the turn, together: one append after the other
    /// would wake the log's thread for each.
    fn handle(&mut self, event: Event) {
        if let Event::Agent { peer, request } = &event {
            self.answers.request_read(peer, request);
        }
        let now = self.now();
        self.core.step(now, event, &mut self.effects);
    }

    /// Handles an event, and carries out all effects until now.
    fn step(&mut self, event: Event) {
        self.handle(event);
        self.perform();
    }

    /// Carries out all effects until now.
    pub(super) fn perform(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut appends = Vec::new();
        for effect in effects.drain(..) {
            self.carry_out(effect, &mut appends);
        }
        self.append_all(&mut appends);
        self.answers.wake();
        // The vector's memory is reused.
        self.effects = effects;
    }

    /// Carries out an effect. Appends are gathered; see [`Log::append_all`].
    fn carry_out(&mut self, effect: Effect, appends: &mut Vec<Append>) {
        match effect {
            Effect::Append(append) => appends.push(append),
            Effect::Follow {
                stream,
                partition,
                from,
            } => {
                self.append_all(appends);
                self.log.follow(stream, partition, from);
            }
            Effect::Unfollow { stream, partition } => {
                self.append_all(appends);
                self.log.unfollow(stream, partition);
            }
            Effect::Publish { topic, frame } => self.feed.publish(topic, frame),
            Effect::Answer { peer, message } => match self.answers.send(&peer, &message) {
                Sent::Sent => {}
                Sent::Full => self.core.room(peer, AgentRoom::Full),
                Sent::Gone => self.core.room(peer, AgentRoom::Gone),
            },
            Effect::Reply { id, reply } => self.queries.answer(id, *reply),
            Effect::SaveSnapshot {
                partition,
                upto,
                moment,
            } => match &self.snapshot_store {
                Keeper::Files(saver) => saver.save(partition, upto, moment),
                #[cfg(feature = "kafka")]
                Keeper::Fleet(fleet) => fleet.save(partition, upto, moment),
            },
            Effect::DropSnapshot { partition, upto } => match &self.snapshot_store {
                Keeper::Files(saver) => saver.drop_snapshot(partition, upto),
                // It is removed with others when there are two newer ones.
                #[cfg(feature = "kafka")]
                Keeper::Fleet(_) => {}
            },
            Effect::Restore {
                partition,
                attempt,
                known,
            } => match &self.snapshot_store {
                // This process rules all partitions of a journal, from the start.
                Keeper::Files(_) => drop((partition, attempt, known)),
                #[cfg(feature = "kafka")]
                Keeper::Fleet(fleet) => fleet.restore(partition, attempt, known),
            },
            Effect::Aside(letter) => self.dead_letters.keep(&letter),
            Effect::GiveUp { why, unreadable } => {
                self.gave_up = Some(if unreadable {
                    ServeError::LimitsUnreadable(why)
                } else {
                    ServeError::LimitsInvalid(why)
                });
            }
        }
    }

    fn append_all(&mut self, appends: &mut Vec<Append>) {
        if !appends.is_empty() {
            self.log.append_all(std::mem::take(appends));
        }
    }

    fn read_first_limits_file(&mut self, config: &Config) {
        if let Some(path) = &config.limits.file {
            let file = read_file(path, config.domain_key_file.as_deref());
            self.step(Event::LimitsFile(file));
        }
    }

    /// Reads the limits file in the background.
    fn read_limits_file(&self, config: &Config) {
        let Some(path) = config.limits.file.clone() else {
            tracing::debug!("no limits file is configured");
            return;
        };
        let (key, files) = (config.domain_key_file.clone(), self.files.clone());
        tokio::task::spawn_blocking(move || {
            let file = read_file(&path, key.as_deref());
            // The receiver is gone if the process ends.
            let _ = files.blocking_send(Event::LimitsFile(file));
        });
    }

    /// Closes the log: when this returns, the log has everything that agents were told, and answers to appends under
    /// way were still sent. If that is not certain, the next process finds out what the log has.
    fn close(mut self, log_events: &mut LogReceiver) -> Result<(), ServeError> {
        #[cfg(feature = "kafka")]
        if let Keeper::Fleet(fleet) = &self.snapshot_store {
            fleet.leave();
        }
        self.dead_letters.close();
        self.log.close();
        for event in self.backlog.take_all() {
            self.close_by(event);
        }
        let at_most = Instant::now() + CLOSE_PATIENCE;
        while let Some(event) = parked::until(at_most, log_events.recv()) {
            let Some(event) = event else {
                return Err(ServeError::NotClosed("its thread has ended".to_owned()));
            };
            if self.close_by(event) {
                return self.gave_up.map_or(Ok(()), Err);
            }
        }
        tracing::error!("the log did not close in time; what was acknowledged is in it");
        Err(ServeError::NotClosed(format!(
            "it takes longer than {CLOSE_PATIENCE:?}"
        )))
    }

    /// Handles an event of a log that is being closed; returns whether it was the last.
    fn close_by(&mut self, event: LogEvent) -> bool {
        match event {
            LogEvent::Closed => return true,
            LogEvent::CloseFailed { why } => self.gave_up = Some(ServeError::NotClosed(why)),
            event @ LogEvent::Appended { .. } => self.step(Event::Log(event)),
            // What is delivered now will be ruled by the next process.
            _ => {}
        }
        false
    }
}
