//! Networks as domains: addresses that are limited together.
//!
//! ```text
//! addresses = { v4 = 32, v6 = 64 }      203.0.113.7            is limited as  203.0.113.7
//!                                       2001:DB8:1:2:3::9      is limited as  2001:db8:1:2::/64
//!                                       ::ffff:203.0.113.7     is limited as  203.0.113.7
//!                                       acme                   is limited as  acme
//! ```
//!
//! Agents and readers of limits call the same function, so that both get one domain for one address. Knows nothing of
//! limits. What stays true: the result has one canonical spelling, and a domain that is not an address stays
//! unchanged.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

/// The longest text of a network: an IPv6 address of 39 bytes, a slash and three digits.
const TEXT_BYTES_MAX: usize = 43;

/// Room for the text of one network, on the caller's stack.
#[derive(Clone, Debug)]
pub struct NetworkText {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl Default for NetworkText {
    fn default() -> Self {
        Self {
            bytes: [0; TEXT_BYTES_MAX],
            len: 0,
        }
    }
}

impl NetworkText {
    /// The text that was written last.
    pub fn as_str(&self) -> &str {
        let written = self.bytes.get(..self.len).unwrap_or_default();
        // Only whole texts are written.
        std::str::from_utf8(written).unwrap_or_default()
    }

    /// Writes a network; a network of a single address is written as that address.
    pub fn write(&mut self, network: IpNet) -> &str {
        self.len = 0;
        // There is room for the longest text.
        let _ = match network.prefix_len() == network.max_prefix_len() {
            true => write!(self, "{}", network.addr()),
            false => write!(self, "{network}"),
        };
        self.as_str()
    }
}

impl fmt::Write for NetworkText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// How many leading bits of an address form its domain, for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressPrefixes {
    /// Of an IPv4 address: 1 to 32.
    #[serde(deserialize_with = "bits::<_, 32>")]
    pub v4: u8,
    /// Of an IPv6 address: 1 to 128.
    #[serde(deserialize_with = "bits::<_, 128>")]
    pub v6: u8,
}

fn bits<'de, D: Deserializer<'de>, const MAX: u8>(deserializer: D) -> Result<u8, D::Error> {
    match u8::deserialize(deserializer)? {
        bits if bits <= MAX => Ok(bits),
        other => {
            let (found, expected) = (
                Unexpected::Unsigned(other.into()),
                format!("0 to {MAX} bits"),
            );
            Err(D::Error::invalid_value(found, &&*expected))
        }
    }
}

impl Default for AddressPrefixes {
    /// The default for a resource that limits addresses: an IPv4 address by itself, an IPv6 address as the network
    /// that one customer usually has.
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

impl AddressPrefixes {
    /// The domain under which a caller's domain is limited: for an address its network, otherwise the domain itself.
    ///
    /// No allocation; for a domain that cannot be an address it checks only the length and the first byte.
    pub fn domain_of<'t>(self, domain: &'t str, text: &'t mut NetworkText) -> &'t str {
        match address(domain) {
            Some(address) => text.write(self.network_of(address)),
            None => domain,
        }
    }

    /// The network by which an address is limited.
    pub fn network_of(self, address: IpAddr) -> IpNet {
        let bits = match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        };
        // If there are more bits than an address has, all of them count.
        let network = IpNet::new(address, bits).unwrap_or_else(|_| IpNet::from(address));
        network.trunc()
    }
}

/// Whether a network has more than one address.
pub fn is_wide(network: &IpNet) -> bool {
    network.prefix_len() < network.max_prefix_len()
}

/// Whether a domain may be an address or a network: a look at its bytes, which most names do not pass.
pub fn may_be_address(domain: &str) -> bool {
    let first = domain.as_bytes().first();
    first.is_some_and(|first| first.is_ascii_hexdigit() || *first == b':')
        && domain.bytes().any(|byte| matches!(byte, b'.' | b':'))
}

/// Parses an address; an IPv4-mapped IPv6 address is returned as IPv4.
pub fn address(text: &str) -> Option<IpAddr> {
    const ADDRESS_BYTES_MAX: usize = 45;
    if ADDRESS_BYTES_MAX < text.len() || !may_be_address(text) {
        return None;
    }
    let address: IpAddr = text.parse().ok()?;
    Some(address.to_canonical())
}

/// The client of a forwarded request: of all addresses in `lists` (the values of `X-Forwarded-For`, in order), the
/// last one that is no trusted proxy. Each proxy appends the address that connected to it, so anything that a client
/// wrote comes before that and is never used; the same holds for everything before a text that is not an address.
///
/// ```
/// use tollgate_shared::networks::forwarded_client;
///
/// let ours = |address: std::net::IpAddr| address.to_string().starts_with("10.");
/// let client = forwarded_client(["8.8.8.8, 203.0.113.7", "10.1.2.3"], ours);
/// assert_eq!(client.unwrap().to_string(), "203.0.113.7");
/// ```
pub fn forwarded_client<'t>(
    lists: impl IntoIterator<Item = &'t str, IntoIter: DoubleEndedIterator>,
    trusts: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut client = None;
    for entry in lists.into_iter().rev().flat_map(|list| list.rsplit(',')) {
        let Some(address) = address_with_port(entry.trim()) else {
            break;
        };
        client = Some(address);
        if !trusts(address) {
            break;
        }
    }
    client
}

