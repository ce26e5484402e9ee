//! The bans that operators' acts have set: for their list, for the limits that agents learn, and to notice bans that
//! other limits leave without effect.
//!
//! ```text
//! ban 10.0.0.0/8 on api.search until 5:00         agents refuse its addresses on api.search
//! ban 2001:db8::/32 everywhere until 6:00         on every resource
//! ban mallory on api.search                       listed; agents hear of it by its denial
//! unban 10.0.0.0/8 on api.search
//! ```
//!
//! The engine has its own record of all bans: it denies what calls all the same. Knows nothing of pairs. What stays
//! true: it is a function of the acts and of when they were appended.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use ipnet::IpNet;
use tollgate_shared::networks::{AddressPrefixes, is_wide, network_of_domain};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::public::{NETWORKS_MAX, PublicNetwork};

use crate::network_names::is_part_of_domain;

/// All bans, by resource; `None`: of every resource.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    by_resource: BTreeMap<Option<Box<str>>, BTreeMap<Banned, LastingBan>>,
    count: usize,
    /// So many bans are kept before those that have ended are removed.
    room: usize,
}

/// What is banned, the widest networks first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Banned {
    /// By the length of its prefix.
    Network(u8, IpNet),
    Address(IpAddr),
    Name(Box<str>),
}

/// How long a ban lasts, and which act set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastingBan {
    /// When it ends by log time; [`Timestamp::MAX`]: never.
    pub until: Timestamp,
    /// The version of the limits that the act is.
    pub version: u64,
}

/// A ban of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBan<'b> {
    /// Its resource; `None`: every resource.
    pub resource: Option<&'b str>,
    /// The domain, the address or the network that is banned.
    pub domain: String,
    /// How long, and since which version.
    pub ban: LastingBan,
    /// Whether the filter asks for it, and it has not ended.
    pub is_asked_for: bool,
}

/// Which bans are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BanFilter {
    /// Those that hold on this resource.
    pub resource: Option<String>,
    /// Those of this domain, or of a network with it.
    pub domain: Option<String>,
    /// Those after this one: a resource, and what is banned.
    pub after: Option<(Option<String>, String)>,
}

impl Banned {
    fn of(domain: &str) -> Self {
        match network_of_domain(domain) {
            Some(network) if is_wide(&network) => Self::Network(network.prefix_len(), network),
            Some(network) => Self::Address(network.addr()),
            None => Self::Name(domain.into()),
        }
    }

    fn network(&self) -> Option<IpNet> {
        match self {
            Self::Network(_, network) => Some(*network),
            Self::Address(_) | Self::Name(_) => None,
        }
    }

    /// The network, or that of the single address.
    fn of_addresses(&self) -> Option<IpNet> {
        match self {
            Self::Address(address) => Some(IpNet::from(*address)),
            Self::Network(..) | Self::Name(_) => self.network(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Network(_, network) => network.to_string(),
            Self::Address(address) => address.to_string(),
            Self::Name(name) => name.to_string(),
        }
    }

    /// Whether it is this domain, or a network with it.
    fn has(&self, domain: &Self) -> bool {
        let contains = |network: IpNet| {
            let of = domain.of_addresses();
            of.is_some_and(|of| network.contains(&of))
        };
        self == domain || self.network().is_some_and(contains)
    }
}

/// The resource and the domain that an act is about and, for a ban, its end.
type ActOfBan<'a> = (&'a Option<Box<str>>, &'a str, Option<Timestamp>);

/// What an act is about, if it sets or ends a ban.
fn of_ban(act: &Act) -> Option<ActOfBan<'_>> {
    match act {
        Act::Ban {
            resource,
            domain,
            until,
        } => Some((resource, domain, Some(*until))),
        Act::Unban { resource, domain } => Some((resource, domain, None)),
        _ => None,
    }
}

impl Bans {
    /// Whether an act sets or ends a ban of a network of several addresses.
    pub fn of_networks_are_changed_by(act: &Act) -> bool {
        let of = of_ban(act).and_then(|(_, domain, _)| network_of_domain(domain));
        of.is_some_and(|network| is_wide(&network))
    }

