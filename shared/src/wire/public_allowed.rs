//! Allow lists in public limits: where a resource grants nothing by itself, the domains that its limits let in.
//!
//! ```text
//! limits     tiers = [], domains = { acme = …, "10.0.0.0/8" = … }
//! allowed    "10.0.0.0/8", "acme"
//! call       acme, 10.1.2.3: as their limits say      globex: refused from its first call
//! ```
//!
//! A list that is not complete would refuse domains that are let in. So one beyond the bounds is no list: neither
//! written nor read. What stays true: [`PublicAllowed::allows`] is true for each name of the list.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::named::Name;
use super::public::{CLOSED_BYTES_MAX, NETWORKS_MAX, PublicNetwork, PublicNetworks, closed_bytes};
use crate::networks::{NetworkText, is_wide, network_of_domain};

/// All domains that a resource's limits let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicAllowed {
    /// Ascending.
    names: Box<[Box<str>]>,
    /// The networks among them.
    networks: PublicNetworks,
}

impl PublicAllowed {
    /// The list of these names; `None` if it takes more than [`CLOSED_BYTES_MAX`], counted as closed domains are, or has
    /// more networks than half of [`NETWORKS_MAX`].
    pub fn of<'d>(names: impl Iterator<Item = &'d str>) -> Option<Self> {
        let mut bytes = 0;
        let mut all: Vec<Box<str>> = Vec::new();
        let mut networks = Vec::new();
        for name in names {
            bytes += closed_bytes(name);
            let network = network_of_domain(name);
            if let Some(network) = network.filter(is_wide) {
                networks.push(PublicNetwork {
                    network,
                    banned_until: None,
                });
            }
            // Half of the bound of each family.
            if CLOSED_BYTES_MAX < bytes || NETWORKS_MAX / 2 < networks.len() {
                return None;
            }
            all.push(name.into());
        }
        all.sort_unstable();
        all.dedup();
        Some(Self {
            names: all.into(),
            networks: PublicNetworks::of(networks.into_iter()),
        })
    }

    /// All names, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether limits let a domain in: by its name; an address also in any other spelling, or by a network.
    pub fn allows(&self, domain: &str) -> bool {
        let is_named = |name: &str| self.names.binary_search_by(|one| (**one).cmp(name)).is_ok();
        if is_named(domain) {
            return true;
        }
        let Some(network) = network_of_domain(domain) else {
            return false;
        };
        self.networks.of_domain(domain).is_some() || is_named(NetworkText::default().write(network))
    }
}

impl Serialize for PublicAllowed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// Reads a list; `None` for one beyond the bounds. For `deserialize_with`.
pub(super) fn allowed<'de, D>(deserializer: D) -> Result<Option<PublicAllowed>, D::Error>
where
    D: Deserializer<'de>,
{
    let names = Option::<Vec<Name<'de>>>::deserialize(deserializer)?;
    Ok(names.and_then(|names| PublicAllowed::of(names.iter().map(|Name(name)| *name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_networks_are_let_in() {
        let names = ["globex", "2001:db8::1", "acme", "10.0.0.0/8", "192.0.2.9"];
        let allowed = PublicAllowed::of(names.into_iter()).expect("it is small");
        for domain in names {
            assert!(allowed.allows(domain), "{domain}");
        }
        for domain in [
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "10.1.0.0/16",
            "2001:DB8:0::1",
            "::ffff:192.0.2.9",
        ] {
            assert!(allowed.allows(domain), "{domain}");
        }
        for domain in [
            "",
            "acm",
            "acme2",
            "11.0.0.1",
            "10.0.0.0/7",
            "192.0.2.8",
            "2001:db8::2",
            "a.b",
        ] {
            assert!(!allowed.allows(domain), "{domain}");
        }
        let none = PublicAllowed::of(std::iter::empty()).expect("it is small");
        assert!(!none.allows("acme") && !none.allows("10.1.2.3"));
    }

    #[test]
    fn a_list_beyond_the_bounds_is_none() {
        let named = |count: usize| (0..count).map(|n| format!("tenant-{n:06}"));
        let of = |names: Vec<String>| PublicAllowed::of(names.iter().map(String::as_str));
        // Thirteen bytes, and sixteen for each.
        let most = CLOSED_BYTES_MAX / 29;
        assert_eq!(
            of(named(most).collect()).map(|all| all.iter().len()),
            Some(most)
        );
        assert_eq!(of(named(most + 1).collect()), None);
        let network = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
        assert!(of((0..NETWORKS_MAX / 2).map(network).collect()).is_some());
        assert_eq!(of((0..=NETWORKS_MAX / 2).map(network).collect()), None);
    }
}
