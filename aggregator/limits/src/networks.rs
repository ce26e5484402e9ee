//! The networks among a resource's domains: which one an address belongs to. And whether any domain is an address,
//! which other spellings of the address find.
//!
//! ```text
//! 10.0.0.0/8   10.1.0.0/16        10.1.2.3 -> 10.1.0.0/16, the longest      10.9.9.9 -> 10.0.0.0/8
//! 10.1.2.9                        ::ffff:10.1.2.9 -> 10.1.2.9
//! ```
//!
//! Knows nothing of what a network may do: it returns names, longest first, and the caller looks them up. What stays
//! true: without networks and addresses no domain is parsed.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use tollgate_shared::networks::{NetworkName, NetworkText, address, network, network_of_domain};

/// The network that a name probably means, if it is not written as one: `10.0.0.0/8` for `10/8`, `2001:db8::/32` for
/// `2001:db8/32`.
pub(crate) fn meant_as(name: &str) -> Option<IpNet> {
    if network(name) != NetworkName::Other {
        return None;
    }
    let (start, bits) = name.split_once('/')?;
    let bits: u8 = bits.parse().ok()?;
    if start.contains(':') {
        let start = start.trim_end_matches(':');
        let address: Ipv6Addr = format!("{start}::").parse().ok()?;
        return Some(IpNet::new(address.into(), bits).ok()?.trunc());
    }
    // Decimal, also with leading zeros, which addresses may not have.
    let given: Option<Vec<u8>> = start.split('.').map(|part| part.parse().ok()).collect();
    let given = given.filter(|given| given.len() <= 4)?;
    let mut octets = [0; 4];
    let pairs = octets.iter_mut().zip(&given);
    pairs.for_each(|(octet, part)| *octet = *part);
    Some(
        IpNet::new(Ipv4Addr::from(octets).into(), bits)
            .ok()?
            .trunc(),
    )
}

/// Networks, and the prefix lengths that occur. Addresses are not kept: there may be millions, and the set of networks
/// is copied for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    all: Arc<BTreeSet<IpNet>>,
    /// Prefix lengths that occur, longest first; of IPv4 and of IPv6.
    lengths: [Box<[u8]>; 2],
    /// Whether any of the domains is an address.
    has_addresses: bool,
}

impl Networks {
    /// The networks among some domains.
    pub fn among<'a>(domains: impl Iterator<Item = &'a str>) -> Self {
        let mut has_addresses = false;
        let networks = domains.filter_map(|domain| {
            has_addresses |= address(domain).is_some();
            named(domain)
        });
        let networks = Self::of(networks.collect());
        Self {
            has_addresses,
            ..networks
        }
    }

    fn of(all: BTreeSet<IpNet>) -> Self {
        let lengths = |is_v4: bool| {
            let of_family = all.iter().filter(|net| net.addr().is_ipv4() == is_v4);
            let lengths: BTreeSet<u8> = of_family.map(IpNet::prefix_len).collect();
            lengths.into_iter().rev().collect()
        };
        Self {
            lengths: [lengths(true), lengths(false)],
            has_addresses: false,
            all: Arc::new(all),
        }
    }

    /// Adds one more domain, which matters if it is a network or an address. Clones of this value stay as they are: the
    /// set is copied when the first network is added.
    pub fn add(&mut self, domain: &str) {
        if let Some(network) = named(domain) {
            self.add_network(network);
        }
        self.has_addresses = self.has_addresses || address(domain).is_some();
    }

    /// Whether any of the domains is a network.
    pub(crate) fn has_networks(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether any of the domains is an address.
    pub(crate) fn has_addresses(&self) -> bool {
        self.has_addresses
    }

    fn add_network(&mut self, network: IpNet) {
        if !self.all.contains(&network) {
            Arc::make_mut(&mut self.all).insert(network);
            let lengths = &mut self.lengths[usize::from(network.addr().is_ipv6())];
            let bits = network.prefix_len();
            if let Err(at) = lengths.binary_search_by(|other| bits.cmp(other)) {
                let mut more = lengths.to_vec();
                more.insert(at, bits);
                *lengths = more.into();
            }
        }
    }

    /// The union of both; `other` should be the smaller one.
    pub fn and(mut self, other: &Self) -> Self {
        let has_addresses = self.has_addresses || other.has_addresses;
        if self.all.is_empty() {
            return Self {
                has_addresses,
                ..other.clone()
            };
        }
        self.has_addresses = has_addresses;
        other
            .all
            .iter()
            .for_each(|network| self.add_network(*network));
        self
    }

    /// The first result of `look_up` for the canonical spelling of a domain's address, if the domain spells it in
    /// another way, and then for the names of the networks that contain the address, longest first.
    pub fn find<T>(&self, domain: &str, look_up: impl Fn(&str) -> Option<T>) -> Option<T> {
        if self.all.is_empty() && !self.has_addresses {
            return None;
        }
        let of = network_of_domain(domain)?;
        let mut text = NetworkText::default();
        let is_address = of.prefix_len() == of.max_prefix_len();
        if self.has_addresses && is_address && text.write(of) != domain {
            let found = look_up(text.as_str());
            if found.is_some() {
                return found;
            }
        }
        let [v4, v6] = &self.lengths;
        let lengths = if of.addr().is_ipv4() { v4 } else { v6 };
        let longest_first = lengths.iter().filter(|bits| **bits <= of.prefix_len());
        for &bits in longest_first {
            let network = IpNet::new(of.addr(), bits).ok()?.trunc();
            if self.all.contains(&network)
                && let Some(found) = look_up(text.write(network))
            {
                return Some(found);
            }
        }
        None
    }
}