    /// Sets or ends a ban, if the act is about one.
    pub(super) fn turn(&mut self, act: &Act, at: Timestamp, version: u64) {
        let Some((on, domain, until)) = of_ban(act) else {
            return;
        };
        let bans = self.by_resource.entry(on.clone()).or_default();
        let before = match until.filter(|until| at < *until) {
            Some(until) => {
                self.count += 1;
                bans.insert(Banned::of(domain), LastingBan { until, version })
            }
            None => bans.remove(&Banned::of(domain)),
        };
        self.count -= usize::from(before.is_some());
        if bans.is_empty() {
            self.by_resource.remove(on);
        }
        if self.room < self.count {
            self.by_resource.retain(|_, bans| {
                bans.retain(|_, ban| at < ban.until);
                !bans.is_empty()
            });
            self.count = self.by_resource.values().map(BTreeMap::len).sum();
            self.room = 64.max(2 * self.count);
        }
    }

    /// Whether this domain is banned by itself, on a resource or everywhere, as far as the log says; a ban may have ended
    /// since.
    pub fn has(&self, resource: Option<&str>, domain: &str) -> bool {
        self.lasts(resource, domain, Timestamp::ZERO)
    }

    /// Whether this domain is banned by itself at `now`, on a resource or everywhere.
    pub fn lasts(&self, resource: Option<&str>, domain: &str, now: Timestamp) -> bool {
        let ban = self.get(resource, domain);
        ban.is_some_and(|ban| now < ban.until)
    }

    /// The ban of this domain by itself, on a resource or everywhere, which may have ended.
    pub fn get(&self, resource: Option<&str>, domain: &str) -> Option<LastingBan> {
        let bans = self.by_resource.get(&resource.map(Box::from))?;
        bans.get(&Banned::of(domain)).copied()
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
        let mut bans =
            { self.by_resource.iter() }.filter(|(on, _)| on.is_none() || on.as_deref() == resource);
        bans.find_map(|(on, bans)| {
            let mut last = networks_in(bans, now);
            let (network, _) = last.find(|(network, _)| network.contains(&of))?;
            Some((on.as_deref(), network))
        })
    }

    /// The banned networks of a resource, and of every resource, whose bans last at `now`: of each the widest, no more of a
    /// family than agents learn.
    pub fn networks_of(
        &self,
        resource: &str,
        now: Timestamp,
    ) -> impl Iterator<Item = PublicNetwork> {
        self.on(resource).flat_map(move |bans| {
            let mut room = [NETWORKS_MAX / 2; 2];
            let widest = networks_in(bans, now).filter(move |(network, _)| {
                let room = &mut room[usize::from(network.addr().is_ipv6())];
                let has_room = 0 < *room;
                *room = room.saturating_sub(1);
                has_room
            });
            widest.map(|(network, until)| PublicNetwork {
                network,
                banned_until: Some(until),
            })
        })
    }

