//! Connections that are not READY: how many there may be, and which one ends for a new one.
//!
//! ```text
//! address A   1 2 3 … 64      a 65th of A: connection 1 ends
//! ```
//!
//! The oldest ends, not the newest: an honest handshake takes milliseconds, so that a peer that holds many
//! open keeps no other out, not even from the same address. What stays true: the bound for one address and
//! the bound for all are kept.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::ended::Ended;

/// The connections that are not READY, by number: a smaller one is older.
#[derive(Debug)]
pub struct Pending {
    of_address_max: usize,
    max: usize,
    all: BTreeSet<(u64, IpAddr)>,
    by_address: HashMap<IpAddr, BTreeSet<u64>>,
}

impl Pending {
    /// No connections yet; with the bounds for one address and for all.
    pub fn new(of_address_max: usize, max: usize) -> Self {
        Self {
            of_address_max: of_address_max.max(1),
            max: max.max(1),
            all: BTreeSet::new(),
            by_address: HashMap::new(),
        }
    }

    /// Adds a connection; returns the one that has to end for it, and why.
    pub fn begin(&mut self, connection: u64, address: IpAddr) -> Option<(u64, Ended)> {
        let address = network(address);
        self.all.insert((connection, address));
        let of_address = self.by_address.entry(address).or_default();
        of_address.insert(connection);
        let oldest = if self.of_address_max < of_address.len() {
            let allowed = self.of_address_max;
            let oldest = of_address.first().copied()?;
            (oldest, address, Ended::PendingOfAddress { allowed })
        } else if self.max < self.all.len() {
            let (oldest, of) = self.all.first().copied()?;
            (oldest, of, Ended::Pending { allowed: self.max })
        } else {
            return None;
        };
        let (oldest, of, why) = oldest;
        self.end(oldest, of);
        Some((oldest, why))
    }

    /// A connection is READY, or gone.
    pub fn end(&mut self, connection: u64, address: IpAddr) {
        let address = network(address);
        self.all.remove(&(connection, address));
        if let Some(of_address) = self.by_address.get_mut(&address) {
            of_address.remove(&connection);
            if of_address.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

/// What counts as one address: an IPv6 /64, since one machine can use all addresses in it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_for_its_next() {
        let mut pending = Pending::new(2, 100);
        assert_eq!(pending.begin(1, address("10.0.0.1")), None);
        assert_eq!(pending.begin(2, address("10.0.0.1")), None);
        assert_eq!(pending.begin(3, address("10.0.0.2")), None);
        let why = Ended::PendingOfAddress { allowed: 2 };
        assert_eq!(pending.begin(4, address("10.0.0.1")), Some((1, why)));
        // A connection that is READY is no longer counted.
        pending.end(2, address("10.0.0.1"));
        assert_eq!(pending.begin(5, address("10.0.0.1")), None);
        assert_eq!(pending.len(), 3);
    }

    #[test]
    fn the_oldest_of_all_makes_room_where_addresses_are_many() {
        let mut pending = Pending::new(2, 3);
        for one in 1..=3 {
            let address = IpAddr::from([10, 0, 0, one as u8]);
            assert_eq!(pending.begin(one, address), None);
        }
        let why = Ended::Pending { allowed: 3 };
        assert_eq!(pending.begin(4, address("10.0.0.9")), Some((1, why)));
        for one in 1..=9 {
            pending.end(one, address("10.0.0.9"));
        }
        assert_eq!(pending.len(), 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut pending = Pending::new(1, 100);
        assert_eq!(pending.begin(1, address("2001:db8::1")), None);
        assert!(pending.begin(2, address("2001:db8::ffff:2")).is_some());
        assert_eq!(pending.begin(3, address("2001:db8:0:1::1")), None);
        assert_eq!(pending.begin(4, address("10.0.0.1")), None);
        assert!(pending.begin(5, address("::ffff:10.0.0.1")).is_some());
    }
}
