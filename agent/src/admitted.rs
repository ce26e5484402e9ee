//! What a caller's domain is called from the call on: itself, or a keyed hash of it.
//!
//! ```text
//! acme                      no key: limited, recorded and denied as "acme"
//! acme ── domain key ──>    h~5f2c1e~0c41…, everywhere behind the call
//! 2001:DB8::7               2001:db8::/64, where the resource limits addresses by their networks
//! ```
//!
//! Knows nothing of limits. What stays true: with a key no name of a caller gets past this gate, one that
//! looks like a hash included: nobody is taken for another by what he calls himself.

use std::borrow::Cow;
use std::ops::Deref;

use tollgate_shared::domain_key::HashedDomain;
use tollgate_shared::names::{NAME_BYTES_MAX, admit_domain};
use tollgate_shared::networks::{AddressPrefixes, NetworkText};

use crate::shared::Shared;

/// A domain as it is limited.
pub(crate) enum Admitted<'d> {
    /// By its name, or what stands for a name that none can be.
    Named(Cow<'d, str>),
    /// By the network of the address that it is.
    Network(NetworkText),
    /// By its hash.
    Hashed(HashedDomain),
}

impl Shared {
    /// What a caller's domain is limited as. Allocates only for names above the bound.
    pub(crate) fn admit<'d>(&self, domain: &'d str) -> Admitted<'d> {
        let named = admit_domain(domain);
        match &self.domain_key {
            None => Admitted::Named(named),
            Some(key) => Admitted::Hashed(key.hash(&named)),
        }
    }

    /// The same of a resource that limits addresses by their networks. What is hashed is the network, so that
    /// all addresses of one have one hash.
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

    /// Whether a domain is limited under its own name; anything else is for [`Shared::admit`] to say.
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