    /// Whether a resource has more bans of networks than agents learn, with those of every resource.
    pub fn are_beyond_bound(&self, resource: &str, now: Timestamp) -> bool {
        let count = |is_v4: bool| {
            let networks = self.on(resource).flat_map(|bans| networks_in(bans, now));
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
        self.by_resource
            .keys()
            .flatten()
            .map(|resource| &**resource)
    }

    /// The bans, of a resource and of every resource, that reach no domain of the resource if it limits addresses so: of
    /// addresses and networks that are only a part of a domain.
    pub fn within_domains(
        &self,
        resource: &str,
        addresses: AddressPrefixes,
        now: Timestamp,
    ) -> Vec<IpNet> {
        let bans = self.on(resource);
        let last = bans.flat_map(|bans| last_of(bans, Banned::of_addresses, now));
        let is_part = |of: &IpNet| is_part_of_domain(addresses, of);
        last.map(|(of, _)| of).filter(is_part).collect()
    }

    /// All bans after the filter's, by resource, those of every resource first; of each resource networks, addresses, and
    /// names. Each says whether it is asked for, so that a caller can stop after having looked at so many.
    pub fn list<'b>(
        &'b self,
        filter: &'b BanFilter,
        now: Timestamp,
    ) -> impl Iterator<Item = ListedBan<'b>> {
        let after = filter.after.as_ref();
        let after = after.map(|(on, domain)| (on.as_deref().map(Box::from), Banned::of(domain)));
        let from = match &after {
            Some((on, _)) => Bound::Included(on.clone()),
            None => Bound::Unbounded,
        };
        let asked = filter.domain.as_deref().map(Banned::of);
        let resources = self.by_resource.range((from, Bound::Unbounded));
        let resources = resources.filter(|(on, _)| {
            on.is_none()
                || filter.resource.is_none()
                || **on == filter.resource.as_deref().map(Box::from)
        });
        let all = resources.flat_map(move |(on, bans)| {
            let after = after.as_ref().filter(|(of, _)| of == on);
            let from = after.map_or(Bound::Unbounded, |(_, last)| Bound::Excluded(last.clone()));
            let bans = bans.range((from, Bound::Unbounded));
            bans.map(move |(banned, ban)| (on.as_deref(), banned, *ban))
        });
        all.map(move |(on, banned, ban)| {
            let is_asked_for = asked.as_ref().is_none_or(|domain| banned.has(domain));
            ListedBan {
                resource: on,
                domain: banned.text(),
                ban,
                is_asked_for: is_asked_for && now < ban.until,
            }
        })
    }

    /// The bans of every resource, and those of this one.
    fn on(&self, resource: &str) -> impl Iterator<Item = &BTreeMap<Banned, LastingBan>> {
        let both = [None, Some(resource.into())].map(|on| self.by_resource.get(&on));
        both.into_iter().flatten()
    }
}

/// The networks that are banned at `now`, the widest first, with the ends of their bans.
fn networks_in(
    bans: &BTreeMap<Banned, LastingBan>,
    now: Timestamp,
) -> impl Iterator<Item = (IpNet, Timestamp)> {
    last_of(bans, Banned::network, now)
}

