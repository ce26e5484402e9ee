//! What agents have under way: appends that the log has not answered, hellos, and asks that the core has not
//! read.
//!
//! ```text
//! append of 20 kB ──> 20 kB of the connection's 4 MiB, and of the 64 MiB of all ──answer──> free
//! ask of 20 kB    ──> the same ──read by the core──> free
//! ```
//!
//! A connection at its bound is not read, nor is anybody while all together are at theirs. Appends of a
//! connection that is gone count until they are answered, since the log has them as before. Knows
//! nothing of sockets.

use std::collections::{HashMap, HashSet};

use tollgate_shared::wire::link::Answered;

/// What an append costs beside its record: its places in queues, and its answer.
const APPEND_BYTES: usize = 256;

/// Hellos of one connection that may be under way: an agent has one.
const HELLOS_MAX: u32 = 4;

/// What one connection has under way.
#[derive(Debug, Default)]
struct Flight {
    bytes: usize,
    hellos: u32,
    /// By the append's number, which is the agent's to choose: how many have it, and their bytes.
    appends: HashMap<u64, (u32, usize)>,
}

impl Flight {
    fn is_full(&self, bytes_max: usize) -> bool {
        bytes_max <= self.bytes || HELLOS_MAX <= self.hellos
    }
}

/// What all connections have under way.
#[derive(Debug)]
pub(super) struct Flights {
    bytes_each_max: usize,
    bytes_max: usize,
    bytes: usize,
    flights: HashMap<u64, Flight>,
    /// Those that are not read because of what all have.
    waiting: HashSet<u64>,
}

impl Flights {
    pub(super) fn new(bytes_each_max: usize, bytes_max: usize) -> Self {
        Self {
            bytes_each_max,
            bytes_max,
            bytes: 0,
            flights: HashMap::new(),
            waiting: HashSet::new(),
        }
    }

    /// Bytes of all appends under way.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// An append goes to the log.
    pub(super) fn append(&mut self, connection: u64, id: u64, record_bytes: usize) {
        let bytes = record_bytes + APPEND_BYTES;
        let flight = self.flights.entry(connection).or_default();
        let (count, of_id) = flight.appends.entry(id).or_default();
        *count += 1;
        *of_id += bytes;
        flight.bytes += bytes;
        self.bytes += bytes;
    }

    /// A hello is to be answered.
    pub(super) fn hello(&mut self, connection: u64) {
        self.flights.entry(connection).or_default().hellos += 1;
    }

    /// An ask whose names take so many bytes goes to the core.
    pub(super) fn ask(&mut self, connection: u64, names_bytes: usize) {
        let bytes = names_bytes + APPEND_BYTES;
        self.flights.entry(connection).or_default().bytes += bytes;
        self.bytes += bytes;
    }

    /// The core has read that ask; returns the connections that are to be looked at again.
    pub(super) fn ask_read(&mut self, connection: u64, names_bytes: usize) -> Vec<u64> {
        let Some(flight) = self.flights.get_mut(&connection) else {
            return Vec::new();
        };
        let could_not = flight.is_full(self.bytes_each_max);
        let bytes = (names_bytes + APPEND_BYTES).min(flight.bytes);
        flight.bytes -= bytes;
        self.bytes -= bytes;
        self.awake(connection, could_not)
    }

    /// Whether a connection may have more under way. Where it may not because of what others have, it is
    /// named once there is room.
    pub(super) fn may_take(&mut self, connection: u64) -> bool {
        let flight = self.flights.get(&connection);
        if flight.is_some_and(|flight| flight.is_full(self.bytes_each_max)) {
            return false;
        }
        if self.bytes_max <= self.bytes {
            self.waiting.insert(connection);
            return false;
        }
        true
    }

