//! The journal's thread, and the queue through which its owner sends commands.
//!
//! Decides nothing: gathers commands into turns, drives the core, and sends its events. What stays
//! true: the owner never waits; the thread waits while its owner does not take events; when the owner
//! closes or drops the journal, the thread first finishes what it has accepted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::{AppendError, LogEvent, Stream, Ticket};
use super::TURN_BYTES;
use super::core::{Core, JournalCommand};
use super::frame::RECORD_HEADER_BYTES;
use crate::clock::WallClock;

/// How often a journal without commands tidies its segments. Retention is counted in hours.
const IDLE_TURN: Duration = Duration::from_secs(1);

/// Events of a turn are sent together, unless they deliver more than this. Each one that is sent alone may find the
/// owner waiting, and wakes it: with 16 partitions 16 times for each tick.
const TOGETHER_BYTES: usize = 64 * 1024;

enum Message {
    Command(JournalCommand),
    Close,
}

/// The owner's end.
pub(super) struct Queue {
    messages: Sender<Message>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Queue {
    pub fn append(&self, stream: Stream, partition: u32, ticket: Ticket, record: Vec<u8>) {
        let cost = cost(&record);
        let before = self.bytes.fetch_add(cost, Ordering::Relaxed);
        // An empty queue takes one record, however small the bound.
        let command = if before == 0 || before + cost <= self.bytes_max {
            JournalCommand::Append {
                stream,
                partition,
                ticket,
                record,
            }
        } else {
            // Queue only the ticket, which the owner keeps as well.
            self.bytes.fetch_sub(cost, Ordering::Relaxed);
            JournalCommand::Refuse { ticket }
        };
        self.send(Message::Command(command));
    }

    pub fn follow(&self, stream: Stream, partition: u32, from: u64) {
        self.send(Message::Command(JournalCommand::Follow {
            stream,
            partition,
            from,
        }));
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
    clock: WallClock,
    events: mpsc::Sender<LogEvent>,
    bytes_max: usize,
) -> io::Result<Queue> {
    let (messages, inbox) = channel();
    let bytes = Arc::new(AtomicUsize::new(0));
    let mut worker = Worker {
        inbox,
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
    bytes: Arc<AtomicUsize>,
    clock: WallClock,
    outbox: Outbox,
}

/// Events on their way to the owner.
struct Outbox {
    events: mpsc::Sender<LogEvent>,
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
        for event in self.waiting.drain(..) {
            // If the owner is gone nobody receives the event; its records are written all the same.
            let _ = self.events.blocking_send(event);
        }
    }
}

/// The content of one turn.
#[derive(Default)]
struct Gathered {
    commands: Vec<JournalCommand>,
    bytes: usize,
    close: bool,
}

impl Worker {
    fn run(&mut self, mut core: Core) {
        let mut more = false;
        let mut turn = Gathered::default();
        loop {
            self.gather(&mut turn, more);
            // Before the turn answers: an owner that waits for an answer then finds room.
            self.bytes.fetch_sub(turn.bytes, Ordering::Relaxed);
            let now = (self.clock)();
            let outbox = &mut self.outbox;
            more = core.turn(turn.commands.drain(..), now, &mut |event| {
                outbox.push(event);
            });
            outbox.send();
            turn.bytes = 0;
            if turn.close {
                break;
            }
        }
        if let Err(error) = core.close() {
            tracing::error!(%error, "the journal could not be closed in order");
        }
        self.refuse_the_rest();
    }

    /// Takes commands from the queue, up to a turn's size; waits for one unless there is `more` to do.
    fn gather(&self, turn: &mut Gathered, more: bool) {
        if !more {
            match self.inbox.recv_timeout(IDLE_TURN) {
                Ok(message) => turn.add(message),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => turn.close = true,
            }
        }
        while !turn.close && turn.bytes < TURN_BYTES {
            match self.inbox.try_recv() {
                Ok(message) => turn.add(message),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => turn.close = true,
            }
        }
    }

    /// The journal is closed: refuses further appends until the owner drops it.
    fn refuse_the_rest(&mut self) {
        self.outbox.push(LogEvent::Closed);
        self.outbox.send();
        while let Ok(message) = self.inbox.recv() {
            let Message::Command(
                JournalCommand::Append { ticket, .. } | JournalCommand::Refuse { ticket },
            ) = message
            else {
                continue;
            };
            let why = AppendError::NotNow("the journal is closed".to_owned());
            self.outbox.push(LogEvent::answer(ticket, Err(why)));
            self.outbox.send();
        }
    }
}

impl Gathered {
    fn add(&mut self, message: Message) {
        match message {
            Message::Close => self.close = true,
            Message::Command(command) => {
                if let JournalCommand::Append { record, .. } = &command {
                    self.bytes += cost(record);
                }
                self.commands.push(command);
            }
        }
    }
}

/// How much of the queue's and the turn's bounds a record uses: its length in the file, so that empty
/// records count too.
fn cost(record: &[u8]) -> usize {
    record.len() + RECORD_HEADER_BYTES
}
