//! The domain's name behind a call: the caller's name for it, or a keyed hash of that name.
//!
//! ```text
//! acme                      no key: limited, recorded and denied as "acme"
//! acme ── domain key ──>    h~5f2c1e~0c41…, everywhere behind the call
//! 2001:DB8::7               2001:db8::/64, where the resource limits addresses by their networks
//! ```
//!
//! Knows nothing of limits. What stays true: with a domain key, every name is hashed, including a name that looks
//! like a hash. So no caller can pass for another domain by choosing a name.

use std::borrow::Cow;
use std::ops::Deref;

use tollgate_shared::domain_key::HashedDomain;
use tollgate_shared::names::{NAME_BYTES_MAX, admit_domain};
use tollgate_shared::networks::{AddressPrefixes, NetworkText};

use crate::shared::Shared;

/// The name under which a domain is limited.
pub(crate) enum Admitted<'d> {
    /// The domain's own name, or a replacement if that name is not valid.
    Named(Cow<'d, str>),
    /// The network of the address that the domain is.
    Network(NetworkText),
    /// The hash of the domain.
    Hashed(HashedDomain),
}

impl Shared {
    /// The name under which a caller's domain is limited. Allocates only for names above the bound.
    pub(crate) fn admit<'d>(&self, domain: &'d str) -> Admitted<'d> {
        let named = admit_domain(domain);
        match &self.domain_key {
            None => Admitted::Named(named),
            Some(key) => Admitted::Hashed(key.hash(&named)),
        }
    }

    /// Like [`Shared::admit`], for a resource that limits addresses by their networks. The network is hashed, so that
    /// all addresses of a network have one hash.
    pub(crate) fn admit_address<'d>(
        &self,
        addresses: AddressPrefixes,
        domain: &'d str,
    ) -> Admitted<'d> {
        let mut text = NetworkText::default();
        let named = addresses.domain_of(domain, &mut text);
        if std::ptr::eq(named, domain) {
            return self.admit(domain);
        }
        match &self.domain_key {
            None => Admitted::Network(text),
            Some(key) => Admitted::Hashed(key.hash(named)),
        }
    }

    /// Whether a domain is limited under its own name. If not, [`Shared::admit`] gives the name.
    #[inline]
    pub(crate) fn is_itself(&self, domain: &str) -> bool {
        self.domain_key.is_none() && is_ordinary(domain)
    }
}

#[inline]
fn is_ordinary(domain: &str) -> bool {
    let bytes = domain.len();
    (2..=NAME_BYTES_MAX).contains(&bytes) || bytes == 1 && domain != "*"
}

impl Deref for Admitted<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Network(text) => text.as_str(),
            Self::Hashed(hash) => hash.as_str(),
        }
    }
}