    /// An answer goes to a connection; returns the connections that are to be looked at again.
    pub(super) fn answered(&mut self, connection: u64, answered: Answered) -> Vec<u64> {
        let Some(flight) = self.flights.get_mut(&connection) else {
            return Vec::new();
        };
        let could_not = flight.is_full(self.bytes_each_max);
        match answered {
            Answered::Hello => flight.hellos = flight.hellos.saturating_sub(1),
            Answered::Append(id) => {
                let Some((count, of_id)) = flight.appends.get_mut(&id) else {
                    return Vec::new();
                };
                // Of several with one number it is not known which was answered.
                let bytes = *of_id / usize::try_from(*count).unwrap_or(1).max(1);
                *count -= 1;
                *of_id -= bytes;
                if *count == 0 {
                    flight.appends.remove(&id);
                }
                flight.bytes -= bytes;
                self.bytes -= bytes;
            }
            Answered::Ask => return Vec::new(),
        }
        self.awake(connection, could_not)
    }

    /// Those that may have more under way since something of a connection is not any more.
    fn awake(&mut self, connection: u64, could_not: bool) -> Vec<u64> {
        let flight = self.flights.get(&connection);
        let can = flight.is_none_or(|flight| !flight.is_full(self.bytes_each_max));
        let mut awake: Vec<u64> = (could_not && can)
            .then_some(connection)
            .into_iter()
            .collect();
        if flight.is_some_and(|flight| flight.bytes == 0 && flight.hellos == 0) {
            self.flights.remove(&connection);
        }
        if self.bytes < self.bytes_max {
            awake.extend(self.waiting.drain());
        }
        awake
    }

    /// A connection is gone: no hello of it is to be answered any more, but its appends are.
    pub(super) fn gone(&mut self, connection: u64) {
        self.waiting.remove(&connection);
        if let Some(flight) = self.flights.get_mut(&connection) {
            flight.hellos = 0;
            if flight.bytes == 0 {
                self.flights.remove(&connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_at_its_bound_waits_for_its_own_answers() {
        let mut flights = Flights::new(1_000, 10_000);
        assert!(flights.may_take(1));
        flights.append(1, 7, 800);
        assert!(!flights.may_take(1) && flights.may_take(2));
        assert!(flights.answered(2, Answered::Append(7)).is_empty());
        assert_eq!(flights.answered(1, Answered::Append(7)), [1]);
        assert!(flights.may_take(1));
        assert_eq!(flights.bytes(), 0);
    }

    #[test]
    fn all_wait_while_all_together_are_at_their_bound() {
        let mut flights = Flights::new(10_000, 1_000);
        flights.append(1, 7, 400);
        flights.append(2, 7, 400);
        assert!(!flights.may_take(3));
        // What a connection that is gone has in the log counts on.
        flights.gone(1);
        assert!(!flights.may_take(3));
        assert_eq!(flights.answered(1, Answered::Append(7)), [3]);
        assert!(flights.may_take(3));
        assert!(flights.answered(1, Answered::Append(7)).is_empty(), "once");
    }

    #[test]
    fn one_number_for_many_appends_frees_what_they_took() {
        let mut flights = Flights::new(usize::MAX, usize::MAX);
        for bytes in [1, 10, 101] {
            flights.append(1, 7, bytes);
        }
        for _ in 0..3 {
            flights.answered(1, Answered::Append(7));
        }
        assert_eq!(flights.bytes(), 0);
        assert!(flights.flights.is_empty());
    }

    #[test]
    fn asks_count_until_the_core_has_read_them() {
        let mut flights = Flights::new(1_000, 10_000);
        flights.ask(1, 300);
        assert!(flights.may_take(1));
        flights.ask(1, 300);
        assert!(!flights.may_take(1));
        assert!(
            flights.answered(1, Answered::Ask).is_empty(),
            "a part says nothing of it"
        );
        assert_eq!(flights.ask_read(1, 300), [1]);
        flights.gone(1);
        assert!(flights.ask_read(1, 300).is_empty());
        assert_eq!(flights.bytes(), 0);
        assert!(flights.flights.is_empty());
    }

    #[test]
    fn hellos_are_answered_before_more_are_read() {
        let mut flights = Flights::new(1_000, 1_000);
        for _ in 0..HELLOS_MAX {
            assert!(flights.may_take(1));
            flights.hello(1);
        }
        assert!(!flights.may_take(1));
        assert_eq!(flights.answered(1, Answered::Hello), [1]);
        assert!(flights.may_take(1));
        flights.gone(1);
        assert!(flights.flights.is_empty());
    }
}
