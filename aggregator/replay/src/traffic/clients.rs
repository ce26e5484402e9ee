//! Which text of a row is the client, and how it is spelled.
//!
//! ```text
//! 203.0.113.7:51034                   203.0.113.7             without its port
//! [2001:DB8::1]:443                   2001:db8::1             one spelling for one address
//! ::ffff:203.0.113.7                  203.0.113.7
//! 203.0.113.7, 10.1.2.3               203.0.113.7             the last that is not a trusted proxy
//! 6.6.6.6, 203.0.113.7, 10.1.2.3      203.0.113.7             anybody can write what comes before it
//! for=203.0.113.7;proto=https         203.0.113.7             as RFC 7239 defines it
//! ```
//!
//! A list of forwarders is believed if the peer is a trusted proxy, or not an address: a direct client can write
//! anything into that header. Headers that an edge network sets (`CF-Connecting-IP`, `X-Real-IP`) are believed
//! whatever public address that network has, unless the user stated the proxies.
//!
//! Knows nothing of files. What stays true: a text that is not an address stays as it is written.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;
use tollgate_shared::networks::{AddressPrefixes, NetworkText, address};

use super::names::{is_of_edge, plain};

/// Proxies that are trusted if none are stated: those of private networks.
const PRIVATE: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

/// How clients are identified.
#[derive(Clone, Debug)]
pub struct Clients {
    trusted: Vec<IpNet>,
    /// The user stated the proxies.
    stated: bool,
    /// The user stated the prefixes.
    grouped: bool,
    prefixes: AddressPrefixes,
    /// Rows with a header that was not believed.
    disbelieved: Arc<AtomicU64>,
}

/// The kind of header that names the client of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A list that each forwarder appends to, and that a client may begin.
    List,
    /// A header that the edge network sets.
    OfEdge,
}

impl Header {
    /// The kind of a field of this name.
    pub(super) fn of(name: &str) -> Self {
        match is_of_edge(&plain(name)) {
            true => Self::OfEdge,
            false => Self::List,
        }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Clients {
    /// Trusts these proxies, or those of private networks, to name their clients; addresses are grouped into clients
    /// by these prefixes.
    pub fn new(trusted: Option<Vec<IpNet>>, prefixes: Option<AddressPrefixes>) -> Self {
        let private = PRIVATE.iter().filter_map(|network| network.parse().ok());
        Self {
            stated: trusted.is_some(),
            grouped: prefixes.is_some(),
            trusted: trusted.unwrap_or_else(|| private.collect()),
            prefixes: prefixes.unwrap_or(AddressPrefixes { v4: 32, v6: 128 }),
            disbelieved: Arc::default(),
        }
    }

    /// The same for the rows of one file, with a counter of its own.
    pub(super) fn of_file(&self) -> Self {
        Self {
            disbelieved: Arc::default(),
            ..self.clone()
        }
    }

    /// Rows whose header named another client than the connection, and was not believed.
    pub(super) fn disbelieved(&self) -> u64 {
        self.disbelieved.load(Ordering::Relaxed)
    }

    /// Whether the user stated how clients are identified, so that Tollgate's own fields are read as addresses, too.
    pub(super) fn is_stated(&self) -> bool {
        self.stated || self.grouped
    }

    /// The client of a row: `forwarded` is what proxies state, `peer` the other end of the connection.
    pub(super) fn of<'a>(
        &self,
        header: Header,
        forwarded: Option<&'a str>,
        peer: Option<&'a str>,
    ) -> Option<Cow<'a, str>> {
        let peer = peer.filter(|text| !is_absent(text));
        let is_unknown = |text: &str| peer.is_some() && text.trim_ascii() == "unknown";
        let forwarded = forwarded.filter(|text| !is_absent(text) && !is_unknown(text));
        if let (Some(list), Some(peer)) = (forwarded, peer)
            && !self.believes(header, peer)
        {
            // No trusted proxy has written that header.
            let client = self.spelled(peer);
            if self.last_untrusted(list) != client {
                self.disbelieved.fetch_add(1, Ordering::Relaxed);
            }
            return Some(client);
        }
        match forwarded {
            Some(list) => Some(self.last_untrusted(list)),
            // Some servers write the list in place of the peer.
            None => peer.map(|peer| match peer.contains(',') {
                true => self.last_untrusted(peer),
                false => self.spelled(peer),
            }),
        }
    }