fn named(domain: &str) -> Option<IpNet> {
    match network(domain) {
        NetworkName::Network(network) => Some(network),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_network_of_an_address_is_found_first() {
        let mut networks = Networks::among(["10.0.0.0/8", "acme", "2001:db8::/32"].into_iter());
        networks.add("10.1.0.0/16");
        networks.add("globex");
        let of = |domain: &str| networks.find(domain, |name| Some(name.to_owned()));
        assert_eq!(of("10.1.2.3").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(of("10.2.2.3").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(of("10.1.2.0/24").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(of("::ffff:10.2.2.3").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(of("2001:DB8::9").as_deref(), Some("2001:db8::/32"));
        assert_eq!(of("11.0.0.1"), None);
        assert_eq!(of("acme"), None);
        let but_the_longest = |name: &str| (name != "10.1.0.0/16").then(|| name.to_owned());
        let found = networks.find("10.1.2.3", but_the_longest);
        assert_eq!(found.as_deref(), Some("10.0.0.0/8"));
    }

    #[test]
    fn an_address_in_another_spelling_is_found_before_networks() {
        let domains = ["10.0.0.0/8", "10.1.2.3", "2001:db8::1"];
        let mut added = Networks::default();
        domains.iter().for_each(|domain| added.add(domain));
        let none = Networks::default();
        for networks in [
            Networks::among(domains.into_iter()),
            none.clone().and(&added),
            added.clone().and(&none),
            added,
        ] {
            let of = |domain: &str| {
                let look_up = |name: &str| domains.contains(&name).then(|| name.to_owned());
                networks.find(domain, look_up)
            };
            assert_eq!(of("::ffff:10.1.2.3").as_deref(), Some("10.1.2.3"));
            assert_eq!(of("::FFFF:a01:204").as_deref(), Some("10.0.0.0/8"));
            assert_eq!(of("2001:DB8:0::1").as_deref(), Some("2001:db8::1"));
            assert_eq!((of("2001:DB8::2"), of("acme")), (None, None));
        }
        // Its own name was looked up before.
        let looked_up = |name: &str| panic!("{name}");
        let addresses = Networks::among(["10.1.2.3"].into_iter());
        assert_eq!(addresses.find::<()>("10.1.2.3", looked_up), None);
        assert_eq!(none.find::<()>("::ffff:10.1.2.3", looked_up), None);
    }

    #[test]
    fn a_name_that_looks_like_a_network_says_which() {
        let meant = |name: &str| meant_as(name).map(|network| network.to_string());
        for (name, expected) in [
            ("10/8", "10.0.0.0/8"),
            ("10.1/16", "10.1.0.0/16"),
            ("010.0.0.0/8", "10.0.0.0/8"),
            ("2001:db8/32", "2001:db8::/32"),
        ] {
            assert_eq!(meant(name).as_deref(), Some(expected), "{name}");
        }
        for name in [
            "10.0.0.0/8",
            "acme/8",
            "10/acme",
            "10/33",
            "1.2.3.4.5/8",
            "acme.*",
            "x:b/8",
        ] {
            assert_eq!(meant(name), None, "{name}");
        }
    }
}
