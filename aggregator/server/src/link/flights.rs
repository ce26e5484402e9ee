//! What agents have under way: appends that the log has not answered, hellos, and queries that the core has not
//! read.
//!
//! ```text
//! append of 20 kB ──> 20 kB of the connection's 1 MiB, its address's 2 and the 64 of all ──answer──> free
//! query of 20 kB  ──> the same ──read by the core──> free
//! ```
//!
//! A connection at its bound is not read, nor is any of an address at its bound; when all together are at their
//! bound, no connection is read. Connections of an address, or all, are read again once half of its bound is free,
//! so that not each answer wakes many. Appends of a connection that is gone count until they are answered, since
//! the log still has them to handle. Knows nothing of sockets.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tollgate_shared::wire::link::Answered;

/// The cost of an append beside its record: its entries in queues, and its answer.
const APPEND_BYTES: usize = 256;

/// Hellos of one connection that may be under way; an agent sends one.
const HELLOS_MAX: u32 = 4;

/// What one connection has under way.
#[derive(Debug)]
struct Flight {
    address: IpAddr,
    bytes: usize,
    hellos: u32,
    /// The appends under way by their numbers, which the agent chooses: how many have the number, and their bytes.
    appends: HashMap<u64, (u32, usize)>,
}

impl Flight {
    fn of(address: IpAddr) -> Self {
        Self {
            address,
            bytes: 0,
            hellos: 0,
            appends: HashMap::new(),
        }
    }

    fn is_full(&self, bytes_max: usize) -> bool {
        bytes_max <= self.bytes || HELLOS_MAX <= self.hellos
    }
}

/// A connection, and the address under which it counts.
pub(super) type Whose = (u64, IpAddr);

/// What several connections have under way together.
#[derive(Debug, Default)]
struct Together {
    bytes: usize,
    /// Whether the bound was reached, and half of it has not become free since.
    is_full: bool,
    /// Whether [`Flights::is_newly_full`] has reported it.
    is_told: bool,
    /// The connections that are not read because of it.
    waiting: HashSet<u64>,
}

impl Together {
    /// Whether one more may be taken. If not, [`Self::free`] returns the connection once it may.
    fn may_take(&mut self, connection: u64, max: usize) -> bool {
        self.is_full |= max <= self.bytes;
        if self.is_full {
            self.waiting.insert(connection);
        }
        !self.is_full
    }

    /// Frees bytes; adds the connections that may be read again to `awake`.
    fn free(&mut self, bytes: usize, max: usize, awake: &mut Vec<u64>) {
        self.bytes -= bytes;
        if self.bytes <= max / 2 {
            (self.is_full, self.is_told) = (false, false);
            awake.extend(self.waiting.drain());
        }
    }
}

/// How many bytes may be under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlightBounds {
    /// Of one connection.
    pub of_connection: usize,
    /// Of one address.
    pub of_address: usize,
    /// Of all.
    pub of_all: usize,
}

/// What all connections have under way.
#[derive(Debug)]
pub(super) struct Flights {
    bounds: FlightBounds,
    all: Together,
    addresses: HashMap<IpAddr, Together>,
    flights: HashMap<u64, Flight>,
}

impl Flights {
    pub(super) fn new(bounds: FlightBounds) -> Self {
        Self {
            bounds,
            all: Together::default(),
            addresses: HashMap::new(),
            flights: HashMap::new(),
        }
    }

    /// Bytes of all appends under way.
    pub(super) fn bytes(&self) -> usize {
        self.all.bytes
    }

    /// An append goes to the log.
    pub(super) fn append(&mut self, whose: Whose, id: u64, record_bytes: usize) {
        let bytes = record_bytes + APPEND_BYTES;
        let flight = self.begin(whose, bytes);
        let (count, of_id) = flight.appends.entry(id).or_default();
        *count += 1;
        *of_id += bytes;
    }

    /// A hello is to be answered.
    pub(super) fn hello(&mut self, whose: Whose) {
        self.begin(whose, 0).hellos += 1;
    }

