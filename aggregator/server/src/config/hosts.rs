//! Hosts and addresses, as operators write them.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// Whether the text is a host, or an address in brackets, with a port.
pub fn has_port(broker: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    broker.rsplit_once(':').is_some_and(|(host, of)| {
        !host.is_empty() && !host.contains(char::is_whitespace) && port(of)
    })
}

/// The address that a text states or that its name resolves to; if the name has several, the first.
pub fn address_of(text: &str) -> Option<SocketAddr> {
    match text.parse() {
        Ok(address) => Some(address),
        Err(_) => text.to_socket_addrs().ok()?.next(),
    }
}

/// Whether the text is an address, or a name and a port, which may have no address.
pub fn is_address(text: &str) -> bool {
    let named = |(host, port): (&str, &str)| is_host(host) && port.parse::<u16>().is_ok();
    text.parse::<SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(named)
}

/// A host as it stands before a port: an IPv6 address in brackets.
pub fn host_of(text: &str) -> Option<String> {
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Some(format!("[{address}]")),
        Err(_) => is_host(text).then(|| text.to_owned()),
    }
}

/// Whether the text is a host name or an address, without a port.
pub fn is_host(text: &str) -> bool {
    // A name with `*` would match nothing: names are compared, not patterns.
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | '*');
    let port = text.contains(':') && !text.starts_with('[');
    matches!(text.len(), 1..=200) && text.chars().all(legal) && !port
}
