//! Appends versions to the log, and waits until they are in it.
//!
//! ```text
//! version 18 in force   append A, expects 18 ── version 19   append B, expects 19 ── version 20
//! ```
//!
//! Knows nothing of what makes a version. What stays true: the next version is appended once the log has the previous
//! one, so that another pusher in between causes a conflict, and the versions before the conflict stay.

use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::NAME_BYTES_MAX;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::limits_document::REASON_BYTES_MAX;
use tollgate_shared::wire::record::RecordPen;

use super::limits_history::History;
use super::limits_wanted::Wanted;
use crate::exit::{Exit, Failure};
use tollgate_limits::versions::{Entered, Void};
use tollgate_log::clock::wall;
use tollgate_log::kafka::{KafkaConfig, KafkaLog};
use tollgate_log::{AppendError, Log as _, LogEvent, LogReceiver, Stream, Ticket};
use tollgate_server::core::limits_push::{Pushed, cut};

/// Events of the log that may wait.
const EVENTS_MAX: usize = 64;

/// The stream of limits, read to its end, to which versions are appended.
pub(super) struct LimitsStream {
    log: KafkaLog,
    inbox: LogReceiver,
    history: History,
    appended: u64,
}

impl LimitsStream {
    /// Opens the stream, and reads everything in it.
    pub(super) fn open(kafka: &KafkaConfig, history: History) -> Result<Self, Failure> {
        let (events, inbox) = tollgate_log::channel(EVENTS_MAX);
        let mut log = KafkaLog::open(kafka.clone(), events)?;
        log.follow(Stream::Limits, 0, history.next);
        let mut stream = Self {
            log,
            inbox,
            history,
            appended: 0,
        };
        until(&mut stream.inbox, &mut stream.history, |event, _| {
            Ok(matches!(event, LogEvent::CaughtUp { .. }).then_some(()))
        })?;
        if stream.history.next == 0 {
            // The stream begins with its identity, since version 0 means "none".
            let id = LogId {
                generation: 1,
                random: rand::random(),
            };
            stream.append(RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(id));
        }
        Ok(stream)
    }

    fn append(&mut self, record: Vec<u8>) {
        self.appended += 1;
        let ticket = Ticket(self.appended);
        self.log.append(Stream::Limits, 0, ticket, record.into());
    }

    /// Appends one version after the other, each once the previous one is in force; returns the last one.
    pub(super) fn append_all(
        &mut self,
        wanted: Wanted,
        expected: u64,
        (who, reason): (&str, &str),
    ) -> Result<u64, Failure> {
        let count = wanted.changes.len() + usize::from(wanted.document.is_some());
        let mut version = expected;
        for (done, next) in next_versions(wanted).enumerate() {
            let push = rand::random();
            self.append(next.record((push, version), (who, reason)));
            let pushed = self.outcome_of(push);
            version = pushed.map_err(|failure| match done {
                0 => failure,
                done => part_done(failure, (done, count), version),
            })?;
        }
        Ok(version)
    }

    /// Closes the log.
    pub(super) fn close(mut self) {
        self.log.close();
    }

    /// Waits for the outcome of a push.
    fn outcome_of(&mut self, push: u128) -> Result<u64, Failure> {
        let (inbox, history) = (&mut self.inbox, &mut self.history);
        until(inbox, history, |_, entered| match entered {
            Some(Entered::Version { push: of, version }) if of == push => Ok(Some(version.number)),
            Some(Entered::Void { push: of, why }) if of == push => Err(match why {
                Void::Conflict { expected, found } => conflict(expected, found),
                why => Failure::Data(format!("the pushed document is void: {why}")),
            }),
            Some(Entered::Newer { why, .. }) => Err(Failure::Data(why)),
            _ => Ok(None),
        })
    }
}

/// A failure after which some of several versions are in force.
fn part_done(failure: Failure, (done, count): (usize, usize), version: u64) -> Failure {
    remark!(
        "tollgate: {done} of {count} parts are in force, up to version {version}: run the same command again for the rest"
    );
    failure
}

/// One version to append.
enum NextVersion {
    Document(String),
    Change(Act),
}

fn next_versions(wanted: Wanted) -> impl Iterator<Item = NextVersion> {
    let Wanted { document, changes } = wanted;
    let document = document.into_iter().map(NextVersion::Document);
    document.chain(changes.into_iter().map(NextVersion::Change))
}

impl NextVersion {
    fn record(self, (push, expected): (u128, u64), (who, reason): (&str, &str)) -> Vec<u8> {
        match self {
            Self::Document(text) => Pushed {
                push,
                text: &text,
                expected,
                who,
                why: reason,
                at: wall(),
            }
            .record(),
            Self::Change(act) => {
                let mut writer = Writer::new();
                Amendment {
                    push,
                    expected,
                    who: cut(who, NAME_BYTES_MAX),
                    why: cut(reason, REASON_BYTES_MAX),
                    act,
                }
                .encode(&mut writer);
                writer.as_slice().to_vec()
            }
        }
    }
}

/// The failure if another version came first.
pub(super) fn conflict(expected: u64, found: u64) -> Failure {
    Failure::Log {
        exit: Exit::Conflict,
        text: format!(
            "it expected version {expected}, and {found} is in force: look at it, and push again"
        ),
    }
}

/// Takes events until `found` returns a value, for an event or for the outcome of a push.
fn until<T>(
    inbox: &mut LogReceiver,
    history: &mut History,
    mut found: impl FnMut(&LogEvent, Option<Entered>) -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    while let Some(event) = inbox.blocking_recv() {
        match &event {
            LogEvent::Delivered { records, .. } => {
                for record in records {
                    let entered = history.enter(record);
                    if let Some(found) = found(&event, entered)? {
                        return Ok(found);
                    }
                }
            }
            LogEvent::Down { why } => return Err(no_answer(why.clone())),
            LogEvent::Appended { answers, .. } => {
                for answer in answers {
                    match &answer.result {
                        Ok(_) => {}
                        Err(AppendError::Never(why)) => {
                            return Err(Failure::Data(format!("{why}: nothing was changed")));
                        }
                        Err(error) => {
                            return Err(no_answer(format!(
                                "{error}: whether it was appended is not known; push again"
                            )));
                        }
                    }
                }
            }
            LogEvent::Gap { .. } | LogEvent::Broken { .. } => {
                return Err(Failure::Data(format!("limits cannot be read: {event:?}")));
            }
            _ => {}
        }
        if let Some(found) = found(&event, None)? {
            return Ok(found);
        }
    }
    Err(Failure::Unavailable("the log has ended".to_owned()))
}

/// The failure of a command whose records are not taken; if a permission is missing, the log names it.
fn no_answer(why: String) -> Failure {
    match why.contains("AuthorizationFailed") {
        true => Failure::Log {
            exit: Exit::NotAuthorised,
            text: why,
        },
        false => Failure::Unavailable(why),
    }
}
