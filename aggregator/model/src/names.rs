//! The names under which the limits may address a resource or a domain: patterns of
//! resources, and networks of domains.
//!
//! ```text
//! resource   api.search    "api.search", or else "api.searc*", "api.sear*", …, "api.*", …, "*"
//! domain     10.1.2.3      "10.1.2.3", or else "10.1.2.2/31", "10.1.2.0/30", …, "10.0.0.0/8", …, "0.0.0.0/0"
//!            2001:DB8::9   "2001:DB8::9", or else "2001:db8::9", "2001:db8::8/127", …
//! ```
//!
//! The functions list every name that an entry may have, the one with precedence first; the first name with an
//! entry wins. Knows nothing of limits. What stays true: a name by itself comes before all patterns and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The patterns that a resource matches, the longest first, without the resource's own name.
pub(crate) fn patterns_of(resource: &str) -> impl Iterator<Item = String> + '_ {
    let ends = resource.char_indices().map(|(at, _)| at);
    let ends = std::iter::once(resource.len()).chain(ends.rev());
    ends.map(|end| format!("{}*", &resource[..end]))
}

/// The networks that contain a domain, the longest first. The domain's own name is not among them, unless it spells
/// a network in an unusual way.
pub(crate) fn networks_of(domain: &str) -> Vec<String> {
    let Some((address, own_bits)) = network_of(domain) else {
        return Vec::new();
    };
    // A network of one address has the name of that address.
    let longest = own_bits.min(bits_of(address) - 1);
    let mut names = Vec::new();
    for bits in (0..=longest).rev() {
        names.push(format!("{}/{bits}", cut(address, bits)));
    }
    names
}

/// The canonical spelling of a domain that is an address.
pub(crate) fn address_of(domain: &str) -> Option<String> {
    let (address, bits) = network_of(domain)?;
    (bits == bits_of(address)).then(|| address.to_string())
}

/// Whether a domain is inside the network of this name, or has the name itself.
pub(crate) fn is_within(domain: &str, name: &str) -> bool {
    domain == name || (name.contains('/') && networks_of(domain).iter().any(|of| of == name))
}

/// Whether a domain, as [`spelt`], is a network of several addresses.
pub(crate) fn is_network(domain: &str) -> bool {
    domain.contains('/') && network_of(domain).is_some()
}

/// A network in the canonical spelling under which it is looked up; any other domain unchanged.
pub(crate) fn spelt(domain: &str) -> String {
    match network_of(domain) {
        Some((address, bits)) if domain.contains('/') && bits == bits_of(address) => {
            address.to_string()
        }
        Some((address, bits)) if domain.contains('/') => format!("{address}/{bits}"),
        _ => domain.to_owned(),
    }
}

/// The address or network that a domain's name spells, with its number of bits.
fn network_of(domain: &str) -> Option<(IpAddr, u32)> {
    let Some((address, bits)) = domain.split_once('/') else {
        let address = canonical(domain.parse().ok()?);
        return Some((address, bits_of(address)));
    };
    if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let written: IpAddr = address.parse().ok()?;
    let bits: u32 = bits.parse().ok()?;
    let is_v4_in_v6 = written.is_ipv6() && canonical(written).is_ipv4() && 96 <= bits;
    let (address, bits) = match is_v4_in_v6 {
        true => (canonical(written), bits - 96),
        false => (written, bits),
    };
    let is_network = bits <= bits_of(address) && cut(address, bits) == address;
    is_network.then_some((address, bits))
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn bits_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Keeps the first bits of an address and sets the others to zero.
fn cut(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_come_from_the_longest_to_the_star() {
        let all: Vec<String> = patterns_of("ä.b").collect();
        assert_eq!(all, ["ä.b*", "ä.*", "ä*", "*"]);
    }

    #[test]
    fn networks_come_from_the_longest_to_everybody() {
        let v4 = networks_of("10.1.2.3");
        assert_eq!((v4.len(), &*v4[0]), (32, "10.1.2.2/31"));
        assert_eq!((&*v4[23], &*v4[31]), ("10.0.0.0/8", "0.0.0.0/0"));
        assert_eq!(networks_of("::ffff:10.1.2.3"), v4);
        assert_eq!(networks_of("10.1.2.0/24")[0], "10.1.2.0/24");
        assert_eq!(networks_of("::ffff:10.1.2.0/120")[0], "10.1.2.0/24");
        let v6 = networks_of("2001:DB8::9");
        assert_eq!((v6.len(), &*v6[95]), (128, "2001:db8::/32"));
        for no_network in [
            "acme",
            "10.1.2.3/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            assert!(networks_of(no_network).is_empty(), "{no_network}");
        }
    }

    #[test]
    fn a_network_has_one_spelling() {
        assert_eq!(spelt("2001:DB8::/32"), "2001:db8::/32");
        assert_eq!(spelt("::ffff:10.0.0.0/104"), "10.0.0.0/8");
        assert_eq!(
            (&*spelt("10.1.2.3/32"), &*spelt("ACME")),
            ("10.1.2.3", "ACME")
        );
        assert_eq!(spelt("2001:DB8::1"), "2001:DB8::1");
    }

    #[test]
    fn an_address_has_one_canonical_spelling() {
        assert_eq!(address_of("2001:DB8:0::1").as_deref(), Some("2001:db8::1"));
        assert_eq!(address_of("::ffff:10.0.0.7").as_deref(), Some("10.0.0.7"));
        assert_eq!((address_of("10.0.0.0/8"), address_of("acme")), (None, None));
    }

    #[test]
    fn a_network_has_its_addresses_and_a_name_itself() {
        assert!(is_within("10.1.2.3", "10.0.0.0/8") && is_within("10.0.0.0/8", "10.0.0.0/8"));
        assert!(is_within("acme", "acme") && !is_within("acme", "10.0.0.0/8"));
        assert!(!is_within("11.0.0.1", "10.0.0.0/8") && !is_within("10.1.2.3", "10.1.2.4"));
    }
}