    /// A query whose names take `names_bytes` goes to the core.
    pub(super) fn ask(&mut self, whose: Whose, names_bytes: usize) {
        self.begin(whose, names_bytes + APPEND_BYTES);
    }

    fn begin(&mut self, (connection, address): Whose, bytes: usize) -> &mut Flight {
        self.all.bytes += bytes;
        if 0 < bytes {
            self.addresses.entry(address).or_default().bytes += bytes;
        }
        let flight = self.flights.entry(connection);
        let flight = flight.or_insert_with(|| Flight::of(address));
        flight.bytes += bytes;
        flight
    }

    /// The core has read such a query; returns the connections that may be read again.
    pub(super) fn ask_read(&mut self, connection: u64, names_bytes: usize) -> Vec<u64> {
        let bounds = self.bounds;
        let Some(flight) = self.flights.get_mut(&connection) else {
            return Vec::new();
        };
        let could_not = flight.is_full(bounds.of_connection);
        let bytes = (names_bytes + APPEND_BYTES).min(flight.bytes);
        self.end(connection, bytes, could_not)
    }

    /// Whether a connection may have more under way. If not because of others, a later call returns the connection
    /// once there is room.
    pub(super) fn may_take(&mut self, (connection, address): Whose) -> bool {
        let bounds = self.bounds;
        let flight = self.flights.get(&connection);
        if flight.is_some_and(|flight| flight.is_full(bounds.of_connection)) {
            return false;
        }
        let of_address = self.addresses.get_mut(&address);
        of_address.is_none_or(|of| of.may_take(connection, bounds.of_address))
            && self.all.may_take(connection, bounds.of_all)
    }

    /// Whether an address has become full since this was last called.
    pub(super) fn is_newly_full(&mut self, (_, address): Whose) -> bool {
        let of_address = self.addresses.get_mut(&address);
        let newly = of_address.filter(|of| of.is_full && !of.is_told);
        newly.map(|of| of.is_told = true).is_some()
    }

    /// An answer goes to a connection; returns the connections that may be read again.
    pub(super) fn answered(&mut self, connection: u64, answered: Answered) -> Vec<u64> {
        let bounds = self.bounds;
        let Some(flight) = self.flights.get_mut(&connection) else {
            return Vec::new();
        };
        let could_not = flight.is_full(bounds.of_connection);
        let bytes = match answered {
            Answered::Hello => {
                flight.hellos = flight.hellos.saturating_sub(1);
                0
            }
            Answered::Append(id) => {
                let Some((count, of_id)) = flight.appends.get_mut(&id) else {
                    return Vec::new();
                };
                // If several appends have the number, it is unknown which was answered.
                let bytes = *of_id / usize::try_from(*count).unwrap_or(1).max(1);
                *count -= 1;
                *of_id -= bytes;
                if *count == 0 {
                    flight.appends.remove(&id);
                }
                bytes
            }
            Answered::Ask => return Vec::new(),
        };
        self.end(connection, bytes, could_not)
    }

