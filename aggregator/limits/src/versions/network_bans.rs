//! The bans of networks and addresses that operators' acts have set: for the limits that agents learn, and to notice bans
//! that other limits leave without effect.
//!
//! ```text
//! ban 10.0.0.0/8 on api.search until 5:00         agents refuse its addresses on api.search
//! ban 2001:db8::/32 everywhere until 6:00         on every resource
//! unban 10.0.0.0/8 on api.search
//! ```
//!
//! The engine has its own record of all bans: it denies what calls all the same. Knows nothing of pairs. What stays
//! true: bans that have ended when an act is appended are not learnt after it.

use std::collections::BTreeMap;

use ipnet::IpNet;
use tollgate_shared::networks::{AddressPrefixes, network_of_domain};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::public::{NETWORKS_MAX, PublicNetwork};

/// The ends of bans by network, the widest first.
type Ends = BTreeMap<(u8, IpNet), Timestamp>;

/// All bans of networks and addresses, by resource.
#[derive(Clone, Debug, Default)]
pub struct NetworkBans {
    bans: BTreeMap<On, Ends>,
    /// When the last ban was set or ended.
    latest: Timestamp,
    /// So many bans are kept before those that have ended are removed.
    room: usize,
}

/// Every resource, or one.
type On = Option<Box<str>>;

/// The resource, the network and, for a ban, its end, if the act is about a ban of a network or an address.
fn of_network(act: &Act) -> Option<(&On, IpNet, Option<Timestamp>)> {
    let (resource, domain, until) = match act {
        Act::Ban {
            resource,
            domain,
            until,
        } => (resource, domain, Some(*until)),
        Act::Unban { resource, domain } => (resource, domain, None),
        _ => return None,
    };
    Some((resource, network_of_domain(domain)?, until))
}

fn is_wide(network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len()
}

impl NetworkBans {
    /// Whether an act sets or ends a ban of a network of several addresses.
    pub fn are_changed_by(act: &Act) -> bool {
        of_network(act).is_some_and(|(_, network, _)| is_wide(&network))
    }

    /// Sets or ends a ban, if the act is about one of a network or an address.
    pub(super) fn turn(&mut self, act: &Act, at: Timestamp) {
        let Some((resource, network, until)) = of_network(act) else {
            return;
        };
        self.latest = at;
        let ends = self.bans.entry(resource.clone()).or_default();
        let key = (network.prefix_len(), network);
        match until.filter(|until| at < *until) {
            Some(until) => ends.insert(key, until),
            None => ends.remove(&key),
        };
        if self.room < self.len() {
            self.bans.values_mut().for_each(|ends| {
                ends.retain(|_, until| at < *until);
            });
            self.room = 64.max(2 * self.len());
        }
        self.bans.retain(|_, ends| !ends.is_empty());
    }

    /// Whether an act bans a network of a resource, or of every resource, beside as many as agents can learn.
    pub fn are_beyond_bound(&self, act: &Act) -> bool {
        let (true, Some((resource, ..))) = (Self::are_changed_by(act), of_network(act)) else {
            return false;
        };
        let ends = self.bans.get(resource);
        ends.is_some_and(|ends| {
            let wide = ends.keys().filter(|(_, network)| is_wide(network));
            wide.take(NETWORKS_MAX + 1).count() == NETWORKS_MAX + 1
        })
    }

    /// The bans, of a resource and of every resource, that reach no domain of the resource if it limits addresses so: of
    /// addresses and networks that are only a part of a domain.
    pub fn within_domains(&self, resource: &str, addresses: AddressPrefixes) -> Vec<IpNet> {
        let networks = self.last_of(resource).map(|(network, _)| network);
        let is_part = |of: &IpNet| addresses.network_of(of.addr()).prefix_len() < of.prefix_len();
        networks.filter(is_part).collect()
    }

    /// The bans of a resource and of every resource that last, with their ends.
    fn last_of(&self, resource: &str) -> impl Iterator<Item = (IpNet, Timestamp)> {
        let everywhere = self.bans.get(&None);
        let here = self.bans.get(&Some(resource.into()));
        let both = [everywhere, here].into_iter().flatten().flatten();
        let last = both.filter(|(_, until)| self.latest < **until);
        last.map(|((_, network), until)| (*network, *until))
    }