/// The first bans, in their order, of which `of` is known, with their ends: those that last at `now`.
fn last_of(
    bans: &BTreeMap<Banned, LastingBan>,
    of: fn(&Banned) -> Option<IpNet>,
    now: Timestamp,
) -> impl Iterator<Item = (IpNet, Timestamp)> {
    let first = { bans.iter() }.map_while(move |(banned, ban)| Some((of(banned)?, ban.until)));
    first.filter(move |(_, until)| now < *until)
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

    fn of(bans: &Bans, resource: &str, now: u64) -> Vec<String> {
        let all = bans.networks_of(resource, Timestamp::from_micros(now));
        all.map(|one| {
            let until = one.banned_until.expect("a ban");
            format!("{} {}", one.network, until.as_micros())
        })
        .collect()
    }

    #[test]
    fn bans_are_of_one_resource_or_of_all_until_they_end() {
        let mut bans = Bans::default();
        let mut turn = |act: &Act, at: u64| bans.turn(act, Timestamp::from_micros(at), at);
        turn(&ban(None, "10.0.0.0/8", 50), 1);
        turn(&ban(Some("a"), "192.0.2.0/24", 40), 2);
        turn(&ban(Some("a"), "192.0.0.0/16", 60), 3);
        // Not of networks.
        for domain in ["acme", "10.1.2.3", "10.1.2.4/32", "10.1.2.3/8"] {
            turn(&ban(None, domain, 90), 4);
            assert!(!Bans::of_networks_are_changed_by(&ban(None, domain, 90)));
        }
        assert_eq!(of(&bans, "b", 4), ["10.0.0.0/8 50"]);
        let within = |resource, v4| {
            let addresses = AddressPrefixes { v4, v6: 64 };
            let bans = bans.within_domains(resource, addresses, Timestamp::from_micros(4));
            let bans: Vec<String> = bans.iter().map(IpNet::to_string).collect();
            bans.join(" ")
        };
        assert_eq!(within("b", 24), "10.1.2.3/32 10.1.2.4/32");
        assert_eq!(within("a", 20), "10.1.2.3/32 10.1.2.4/32 192.0.2.0/24");
        assert_eq!(within("a", 32), "");
        let expected = ["10.0.0.0/8 50", "192.0.0.0/16 60", "192.0.2.0/24 40"];
        assert_eq!(of(&bans, "a", 4), expected);
        let mut turn = |act: &Act, at: u64| bans.turn(act, Timestamp::from_micros(at), at);
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
        bans.turn(&ban(None, "10.0.0.0/8", 70), Timestamp::from_micros(70), 70);
        assert_eq!(of(&bans, "a", 4), ["192.0.2.0/24 40"]);
        assert_eq!(
            bans.count, 5,
            "one has ended since, and is kept, as two addresses and two names"
        );
    }

    #[test]
    fn bans_that_have_ended_take_no_memory() {
        let mut bans = Bans::default();
        for at in 0..100_000_u32 {
            let network = std::net::Ipv4Addr::from(at << 8);
            let until = u64::from(at) + 10;
            let ban = ban(None, &format!("{network}/24"), until);
            bans.turn(&ban, Timestamp::from_micros(at.into()), at.into());
            assert!(bans.count <= 64, "{}", bans.count);
        }
        let count = |bans: &Bans, resource| {
            let now = Timestamp::from_micros(99_999);
            (
                bans.networks_of(resource, now).count(),
                bans.are_beyond_bound(resource, now),
            )
        };
        assert_eq!(count(&bans, "a"), (10, false));
        let mut turn = |resource, network: &str| {
            let ban = ban(resource, network, u64::MAX);
            bans.turn(&ban, Timestamp::from_micros(200_000), 1);
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
            bans.turn(&ban, Timestamp::from_micros(200_000), 1);
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

    #[test]
    fn all_bans_are_listed_and_those_of_a_domain_with_its_networks() {
        let mut bans = Bans::default();
        for (version, (resource, domain, until)) in (1..).zip([
            (Some("b"), "acme", 90),
            (Some("a"), "10.1.2.3", 90),
            (Some("a"), "2001:db8::/32", 90),
            (None, "10.0.0.0/8", 90),
            (None, "acme", 20),
            (None, "mallory", u64::MAX),
        ]) {
            let ban = ban(resource, domain, until);
            bans.turn(&ban, Timestamp::from_micros(version), version);
        }
        let list = |filter: BanFilter| {
            let all = bans.list(&filter, Timestamp::from_micros(20));
            let asked = all.filter(|one| one.is_asked_for);
            let texts = asked.map(|one| {
                let of = one.resource.unwrap_or("*");
                format!("{of} {} {}", one.domain, one.ban.version)
            });
            texts.collect::<Vec<_>>()
        };
        let all = [
            "* 10.0.0.0/8 4",
            "* mallory 6",
            "a 2001:db8::/32 3",
            "a 10.1.2.3 2",
            "b acme 1",
        ];
        assert_eq!(list(BanFilter::default()), all);
        for (n, last) in all.iter().enumerate() {
            let mut words = last.split(' ').map(str::to_owned);
            let resource = words.next().filter(|resource| resource != "*");
            let after = Some((resource, words.next().expect("a domain")));
            let rest = BanFilter {
                after,
                ..BanFilter::default()
            };
            assert_eq!(list(rest), all[n + 1..], "after {last}");
        }
        let of = |resource: Option<&str>, domain: &str| {
            list(BanFilter {
                resource: resource.map(str::to_owned),
                domain: (!domain.is_empty()).then(|| domain.to_owned()),
                after: None,
            })
        };
        assert_eq!(of(Some("a"), ""), all[..4]);
        assert_eq!(of(None, "10.1.2.3"), [all[0], all[3]]);
        assert_eq!(of(None, "10.1.2.0/24"), [all[0]]);
        assert_eq!(
            of(Some("b"), "acme"),
            [all[4]],
            "the one of every resource has ended"
        );
        assert_eq!(of(Some("c"), "acme"), [""; 0]);
    }
}