    /// Frees bytes of a connection; returns the connections that may be read again.
    fn end(&mut self, connection: u64, bytes: usize, could_not: bool) -> Vec<u64> {
        let mut awake = Vec::new();
        let bounds = self.bounds;
        let Some(flight) = self.flights.get_mut(&connection) else {
            return awake;
        };
        flight.bytes -= bytes;
        let address = flight.address;
        if could_not && !flight.is_full(bounds.of_connection) {
            awake.push(connection);
        }
        if flight.bytes == 0 && flight.hellos == 0 {
            self.flights.remove(&connection);
        }
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.free(bytes, bounds.of_address, &mut awake);
            if of_address.bytes == 0 {
                self.addresses.remove(&address);
            }
        }
        self.all.free(bytes, bounds.of_all, &mut awake);
        awake
    }

    /// A connection is gone: its hellos need no answers any more, but its appends still count.
    pub(super) fn gone(&mut self, (connection, address): Whose) {
        self.all.waiting.remove(&connection);
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.waiting.remove(&connection);
        }
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

    /// Connections of one address.
    fn near(connection: u64) -> Whose {
        (connection, IpAddr::from([10, 0, 0, 1]))
    }

    /// Connections of another address.
    fn far(connection: u64) -> Whose {
        (connection, IpAddr::from([10, 0, 0, 2]))
    }

    fn flights(of_connection: usize, of_address: usize, of_all: usize) -> Flights {
        Flights::new(FlightBounds {
            of_connection,
            of_address,
            of_all,
        })
    }

    fn assert_nothing_is_left(flights: &Flights) {
        assert_eq!(flights.bytes(), 0);
        assert!(flights.flights.is_empty() && flights.addresses.is_empty());
    }

    #[test]
    fn a_connection_at_its_bound_waits_for_its_own_answers() {
        let mut flights = flights(1_000, 10_000, 10_000);
        assert!(flights.may_take(near(1)));
        flights.append(near(1), 7, 800);
        assert!(!flights.may_take(near(1)) && flights.may_take(near(2)));
        assert!(flights.answered(2, Answered::Append(7)).is_empty());
        assert_eq!(flights.answered(1, Answered::Append(7)), [1]);
        assert!(flights.may_take(near(1)));
        assert_nothing_is_left(&flights);
    }

    #[test]
    fn an_address_at_its_bound_keeps_no_other_waiting() {
        let mut flights = flights(10_000, 1_000, 10_000);
        for connection in [1, 2] {
            flights.append(near(connection), 7, 400);
        }
        assert!(!flights.is_newly_full(near(3)));
        assert!(!flights.may_take(near(3)) && flights.may_take(far(4)));
        assert!(flights.is_newly_full(near(3)) && !flights.is_newly_full(near(3)));
        // Half of its bound has to be free.
        assert!(flights.answered(1, Answered::Append(7)).is_empty());
        assert!(!flights.may_take(near(5)));
        let mut awake = flights.answered(2, Answered::Append(7));
        awake.sort_unstable();
        assert_eq!(awake, [3, 5]);
        assert!(flights.may_take(near(3)));
        assert_nothing_is_left(&flights);
    }

    #[test]
    fn all_wait_while_all_together_are_at_their_bound() {
        let mut flights = flights(10_000, 10_000, 1_000);
        flights.append(near(1), 7, 700);
        flights.append(far(2), 7, 100);
        assert!(!flights.may_take(near(3)));
        // The appends of a connection that is gone still count.
        flights.gone(near(1));
        assert!(!flights.may_take(near(3)));
        assert_eq!(flights.answered(1, Answered::Append(7)), [3]);
        assert!(flights.may_take(near(3)));
        assert!(flights.answered(1, Answered::Append(7)).is_empty(), "once");
    }

    #[test]
    fn one_number_for_many_appends_frees_what_they_took() {
        let mut flights = flights(usize::MAX, usize::MAX, usize::MAX);
        for bytes in [1, 10, 101] {
            flights.append(near(1), 7, bytes);
        }
        for _ in 0..3 {
            flights.answered(1, Answered::Append(7));
        }
        assert_nothing_is_left(&flights);
    }

    #[test]
    fn requests_count_until_the_core_has_read_them() {
        let mut flights = flights(1_000, 10_000, 10_000);
        flights.ask(near(1), 300);
        assert!(flights.may_take(near(1)));
        flights.ask(near(1), 300);
        assert!(!flights.may_take(near(1)));
        assert!(
            flights.answered(1, Answered::Ask).is_empty(),
            "a part says nothing of it"
        );
        assert_eq!(flights.ask_read(1, 300), [1]);
        flights.gone(near(1));
        assert!(flights.ask_read(1, 300).is_empty());
        assert_nothing_is_left(&flights);
    }

    #[test]
    fn hellos_are_answered_before_more_are_read() {
        let mut flights = flights(1_000, 1_000, 1_000);
        for _ in 0..HELLOS_MAX {
            assert!(flights.may_take(near(1)));
            flights.hello(near(1));
        }
        assert!(!flights.may_take(near(1)));
        assert_eq!(flights.answered(1, Answered::Hello), [1]);
        assert!(flights.may_take(near(1)));
        flights.gone(near(1));
        assert!(flights.flights.is_empty());
    }
}
