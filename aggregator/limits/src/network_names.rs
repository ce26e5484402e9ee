//! Names of domains that are networks or addresses, in canonical spelling.
//!
//! ```text
//! "2001:DB8::/32"    2001:db8::/32            "10.0.0.7", limited by /24     10.0.0.0/24
//! "2001:DB8::1"      2001:db8::1              "::ffff:10.0.0.7"              10.0.0.7
//! "10.0.0.7/24"      a fault: bits of a host  "acme"                         acme
//! ```
//!
//! Knows nothing of documents. What stays true: two names of one network, or of one address, have one
//! canonical spelling.

use std::borrow::Cow;

use ipnet::IpNet;
use tollgate_shared::networks::{AddressPrefixes, NetworkName, NetworkText, address, network};

use super::fault::FaultKind;

/// The canonical spelling of a domain that may be a network or an address, regardless of a resource.
///
/// # Errors
///
/// If the name looks like a network, but is not a valid one.
pub fn spelt_domain(name: &str) -> Result<Cow<'_, str>, FaultKind> {
    domain_of(name, None)
}

/// The domain that a name in a document or a row stands for: a network or an address in canonical spelling, an
/// address as the resource limits it if it has `addresses`, otherwise the name itself.
pub(crate) fn domain_of(
    name: &str,
    addresses: Option<AddressPrefixes>,
) -> Result<Cow<'_, str>, FaultKind> {
    let mut text = NetworkText::default();
    let own = |text: &str| match text == name {
        true => Cow::Borrowed(name),
        false => Cow::Owned(text.to_owned()),
    };
    let found = match network(name) {
        NetworkName::Network(found) => found,
        NetworkName::HostBits(expected) => {
            return Err(FaultKind::HostBits {
                expected: text.write(expected).into(),
            });
        }
        NetworkName::Length => return Err(FaultKind::NetworkLength),
        NetworkName::Other => {
            return Ok(match (addresses, address(name)) {
                (Some(addresses), Some(address)) => own(text.write(addresses.network_of(address))),
                (None, Some(address)) => own(text.write(IpNet::from(address))),
                (_, None) => Cow::Borrowed(name),
            });
        }
    };
    if let Some(addresses) = addresses.filter(|of| is_part_of_domain(*of, &found)) {
        let limited = addresses.network_of(found.addr());
        return Err(FaultKind::NarrowNetwork {
            limited: text.write(limited).into(),
        });
    }
    Ok(own(text.write(found)))
}

/// Whether an address or a network is only a part of a domain, where a resource limits addresses so.
pub fn is_part_of_domain(addresses: AddressPrefixes, of: &IpNet) -> bool {
    addresses.network_of(of.addr()).prefix_len() < of.prefix_len()
}

#[cfg(test)]
mod tests {
    use crate::{Limits, Own};

    const DOCUMENT: &str = r#"
[plans]
ops = ["2001:DB8:AA:0::1"]
[rate.api]
rate = "5/m"
plans = { ops = { rate = "12/m" } }
[rate.api.domains]
"2001:db8::/32" = { rate = "3/m" }
"2001:DB8::1" = { rate = "1/m" }
"198.51.100.0/24" = { rate = "8/m" }
"198.51.100.7" = { rate = "2/m" }
[rate.web]
rate = "5/m"
domains = { "::ffff:198.51.100.7" = { rate = "1/m" } }
[copies.jobs]
limit = 4
domains = { "2001:DB8::1" = 1, "2001:db8::/32" = 3 }
"#;

    fn limit(limits: &Limits, resource: &str, domain: &str) -> u64 {
        let class = limits.class_of(resource, domain).expect("a rate");
        class.windows[0].limit
    }

    #[test]
    fn an_entry_of_an_address_applies_to_each_spelling() {
        let limits = Limits::parse(DOCUMENT).expect("a document");
        for (resource, domain, expected) in [
            ("api", "2001:db8::1", 1),
            ("api", "2001:DB8:0::1", 1),
            ("api", "2001:db8::2", 3),
            ("api", "2001:db8:aa::1", 12),
            ("api", "198.51.100.7", 2),
            ("api", "::ffff:198.51.100.7", 2),
            ("api", "::ffff:198.51.100.8", 8),
            // Without any network.
            ("web", "198.51.100.7", 1),
            ("web", "::FFFF:198.51.100.7", 1),
            ("web", "198.51.100.8", 5),
        ] {
            assert_eq!(limit(&limits, resource, domain), expected, "{domain}");
        }
        let jobs = limits.copies("jobs").expect("copies");
        assert_eq!(jobs.limit_of("2001:db8::1"), 1);
        assert_eq!(jobs.limit_of("2001:DB8:0::1"), 1);
        let printed = limits.normalised_text();
        assert!(printed.contains("\"2001:db8::1\"") && !printed.contains("DB8"));
    }

    #[test]
    fn a_row_of_an_address_applies_to_each_spelling() {
        let limits = Limits::parse(DOCUMENT).expect("a document");
        let own = Own {
            rate: Some("9/m".into()),
            ..Own::default()
        };
        let set = limits.with_own("web", "2001:DB8:0::7", Some(&own));
        let set = set.expect("a row");
        for spelling in ["2001:db8::7", "2001:DB8:0::7"] {
            assert_eq!(limit(&set, "web", spelling), 9, "{spelling}");
        }
        let removed = set.with_own("web", "2001:0db8::7", None);
        assert_eq!(limit(&removed.expect("no row"), "web", "2001:db8::7"), 5);
    }

    #[test]
    fn two_spellings_of_an_address_are_a_fault() {
        let document = "[rate.api]\nrate = \"5/m\"\n[rate.api.domains]\n\
            \"2001:DB8::1\" = { rate = \"1/m\" }\n\"2001:db8:0::1\" = { rate = \"2/m\" }\n";
        let faults = Limits::parse(document).expect_err("two entries");
        let expected = "stands in this table twice: another entry is also \"2001:db8::1\"";
        assert!(faults.to_string().contains(expected), "{faults}");
    }
}
