//! The journal's thread, and the queue by which its owner reaches it.
//!
//! Decides nothing: it gathers commands into turns, drives the core, and sends its events. What stays
//! true: the owner never waits; the thread waits for an owner that does not take its events; once
//! told to close, or left by its owner, it finishes what was accepted first.

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

/// How often a journal that nobody uses looks after its segments. Retention is counted in hours.
const IDLE_TURN: Duration = Duration::from_secs(1);

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
        // One record is always taken, however small the bound.
        let command = if before == 0 || before + cost <= self.bytes_max {
            JournalCommand::Append {
                stream,
                partition,
                ticket,
                record,
            }
        } else {
            // Only the ticket waits, which the owner remembers as well.
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
        // The thread outlives its queue, unless it panicked; then nothing can be said any more.
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
        events,
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
    events: mpsc::Sender<LogEvent>,
}

/// What a turn is made of.
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
            // Before anything is answered: who waits for the answer finds room.
            self.bytes.fetch_sub(turn.bytes, Ordering::Relaxed);
            let now = (self.clock)();
            let events = &self.events;
            more = core.turn(turn.commands.drain(..), now, &mut |event| {
                // An owner that is gone does not hear of it; what it gave is written all the same.
                let _ = events.blocking_send(event);
            });
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

    /// Takes what is in the queue, up to a turn's size; waits for something unless there is more to do.
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

    /// The journal is closed: answers what still comes, until the owner lets go of it.
    fn refuse_the_rest(&self) {
        let _ = self.events.blocking_send(LogEvent::Closed);
        while let Ok(message) = self.inbox.recv() {
            let Message::Command(
                JournalCommand::Append { ticket, .. } | JournalCommand::Refuse { ticket },
            ) = message
            else {
                continue;
            };
            let _ = self.events.blocking_send(LogEvent::Appended {
                ticket,
                result: Err(AppendError::NotNow("the journal is closed".to_owned())),
                taken: None,
            });
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

/// What a record takes of the queue and of a turn: what it takes in the file, so that many empty ones
/// do not count as nothing.
fn cost(record: &[u8]) -> usize {
    record.len() + RECORD_HEADER_BYTES
}
