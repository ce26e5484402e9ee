//! The ledger of one partition: the replay's statements against the recorded ones.
//!
//! ```text
//! replay states   17@0 acme denied until …       recorded   17@0 acme denied until …   equal
//!                 18@3 acme open again                      18@3 acme open again       equal
//!                 21@0 globex denied …                      17@0 acme denied …         a repeat: remark
//!                                                           (end)                      21@0 is missing
//! ```
//!
//! A log position and a scope identify a statement: a hold that fills its domain and all domains together
//! causes two statements at one log position. Knows nothing of files and records. What stays true: memory is
//! bounded, whatever the log's length. Of an equal statement the ledger keeps only fingerprints, to recognise
//! repeats, and drops the oldest ones.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::denial::Announced;

use super::report::{Difference, DifferenceKind, PartitionAudit, Stated};
use tollgate_log::RETRY_AFTER;

/// How many statements are remembered to recognise repeats: 64 bytes each. A ruling aggregator that
/// restarts repeats the statements after its last snapshot, which are far fewer.
const REMEMBERED: usize = 1_000_000;

/// How many statements that are not recorded yet are kept with their names.
const OPEN_MAX: usize = 100_000;

/// How far brokers' clocks may differ. A statement recorded earlier than its cause by more than this was
/// not written by an aggregator. Less than the time after which failed appends are tried again.
const CLOCKS_DIFFER: Span = Span::from_millis(200);

/// Offset and entry of a log position.
type EntryPosition = (u64, u32);

/// What identifies a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatementKey {
    position: EntryPosition,
    /// A fingerprint of resource and scope.
    scope: u64,
}

/// A statement of the replay.
#[derive(Clone, Copy, Debug)]
struct Expected {
    key: StatementKey,
    /// Its number in the order of the replay: each one is one more than the one before.
    number: u64,
    print: u64,
    caused: Timestamp,
    /// The offset at which it was first recorded.
    recorded: Option<u64>,
}

/// Where a statement is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The offset in the denials.
    pub offset: u64,
    /// When it was appended.
    pub appended: Timestamp,
}

/// Looks up older records of statements, to report what differs from them.
pub trait Lookup {
    /// The record at an offset of the denials.
    fn at(&self, offset: u64) -> Option<(Timestamp, Announced)>;
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    /// In the order of the replay, which is that of log positions.
    expected: VecDeque<Expected>,
    /// The number of the replay's next statement.
    next: u64,
    /// Statements that are not recorded yet, with their names, by number.
    open: BTreeMap<u64, Announced>,
    /// The number of the statement that was found last.
    found: u64,
    /// The greatest number of a recorded statement.
    highest: Option<u64>,
    /// Some statements up to this log position have been forgotten.
    forgotten: Option<EntryPosition>,
    writer: Writer,
}

fn key_of(announced: &Announced) -> StatementKey {
    let position = announced.statement.position;
    let mut hasher = DefaultHasher::new();
    (&announced.resource, &announced.statement.scope).hash(&mut hasher);
    StatementKey {
        position: (position.offset, position.entry),
        scope: hasher.finish(),
    }
}

impl Ledger {
    fn print(&mut self, announced: &Announced) -> u64 {
        announced.encode(&mut self.writer);
        let mut hasher = DefaultHasher::new();
        self.writer.as_slice().hash(&mut hasher);
        hasher.finish()
    }

    /// Takes a statement of the replay, caused by a record that was appended at `caused`.
    pub fn expect(&mut self, announced: Announced, caused: Timestamp, part: &mut PartitionAudit) {
        if REMEMBERED <= self.expected.len()
            && let Some(oldest) = self.expected.pop_front()
        {
            self.forgotten = Some(oldest.key.position);
            if oldest.recorded.is_none() {
                self.miss(oldest, part);
            }
        }
        let key = key_of(&announced);
        let print = self.print(&announced);
        let number = self.next;
        self.next += 1;
        self.expected.push_back(Expected {
            key,
            number,
            print,
            caused,
            recorded: None,
        });
        if self.open.len() < OPEN_MAX {
            self.open.insert(number, announced);
        }
    }

    /// The index of the replay's statement.
    fn find(&self, key: StatementKey) -> Option<usize> {
        // An agent that is gone may open many thousand scopes at one log position. They are recorded in order, so
        // the statement behind the last one found is tried first.
        let behind = (self.found + 1).checked_sub(self.expected.front()?.number);
        let behind = behind.and_then(|index| usize::try_from(index).ok());
        let is_it = |index: &usize| self.expected.get(*index).is_some_and(|e| e.key == key);
        if let Some(index) = behind.filter(is_it) {
            return Some(index);
        }
        let is_before = |e: &Expected| e.key.position < key.position;
        let first = self.expected.partition_point(is_before);
        let there = self.expected.range(first..);
        let mut there = there.take_while(|e| e.key.position == key.position);
        there.position(|e| e.key == key).map(|at| first + at)
    }