    /// The client that one text names, which may be a list of forwarders.
    pub fn named<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        self.of(Header::List, Some(text), None)
    }

    /// Whether a header from this peer is believed.
    fn believes(&self, header: Header, peer: &str) -> bool {
        match (address(without_port(peer)), header) {
            (_, Header::OfEdge) if !self.stated => true,
            (Some(address), _) => self.trusts(address),
            (None, _) => !self.stated,
        }
    }

    fn last_untrusted<'a>(&self, list: &'a str) -> Cow<'a, str> {
        if !list.contains(',') {
            return self.spelled(node_of(list));
        }
        let is_foreign =
            |text: &&str| address(without_port(text)).is_some_and(|address| !self.trusts(address));
        let unknown = |text: &str| is_absent(text) || text.eq_ignore_ascii_case("unknown");
        // IIS writes blanks as plus signs.
        let trimmed = |text: &'a str| text.trim_matches(|c: char| c.is_whitespace() || c == '+');
        let mut texts = list.split(',').map(trimmed).map(node_of);
        let first = texts.clone().find(|text| !unknown(text));
        // A list of names that are not addresses is one name.
        if first.is_none_or(|first| address(without_port(first)).is_none()) {
            return self.spelled(list);
        }
        self.spelled(texts.rfind(is_foreign).or(first).unwrap_or(list))
    }

    /// Whether a client is one of the trusted proxies.
    pub(super) fn is_proxy(&self, client: &str) -> bool {
        address(client).is_some_and(|address| self.trusts(address))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }

    fn spelled<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let text = text.trim_ascii();
        let bare = without_port(text);
        match address(bare) {
            None => Cow::Borrowed(text),
            // An IPv4 address has only one spelling.
            Some(IpAddr::V4(_)) if !bare.contains(':') && 32 <= self.prefixes.v4 => {
                Cow::Borrowed(bare)
            }
            Some(address) => {
                let network = self.prefixes.network_of(address);
                Cow::Owned(NetworkText::default().write(network).to_owned())
            }
        }
    }
}

/// The node in an element of the header Forwarded: `for="[2001:db8::1]:51034";proto=https`; or the text itself.
fn node_of(element: &str) -> &str {
    let mut pairs = element.split(';').map(str::trim_ascii);
    let node = pairs.find_map(|pair| {
        let (name, node) = pair.split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(node)
    });
    node.map_or(element, |node| node.trim_matches(['"', '\\']))
}

/// Whether a field is empty or a placeholder for nothing.
fn is_absent(text: &str) -> bool {
    matches!(text.trim_ascii(), "" | "-")
}

/// Whether a client is an address or a network.
pub(super) fn is_address(client: &str) -> bool {
    let (first, _) = client.split_once('/').unwrap_or((client, ""));
    address(first).is_some()
}