/// An address, with or without a port.
fn address_with_port(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || Some(text.parse::<SocketAddr>().ok()?.ip().to_canonical());
    address(bare).or_else(with_port)
}

/// Classification of a domain's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkName {
    /// A network.
    Network(IpNet),
    /// A network whose address has bits beyond its prefix; the value is the network without them.
    HostBits(IpNet),
    /// An address and an invalid prefix length.
    Length,
    /// Neither a network nor similar to one.
    Other,
}

/// Parses a network in its usual notation: an address, a slash and a prefix length.
pub fn network(text: &str) -> NetworkName {
    let Some((address, bits)) = text.split_once('/') else {
        return NetworkName::Other;
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return NetworkName::Other;
    };
    let plain = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let Some(bits) = bits.parse::<u8>().ok().filter(|_| plain) else {
        return NetworkName::Length;
    };
    // An IPv4-mapped IPv6 network is treated as the IPv4 network.
    let (canonical, bits) = match (address, address.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(v4)) if 96 <= bits => (IpAddr::V4(v4), bits - 96),
        _ => (address, bits),
    };
    match IpNet::new(canonical, bits) {
        Err(_) => NetworkName::Length,
        Ok(network) if network.trunc() == network => NetworkName::Network(network),
        Ok(network) => NetworkName::HostBits(network.trunc()),
    }
}

/// The network that a domain stands for at a look-up: the network itself, or that of a single address.
pub fn network_of_domain(domain: &str) -> Option<IpNet> {
    if !domain.contains('/') {
        return address(domain).map(IpNet::from);
    }
    match network(domain) {
        NetworkName::Network(network) => Some(network),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain_of(v4: u8, v6: u8, domain: &str) -> String {
        let mut text = NetworkText::default();
        AddressPrefixes { v4, v6 }
            .domain_of(domain, &mut text)
            .to_owned()
    }

    #[test]
    fn an_address_is_limited_as_its_network_in_one_spelling() {
        for (v4, v6, domain, expected) in [
            (32, 64, "203.0.113.7", "203.0.113.7"),
            (24, 64, "203.0.113.7", "203.0.113.0/24"),
            (32, 64, "::ffff:203.0.113.7", "203.0.113.7"),
            (24, 64, "::FFFF:203.0.113.7", "203.0.113.0/24"),
            (32, 64, "2001:DB8:1:2:3::9", "2001:db8:1:2::/64"),
            (32, 128, "2001:0DB8:0:0:0:0:0:9", "2001:db8::9"),
            (32, 48, "2001:db8:ffff:ffff::1", "2001:db8:ffff::/48"),
            (1, 1, "255.255.255.255", "128.0.0.0/1"),
            (32, 64, "acme", "acme"),
            (32, 64, "face.example", "face.example"),
            (32, 64, "203.0.113.7:80", "203.0.113.7:80"),
            (32, 64, "203.0.113.007", "203.0.113.007"),
            (32, 64, "203.0.113.0/24", "203.0.113.0/24"),
            (32, 64, "[::1]", "[::1]"),
            (32, 64, "", ""),
        ] {
            assert_eq!(domain_of(v4, v6, domain), expected, "{domain}");
        }
    }

    #[test]
    fn the_longest_text_of_a_network_has_room() {
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe";
        assert_eq!(domain_of(32, 128, longest), longest);
        assert_eq!(domain_of(32, 127, longest), format!("{longest}/127"));
    }

    #[test]
    fn networks_are_distinguished_from_names_and_mistakes() {
        let net = |text: &str| text.parse::<IpNet>().expect("a network");
        for (text, expected) in [
            ("10.0.0.0/8", NetworkName::Network(net("10.0.0.0/8"))),
            ("2001:DB8::/32", NetworkName::Network(net("2001:db8::/32"))),
            (
                "::ffff:10.0.0.0/104",
                NetworkName::Network(net("10.0.0.0/8")),
            ),
            ("10.0.0.1/8", NetworkName::HostBits(net("10.0.0.0/8"))),
            ("10.0.0.0/33", NetworkName::Length),
            ("10.0.0.0/", NetworkName::Length),
            ("10.0.0.0/+8", NetworkName::Length),
            ("acme/8", NetworkName::Other),
            ("10.0.0.0", NetworkName::Other),
            ("a", NetworkName::Other),
        ] {
            assert_eq!(network(text), expected, "{text}");
        }
    }

    #[test]
    fn an_address_costs_no_allocation() {
        let info = allocation_counter::measure(|| {
            let mut text = NetworkText::default();
            for domain in ["2001:db8:1:2:3::9", "203.0.113.7", "acme"] {
                std::hint::black_box(
                    AddressPrefixes { v4: 24, v6: 64 }.domain_of(domain, &mut text),
                );
            }
        });
        assert_eq!(info.count_total, 0);
    }
}
