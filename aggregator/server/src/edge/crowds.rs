//! How many connections each address has: none may have more than half of all, so that it keeps no other out.
//!
//! ```text
//! address A   1 agent, 2 agent, 3 silent            of at most three
//! a fourth of A                                     3 ends: the oldest that sent neither hello nor topic
//! a fifth of A, all others being agents             it ends itself
//! ```
//!
//! A connection that understands no pings (ZMTP 3.0) counts as silent: its peer may have been dead for minutes. What
//! stays true: a connection that has stated its purpose never makes room for another.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::ended::Ended;
use super::pending::network;

/// The connections of all addresses.
#[derive(Debug)]
pub struct Crowds {
    of_address_max: usize,
    by_address: HashMap<IpAddr, Crowd>,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct Crowd {
    count: usize,
    /// Those that may have to make room, by number: a smaller one is older.
    silent: BTreeSet<u64>,
}

impl Crowds {
    /// No connections yet; `of_address_max` is the bound for one address.
    pub fn new(of_address_max: usize) -> Self {
        Self {
            of_address_max: of_address_max.max(1),
            by_address: HashMap::new(),
        }
    }

    /// Adds a connection; returns the one that has to end for it, and why.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub fn enter(
        &mut self,
        connection: u64,
        address: IpAddr,
    ) -> Result<Option<(u64, Ended)>, Ended> {
        let allowed = self.of_address_max;
        let ended = Ended::ConnectionsOfAddress { allowed };
        let crowd = self.by_address.entry(network(address)).or_default();
        let mut oldest = None;
        if allowed <= crowd.count {
            let silent = crowd.silent.pop_first().ok_or(ended)?;
            crowd.count -= 1;
            oldest = Some((silent, ended));
        }
        crowd.count += 1;
        crowd.silent.insert(connection);
        Ok(oldest)
    }

    /// A connection has stated its purpose; returns false if it has made room already.
    pub fn begun(&mut self, connection: u64, address: IpAddr) -> bool {
        let crowd = self.by_address.get_mut(&network(address));
        crowd.is_some_and(|crowd| crowd.silent.remove(&connection))
    }

    /// A connection that was counted is gone.
    pub fn leave(&mut self, connection: u64, address: IpAddr, has_begun: bool) {
        let address = network(address);
        let Some(crowd) = self.by_address.get_mut(&address) else {
            return;
        };
        // A connection that made room is no longer counted.
        if has_begun || crowd.silent.remove(&connection) {
            crowd.count -= 1;
        }
        if crowd.count == 0 {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn the_oldest_silent_connection_makes_room() {
        let mut crowds = Crowds::new(3);
        let why = Ended::ConnectionsOfAddress { allowed: 3 };
        for number in 1..=3 {
            assert_eq!(crowds.enter(number, NEAR), Ok(None));
        }
        assert!(crowds.begun(1, NEAR));
        assert_eq!(crowds.enter(4, NEAR), Ok(Some((2, why))));
        assert!(!crowds.begun(2, NEAR), "too late");
        assert!(crowds.begun(3, NEAR) && crowds.begun(4, NEAR));
        assert_eq!(crowds.enter(5, NEAR), Err(why));
        assert_eq!(crowds.enter(6, FAR), Ok(None));
        // The connection that made room ends, and is no longer counted.
        crowds.leave(2, NEAR, false);
        assert_eq!(crowds.enter(7, NEAR), Err(why));
        crowds.leave(1, NEAR, true);
        assert_eq!(crowds.enter(8, NEAR), Ok(None));
        for (number, has_begun) in [(3, true), (4, true), (8, false)] {
            crowds.leave(number, NEAR, has_begun);
        }
        crowds.leave(6, FAR, false);
        assert!(crowds.by_address.is_empty());
    }
}