/// An address without its port, its brackets and its zone.
fn without_port(text: &str) -> &str {
    if let Some(rest) = text.strip_prefix('[')
        && let Some((inside, _)) = rest.split_once(']')
    {
        return inside;
    }
    let text = text.split('%').next().unwrap_or(text);
    match text.split_once(':') {
        // Two colons belong to an IPv6 address.
        Some((host, port))
            if !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && host.contains('.') =>
        {
            host
        }
        // If it is not an address with its last part, it may be one without: 2001:db8::1:51034, as HAProxy writes it.
        Some(_) if address(text).is_none() => match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && address(host).is_some() => host,
            _ => text,
        },
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Option<String> {
        Clients::default().named(text).map(Cow::into_owned)
    }

    #[test]
    fn one_address_has_one_name_however_it_is_written() {
        for (written, client) in [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:51034", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("[::FFFF:203.0.113.7]:80", "203.0.113.7"),
            ("[2001:DB8::1]:443", "2001:db8::1"),
            ("2001:db8::1:51034", "2001:db8::1"),
            ("::ffff:203.0.113.7:51034", "203.0.113.7"),
            ("2001:0DB8:0000::0001", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("host.example.com", "host.example.com"),
            ("acme:7", "acme:7"),
            ("acme, inc", "acme, inc"),
        ] {
            assert_eq!(named(written).as_deref(), Some(client), "{written}");
        }
        assert_eq!(named("-"), None);
        assert_eq!(named(" "), None);
    }

    #[test]
    fn the_last_untrusted_address_of_a_list_is_the_client() {
        for (list, client) in [
            ("203.0.113.7, 10.1.2.3", "203.0.113.7"),
            ("6.6.6.6,203.0.113.7,10.1.2.3", "203.0.113.7"),
            ("10.0.0.9, 10.1.2.3", "10.0.0.9"),
            ("10.0.0.9,+10.1.2.3", "10.0.0.9"),
            ("unknown, 203.0.113.7", "203.0.113.7"),
            ("for=203.0.113.7;proto=https", "203.0.113.7"),
            ("For=\"[2001:DB8::1]:47\"", "2001:db8::1"),
            (
                "for=6.6.6.6, by=10.0.0.1;for=203.0.113.7, for=10.1.2.3",
                "203.0.113.7",
            ),
            ("203.0.113.7:55, [2001:DB8::1]:2", "2001:db8::1"),
        ] {
            assert_eq!(named(list).as_deref(), Some(client), "{list}");
        }
    }

    #[test]
    fn a_header_counts_only_where_a_trusted_peer_wrote_it() {
        let stated = vec!["198.51.100.0/24".parse().expect("a network")];
        let clients = Clients::new(Some(stated), Some(AddressPrefixes { v4: 32, v6: 64 }));
        let of = |forwarded, peer| {
            let client = clients.of(Header::OfEdge, Some(forwarded), Some(peer));
            client.map(Cow::into_owned)
        };
        assert_eq!(of("6.6.6.6", "203.0.113.7").as_deref(), Some("203.0.113.7"));
        assert_eq!(of("6.6.6.6", "198.51.100.3").as_deref(), Some("6.6.6.6"));
        assert_eq!(of("-", "198.51.100.3").as_deref(), Some("198.51.100.3"));
        let unknown = clients.of(Header::List, Some("unknown"), Some("198.51.100.3"));
        assert_eq!(unknown.as_deref(), Some("198.51.100.3"));
        assert_eq!(named("unknown").as_deref(), Some("unknown"));
        let by_default = Clients::default();
        let of = |header, peer| {
            let client = by_default.of(header, Some("6.6.6.6"), Some(peer));
            client.map(Cow::into_owned)
        };
        let public = of(Header::List, "203.0.113.7:4711");
        assert_eq!(public.as_deref(), Some("203.0.113.7"));
        assert_eq!(by_default.disbelieved(), 1);
        assert_eq!(of(Header::List, "10.0.0.1").as_deref(), Some("6.6.6.6"));
        assert_eq!(of(Header::List, "unix:").as_deref(), Some("6.6.6.6"));
        let edge = of(Header::OfEdge, "203.0.113.7");
        assert_eq!(edge.as_deref(), Some("6.6.6.6"));
        let v6 = clients.named("2001:db8:1:2:3::9").map(Cow::into_owned);
        assert_eq!(v6.as_deref(), Some("2001:db8:1:2::/64"));
    }
}
