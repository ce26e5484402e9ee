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
//! true: it is a function of the acts and of when they were appended.

use std::collections::BTreeMap;

use ipnet::IpNet;
use tollgate_shared::networks::{AddressPrefixes, is_wide, network_of_domain};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::public::{NETWORKS_MAX, PublicNetwork};

/// The ends of bans by network, the widest first.
type Ends = BTreeMap<(u8, IpNet), Timestamp>;

/// All bans of networks and addresses, by resource.
#[derive(Clone, Debug, Default)]
pub struct NetworkBans {
    networks: BTreeMap<On, Ends>,
    addresses: BTreeMap<On, Ends>,
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

impl NetworkBans {
    /// Whether an act sets or ends a ban of a network of several addresses.
    pub fn are_changed_by(act: &Act) -> bool {
        of_network(act).is_some_and(|(_, network, _)| is_wide(&network))
    }

    /// Sets or ends a ban, if the act is about one of a network or an address.
    pub(super) fn turn(&mut self, act: &Act, at: Timestamp) {
        let Some((on, network, until)) = of_network(act) else {
            return;
        };
        let bans = match is_wide(&network) {
            true => &mut self.networks,
            false => &mut self.addresses,
        };
        let ends = bans.entry(on.clone()).or_default();
        let key = (network.prefix_len(), network);
        match until.filter(|until| at < *until) {
            Some(until) => ends.insert(key, until),
            None => ends.remove(&key),
        };
        if ends.is_empty() {
            bans.remove(on);
        }
        if self.room < self.len() {
            for bans in [&mut self.networks, &mut self.addresses] {
                bans.retain(|_, ends| {
                    ends.retain(|_, until| at < *until);
                    !ends.is_empty()
                });
            }
            self.room = 64.max(2 * self.len());
        }
    }

    fn len(&self) -> usize {
        let both = [&self.networks, &self.addresses];
        both.into_iter()
            .flat_map(BTreeMap::values)
            .map(Ends::len)
            .sum()
    }

    /// Whether a network or an address is banned under this name, on a resource or everywhere, as far as the log says; a
    /// ban may have ended since.
    pub fn has(&self, resource: Option<&str>, domain: &str) -> bool {
        let Some(network) = network_of_domain(domain) else {
            return false;
        };
        let bans = match is_wide(&network) {
            true => &self.networks,
            false => &self.addresses,
        };
        let ends = bans.get(&resource.map(Box::from));
        ends.is_some_and(|ends| ends.contains_key(&(network.prefix_len(), network)))
    }

    /// A ban of a network that contains this domain, of the resource or of every resource, which is the first value then
    /// `None`.
    pub fn around(
        &self,
        resource: Option<&str>,
        domain: &str,
        now: Timestamp,
    ) -> Option<(Option<&str>, IpNet)> {
        let of = network_of_domain(domain)?;
        let mut bans = self
            .networks
            .iter()
            .filter(|(on, _)| on.is_none() || on.as_deref() == resource);
        bans.find_map(|(on, ends)| {
            let mut last = ends.iter().filter(|(_, until)| now < **until);
            let ((_, network), _) = last.find(|((_, network), _)| network.contains(&of))?;
            Some((on.as_deref(), *network))
        })
    }

    /// The banned networks of a resource, and of every resource, whose bans last at `now`: of each the widest, no more of a
    /// family than agents learn.
    pub fn of(&self, resource: &str, now: Timestamp) -> impl Iterator<Item = PublicNetwork> {
        let both = [None, Some(resource.into())].map(|on: On| self.networks.get(&on));
        both.into_iter().flatten().flat_map(move |ends| {
            let mut room = [NETWORKS_MAX / 2; 2];
            let last = ends.iter().filter(move |(_, until)| now < **until);
            let widest = last.filter(move |((_, network), _)| {
                let room = &mut room[usize::from(network.addr().is_ipv6())];
                let has_room = 0 < *room;
                *room = room.saturating_sub(1);
                has_room
            });
            widest.map(|((_, network), until)| PublicNetwork {
                network: *network,
                banned_until: Some(*until),
            })
        })
    }

    /// Whether a resource has more bans of networks than agents learn, with those of every resource.
    pub fn are_beyond_bound(&self, resource: &str, now: Timestamp) -> bool {
        let count = |is_v4: bool| {
            let networks = last_of(&self.networks, resource, now);
            networks
                .filter(|(of, _)| of.addr().is_ipv4() == is_v4)
                .count()
        };
        [true, false]
            .map(count)
            .into_iter()
            .any(|count| NETWORKS_MAX / 2 < count)
    }

    /// The resources that have bans of their own.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        let both = self.networks.keys().chain(self.addresses.keys());
        both.flatten().map(|resource| &**resource)
    }

