//! How many topics one connection, one address and all connections together may have.
//!
//! ```text
//! all may have 2,000,000      connections of 10.0.0.7 have 1,000,000, its half
//!   a connection of 10.0.0.7 subscribes once more     that connection ends
//!   a connection of 10.0.0.8 subscribes               allowed
//! ```
//!
//! A connection that exceeds a bound ends, and no other connection ends for it: an attacker who fills the half of
//! an address, with however many connections, only ends further connections of that address. From two addresses
//! an attacker can fill the whole bound. Then existing subscribers continue, and new ones are refused: where
//! agents have no tokens, they differ only by their addresses.
//!
//! Knows nothing of topics. What stays true: the count of an address is the sum over its connections, and an
//! address without topics takes no memory.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::edge::{Bounds, Ended};

/// The topics of all connections, counted.
#[derive(Debug)]
pub(super) struct Shares {
    connection_max: usize,
    address_max: usize,
    all_max: usize,
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Shares {
    /// No topics yet.
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            connection_max: bounds.subscriptions,
            address_max: bounds.subscriptions_all.div_ceil(2),
            all_max: bounds.subscriptions_all,
            all: 0,
            by_address: HashMap::new(),
        }
    }

    /// Counts that a connection of this address now has `now` topics after `before`.
    ///
    /// # Errors
    ///
    /// The bound that this would exceed; then nothing is counted.
    pub fn change(&mut self, address: IpAddr, before: usize, now: usize) -> Result<(), Ended> {
        if before < now {
            self.check(address, now - before, now)?;
        }
        let of_address = self.by_address.entry(address).or_default();
        *of_address = (*of_address + now).saturating_sub(before);
        if *of_address == 0 {
            self.by_address.remove(&address);
        }
        self.all = (self.all + now).saturating_sub(before);
        Ok(())
    }

    fn check(&self, address: IpAddr, more: usize, found: usize) -> Result<(), Ended> {
        let (allowed, of_address, all) = (self.connection_max, self.address_max, self.all_max);
        if allowed < found {
            return Err(Ended::Subscriptions { found, allowed });
        }
        if of_address < self.by_address.get(&address).copied().unwrap_or(0) + more {
            return Err(Ended::SubscriptionsOfAddress {
                allowed: of_address,
            });
        }
        match all < self.all + more {
            true => Err(Ended::SubscriptionsOfAll { allowed: all }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 8));
    const C: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn shares() -> Shares {
        Shares::new(&Bounds {
            subscriptions: 4,
            subscriptions_all: 12,
            ..Bounds::default()
        })
    }

    #[test]
    fn an_address_has_half_however_many_connections_it_has() {
        let mut shares = shares();
        let too_many = Err(Ended::SubscriptionsOfAddress { allowed: 6 });
        for _ in 0..6 {
            assert_eq!(shares.change(A, 0, 1), Ok(()));
        }
        assert_eq!(shares.change(A, 0, 1), too_many);
        assert_eq!(shares.change(A, 1, 2), too_many);
        for topics in 1..=4 {
            assert_eq!(shares.change(B, topics - 1, topics), Ok(()));
        }
        let found = Ended::Subscriptions {
            found: 5,
            allowed: 4,
        };
        assert_eq!(shares.change(B, 4, 5), Err(found));
    }

    #[test]
    fn at_the_bound_only_connections_that_ask_for_more_end() {
        let mut shares = shares();
        for address in [A, B] {
            assert_eq!(shares.change(address, 0, 4), Ok(()));
            assert_eq!(shares.change(address, 0, 2), Ok(()));
        }
        let all = Err(Ended::SubscriptionsOfAll { allowed: 12 });
        assert_eq!(shares.change(C, 0, 1), all);
        // A refusal counts nothing, and a connection that ends makes room.
        assert_eq!(shares.change(B, 2, 0), Ok(()));
        assert_eq!(shares.change(C, 0, 2), Ok(()));
        assert_eq!(shares.change(C, 2, 3), all);
    }

    #[test]
    fn an_address_without_subscriptions_takes_no_memory() {
        let mut shares = shares();
        for _ in 0..100 {
            assert_eq!(shares.change(A, 0, 3), Ok(()));
            assert_eq!(shares.change(A, 3, 0), Ok(()));
        }
        assert!(shares.by_address.is_empty());
        assert_eq!(shares.all, 0);
    }
}
