//! Classifies the host of an HTTP request: an address, this machine, or a name that somebody may point to any
//! address.
//!
//! ```text
//! 127.0.0.1:7400   [::1]:7400   localhost        this machine, or an address itself
//! rebind.evil.example                            a name: its owner decides which address it stands for
//! ```
//!
//! A page in a browser can let its own name stand for any address (DNS rebinding), but it cannot send a request with
//! another host than its own name. Knows nothing of HTTP.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address, or `localhost`.
    Own,
    /// Another name, in lower case.
    Named(String),
}

/// Classifies a host, which may have a port after it; `None` if it is not a valid host.
pub fn host(text: &str) -> Option<Host> {
    let name = without_port(text)?;
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<Ipv6Addr>().ok().map(|_| Host::Own);
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_lowercase();
    match name.parse::<Ipv4Addr>().is_ok() || name == "localhost" {
        true => Some(Host::Own),
        false => Some(Host::Named(name)),
    }
}

fn without_port(host: &str) -> Option<&str> {
    // A port may be empty (RFC 3986, 3.2.3).
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    match host.rsplit_once(':') {
        // The last colon belongs to an address in brackets.
        Some((_, behind)) if behind.ends_with(']') => Some(host),
        // Only an address in brackets has colons.
        Some((name, port)) => {
            let is_name = !name.contains(':') || name.ends_with(']');
            (is_name && is_port(port)).then_some(name)
        }
        None => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_no_name_and_a_name_is_in_small_letters() {
        for own in [
            "127.0.0.1",
            "10.1.2.3:80",
            "[fe80::1]:7400",
            "LocalHost:7400",
            "localhost.",
            "localhost:",
            "[::1]:",
        ] {
            assert_eq!(host(own), Some(Host::Own), "{own}");
        }
        for strange in [
            "",
            "Evil.example:80",
            "127.0.0.1.evil.example",
            "2130706433",
            "[::1",
        ] {
            assert!(!matches!(host(strange), Some(Host::Own)), "{strange}");
        }
        assert_eq!(
            host("Evil.example:80"),
            Some(Host::Named("evil.example".to_owned()))
        );
        for none in ["127.0.0.1:port", "::1:", "[evil]"] {
            assert_eq!(host(none), None, "{none}");
        }
    }
}
