//! Networks in public limits: agents refuse their addresses by themselves, from the first call on.
//!
//! ```text
//! { network = "10.0.0.0/8" }                                  its limits grant it nothing
//! { network = "2001:db8::/32", banned_until = 1800000000… }   banned until an instant
//! ```
//!
//! What stays true: a list that was read is as [`PublicNetworks::of`] made it, whatever was sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::named;
use super::public::NETWORKS_MAX;
use crate::networks::{NetworkName, NetworkText, is_wide, network, network_of_domain};
use crate::time::Timestamp;

/// A network whose addresses agents refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicNetwork {
    /// The network.
    pub network: IpNet,
    /// The end of its ban; `None`: its limits grant it nothing, which does not end by itself.
    pub banned_until: Option<Timestamp>,
}

/// Networks whose addresses agents refuse: at most [`NETWORKS_MAX`], half of them of IPv4 and half of IPv6, the widest of
/// each family first, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicNetworks {
    all: Box<[PublicNetwork]>,
    /// The addresses in them, of IPv4 and of IPv6.
    ranges: [Ranges; 2],
}

/// Ranges of addresses that do not overlap, ascending, each until when it is refused; `None`: without end.
type Ranges = Box<[Range]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u128,
    last: u128,
    until: Option<Timestamp>,
}

impl PublicNetworks {
    /// The widest of these networks, half of the bound of each family, without single addresses. Of several entries for
    /// one network, the one that lasts longest.
    pub fn of(networks: impl Iterator<Item = PublicNetwork>) -> Self {
        let mut families = [BTreeMap::new(), BTreeMap::new()];
        let wide = networks.filter(|one| is_wide(&one.network));
        for one in wide {
            let family = &mut families[usize::from(one.network.addr().is_ipv6())];
            let lasts = family
                .entry((one.network.prefix_len(), one.network))
                .or_insert(one.banned_until);
            *lasts = longer(*lasts, one.banned_until);
        }
        let families = families.map(|family| {
            let widest = family.into_iter().take(NETWORKS_MAX / 2);
            let widest = widest.map(|((_, network), banned_until)| PublicNetwork {
                network,
                banned_until,
            });
            widest.collect::<Vec<_>>()
        });
        let ranges = [0, 1].map(|family: usize| ranges(families[family].iter()));
        Self {
            all: families.concat().into(),
            ranges,
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, the widest of each family first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PublicNetwork> {
        self.all.iter()
    }

    /// Until when a domain is refused, if it is an address in one of the networks, or itself a network in one; the inner
    /// `None`: without end. Of several networks, the one that lasts longest decides.
    ///
    /// Parses the domain, and searches once; for a network that contains a longer ban, once for each length of prefix.
    pub fn of_domain(&self, domain: &str) -> Option<Option<Timestamp>> {
        let of = network_of_domain(domain)?;
        let [v4, v6] = &self.ranges;
        let ranges = if of.addr().is_ipv4() { v4 } else { v6 };
        let Range { first, last, .. } = range_of(of, None);
        let at = ranges.partition_point(|range| range.last < first);
        let found = ranges.get(at).filter(|range| range.first <= first)?;
        match last <= found.last {
            true => Some(found.until),
            false => self.around(of),
        }
    }

    /// The same for a network that is in no single range.
    #[cold]
    fn around(&self, of: IpNet) -> Option<Option<Timestamp>> {
        let around = self.all.iter().filter(|one| one.network.contains(&of));
        around.map(|one| one.banned_until).reduce(longer)
    }
}

/// The ranges of networks of one family, the widest first: each lies within one range of those before it, or in none.
fn ranges<'n>(networks: impl Iterator<Item = &'n PublicNetwork>) -> Ranges {
    let mut ranges: BTreeMap<u128, Range> = BTreeMap::new();
    for one in networks {
        let new = range_of(one.network, one.banned_until);
        let around = ranges.range(..=new.first).next_back().map(|(_, one)| *one);
        let around = around.filter(|around| new.last <= around.last);
        if let Some(around) = around {
            if longer(around.until, new.until) == around.until {
                continue;
            }
            let (before, after) = (
                Range {
                    last: new.first.wrapping_sub(1),
                    ..around
                },
                Range {
                    first: new.last.wrapping_add(1),
                    ..around
                },
            );
            ranges.remove(&around.first);
            let has_before = around.first < new.first;
            let has_after = new.last < around.last;
            let rest = [(before, has_before), (after, has_after)];
            let rest = rest.into_iter().filter(|(_, is_any)| *is_any);
            ranges.extend(rest.map(|(range, _)| (range.first, range)));
        }
        ranges.insert(new.first, new);
    }
    ranges.into_values().collect()
}

fn range_of(network: IpNet, until: Option<Timestamp>) -> Range {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    Range {
        first: number(network.network()),
        last: number(network.broadcast()),
        until,
    }
}

/// The later of two ends; `None` is never.
fn longer(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    Some(one?.max(other?))
}

/// A network in its written form.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(deserialize_with = "named::name")]
    network: Box<str>,
    #[serde(default, skip_serializing_if = "named::is_default")]
    banned_until: Option<u64>,
}

