//! Remarks on the domain of `ban`, which may be another one than its operator means.
//!
//! ```text
//! ban api.search 203.0.113.9:443       bans the domain of this name, and no address
//! ban api.search ::ffff:10.44.0.1      bans 10.44.0.1, as gateways pass it
//! ```
//!
//! Knows nothing of aggregators. What stays true: a remark refuses nothing, since any text may be a domain's name.

use tollgate_shared::escape::escaped;
use tollgate_shared::networks::{NetworkName, is_wide, network, network_of_domain};

/// That a domain, which looks like an address or a network, is a name; `None` if it is one of them, or looks like
/// neither. The aggregator refuses those with a wrong prefix length.
pub(super) fn as_a_name(domain: &str) -> Option<String> {
    if network_of_domain(domain).is_some() || network(domain) != NetworkName::Other {
        return None;
    }
    if domain.trim() != domain {
        return Some(format!(
            "\"{}\" is taken as a domain's name, with the blanks at its ends",
            escaped(domain)
        ));
    }
    // Letters and `-` alone make up names, as of UUIDs.
    let is_written_so = domain.contains(['.', ':', '/', '['])
        && domain.contains(|c: char| c.is_ascii_digit() || c == ':')
        && { domain.chars() }
            .all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '-' | '/' | '[' | ']'));
    (is_written_so || domain.contains('*')).then(|| {
        format!(
            "{} is taken as a domain's name: an address is written as in 203.0.113.9 or 2001:db8::1, a network as in \
             10.0.0.0/8",
            escaped(domain)
        )
    })
}

/// That a ban of a single address is of its canonical spelling, if the domain is another one.
pub(super) fn respelt(domain: &str) -> Option<String> {
    let of = network_of_domain(domain).filter(|of| !is_wide(of))?;
    let canonical = of.addr().to_string();
    (canonical != domain).then(|| {
        format!(
            "{canonical} is banned: callers that pass {} are not, unless a network with it is banned",
            escaped(domain)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_an_address_or_a_network_is_noticed() {
        for text in [
            "10/8",
            "10.0.0/8",
            "10/",
            "2001:db8/32",
            "203.0.113.0-203.0.113.255",
            "203.0.113.9:443",
            "[2001:db8::1]",
            "010.1.2.3",
            "10.*",
            " acme",
            "10.1.2.3 ",
        ] {
            assert!(as_a_name(text).is_some(), "{text}");
        }
        for text in [
            "10.0.0.0/8",
            "2001:db8::/32",
            // Refused by the aggregator.
            "10.0.0.0/99",
            "10.1.2.3/8",
            "acme/8",
            "10.1.2.3",
            "a/b",
            "dead.beef",
            "4711",
            "123e4567-e89b-12d3-a456-426614174000",
        ] {
            assert_eq!(as_a_name(text), None, "{text}");
        }
    }

    #[test]
    fn a_ban_of_another_spelling_of_an_address_is_noticed() {
        let text = respelt("::ffff:10.44.0.1").expect("it is respelt");
        assert!(text.starts_with("10.44.0.1 is banned"), "{text}");
        assert!(respelt("2001:DB8::1").is_some());
        for text in ["10.44.0.1", "2001:db8::1", "2001:DB8::/32", "acme"] {
            assert_eq!(respelt(text), None, "{text}");
        }
    }
}
