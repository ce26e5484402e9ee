//! How many topics one connection, one address and all together may have.
//!
//! ```text
//! all may have 2,000,000      connections of 10.0.0.7 have 1,000,000, its half
//!   one of 10.0.0.7 subscribes once more     that connection ends
//!   one of 10.0.0.8 subscribes               it is heard
//! ```
//!
//! Whoever goes beyond a bound ends, and nobody ends for what another does: an attacker who fills the half of an
//! address, with however many connections, ends connections of that address alone, and those only as they come.
//! From two addresses all can be filled. Then those who are there go on, and newcomers are not heard: where agents
//! have no tokens, addresses are all that tells them apart.
//!
//! Knows nothing of topics. What stays true: what is counted of an address is the sum over its connections, and an
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
    /// Nobody has any.
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            connection_max: bounds.subscriptions,
            address_max: bounds.subscriptions_all.div_ceil(2),
            all_max: bounds.subscriptions_all,
            all: 0,
            by_address: HashMap::new(),
        }
    }

    /// A connection of this address has `now` topics after `before`.
    ///
    /// # Errors
    ///
    /// The bound beyond which that would be; then nothing is counted.
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
    fn when_all_are_given_only_those_who_want_more_end() {
        let mut shares = shares();
        for address in [A, B] {
            assert_eq!(shares.change(address, 0, 4), Ok(()));
            assert_eq!(shares.change(address, 0, 2), Ok(()));
        }
        let all = Err(Ended::SubscriptionsOfAll { allowed: 12 });
        assert_eq!(shares.change(C, 0, 1), all);
        // A refusal has counted nothing, and who leaves makes room.
        assert_eq!(shares.change(B, 2, 0), Ok(()));
        assert_eq!(shares.change(C, 0, 2), Ok(()));
        assert_eq!(shares.change(C, 2, 3), all);
    }

    #[test]
    fn who_has_nothing_takes_no_memory() {
        let mut shares = shares();
        for _ in 0..100 {
            assert_eq!(shares.change(A, 0, 3), Ok(()));
            assert_eq!(shares.change(A, 3, 0), Ok(()));
        }
        assert!(shares.by_address.is_empty());
        assert_eq!(shares.all, 0);
    }
}