    fn len(&self) -> usize {
        self.bans.values().map(Ends::len).sum()
    }

    /// The banned networks of a resource, and of every resource.
    pub fn of(&self, resource: &str) -> impl Iterator<Item = PublicNetwork> {
        let wide = self
            .last_of(resource)
            .filter(|(network, _)| is_wide(network));
        wide.map(|(network, until)| PublicNetwork {
            network,
            banned_until: Some(until),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(resource: Option<&str>, domain: &str, until: u64) -> Act {
        Act::Ban {
            resource: resource.map(Box::from),
            domain: domain.into(),
            until: Timestamp::from_micros(until),
        }
    }

    fn of(bans: &NetworkBans, resource: &str) -> Vec<String> {
        let all = bans.of(resource);
        all.map(|one| {
            let until = one.banned_until.expect("a ban");
            format!("{} {}", one.network, until.as_micros())
        })
        .collect()
    }

    #[test]
    fn bans_are_of_one_resource_or_of_all_until_they_end() {
        let mut bans = NetworkBans::default();
        let mut turn = |act: &Act, at: u64| bans.turn(act, Timestamp::from_micros(at));
        turn(&ban(None, "10.0.0.0/8", 50), 1);
        turn(&ban(Some("a"), "192.0.2.0/24", 40), 2);
        turn(&ban(Some("a"), "192.0.0.0/16", 60), 3);
        // Not of networks.
        for domain in ["acme", "10.1.2.3", "10.1.2.4/32", "10.1.2.3/8"] {
            turn(&ban(None, domain, 90), 4);
            assert!(!NetworkBans::are_changed_by(&ban(None, domain, 90)));
        }
        assert_eq!(of(&bans, "b"), ["10.0.0.0/8 50"]);
        let within = |resource, v4| {
            let bans = bans.within_domains(resource, AddressPrefixes { v4, v6: 64 });
            let bans: Vec<String> = bans.iter().map(IpNet::to_string).collect();
            bans.join(" ")
        };
        assert_eq!(within("b", 24), "10.1.2.3/32 10.1.2.4/32");
        assert_eq!(within("a", 20), "10.1.2.3/32 10.1.2.4/32 192.0.2.0/24");
        assert_eq!(within("a", 32), "");
        let expected = ["10.0.0.0/8 50", "192.0.0.0/16 60", "192.0.2.0/24 40"];
        assert_eq!(of(&bans, "a"), expected);
        let mut turn = |act: &Act, at: u64| bans.turn(act, Timestamp::from_micros(at));
        turn(&ban(None, "10.0.0.0/8", 70), 45);
        turn(
            &Act::Unban {
                resource: Some("a".into()),
                domain: "192.0.0.0/16".into(),
            },
            46,
        );
        assert_eq!(of(&bans, "a"), ["10.0.0.0/8 70"]);
        // It has ended when it is set.
        bans.turn(&ban(None, "10.0.0.0/8", 70), Timestamp::from_micros(70));
        assert_eq!(of(&bans, "a"), [""; 0]);
        assert_eq!(
            bans.len(),
            3,
            "one has ended since, and is kept, as two addresses"
        );
    }

    #[test]
    fn bans_that_have_ended_take_no_memory() {
        let mut bans = NetworkBans::default();
        for at in 0..100_000_u32 {
            let network = std::net::Ipv4Addr::from(at << 8);
            let until = u64::from(at) + 10;
            let ban = ban(None, &format!("{network}/24"), until);
            bans.turn(&ban, Timestamp::from_micros(at.into()));
            assert!(bans.len() <= 64, "{}", bans.len());
        }
        assert_eq!(bans.of("a").count(), 10);
        assert!(!bans.are_beyond_bound(&ban(None, "10.0.0.0/8", u64::MAX)));
        for at in 0..2_000_u32 {
            let ban = ban(
                None,
                &format!("{}/24", std::net::Ipv4Addr::from(at << 8)),
                u64::MAX,
            );
            bans.turn(&ban, Timestamp::from_micros(200_000));
            let is_beyond = NETWORKS_MAX <= at as usize;
            assert_eq!(bans.are_beyond_bound(&ban), is_beyond, "{at}");
        }
        assert!(!bans.are_beyond_bound(&ban(Some("a"), "10.0.0.0/8", u64::MAX)));
        assert_eq!(bans.of("a").count(), 2_000);
    }
}
