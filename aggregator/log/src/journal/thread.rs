//! The journal's thread, and the queue through which its owner sends commands.
//!
//! Decides nothing: gathers commands into turns, drives the core, and sends its events. What stays
//! true: the owner never waits; the thread waits while its owner does not take events; when the owner
//! closes or drops the journal, the thread first finishes what it has accepted.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::super::{Append, AppendError, LogEvent, LogSender, Stream};
use super::TURN_BYTES;
use super::core::{Core, JournalCommand};
use super::frame::RECORD_HEADER_BYTES;
use crate::clock::LogClock;

/// How often a journal without commands tidies its segments. Retention is counted in hours.
const IDLE_TURN: Duration = Duration::from_secs(1);

/// Events of a turn are sent at once, unless they deliver more than this. Each sending may find the owner waiting, and
/// wake it: one for each event would do so with 16 partitions 16 times for each tick.
const TOGETHER_BYTES: usize = 64 * 1024;

enum Message {
    Commands(Vec<JournalCommand>),
    Close,
}

/// The owner's end.
pub(super) struct Queue {
    messages: Sender<Message>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Queue {
    /// Passes on appends together: one after the other, the thread would begin with the first, and write it alone.
    pub fn append(&self, appends: Vec<Append>) {
        let commands = appends.into_iter().map(|append| self.accept(append));
        self.send(Message::Commands(commands.collect()));
    }

    fn accept(&self, append: Append) -> JournalCommand {
        let cost = cost(&append.record);
        let before = self.bytes.fetch_add(cost, Ordering::Relaxed);
        // An empty queue takes one record, however small the bound.
        if before == 0 || before + cost <= self.bytes_max {
            return JournalCommand::Append(append);
        }
        // Queue only the ticket, which the owner keeps as well.
        self.bytes.fetch_sub(cost, Ordering::Relaxed);
        JournalCommand::Refuse {
            ticket: append.ticket,
        }
    }

    pub fn follow(&self, stream: Stream, partition: u32, from: u64) {
        let follow = JournalCommand::Follow {
            stream,
            partition,
            from,
        };
        self.send(Message::Commands(vec![follow]));
    }

    pub fn close(&self) {
        self.send(Message::Close);
    }

    fn send(&self, message: Message) {
        // The thread outlives its queue, unless it panicked; then there is nothing left to report to.
        let _ = self.messages.send(message);
    }
}

/// Starts the thread.
pub(super) fn start(
    core: Core,
    clock: LogClock,
    events: LogSender,
    bytes_max: usize,
) -> io::Result<Queue> {
    let (messages, inbox) = channel();
    let bytes = Arc::new(AtomicUsize::new(0));
    let mut worker = Worker {
        inbox,
        waiting: VecDeque::new(),
        is_closing: false,
        bytes: Arc::clone(&bytes),
        clock,
        outbox: Outbox {
            events,
            waiting: Vec::new(),
            bytes: 0,
        },
    };
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || worker.run(core))?;
    Ok(Queue {
        messages,
        bytes,
        bytes_max,
    })
}

struct Worker {
    inbox: Receiver<Message>,
    /// Commands that were received, and found no room in a turn yet.
    waiting: VecDeque<JournalCommand>,
    is_closing: bool,
    bytes: Arc<AtomicUsize>,
    clock: LogClock,
    outbox: Outbox,
}

/// Events on their way to the owner.
struct Outbox {
    events: LogSender,
    waiting: Vec<LogEvent>,
    /// What the waiting ones deliver.
    bytes: usize,
}

impl Outbox {
    fn push(&mut self, event: LogEvent) {
        if let LogEvent::Delivered { records, .. } = &event {
            self.bytes += records
                .iter()
                .map(|record| cost(&record.bytes))
                .sum::<usize>();
        }
        self.waiting.push(event);
        if TOGETHER_BYTES <= self.bytes {
            self.send();
        }
    }

    /// Sends everything that waits, in order.
    fn send(&mut self) {
        self.bytes = 0;
        if !self.waiting.is_empty() {
            // If the owner is gone nobody receives them; their records are written all the same.
            self.events.send_all(std::mem::take(&mut self.waiting));
        }
    }
}

/// The content of one turn.
#[derive(Default)]
struct Gathered {
    commands: Vec<JournalCommand>,
    bytes: usize,
}

impl Worker {
    fn run(&mut self, mut core: Core) {
        let mut more = false;
        let mut turn = Gathered::default();
        loop {
            self.gather(&mut turn, more);
            // Before the turn answers: an owner that waits for an answer then finds room.
            self.bytes.fetch_sub(turn.bytes, Ordering::Relaxed);
            let now = self.clock.now();
            let outbox = &mut self.outbox;
            more = core.turn(turn.commands.drain(..), now, &mut |event| {
                outbox.push(event);
            });
            outbox.send();
            turn.bytes = 0;
            if self.is_closing && self.waiting.is_empty() {
                break;
            }
        }
        if let Err(error) = core.close() {
            let why = error.to_string();
            self.outbox.push(LogEvent::CloseFailed { why });
        }
        self.refuse_the_rest();
    }

    /// Takes commands from the queue, up to a turn's size; waits for one unless there is `more` to do.
    fn gather(&mut self, turn: &mut Gathered, more: bool) {
        if !more && self.waiting.is_empty() {
            match self.inbox.recv_timeout(IDLE_TURN) {
                Ok(message) => self.receive(message),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.is_closing = true,
            }
        }
        loop {
            while turn.bytes < TURN_BYTES
                && let Some(command) = self.waiting.pop_front()
            {
                turn.bytes += cost_of(&command);
                turn.commands.push(command);
            }
            if self.is_closing || !self.waiting.is_empty() {
                return;
            }
            match self.inbox.try_recv() {
                Ok(message) => self.receive(message),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.is_closing = true,
            }
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Close => self.is_closing = true,
            Message::Commands(commands) => self.waiting.extend(commands),
        }
    }

    /// The journal is closed: refuses further appends until the owner drops it.
    fn refuse_the_rest(&mut self) {
        self.outbox.push(LogEvent::Closed);
        self.outbox.send();
        while let Ok(message) = self.inbox.recv() {
            let Message::Commands(commands) = message else {
                continue;
            };
            for command in commands {
                let ticket = match command {
                    JournalCommand::Append(Append { ticket, .. })
                    | JournalCommand::Refuse { ticket } => ticket,
                    JournalCommand::Follow { .. } => continue,
                };
                let why = AppendError::NotNow("the journal is closed".to_owned());
                self.outbox.push(LogEvent::answer(ticket, Err(why)));
            }
            self.outbox.send();
        }
    }
}

fn cost_of(command: &JournalCommand) -> usize {
    match command {
        JournalCommand::Append(append) => cost(&append.record),
        JournalCommand::Refuse { .. } | JournalCommand::Follow { .. } => 0,
    }
}

/// How much of the queue's and the turn's bounds a record uses: its length in the file, so that empty
/// records count too.
fn cost(record: &[u8]) -> usize {
    record.len() + RECORD_HEADER_BYTES
}
