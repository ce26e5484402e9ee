//! Names of domains that are networks or addresses, in canonical spelling.
//!
//! ```text
//! "2001:DB8::/32"    2001:db8::/32            "10.0.0.7", limited by /24     10.0.0.0/24
//! "10.0.0.7/24"      a fault: bits of a host  "acme"                         acme
//! ```
//!
//! Knows nothing of documents. What stays true: two names of one network have one canonical spelling.

use std::borrow::Cow;

use tollgate_shared::networks::{AddressPrefixes, NetworkName, NetworkText, address, network};

use super::fault::FaultKind;

/// The canonical spelling of a domain that may be a network, regardless of a resource.
///
/// # Errors
///
/// If the name looks like a network, but is not a valid one.
pub fn spelt_domain(name: &str) -> Result<Cow<'_, str>, FaultKind> {
    domain_of(name, None)
}

/// The domain that a name in a document stands for: a network in canonical spelling, an address as the
/// resource limits it, otherwise the name itself.
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
                _ => Cow::Borrowed(name),
            });
        }
    };
    if let Some(addresses) = addresses {
        let limited = addresses.network_of(found.addr());
        if limited.prefix_len() < found.prefix_len() {
            return Err(FaultKind::NarrowNetwork {
                limited: text.write(limited).into(),
            });
        }
    }
    Ok(own(text.write(found)))
}