    /// The bans, of a resource and of every resource, that reach no domain of the resource if it limits addresses so: of
    /// addresses and networks that are only a part of a domain.
    pub fn within_domains(
        &self,
        resource: &str,
        addresses: AddressPrefixes,
        now: Timestamp,
    ) -> Vec<IpNet> {
        let networks = last_of(&self.networks, resource, now);
        let both = networks.chain(last_of(&self.addresses, resource, now));
        let is_part = |of: &IpNet| addresses.network_of(of.addr()).prefix_len() < of.prefix_len();
        both.map(|(network, _)| network).filter(is_part).collect()
    }
}

/// The bans of a resource and of every resource that last at `now`, with their ends.
fn last_of<'b>(
    bans: &'b BTreeMap<On, Ends>,
    resource: &str,
    now: Timestamp,
) -> impl Iterator<Item = (IpNet, Timestamp)> + use<'b> {
    let everywhere = bans.get(&None);
    let here = bans.get(&Some(resource.into()));
    let both = [everywhere, here].into_iter().flatten().flatten();
    let last = both.filter(move |(_, until)| now < **until);
    last.map(|((_, network), until)| (*network, *until))
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

    fn of(bans: &NetworkBans, resource: &str, now: u64) -> Vec<String> {
        let all = bans.of(resource, Timestamp::from_micros(now));
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
        assert_eq!(of(&bans, "b", 4), ["10.0.0.0/8 50"]);
        let within = |resource, v4| {
            let addresses = AddressPrefixes { v4, v6: 64 };
            let bans = bans.within_domains(resource, addresses, Timestamp::from_micros(4));
            let bans: Vec<String> = bans.iter().map(IpNet::to_string).collect();
            bans.join(" ")
        };
        assert_eq!(within("b", 24), "10.1.2.3/32 10.1.2.4/32");
        assert_eq!(within("a", 20), "192.0.2.0/24 10.1.2.3/32 10.1.2.4/32");
        assert_eq!(within("a", 32), "");
        let expected = ["10.0.0.0/8 50", "192.0.0.0/16 60", "192.0.2.0/24 40"];
        assert_eq!(of(&bans, "a", 4), expected);
        let mut turn = |act: &Act, at: u64| bans.turn(act, Timestamp::from_micros(at));
        turn(&ban(None, "10.0.0.0/8", 70), 45);
        turn(
            &Act::Unban {
                resource: Some("a".into()),
                domain: "192.0.0.0/16".into(),
            },
            46,
        );
        assert_eq!(of(&bans, "a", 46), ["10.0.0.0/8 70"]);
        assert_eq!(of(&bans, "a", 70), [""; 0]);
        // It has ended when it is set.
        bans.turn(&ban(None, "10.0.0.0/8", 70), Timestamp::from_micros(70));
        assert_eq!(of(&bans, "a", 4), ["192.0.2.0/24 40"]);
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
        let count = |bans: &NetworkBans, resource| {
            let now = Timestamp::from_micros(99_999);
            (
                bans.of(resource, now).count(),
                bans.are_beyond_bound(resource, now),
            )
        };
        assert_eq!(count(&bans, "a"), (10, false));
        let mut turn = |resource, network: &str| {
            let ban = ban(resource, network, u64::MAX);
            bans.turn(&ban, Timestamp::from_micros(200_000));
        };
        turn(None, "2001:db8::/32");
        for n in 0..NETWORKS_MAX as u32 / 2 {
            turn(
                Some("a"),
                &format!("{}/24", std::net::Ipv4Addr::from(n << 8)),
            );
        }
        let most = NETWORKS_MAX / 2 + 1;
        assert_eq!(count(&bans, "a"), (most, false));
        let mut turn = |resource, network: &str| {
            let ban = ban(resource, network, u64::MAX);
            bans.turn(&ban, Timestamp::from_micros(200_000));
        };
        turn(None, "240.0.0.0/4");
        turn(Some("a"), "250.0.0.0/24");
        assert_eq!(
            count(&bans, "a"),
            (most + 1, true),
            "the widest of each list"
        );
        assert_eq!(count(&bans, "b"), (2, false));
        assert!(bans.has(Some("a"), "250.0.0.0/24") && bans.has(None, "240.0.0.0/4"));
        assert!(!bans.has(None, "250.0.0.0/24") && !bans.has(Some("a"), "acme"));
        let around = |resource, domain| bans.around(resource, domain, Timestamp::ZERO);
        let wide = "240.0.0.0/4".parse().expect("a network");
        assert_eq!(around(Some("b"), "250.0.0.7"), Some((None, wide)));
        assert_eq!(around(Some("a"), "2001:db9::1"), None);
        assert_eq!(around(None, "0.0.0.7"), None, "that is of a resource");
    }
}