impl Serialize for PublicNetworks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = NetworkText::default();
        serializer.collect_seq(self.iter().map(|one| Written {
            network: text.write(one.network).into(),
            banned_until: one.banned_until.map(Timestamp::as_micros),
        }))
    }
}

impl<'de> Deserialize<'de> for PublicNetworks {
    /// Leaves out what is not a network of several addresses: later releases may state other things here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written: Box<[Written]> = named::list::<_, _, NETWORKS_MAX>(deserializer)?;
        let known = written.iter().filter_map(|one| {
            let NetworkName::Network(network) = network(&one.network) else {
                return None;
            };
            Some(PublicNetwork {
                network,
                banned_until: one.banned_until.map(Timestamp::from_micros),
            })
        });
        Ok(Self::of(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, banned_until: Option<u64>) -> PublicNetwork {
        PublicNetwork {
            network: text.parse().expect("a network"),
            banned_until: banned_until.map(Timestamp::from_micros),
        }
    }

    fn networks(all: &[(&str, Option<u64>)]) -> PublicNetworks {
        PublicNetworks::of(all.iter().map(|(text, until)| named(text, *until)))
    }

    #[test]
    fn an_address_is_refused_by_the_network_that_lasts_longest() {
        let all = networks(&[
            ("10.1.2.0/24", Some(50)),
            ("2001:db8::/32", Some(20)),
            ("10.0.0.0/8", Some(20)),
            ("10.1.0.0/16", Some(70)),
            ("192.0.2.0/24", None),
            ("192.0.0.0/16", Some(90)),
        ]);
        let of = |domain: &str| {
            let until = all.of_domain(domain);
            until.map(|until| until.map_or(0, Timestamp::as_micros))
        };
        assert_eq!(of("10.1.2.3"), Some(70), "of three");
        assert_eq!(of("::ffff:10.1.2.3"), Some(70));
        assert_eq!((of("10.0.255.255"), of("10.2.0.0")), (Some(20), Some(20)));
        assert_eq!((of("9.255.255.255"), of("11.0.0.0")), (None, None));
        // Networks of addresses: all in one, some also in a longer ban, some in none.
        assert_eq!(of("10.1.2.0/25"), Some(70));
        assert_eq!(of("10.0.0.0/15"), Some(20));
        assert_eq!(of("10.0.0.0/8"), Some(20));
        assert_eq!(of("10.0.0.0/7"), None);
        assert_eq!(of("192.0.2.9"), Some(0), "without end");
        assert_eq!(of("192.0.3.9"), Some(90));
        assert_eq!(of("192.0.2.0/23"), Some(90));
        // Both halves are banned, and no network that contains it.
        let halves = networks(&[("10.0.0.0/25", Some(5)), ("10.0.0.128/25", Some(5))]);
        assert_eq!(halves.of_domain("10.0.0.0/24"), None);
        assert_eq!(of("2001:db8:1:2::/64"), Some(20));
        assert_eq!(of("2001:DB8::1"), Some(20));
        for other in [
            "11.0.0.1",
            "2001:db9::1",
            "acme",
            "",
            "10.0.0.0.0",
            "10.1.2.3:80",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn the_first_and_last_addresses_of_all_are_in_a_network() {
        let all = networks(&[
            ("0.0.0.0/0", Some(5)),
            ("255.255.255.0/24", Some(9)),
            ("::/0", None),
        ]);
        let of = |domain: &str| {
            all.of_domain(domain)
                .map(|until| until.map(Timestamp::as_micros))
        };
        assert_eq!(
            (of("0.0.0.0"), of("255.255.254.255")),
            (Some(Some(5)), Some(Some(5)))
        );
        assert_eq!(
            (of("255.255.255.255"), of("0.0.0.0/0")),
            (Some(Some(9)), Some(Some(5)))
        );
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!((of("::"), of(last)), (Some(None), Some(None)));
    }

    #[test]
    fn each_network_is_listed_once_with_its_last_end_and_the_widest_first() {
        let all = networks(&[
            ("10.1.0.0/16", Some(7)),
            ("10.0.0.0/8", Some(3)),
            ("10.1.0.0/16", Some(5)),
            ("10.1.2.3/32", Some(9)),
            ("10.0.0.0/8", None),
        ]);
        let expected = [named("10.0.0.0/8", None), named("10.1.0.0/16", Some(7))];
        assert!(all.iter().eq(&expected), "{all:?}");
        let many = (0..2 * NETWORKS_MAX as u32).map(|n| {
            let address = std::net::Ipv4Addr::from(n << 8);
            named(&format!("{address}/24"), Some(1))
        });
        let [wide, v6] = ["240.0.0.0/4", "2001:db8::/32"].map(|text| named(text, Some(1)));
        let all = PublicNetworks::of(many.chain([wide, v6]));
        assert_eq!(all.iter().len(), NETWORKS_MAX / 2 + 1);
        assert_eq!(
            (all.iter().next(), all.iter().last()),
            (Some(&wide), Some(&v6))
        );
    }
}
