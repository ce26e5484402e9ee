//! Bans of networks: all addresses in them, on a resource or everywhere.
//!
//! ```text
//! ban api.search, 10.0.0.0/8, until 18:00     10.1.2.3 is denied from its next call in the log on
//! ban everywhere, 10.1.0.0/16                 of two bans the longer one holds
//! unban api.search, 10.0.0.0/8                pairs that are denied by it open at once
//! ```
//!
//! Every partition has all of them, since a network has pairs in each. Knows nothing of pairs. What stays true: a
//! partition without bans of networks does not parse a domain.

use std::cell::Cell;
use std::collections::BTreeMap;

use tollgate_shared::networks::{NetworkName, NetworkText, network};
use tollgate_shared::time::Timestamp;

use super::amended::Ban;
use tollgate_limits::Networks;

/// All bans of networks.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkBans {
    /// By the network in its canonical spelling, and by the resource; `None` means every resource.
    bans: BTreeMap<Box<str>, OfNetwork>,
    networks: Networks,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct OfNetwork {
    everywhere: Option<Ban>,
    on: BTreeMap<Box<str>, Ban>,
}

impl OfNetwork {
    fn of(&self, resource: Option<&str>) -> Option<Ban> {
        match resource {
            Some(resource) => self.on.get(resource).copied(),
            None => self.everywhere,
        }
    }

    fn is_empty(&self) -> bool {
        self.everywhere.is_none() && self.on.is_empty()
    }
}

/// The canonical spelling of what an operator bans: `Ok` for a network of several addresses, `Err` for any other
/// domain.
pub(super) fn banned_network<'t>(
    domain: &'t str,
    text: &'t mut NetworkText,
) -> Result<&'t str, &'t str> {
    match network(domain) {
        NetworkName::Network(of) if of.prefix_len() == of.max_prefix_len() => Err(text.write(of)),
        NetworkName::Network(of) => Ok(text.write(of)),
        _ => Err(domain),
    }
}

impl NetworkBans {
    /// Of the bans of a domain's networks on a resource, the one that lasts longest.
    #[inline]
    pub fn of(&self, resource: &str, domain: &str) -> Option<Ban> {
        if self.len == 0 {
            return None;
        }
        let longest: Cell<Option<Ban>> = Cell::new(None);
        let _: Option<()> = self.networks.find(domain, |name| {
            let of = self.bans.get(name)?;
            let both = [of.of(Some(resource)), of.everywhere, longest.get()];
            longest.set(both.into_iter().flatten().max_by_key(|ban| ban.until));
            None
        });
        longest.get()
    }

    /// The ban of this network itself, on a resource or everywhere.
    fn get(&self, resource: Option<&str>, network: &str) -> Option<Ban> {
        self.bans.get(network)?.of(resource)
    }

    /// Bans a network, or lifts its ban for `None`; returns the ban before.
    pub fn set(&mut self, resource: Option<&str>, network: &str, ban: Option<Ban>) -> Option<Ban> {
        let of = self.bans.entry(network.into()).or_default();
        let before = match (resource, ban) {
            (None, ban) => std::mem::replace(&mut of.everywhere, ban),
            (Some(resource), Some(ban)) => of.on.insert(resource.into(), ban),
            (Some(resource), None) => of.on.remove(resource),
        };
        let is_empty = of.is_empty();
        self.len = self.len + usize::from(ban.is_some()) - usize::from(before.is_some());
        match is_empty {
            true => {
                self.bans.remove(network);
                self.networks = Networks::among(self.bans.keys().map(|name| &**name));
            }
            false => self.networks.add(network),
        }
        before
    }

    /// How many bans there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All of them, ascending by network and resource, that of every resource first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, Ban)> {
        self.bans.iter().flat_map(|(network, of)| {
            let everywhere = of.everywhere.map(|ban| (None, ban));
            let on = of.on.iter().map(|(name, ban)| (Some(&**name), *ban));
            everywhere
                .into_iter()
                .chain(on)
                .map(|(resource, ban)| (&**network, resource, ban))
        })
    }

    /// Whether the ban of a network has ended by `now`.
    pub fn has_ended(&self, resource: Option<&str>, network: &str, now: Timestamp) -> bool {
        let ban = self.get(resource, network);
        ban.is_some_and(|ban| ban.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(until: u64) -> Option<Ban> {
        Some(Ban {
            until: Timestamp::from_micros(until),
            version: 9,
        })
    }

    #[test]
    fn of_all_networks_of_an_address_the_longest_ban_holds() {
        let mut bans = NetworkBans::default();
        assert_eq!(bans.of("a", "10.1.2.3"), None);
        bans.set(None, "10.0.0.0/8", ban(20));
        bans.set(Some("a"), "10.1.0.0/16", ban(10));
        bans.set(Some("a"), "10.1.0.0/16", ban(30));
        assert_eq!(bans.len(), 2);
        assert_eq!(bans.of("a", "10.1.2.3"), ban(30));
        assert_eq!(bans.of("b", "10.1.2.3"), ban(20));
        assert_eq!(bans.of("a", "10.1.0.0/24"), ban(30));
        assert_eq!(
            (bans.of("a", "11.1.2.3"), bans.of("a", "acme")),
            (None, None)
        );
        assert_eq!(bans.iter().count(), 2);
        assert_eq!(bans.set(Some("a"), "10.1.0.0/16", None), ban(30));
        assert_eq!(bans.of("a", "10.1.2.3"), ban(20));
        bans.set(None, "10.0.0.0/8", None);
        assert_eq!((bans.len(), bans.of("a", "10.1.2.3")), (0, None));
    }

    #[test]
    fn a_network_is_banned_in_its_one_spelling() {
        let of = |domain: &str| {
            let mut text = NetworkText::default();
            let found = banned_network(domain, &mut text);
            found.map(str::to_owned).map_err(str::to_owned)
        };
        assert_eq!(of("2001:DB8::/32"), Ok("2001:db8::/32".to_owned()));
        assert_eq!(of("10.1.2.3/32"), Err("10.1.2.3".to_owned()));
        assert_eq!(of("acme"), Err("acme".to_owned()));
    }
}
