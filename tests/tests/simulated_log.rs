//! The simulation's substitute for Kafka keeps the promises of every log: the suite that also
//! checks a real Kafka and the journal (`journal.rs`, `kafka/log.rs`).

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tollgate_log::{Append, AppendError, Log, LogEvent, LogSender, Stream, Ticket};
use tollgate_shared::time::Timestamp;
use tollgate_tests::conformance::{self, Medium, PARTITIONS};
use tollgate_tests::simulation::shared_log::{Session, SharedLog};

/// How many records of one partition are delivered at once.
const SOME: usize = 7;

struct InMemory(Arc<Mutex<SharedLog>>);

enum Command {
    Append(Append),
    Follow(Stream, u32, u64),
    Close,
}

/// One opening of the log, behind the trait: a thread does what takes time.
struct Opened(mpsc::Sender<Command>);

impl Medium for InMemory {
    fn open(&self, events: LogSender) -> Box<dyn Log> {
        let (commands, taken) = mpsc::channel();
        let log = Arc::clone(&self.0);
        std::thread::spawn(move || serve(&log, &taken, &events));
        Box::new(Opened(commands))
    }
}

impl Opened {
    fn say(&self, command: Command) {
        // The thread ends when nobody receives its events any more; then this command does not
        // matter.
        let _ = self.0.send(command);
    }
}

impl Log for Opened {
    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Bytes) {
        self.say(Command::Append(Append {
            stream,
            partition,
            ticket,
            record,
        }));
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.say(Command::Follow(stream, partition, from));
    }

    fn close(&mut self) {
        self.say(Command::Close);
    }
}

fn serve(log: &Mutex<SharedLog>, commands: &mpsc::Receiver<Command>, events: &LogSender) {
    let mut session = Session::default();
    let mut closed = false;
    while let Ok(command) = commands.recv() {
        let mut log = log.lock().expect("nobody panicked");
        let mut outgoing = Vec::new();
        match command {
            Command::Append(append) => {
                let result = match closed {
                    true => Err(AppendError::NotNow("closed".to_owned())),
                    false => log.put(&append, now()).map(|record| record.offset),
                };
                let ticket = append.ticket;
                outgoing.push(LogEvent::answer(ticket, result));
            }
            Command::Follow(stream, partition, from) => {
                log.follow(&mut session, stream, partition, from);
            }
            Command::Close => {
                closed = true;
                session = Session::default();
                outgoing.push(LogEvent::Closed);
            }
        }
        while log.is_behind(&session) {
            outgoing.extend(log.deliver(&mut session, SOME));
        }
        drop(log);
        events.send_all(outgoing);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.expect("after 1970").as_micros();
    Timestamp::from_micros(u64::try_from(since).expect("small"))
}

#[test]
fn the_simulated_log_keeps_every_promise_of_a_log() {
    conformance::hold(|| Box::new(InMemory(Arc::new(Mutex::new(SharedLog::new(PARTITIONS))))));
}