    /// Takes a recorded statement whose cause the replay has passed.
    pub fn found(
        &mut self,
        announced: &Announced,
        recorded: Recorded,
        past: &dyn Lookup,
        part: &mut PartitionAudit,
    ) {
        let key = key_of(announced);
        let Some(at) = self.find(key) else {
            let is_old = |forgotten| key.position <= forgotten;
            if self.forgotten.is_some_and(is_old) {
                let text = "statements announced again so late that they are not compared";
                return part.remark("old_repeats", 1, recorded.offset, text);
            }
            let text = "was announced, and the replay states nothing about it at this log position";
            return part.differs(Difference {
                found: Some(Stated::of(&announced.statement.kind)),
                recorded_at: Some(recorded.offset),
                ..Difference::of_statement(DifferenceKind::Unexpected, announced, text)
            });
        };
        let expected = self.expected[at];
        self.found = expected.number;
        let equal = expected.print == self.print(announced);
        if !equal {
            let difference = self.changed(announced, expected, recorded, past);
            part.differs(difference);
        }
        if expected.recorded.is_some() {
            if equal {
                part.repeats += 1;
                let text = "statements announced again, as they were";
                part.remark("repeats", 1, recorded.offset, text);
            }
            return;
        }
        self.expected[at].recorded = Some(recorded.offset);
        self.open.remove(&expected.number);
        part.compared += u64::from(equal);
        self.check_cause(announced, expected, recorded, part);
        let number = Some(expected.number);
        if number < self.highest {
            self.check_order(announced, at, recorded, past, part);
        }
        self.highest = self.highest.max(number);
    }

    fn changed(
        &self,
        announced: &Announced,
        expected: Expected,
        recorded: Recorded,
        past: &dyn Lookup,
    ) -> Difference {
        // If an earlier record announced it correctly, that record has the expected statement.
        let before = || past.at(expected.recorded?).map(|(_, announced)| announced);
        let right = self.open.get(&expected.number).cloned().or_else(before);
        let text = match &right {
            Some(right) => format!("was announced otherwise: {}", unlike(right, announced)),
            None => "was announced otherwise".to_owned(),
        };
        let about = right.as_ref().unwrap_or(announced);
        Difference {
            expected: right.as_ref().map(|a| Stated::of(&a.statement.kind)),
            found: Some(Stated::of(&announced.statement.kind)),
            recorded_at: Some(recorded.offset),
            ..Difference::of_statement(DifferenceKind::Changed, about, text)
        }
    }

    /// A statement cannot be recorded before its cause: a journal takes all append times from one clock, which never
    /// goes back.
    fn check_cause(
        &self,
        announced: &Announced,
        expected: Expected,
        recorded: Recorded,
        part: &mut PartitionAudit,
    ) {
        if expected.caused <= recorded.appended.saturating_add(CLOCKS_DIFFER) {
            return;
        }
        let early = expected.caused.since(recorded.appended).as_millis();
        let text = format!(
            "is recorded {early} ms before the record that caused it; expected at most {} ms, by which brokers' clocks may \
             differ",
            CLOCKS_DIFFER.as_millis()
        );
        part.differs(Difference {
            recorded_at: Some(recorded.offset),
            ..Difference::of_statement(DifferenceKind::Early, announced, text)
        });
    }

    /// Checks a statement recorded after one that it should precede. That is legal only if its append
    /// failed at first and was repeated, which takes some time.
    fn check_order(
        &self,
        announced: &Announced,
        at: usize,
        recorded: Recorded,
        past: &dyn Lookup,
        part: &mut PartitionAudit,
    ) {
        let overtaking = self.expected.range(at + 1..).find_map(|e| e.recorded);
        let first = overtaking.and_then(|offset| Some((offset, past.at(offset)?.0)));
        if let Some((_, appended)) = first
            && appended.saturating_add(RETRY_AFTER) <= recorded.appended
        {
            let text = "statements recorded late, after an append that had failed";
            return part.remark("recorded_late", 1, recorded.offset, text);
        }
        let behind = overtaking.unwrap_or_default();
        let text = format!("is recorded behind a later statement, at denials offset {behind}");
        part.differs(Difference {
            recorded_at: Some(recorded.offset),
            ..Difference::of_statement(DifferenceKind::Order, announced, text)
        });
    }

    fn miss(&mut self, expected: Expected, part: &mut PartitionAudit) {
        let text = "is stated by the replay, and was not announced";
        let (offset, entry) = expected.key.position;
        let difference = match self.open.remove(&expected.number) {
            Some(announced) => Difference {
                expected: Some(Stated::of(&announced.statement.kind)),
                ..Difference::of_statement(DifferenceKind::Missing, &announced, text)
            },
            None => Difference {
                entry: Some(entry),
                ..Difference::of_record(
                    DifferenceKind::Missing,
                    (part.partition, "hits", offset),
                    format!("a statement {text}"),
                )
            },
        };
        part.differs(difference);
    }

    /// Takes the end of both streams. The ruling aggregator is known to have recorded every statement
    /// caused by records below the offset `proved`.
    pub fn end(mut self, proved: u64, part: &mut PartitionAudit) {
        for expected in std::mem::take(&mut self.expected) {
            if expected.recorded.is_some() {
                continue;
            }
            let (offset, _) = expected.key.position;
            if offset < proved {
                self.miss(expected, part);
            } else {
                let text = "statements at the log's end that cannot have been recorded yet";
                part.remark("pending", 1, offset, text);
            }
        }
    }
}

/// The parts in which two statements about one scope differ.
fn unlike(right: &Announced, found: &Announced) -> String {
    use tollgate_shared::wire::statement::StatementKind;

    let mut parts = Vec::new();
    let (a, b) = (&right.statement, &found.statement);
    if right.log != found.log {
        parts.push("log");
    }
    if a.position.generation != b.position.generation {
        parts.push("generation");
    }
    match (&a.kind, &b.kind) {
        (StatementKind::Denied(a), StatementKind::Denied(b)) => {
            let fields = [
                ("end", a.end != b.end),
                ("cause", a.cause != b.cause),
                ("version", a.version != b.version),
                ("limit", a.limit != b.limit),
                ("window", a.window != b.window),
            ];
            parts.extend(fields.iter().filter(|(_, differ)| *differ).map(|(n, _)| *n));
        }
        (a, b) if a == b => {}
        _ => parts.push("what is said"),
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests;
